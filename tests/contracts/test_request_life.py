"""Requests live on the subject: any order of prefill, verify, commit, fork, copy, slot reuse, preempt and resume."""

from __future__ import annotations

import torch
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from fixtures.gdn.machine import life_of
from fixtures.gdn.operations import Operation


def test_any_life_of_requests_ends_in_the_true_states(under_test):
    """Every tensor is compared after each rule, so that a failing history shrinks to the rules that matter."""
    under_test.needs(Operation.PREFILL, Operation.VERIFY, input_dtype=torch.bfloat16, state=torch.float32)
    profile = settings()
    budget = settings(profile, max_examples=max(profile.max_examples // 3, 5), stateful_step_count=12)
    run_state_machine_as_test(life_of(under_test), settings=budget)
