"""A file that cannot be used says where: the line of the very value, also in the seventh element of a list."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fixtures.evidence.records import RECORDS, load_record
from fixtures.lanes.lane import LANES, load_lane
from fixtures.parsing import BadInput
from fixtures.prompts.suite import SUITES, load_suite


def line_of(path: Path, text: str, nth: int = 1) -> int:
    return [n for n, line in enumerate(path.read_text().splitlines(), 1) if text in line][nth - 1]


def message(error: pytest.ExceptionInfo[BadInput]) -> str:
    return str(error.value)


def test_a_suite_with_one_wrong_cap_names_the_line_of_that_prompt(tmp_path: Path) -> None:
    data = json.loads((SUITES / "canary-perf.json").read_text())
    data["prompts"][6]["max_tokens"] = 0
    path = tmp_path / "suite.json"
    path.write_text(json.dumps(data, indent=2))
    with pytest.raises(BadInput) as error:
        load_suite(str(path))
    assert message(error).startswith(f"{path}:{line_of(path, 'max_tokens', 7)}: prompts.6.max_tokens: ")


def test_a_prompt_that_lacks_a_field_names_the_line_where_it_begins(tmp_path: Path) -> None:
    data = json.loads((SUITES / "canary-perf.json").read_text())
    del data["prompts"][2]["class"]
    path = tmp_path / "suite.json"
    path.write_text(json.dumps(data, indent=2))
    with pytest.raises(BadInput) as error:
        load_suite(str(path))
    begins = line_of(path, '"id": "perf-copy-3"') - 1
    assert message(error).startswith(f"{path}:{begins}: prompts.2.class: Field required")


def test_a_suite_on_one_line_and_a_text_with_braces_are_read_right(tmp_path: Path) -> None:
    data = json.loads((SUITES / "canary-warmup.json").read_text())
    data["prompts"][0]["user"] = 'say {"max_tokens": [1, "}'
    data["prompts"][1]["id"] = ""
    path = tmp_path / "suite.json"
    path.write_text(json.dumps(data) + "\n")
    with pytest.raises(BadInput, match=r":1: prompts\.1\.id: "):
        load_suite(str(path))


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("devices = 2", "devices = 0", "topology.devices"),
        (
            "num_speculative_tokens = 3",
            'num_speculative_tokens = "three"',
            "speculation.num_speculative_tokens",
        ),
        ("same_window_band = 0.015", "same_window_band = 1.5", "thresholds.same_window_band"),
        ('perf = "chat-parity"', 'speed = "chat-parity"', "suites.speed"),
    ],
)
def test_a_lane_with_one_wrong_value_names_its_line(tmp_path: Path, old: str, new: str, field: str) -> None:
    path = tmp_path / "b70-tp2.toml"
    path.write_text((LANES / "b70-tp2.toml").read_text().replace(old, new))
    with pytest.raises(BadInput) as error:
        load_lane(str(path))
    assert message(error).startswith(f"{path}:{line_of(path, new)}: {field}: ")


def test_a_record_with_one_wrong_rate_names_the_line_of_that_entry(tmp_path: Path) -> None:
    data = json.loads((RECORDS / "b70-tp2.json").read_text())
    data["history"][2]["rate"]["tok_s"] = -1
    path = tmp_path / "b70-tp2.json"
    path.write_text(json.dumps(data, indent=2))
    with pytest.raises(BadInput) as error:
        load_record("b70-tp2", tmp_path)
    line = line_of(path, '"tok_s": -1')
    assert message(error).startswith(f"{path}:{line}: history.2.rate.tok_s: ")


@pytest.mark.parametrize("kind", ["suite", "lane", "record"])
def test_a_file_that_is_cut_off_says_where_it_stops_being_one(tmp_path: Path, kind: str) -> None:
    source = {
        "suite": SUITES / "canary-perf.json", "lane": LANES / "b70-tp2.toml", "record": RECORDS / "b70-tp2.json"
    }[kind]  # fmt: skip
    text = source.read_text()
    path = tmp_path / source.name
    path.write_text(text[: text.index("[", len(text) // 2)] + "[")
    with pytest.raises(BadInput, match=r"not (JSON|TOML): .*|:\d+: not JSON") as error:
        {"suite": load_suite, "lane": load_lane}.get(kind, lambda _: load_record("b70-tp2", tmp_path))(
            str(path)
        )
    assert str(path) in message(error)
    assert "line" in message(error) or f"{path}:" in message(error)
