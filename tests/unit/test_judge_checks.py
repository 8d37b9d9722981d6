"""The registry of checks: nothing is emitted that is not in it, everything in it can be emitted, typos are refused."""

from __future__ import annotations

import ast
import copy
import tomllib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from judge_rows import packet_rows, span, suite_of, transcript

from fixtures.judge.cause import by_cause, stage_of, stage_outcomes
from fixtures.judge.checks import CHECKS, FILE, UnknownCheck, place_of, read_checks, require_known
from fixtures.judge.finding import Finding, Outcome
from fixtures.judge.judges import JUDGES, Judge
from fixtures.judge.judges.noted import NOTED
from fixtures.judge.run import Run
from fixtures.judge.verdict import derive
from fixtures.lanes.lane import REPOSITORY
from fixtures.parsing import BadInput

Rows = dict[str, list[dict[str, Any]]]


def measured(rows: Rows, number: int, arm: str = "candidate#1") -> dict[str, Any]:
    """The row of one measured answer."""
    return [r for r in rows["transcript"] if r["arm"] == arm and r["purpose"] == "measured"][number]


def say(rows: Rows, number: int, **fields: Any) -> None:
    """Another measured answer of the first candidate, as a fault in the server would have given it."""
    row = measured(rows, number)
    row |= fields
    row.pop("output_sha256", None), row.pop("prompt_sha256", None)


def wrong_id(rows: Rows) -> None:
    ids = list(measured(rows, 3)["token_ids"])
    ids[50] = 499
    say(rows, 3, token_ids=ids)


def scored(gap_nats: float, *, top: int = 18, **more: Any) -> Callable[[Rows], None]:
    """A wrong id, and what the target thinks there."""

    def change(rows: Rows) -> None:
        wrong_id(rows)
        right, at = transcript("p3").token_ids[50], min(-0.7, -0.7 + gap_nats)
        tail = {str(600 + i): -25.0 for i in range(top)}
        logprobs = {str(right): at, "499": at - gap_nats} | tail
        row = {"arm": "target#1", "candidate_arm": "candidate#1", "suite": "suite", "prompt_id": "p3"}
        rows["score"] = [row | {"position": 50, "logprobs": logprobs} | more]

    return change


def with_pass(role: str, of: str, ids: list[int] | None) -> Callable[[Rows], None]:
    """A pass in another batch shape over the server of an arm, whose first answer may be another one."""

    def change(rows: Rows) -> None:
        label = f"{of}/4-at-once"
        rows["arm"].append({"arm": label, "role": role, "speculation": None, "of": of})
        for n, said in enumerate(suite_of(label)):
            changed = (
                transcript(said.prompt_id, label, ids=ids, prompt_class=said.prompt_class) if ids else said
            )
            rows["transcript"].append((changed if n == 3 else said).to_row() | {"purpose": "parity"})

    return change


def sampled(shift: int, deviation: str = "") -> Callable[[Rows], None]:
    def change(rows: Rows) -> None:
        for arm, of in (("target#1", 0), ("candidate#1", shift)):
            known = {"deviation": {"id": deviation}} if deviation and of == shift else {}
            random = Random(1)
            answers = [[random.randint(1, 3) + of for _ in range(24)] for _ in range(600)]
            rows.setdefault("sample", []).append({"arm": arm, "prompt": "p", "answers": answers} | known)
        rows["counters"].append(span("candidate#1", "sample").to_row())
        heads = [{"5": -0.7, "9": -0.7}]
        rows["greedy"] = [{"arm": "candidate#1", "token_ids": [9], "heads": heads}]

    return change


def asked_for(purpose: str, **more: Any) -> Callable[[Rows], None]:
    """One more answer of the candidate, for a purpose."""

    def change(rows: Rows) -> None:
        for n in range(12):
            said = transcript("p1", order=900 + n, prompt_class="prose", **more)
            rows["transcript"].append(said.to_row() | {"purpose": purpose})
        rows["level"] = [
            {"arm": "candidate#1", "suite": "suite", "at_once": 4, "first_order": 900, "count": 12}
        ]

    return change


def with_tests(*outcomes: str) -> Callable[[Rows], None]:
    return lambda rows: rows["test"].extend(
        {"nodeid": f"t::{o}", "stage": "quality", "outcome": o, "required": True} for o in outcomes
    )


def control(rows: Rows) -> None:
    for n in (1, 2):
        rows["arm"].append({"arm": f"control#{n}", "role": "control", "speculation": {"method": "mtp"}})
        rows["transcript"] += [t.to_row() | {"purpose": "measured"} for t in suite_of(f"control#{n}")]


def contract(**fields: Any) -> Callable[[Rows], None]:
    return lambda rows: rows["contract"][0].update(fields)


DEVIATION = {"deviation": {"id": "x", "bound": 1.0}}
CORPUS: dict[str, Callable[[Rows], object]] = {
    "sound": lambda rows: None,
    "unreadable": lambda rows: rows["arm"].append({"arm": "x"}),
    "two lanes": lambda rows: rows["lane"].append({"name": "other"}),
    "no lane": lambda rows: rows["lane"].clear(),
    "no suite": lambda rows: rows["suite"].clear(),
    "two launches": lambda rows: rows["arm"].append(rows["arm"][0] | {"launch_digest": "other"}),
    "no arm": lambda rows: rows["arm"].pop(),
    "no arms": lambda rows: rows["arm"].clear(),
    "one target": lambda rows: rows["arm"].pop(1),
    "trace without an answer": lambda rows: rows.update(trace=[_trace()]),
    "deviation": contract(mismatches=1, max_abs_error=0.5, **DEVIATION),
    "stale deviation": contract(**DEVIATION),
    "code": lambda rows: rows.update(judged_code=[_judged_code()], patch_coverage=[_coverage()]),
    "tests": with_tests("failed", "error", "inconclusive", "pending", "skipped"),
    "canary without an answer": lambda rows: rows["suite"].pop(),
    "needle": lambda rows: (
        asked_for("needle")(rows),
        rows["suite"][0]["prompts"][1].update(expect="found"),
    ),
    "replacement of nothing": lambda rows: rows.update(
        replacement=[{"arm": "candidate#1", "suite": "suite", "prompt_id": "p1", "by": "none", "reason": "r"}]
    ),
    "ending": asked_for("ending"),
    "ladder": asked_for("ladder"),
    "at once": asked_for("concurrent"),
    "soak": asked_for("soak"),
    "samples": sampled(0),
    "other samples, known": sampled(5, "x"),
    "samples, stale": sampled(0, "x"),
    "programme": lambda rows: rows.update(
        programme=[{"arm": "candidate#1", "suite": "", "purpose": "measured", "right": [20, 30, 30, 20]}]
    ),
    "draft programme": lambda rows: rows.update(
        draft_programme=[
            {"arm": "candidate#1", "programme": "empty", "steps": [3, -1, 0], "ragged": False, "drafts": 3}
        ]
    ),
    "trial of one stack": lambda rows: rows.update(trial=[_trial(None)]),
    "trial of a slower stack": lambda rows: rows.update(trial=[_trial(0.8)]),
    "counters that do not add up": lambda rows: rows["counters"][0]["after"].update(accepted_tokens=7),
    "recorded answers": lambda rows: rows["suite"][0]["prompts"][0].update(answer_ids=[1, 2]),
    "wrong id": wrong_id,
    "near tie": scored(0.0625),
    "wrong token": scored(9.0),
    "placed": scored(9.0, rounds=[[3, 3]] * 12 + [[3, 0]] * 2),
    "corruption": scored(90.0, top=40),
    "unscored": scored(-9.0),
    "early end": lambda rows: say(rows, 3, token_ids=measured(rows, 3)["token_ids"][:50]),
    "late end": lambda rows: say(rows, 3, token_ids=[*measured(rows, 3)["token_ids"], 7]),
    "other text": lambda rows: say(rows, 3, content="other"),
    "no ids": lambda rows: say(rows, 3, token_ids=[], receipt_ns=[]),
    "missing answer": lambda rows: rows["transcript"].remove(measured(rows, 3)),
    "pass of the candidate": with_pass("shaped", "candidate#1", [1, 2, 3]),
    "pass of the target": with_pass("null", "target#1", None),
    "arithmetic": lambda rows: (
        wrong_id(rows),
        with_pass("null", "target#1", list(measured(rows, 3)["token_ids"]))(rows),
    ),
    "control": control,
    "record": lambda rows: rows.update(
        record=[{"lane": "canary-cpu", "entry": "e", "interval_tok_s": 100.0, "band": 0.01}]
    ),
}
"""Changes to a sound run; together they make every judge say everything that it can say."""


def _trace() -> dict[str, Any]:
    packed = "eJwDAAAAAAE="
    named = {"arm": "x", "suite": "s", "prompt_id": "p", "order": 0, "purpose": "measured"}
    return named | {
        "sent_ns": 0,
        "done_ns": 1,
        "read_bytes": [],
        "read_offset_ns": [],
        "error": None,
        "raw_zlib_base64": packed,
    }


def _trial(ratio: float | None) -> dict[str, Any]:
    return {"suite": "suite", "candidate": ["candidate#1"], "control": ["candidate#2"], "ratio": ratio}


def _judged_code() -> dict[str, Any]:
    return {
        "engine": "e",
        "stack": "s",
        "discrepancies": [],
        "package": "p",
        "overlay_digest": "d",
        "tree_sha256": "t",
        "modules": 1,
        "libraries": 1,
    }


def _coverage() -> dict[str, Any]:
    return {"file": "f.py", "function": "f", "changed": [1], "executed": [1], "contracts": 1, "example": "c"}


OF_OTHERS = ("gaps", "generated traffic", "departures", "logprobs")
"""Judges whose own tests show what they can say."""
OF_OTHER_TESTS = ("acceptance.over_time", "acceptance.reference")
"""Checks of the other judges that tests of their own show."""


def emitted() -> set[str]:
    names: set[str] = set()
    for change in CORPUS.values():
        rows = copy.deepcopy(packet_rows())
        change(rows)
        names |= {f.check for f in derive(rows).findings}
    return names


def test_every_check_of_a_judge_can_be_emitted() -> None:
    """A check that nothing can emit is a promise that nobody keeps."""
    said = emitted()
    silent = {
        judge.name: sorted(set(judge.checks) - said)
        for judge in JUDGES
        if judge is not NOTED
        and judge.name not in OF_OTHERS
        and set(judge.checks) - said.union(OF_OTHER_TESTS)
    }
    assert not silent


def test_every_other_check_is_made_somewhere_in_the_code() -> None:
    judged = {name for judge in JUDGES if judge is not NOTED for name in judge.checks}
    literals = {
        node.value
        for path in (REPOSITORY / "fixtures").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    made_of_parts = {"foreign.parity", "foreign.restarts"} | {
        c.name for c in CHECKS if c.name.startswith("not shown.")
    }
    unmade = {c.name for c in CHECKS} - judged - literals - made_of_parts
    assert not unmade


def test_a_finding_of_a_check_that_nobody_registered_is_an_error() -> None:
    with pytest.raises(
        UnknownCheck, match=r"'parity.divergd' is not registered .* did you mean 'parity.diverged'"
    ):
        Finding("parity.divergd", Outcome.REJECTED, "a typo")


def test_a_judge_may_only_find_what_it_declares() -> None:
    judge = Judge("some", ("parity.exact",), lambda run: [Finding("parity.diverged", Outcome.REJECTED, "x")])
    with pytest.raises(UnknownCheck, match=r"judge some made a finding of .parity\.diverged."):
        judge.findings(Run({}))


def test_a_typo_is_refused_with_the_names_that_there_are() -> None:
    require_known(["parity", "parity.diverged", "not shown"], "kills")
    with pytest.raises(
        BadInput, match=r"quiet: no such check: 'fresness', did you mean 'freshness'\?; known: .*canary"
    ):
        require_known(["fresness"], "quiet")


def test_a_stored_finding_of_an_unknown_check_is_invalid_evidence() -> None:
    row = {"check": "made.up", "outcome": "rejected", "message": "x"}
    (found,) = [f for f in derive({"finding": [row]}).findings if f.check == "evidence.row"]
    assert found.outcome is Outcome.INVALID


def test_the_registry_reads_as_a_page() -> None:
    names = [c.name for c in CHECKS]
    assert len(set(names)) == len(names)
    assert [c.name for c in CHECKS if not c.meaning.endswith(".") or c.meaning[0].islower()] == []


@pytest.mark.parametrize(
    ("was", "becomes", "said"),
    [
        ('layer = "token"', 'layer = "tokens"', r"no such layer: 'tokens'; known: evidence, identity"),
        ('stage = "canaries"', 'stage = "canary"', r"no such stage: 'canary'; known: records, patches"),
        ('area = "parity"', 'area = "parities"', r"Input should be 'evidence', 'server'"),
        ('checks."parity.exact"', 'checks."parity.diverged"', r"registered twice: parity\.diverged"),
        ('meaning = "Every id equals the target\'s."', 'meaning = "equal"', r"should match pattern"),
        (
            "decides = ",
            "decided = ",
            r"decides: Field required(?s:.*)decided: Extra inputs are not permitted",
        ),
    ],
)
def test_a_registry_with_a_mistake_is_refused_with_the_place_and_what_is_allowed(
    was: str, becomes: str, said: str, tmp_path: Path
) -> None:
    good, bad = FILE.read_text(encoding="utf-8"), tmp_path / "checks.toml"
    bad.write_text(good.replace(was, becomes, 1), encoding="utf-8")
    assert bad.read_text(encoding="utf-8") != good, "the mistake was not made"
    with pytest.raises(BadInput, match=rf"checks\.toml:\d+: (?s:.*){said}"):
        read_checks(bad)


CAUSES = (
    ("evidence.trace", ""),
    ("server.audit", ""),
    ("contract", ""),
    ("parity.wrong_token", ""),
    ("parity.diverged", ""),
    ("canary.answer", ""),
    ("acceptance.programme", ""),
    ("counters.generated", ""),
    ("test.failed", "server"),
    ("speed.control", ""),
    ("test.failed", "parity"),
)
"""Checks and the stages of failed tests, from the cause outwards."""


def test_the_finding_nearest_to_the_cause_comes_first_whatever_came_first() -> None:
    """A test of the API that fails is introduced before a speed, after a token, and a test that repeats it last."""
    found = [Finding(check, Outcome.REJECTED, "", details={"stage": s} if s else {}) for check, s in CAUSES]
    assert list(by_cause(reversed(found))) == found
    assert place_of("parity.corruption") < place_of("parity.diverged")


def test_of_one_check_the_commonest_mechanism_comes_first() -> None:
    points = ["state", "commit", "commit"]
    found = [Finding("parity.wrong_token", Outcome.REJECTED, p, details={"points_at": p}) for p in points]
    assert [f.message for f in by_cause(found)] == ["commit", "commit", "state"]


def test_a_stage_with_a_rejected_finding_did_not_pass() -> None:
    found = [
        Finding("parity.exact", Outcome.ACCEPTED, ""),
        Finding("parity.diverged", Outcome.REJECTED, ""),
        Finding("speed.arm", Outcome.ACCEPTED, ""),
        Finding("evidence.trace", Outcome.INVALID, ""),
        Finding("test.failed", Outcome.REJECTED, "", details={"stage": "server"}),
    ]
    assert stage_of(found[-1]) == "server"
    assert stage_outcomes(found) == {
        "parity": Outcome.REJECTED,
        "speed": Outcome.ACCEPTED,
        "": Outcome.INVALID,
        "server": Outcome.REJECTED,
    }


@pytest.mark.parametrize(
    "path", sorted(Path(REPOSITORY / "patches" / "faults").glob("*/manifest.toml")), ids=str
)
def test_manifests_are_held_to_the_registry_when_they_are_loaded(path: Path) -> None:
    manifest = tomllib.loads(path.read_text(encoding="utf-8"))
    tables = [manifest, *(v for v in manifest.values() if isinstance(v, dict))]
    for table in tables:
        require_known([*table.get("kills", ()), *table.get("quiet", ())], path.parent.name)
