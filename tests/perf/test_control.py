"""A/B: the stack under test against the stack of `--control`, fresh starts of both in one window."""

from __future__ import annotations

import pytest

from fixtures.arms.servers import Arm
from fixtures.client.transcript import Transcript
from fixtures.evidence.plugin import settle
from fixtures.judge.control import judge_control
from fixtures.judge.freshness import judge_freshness
from fixtures.judge.parity import Role, judge_parity
from fixtures.judge.rows import Purpose
from fixtures.lanes.lane import Lane
from fixtures.workload.ab_window import Window
from fixtures.workload.recordings import Recordings

pytestmark = [pytest.mark.perf, pytest.mark.control, pytest.mark.timed]


def test_the_candidate_holds_its_own_against_the_control(
    lane: Lane,
    target: Arm,
    target_restart: Arm,
    candidates: tuple[Arm, ...],
    controls: tuple[Arm, ...],
    window: Window | None,
    recordings: Recordings,
) -> None:
    """A ratio of speeds, of answers that are cold and the target's; what the noise band covers is inconclusive."""
    assert window is not None, f"lane {lane.name} has no perf suite"
    suite = recordings.suite(window.suite)

    def said(arms: tuple[Arm, ...]) -> list[Transcript]:
        return [t for arm in arms for t in recordings.of(arm, suite.name, Purpose.MEASURED)]

    prompts = {suite.name: [p.id for p in suite.prompts]}
    ours, theirs, right = said(candidates), said(controls), said((target, target_restart))
    roles = {a.label: Role.TARGET for a in (target, target_restart)} | {
        a.label: Role.CANDIDATE for a in candidates
    }
    spans = [span for (_, purpose), span in recordings.spans.items() if purpose is Purpose.MEASURED]
    parity = judge_parity([*right, *ours], roles, prompts=prompts, require_candidates=len(candidates))
    finding = judge_control(
        ours,
        theirs,
        lane.thresholds.same_window_band,
        candidates[0].claim,
        slots={a.label: str(recordings.arms.row(a)["slot"]) for a in (*candidates, *controls)},
        shown={"coldness": judge_freshness([*ours, *theirs], spans, prompts), "parity": parity.findings},
    )
    settle([finding])
