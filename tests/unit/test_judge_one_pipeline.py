"""One way to a verdict: what every product test settles on is what `verify` finds in the packet that the run left."""

from __future__ import annotations

import copy
import fnmatch
import importlib.util
import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from judge_rows import packet_rows
from test_judge_checks import CORPUS

from fixtures.evidence.packet import PacketWriter
from fixtures.evidence.plugin import Evidence
from fixtures.evidence.verify import verify
from fixtures.judge.finding import Finding, Outcome
from fixtures.judge.rows import RowList
from fixtures.lanes.lane import REPOSITORY
from fixtures.run.findings import Findings, Labelled

OWN_RUNS = ("test_false_alarms", "test_null_control")
"""Instruments tried on themselves: they judge runs of their own, from rows of their own."""
RECORDED = ("needle", "ladder", "at once", "soak", "samples", "programme", "control", "pass of the candidate")
"""What a run that asks everything leaves beside parity and speed."""
RUNS = {"sound": (), "wrong": ("wrong id", "recorded answers", "counters that do not add up")}
SUITES = SimpleNamespace(
    parity="suite", canaries="canaries", needle="suite", needle_deep=None, perf="suite", holdout="suite"
)


class Asking(Findings):
    """Findings that remember what they were asked and what they gave."""

    def __init__(self, rows: RowList) -> None:
        super().__init__(rows.rows)
        self.asked: list[tuple[set[str], set[str] | None, tuple[Finding, ...]]] = []

    def of(self, *checks: str, arms: Iterable[Labelled] | None = None) -> tuple[Finding, ...]:
        named = None if arms is None else list(arms)
        found = super().of(*checks, arms=named)
        labels = None if named is None else {arm.label for arm in named}
        self.asked.append((set(checks), labels, found))
        return found


def product_tests() -> list[tuple[str, str]]:
    """File and name of every test that judges what a server said."""
    found = []
    for path in sorted((REPOSITORY / "tests").glob("[qp]*/test_*.py")):
        if path.parent.name in ("quality", "perf") and path.stem not in OWN_RUNS:
            source = path.read_text(encoding="utf-8")
            named = [line.split("(")[0][4:] for line in source.splitlines() if line.startswith("def test_")]
            found += [(str(path.relative_to(REPOSITORY)), name) for name in named]
    return found


def loaded(path: str) -> ModuleType:
    """A test file as a module, with everything that would ask a server taken out."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, REPOSITORY / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, value in list(vars(module).items()):
        asks = getattr(value, "__module__", None) or getattr(value, "__name__", "")
        if (inspect.isfunction(value) or inspect.ismodule(value)) and str(asks).startswith(
            ("fixtures.workload", "fixtures.diagnosis", "fixtures.prompts", "fixtures.request")
        ):
            setattr(module, name, MagicMock(name=name))
    return module


def arguments(test: Callable[..., None], findings: Asking) -> dict[str, Any]:
    """Fixtures for a test whose answers have been recorded already."""
    arm = {
        name: SimpleNamespace(label=name) for name in ("target#1", "target#2", "candidate#1", "candidate#2")
    }
    given: dict[str, Any] = {
        "findings": findings,
        "lane": SimpleNamespace(name="canary-cpu", suites=SUITES, thresholds=MagicMock(canary_repeats=2)),
        "target": arm["target#1"],
        "target_restart": arm["target#2"],
        "candidates": (arm["candidate#1"], arm["candidate#2"]),
        "arm": arm["candidate#1"],
        "evidence": Evidence(None),
        "drawn": {},
    }
    return {name: given.get(name, MagicMock(name=name)) for name in inspect.signature(test).parameters}


def rows_of(changes: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    rows = copy.deepcopy(packet_rows())
    for name in (*RECORDED, *changes):
        CORPUS[name](rows)
    return rows


@pytest.fixture(scope="module", params=RUNS)
def run(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[RowList, list[Finding]]:
    """The rows of a run, and what `verify` finds in the packet that it left."""
    kept, directory = RowList(), tmp_path_factory.mktemp("packets") / "packet"
    writer = PacketWriter.create(directory)
    writer.set_identity({"lane": "canary-cpu"})
    evidence = Evidence(writer)
    for kind, rows in rows_of(RUNS[request.param]).items():
        for row in rows:
            evidence.append(kind, row)
    writer.finish()
    kept.rows = {kind: list(rows) for kind, rows in evidence.rows.items()}
    return kept, list(verify(directory).findings)


@pytest.mark.parametrize(("path", "name"), product_tests(), ids=lambda part: str(part).rpartition("/")[2])
def test_a_product_test_settles_on_what_verify_finds(
    run: tuple[RowList, list[Finding]], path: str, name: str
) -> None:
    """No finding of its own, none left out; and it ends as they came to."""
    rows, verified = run
    test, findings = getattr(loaded(path), name), Asking(rows)
    ended = None
    try:
        test(**arguments(test, findings))
    except pytest.fail.Exception as error:
        ended = str(error)
    assert findings.asked, "it asked nothing of the findings: who judged?"
    worst = []
    for checks, labels, found in findings.asked:
        expected = [
            f
            for f in verified
            if any(fnmatch.fnmatchcase(f.check, check) for check in checks)
            and (labels is None or not f.arm or f.arm in labels)
        ]
        assert sorted(map(repr, found)) == sorted(map(repr, expected))
        worst += [f.outcome for f in found]
    accepted = bool(worst) and set(worst) == {Outcome.ACCEPTED}
    assert (ended is None) == accepted, ended
