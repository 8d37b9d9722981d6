"""Cold speed: fresh servers, every prompt once, nothing cached, ids counted, and parity of the very same answers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fixtures.arms.servers import Arm
from fixtures.client.transcript import Transcript
from fixtures.evidence.plugin import settle
from fixtures.judge.freshness import judge_freshness
from fixtures.judge.parity import Role, judge_parity
from fixtures.judge.rows import Purpose
from fixtures.judge.speed import judge_speed
from fixtures.lanes.lane import Lane
from fixtures.workload.recordings import Recordings

pytestmark = pytest.mark.perf


@pytest.fixture(scope="module")
def measured(
    lane: Lane,
    target: Arm,
    target_restart: Arm,
    candidates: tuple[Arm, ...],
    recordings: Recordings,
    request: pytest.FixtureRequest,
) -> Sequence[Transcript]:
    """The speed suite on every arm, sent while its server was fresh; the target first, then the A/B window if any."""
    assert lane.suites.perf is not None, f"lane {lane.name} has no perf suite"
    recordings.of(target, lane.suites.perf, Purpose.MEASURED)
    request.getfixturevalue("window")
    return [
        t
        for arm in (target, *candidates, target_restart)
        for t in recordings.of(arm, lane.suites.perf, Purpose.MEASURED)
    ]


def test_every_measured_request_was_cold_and_complete(
    lane: Lane, measured: Sequence[Transcript], recordings: Recordings
) -> None:
    """`cached_tokens` 0 on each request, no prefix-cache hit, each prompt once, the full suite, ids counted."""
    suite = recordings.suite(lane.suites.perf or "")
    spans = [span for (_, purpose), span in recordings.spans.items() if purpose is Purpose.MEASURED]
    settle(judge_freshness(measured, spans, {suite.name: [p.id for p in suite.prompts]}))


@pytest.mark.timed
def test_the_speed_is_that_of_the_target_models_answers(
    lane: Lane,
    target: Arm,
    target_restart: Arm,
    candidates: tuple[Arm, ...],
    measured: Sequence[Transcript],
    recordings: Recordings,
    record_property: object,
) -> None:
    """A headline exists only beside coldness and token-exact parity of the same transcripts, over two starts."""
    suite = recordings.suite(lane.suites.perf or "")
    prompts = {suite.name: [p.id for p in suite.prompts]}
    spans = [span for (_, purpose), span in recordings.spans.items() if purpose is Purpose.MEASURED]
    labels = {arm.label for arm in candidates}
    timed = [t for t in measured if t.arm in labels]
    roles = {target.label: Role.TARGET, target_restart.label: Role.TARGET} | dict.fromkeys(
        labels, Role.CANDIDATE
    )
    report = judge_speed(
        timed,
        freshness=judge_freshness(timed, [s for s in spans if s.arm in labels], prompts),
        parity=judge_parity(measured, roles, prompts=prompts, require_candidates=len(candidates)).findings,
        min_arms=lane.thresholds.perf_attempts,
        min_ids=lane.thresholds.perf_min_ids,
    )
    record_property("headline_tok_s", report.headline_tok_s)  # type: ignore[operator]
    settle(report.findings)
    assert report.headline_tok_s is not None
