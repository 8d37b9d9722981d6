"""The documentation cannot rot: tables are those that the code makes, and every command in it can be given."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from judge_rows import packet_rows
from report_rows import seal

from fixtures.docs import runs
from fixtures.docs.__main__ import main as docs_main
from fixtures.docs.kinds import load_kinds
from fixtures.docs.pages import BLOCKS, README, every_page, made
from fixtures.engine.patch_sets import known_faults
from fixtures.evidence.__main__ import main as evidence_main
from fixtures.judge.checks import require_known
from fixtures.judge.finding import EXIT_CODES
from fixtures.lanes.lane import REPOSITORY, load_lane
from fixtures.options import MARKERS
from fixtures.report.markdown import block_names

DOCUMENTS = sorted(
    [
        README,
        *(REPOSITORY / "docs").rglob("*.md"),
        *REPOSITORY.glob("C*.md"),
        REPOSITORY / "patches" / "README.md",
    ]
)
STANDS_FOR = {"NAME": "canary-cpu", "STACK": "stock", "CANDIDATE": "stock", "URL": "http://127.0.0.1:1/v1"}
"""What the placeholders of commands stand for where something of that kind has to exist."""
STARTS = ("pytest ", "python -m ", "./draftproof", "pip install", "pre-commit", "ruff ", "mypy")


def commands(document: Path) -> list[str]:
    """Command lines in a document's code blocks, without the remarks beside them."""
    found = []
    for line in document.read_text(encoding="utf-8").splitlines():
        text = line.strip()
        if line.startswith("    ") and text.startswith(STARTS):
            found.append(re.split(r"\s+#|\s{3,}", text)[0])
    return found


EVERY = [(d, c) for d in DOCUMENTS for c in commands(d)]
PYTEST = [pytest.param(d, c, id=f"{d.name}: {c}") for d, c in EVERY if c.startswith("pytest")]


def test_the_readme_is_short_enough_to_be_finished() -> None:
    assert len(README.read_text(encoding="utf-8").split()) <= 1500


def test_every_document_is_reached_from_the_readme() -> None:
    """A page that nothing links to is found by nobody."""
    reached: set[Path] = set()
    waiting = [README]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md" or not page.is_file():
            continue
        reached.add(page)
        links = re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8"))
        waiting += [(page.parent / link).resolve() for link in links if "://" not in link]
    assert set(DOCUMENTS) - reached == set()


def test_the_documents_have_commands() -> None:
    assert len(PYTEST) > 20
    assert {d.name for d, _ in EVERY} >= {"README.md", "CONTRIBUTING.md", "gate.md", "speed.md"}


@pytest.mark.parametrize("page", every_page(), ids=lambda p: p.name)
def test_the_generated_parts_are_up_to_date(page: Path) -> None:
    """`python -m fixtures.docs` would change nothing."""
    assert not made(page).stale, f"{page.relative_to(REPOSITORY)} is stale: python -m fixtures.docs"


def test_every_generated_mark_of_the_documents_is_made_by_something() -> None:
    """A block that nothing makes would never be stale."""
    by_runs = {
        "contracts",
        "device",
    }  # of one packet each: python -m fixtures.report.contracts, tools.device_page
    for document in DOCUMENTS:
        names = set(block_names(document.read_text(encoding="utf-8")))
        assert names - by_runs == set(BLOCKS.get(document, ())), document.name


def test_a_stale_page_is_named_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text("# Title\n\n<!-- generated: words -->\nold\n<!-- end -->\n")
    monkeypatch.setattr("fixtures.docs.pages.BLOCKS", {page: {"words": lambda: "new\n"}})
    monkeypatch.setattr("fixtures.docs.pages.PAGES", {})
    monkeypatch.setattr("fixtures.docs.__main__.REPOSITORY", tmp_path)
    assert docs_main(["--check"]) == 1
    assert capsys.readouterr().out == "docs/page.md: stale\n"
    assert docs_main([]) == 0
    assert "\nnew\n<!-- end -->" in page.read_text()
    assert docs_main(["--check"]) == 0


def test_a_page_without_its_block_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n")
    monkeypatch.setattr("fixtures.docs.pages.BLOCKS", {page: {"words": lambda: "new\n"}})
    with pytest.raises(ValueError, match=r"page\.md: expected one line '<!-- generated: words -->'"):
        made(page)


def test_a_packet_without_rows_for_a_page_is_misuse(tmp_path: Path) -> None:
    seal(tmp_path / "packet", packet_rows())
    with pytest.raises(SystemExit, match="2"):
        docs_main(["keep", str(tmp_path / "packet")])


def test_every_kind_names_what_exists() -> None:
    for kind in load_kinds():
        assert set(kind.faults) <= set(known_faults()), kind.name
        require_known(kind.checks, kind.name)
        for test in (*kind.tests, *(f"tests/contracts/test_{family}.py" for family in kind.contracts)):
            assert (REPOSITORY / test).is_file(), f"{kind.name}: {test}"


def test_a_run_is_kept_from_its_packet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = {"torch": {"conv_window": [0, 9]}, "torch!wrong-column": {"conv_window": [3, 6]}}
    rows = {"operation-faults": [{"folder": "tests/contracts", "outcomes": outcomes}]}
    rows |= {
        "contract-speed": [
            {"family": "decode", "subject": "torch", "tests": 1, "whole_s": 1.0, "oracle_s": 0.5}
        ]
    }
    seal(tmp_path / "packet", rows)
    monkeypatch.setattr("fixtures.docs.runs.RUNS", tmp_path)
    assert runs.keep([tmp_path / "packet"]) == [runs.CONTRACTS, runs.SPEED]
    assert "| `wrong-column` | row j is published one column too late | 3 |" in runs.contract_faults()
    assert "| decode | `torch` | 1 | 1.00 | 50% |" in runs.contract_speed()


def test_every_exit_code_is_in_the_reference() -> None:
    text = (REPOSITORY / "docs" / "reference.md").read_text(encoding="utf-8")
    for outcome, code in EXIT_CODES.items():
        assert f"| {outcome.value} | {code} |" in text


@pytest.mark.parametrize(("document", "command"), PYTEST)
def test_every_pytest_command_can_be_given(document: Path, command: str, pytestconfig: pytest.Config) -> None:
    """Its options parse, its marks are known, its paths are there, its lanes and stacks exist.

    Whether what is collected is right is what the tests of each part say.
    """
    words = [STANDS_FOR.get(word, word) for word in shlex.split(command)[1:]]
    given = pytestconfig._parser.parse_known_args(words)
    unknown = [w for w in words if w.startswith("--") and not _is_option(w, pytestconfig)]
    assert not unknown, f"{document.name}: {command}"
    named = set(re.findall(r"[a-z_]+", given.markexpr or "")) - {"and", "or", "not"}
    assert named <= {*MARKERS, "bench_contracts"}, named
    for path in given.file_or_dir:
        assert (REPOSITORY / path.split("::")[0]).exists(), path
    for lane in [*filter(None, [given.lane]), *given.gate_lane]:
        load_lane(lane)


def _is_option(word: str, config: pytest.Config) -> bool:
    name = word.partition("=")[0]
    return (
        re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", config._parser.optparser.format_help())
        is not None
    )


@pytest.mark.parametrize("module", sorted({c.split()[2] for _, c in EVERY if c.startswith("python -m ")}))
def test_every_module_in_a_command_is_there(module: str) -> None:
    spec = importlib.util.find_spec(module)
    assert spec is not None, module
    if spec.submodule_search_locations is not None:
        assert importlib.util.find_spec(f"{module}.__main__") is not None, f"{module} is no command"


def test_the_commands_on_packets_do_what_the_readme_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("A", "B"):
        seal(tmp_path / name, packet_rows(), run_id=name)
    shown = [c for c in commands(README) if c.startswith("python -m fixtures.evidence")]
    assert {c.split()[3] for c in shown} == {"verify", "report", "compare", "index"}
    places = {"PACKET": tmp_path / "A", "A": tmp_path / "A", "B": tmp_path / "B", "DIR": tmp_path}
    for command in shown:
        assert evidence_main([str(places.get(word, word)) for word in command.split()[3:]]) == 0, command
    assert "accepted (" in capsys.readouterr().out
    assert {p.name for p in tmp_path.glob("*.html")} == {"A--B.html", "index.html"}


def test_the_doctor_says_what_can_run_here() -> None:
    """The README's first question to a machine, asked for real; whatever the machine, it answers in full."""
    command = [sys.executable, "-m", "pytest", "--doctor"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode in (0, 1), done.stderr
    state = "can run here" if done.returncode == 0 else "cannot run here"
    lines = done.stdout.splitlines()
    assert lines[0].startswith("next: "), "the first line says what to type"
    assert lines[1] == f"default lane canary-cpu: {state}"
    for group in ("this machine", "engines", "lanes for other machines"):
        assert group in lines, group
