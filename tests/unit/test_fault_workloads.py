"""Each fault gets the workloads that can show what its manifest names, and meets what it needs."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer

from fixtures.engine.manifest import NEEDS
from fixtures.engine.patch_sets import engines_of, known_faults, load_fault
from fixtures.fault_injection.plugin import SMOKE
from fixtures.fault_injection.variants import (
    LANE,
    NUMERIC,
    OWN_DRAFTER,
    TRAFFIC,
    VARIANTS,
    drafter_faults,
    faults_in_order,
    numeric_faults,
    traffic_faults,
    variant_arguments,
    variant_of,
)
from fixtures.fault_injection.workloads import BLOCK_IDS, BY_KIND, choose, workloads
from fixtures.lanes.lane import REPOSITORY, load_lane
from fixtures.parsing import BadInput

WORKLOADS = workloads(load_lane(LANE))
TEMPLATE_IDS = 16
"""More than the chat template adds to a question."""
MET_BY_ALL = {
    "partial-acceptance",
    "full-acceptance",
    "ragged-drafts",
    "long-answers",
    "long-prompts",
    "slot-reuse",
    "end-of-turn",
    "no-speculation",
    NUMERIC,  # on a lane that accepts near ties
    OWN_DRAFTER,  # on servers of its own: `tests/faults/test_drafter_faults.py`
    TRAFFIC,  # by generated traffic: `tests/faults/test_traffic_faults.py`
}
"""Needs that the lane, the drafts or the variant meet, whatever is asked."""


@pytest.mark.parametrize(
    "name", [n for n in known_faults() if not {NUMERIC, TRAFFIC} & set(load_fault(n).needs)]
)
def test_every_named_check_and_every_need_has_a_workload(name: str) -> None:
    fault = load_fault(name)
    chosen = choose(WORKLOADS, needs=fault.needs, kills=fault.kills, quiet=fault.quiet)
    shown = {kind for n in chosen for kind in WORKLOADS[n].shows}
    named = {check.partition(".")[0] for check in (*fault.kills, *fault.quiet)}
    assert named <= shown | {"server"}, f"{named - shown} is shown by none of {chosen}"
    offered = {need for n in chosen for need in WORKLOADS[n].offers}
    assert set(fault.needs) - MET_BY_ALL <= offered


def test_needs_are_met_by_a_workload_or_by_all() -> None:
    offered = {need for e in WORKLOADS.values() for need in e.offers}
    assert set(NEEDS) == offered | MET_BY_ALL


def test_faults_that_share_a_server_come_together() -> None:
    variants = [variant_of(load_fault(name)).name for name in faults_in_order()]
    assert len(set(faults_in_order())) == len(variants) >= 20
    assert variants == sorted(variants, key=list(VARIANTS).index)


def test_every_fault_is_tried_on_the_lane_of_its_engine() -> None:
    lanes = (LANE, "canary-cuda-faults")
    tried = [(n, load_lane(lane).engine) for lane in lanes for n in faults_in_order(load_lane(lane))]
    tried += [
        (n, load_lane(lane).engine)
        for lane in lanes
        for n in drafter_faults(load_lane(lane)) + numeric_faults(load_lane(lane))
    ]
    whole = load_lane("canary-cpu")
    tried += [(n, whole.engine) for n in traffic_faults(whole) if TRAFFIC in load_fault(n).needs]
    pins = sorted((n, *pin) for n in known_faults() for pin in engines_of("fault", n))
    assert sorted((n, engine.distribution, engine.version) for n, engine in tried) == pins


def test_the_smoke_set_is_four_faults_of_different_kinds() -> None:
    loaded = [load_fault(name) for name in SMOKE]
    assert len({fault.kills[0] for fault in loaded}) >= 3
    assert {variant_of(fault).name for fault in loaded} == {"speculating"}


def test_workloads_do_not_share_prompts_with_the_measured_one() -> None:
    """What is measured has to be new to the server, whatever came before it."""
    cold = {p.user for p in WORKLOADS["sequential"].suite.prompts}
    assert not any(
        cold & {p.user for p in e.suite.prompts} for n, e in WORKLOADS.items() if n != "sequential"
    )
    assert set(BY_KIND.values()) <= set(WORKLOADS)


def test_requests_under_pressure_are_let_in_two_at_a_time_and_both_outgrow_their_block() -> None:
    """By the canary's own tokenizer: whichever two run together, they need more than they were let in with."""
    tokenizer = Tokenizer.from_file(f"{REPOSITORY / load_lane(LANE).model.path}/tokenizer.json")
    prompts = WORKLOADS["preemption"].suite.prompts
    assert len(prompts) >= 4
    for prompt in prompts:
        asked = len(tokenizer.encode(prompt.user).ids) + TEMPLATE_IDS
        assert asked <= BLOCK_IDS < asked + len(prompt.answer_ids or ()) <= 2 * BLOCK_IDS, prompt.id
    blocks = load_lane(LANE).engine.scarce_blocks
    assert blocks is not None
    assert 2 * (8 + 1) < blocks <= 1 + 2 * 8 + 3, "two run together, and only one of them may grow"


def test_a_lane_that_does_not_say_what_is_scarce_has_no_place_for_preemption() -> None:
    lane = load_lane(LANE)
    assert variant_arguments(VARIANTS["scarce-memory"], lane)[-2:] == ("--num-gpu-blocks-override", "20")
    silent = lane.model_copy(update={"engine": lane.engine.model_copy(update={"scarce_blocks": None})})
    assert "--num-gpu-blocks-override" not in variant_arguments(VARIANTS["speculating"], silent)
    with pytest.raises(BadInput, match="no scarce_blocks"):
        variant_arguments(VARIANTS["scarce-memory"], silent)
