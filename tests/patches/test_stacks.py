"""The stack under test applies to the installed engine, strictly, and touches nothing outside a copy of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.engine.installed import accepts, installed_engine
from fixtures.engine.overlay import build_overlay
from fixtures.engine.patch_sets import load_stack
from fixtures.lanes.lane import RUNS
from fixtures.request import request_of

pytestmark = pytest.mark.patches


def test_the_stack_applies_to_its_pinned_engine_and_to_nothing_else(pytestconfig: pytest.Config) -> None:
    """All hunks or none, exactly where they belong; the installed package keeps its fingerprint."""
    lane = request_of(pytestconfig).lane
    engine = installed_engine(lane.engine.distribution)
    assert accepts(lane.engine, engine), f"the lane is for {lane.engine.version}, installed is {engine}"
    stack = load_stack(request_of(pytestconfig).stack, engine)
    RUNS.mkdir(exist_ok=True)
    overlay = build_overlay(stack, engine, RUNS)
    try:
        assert bool(overlay.patched_files) == bool(stack.sets), "a stack with patches patches something"
        outside = [f for f in overlay.patched_files if not Path(f).parts or Path(f).parts[0] != "vllm"]
        assert not outside, f"outside the engine package: {outside}"
        overlay.check_installed_untouched()
    finally:
        overlay.remove()
