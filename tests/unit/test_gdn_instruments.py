"""Comparison, faults, deviations: the instruments themselves."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest
import torch

from fixtures.gdn.comparison import must_run, recording, require_equal, require_number, require_within
from fixtures.gdn.deviations import load_deviations
from fixtures.gdn.mutants import SOURCES, load_mutants, mutate, plant
from fixtures.gdn.operations import ContractViolation
from fixtures.gdn.plugin import shows_nothing
from fixtures.gdn.subjects import SUBJECTS, vllm_cpu
from fixtures.parsing import BadInput

CONTRACTS = Path(__file__).parents[1] / "contracts"


def test_a_violation_says_where_what_and_how_many():
    expected = torch.arange(24.0).view(2, 3, 4)
    got = expected.clone()
    got[1, 2, 3] += 0.5
    got[1, 2, 0] += 2
    with pytest.raises(ContractViolation) as caught:
        require_equal("pool", got, expected, ("slot", "head", "element"), {1: "request 7, packed row 0"})
    text = str(caught.value)
    assert "2 of 24 elements wrong, largest difference 2" in text
    assert "slot 1, (request 7, packed row 0), head 2, element 0" in text
    assert "expected 20.0, got 22.0" in text


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float16, torch.float32, torch.int8, torch.int32, torch.int64]
)
def test_equal_tensors_of_every_dtype_pass(dtype):
    x = torch.arange(8).to(dtype)
    require_equal("x", x.clone(), x, ("i",))


def test_poison_equals_itself_and_nothing_else():
    poison = torch.full((3,), float("nan"))
    require_equal("poison", poison.clone(), poison, ("i",))
    with pytest.raises(ContractViolation):
        require_equal("poison", torch.zeros(3), poison, ("i",))


def test_nan_is_never_within_a_bound():
    with pytest.raises(ContractViolation, match="1 of 2"):
        require_within("x", torch.tensor([float("nan"), 1.0]), torch.ones(2).double(), 1e9, ("i",))


def test_another_shape_or_dtype_is_a_violation():
    with pytest.raises(ContractViolation):
        require_equal("x", torch.zeros(2), torch.zeros(3), ("i",))
    with pytest.raises(ContractViolation):
        require_equal("x", torch.zeros(2), torch.zeros(2).half(), ("i",))
    with pytest.raises(ContractViolation):
        require_within("x", torch.zeros(2), torch.zeros(3), 1.0, ("i",))


def test_what_was_compared_is_kept():
    with recording() as made:
        require_within("x", torch.tensor([1.0, 2.5]), torch.tensor([1.0, 2.0]).double(), 1.0, ("i",))
        require_number("n", 3, 3)
    assert [(m.compared, m.mismatches, m.max_abs_error, m.bound) for m in made] == [
        (2, 0, 0.5, 1.0),
        (1, 0, 0.0, None),
    ]


def test_a_comparison_within_a_comparison_is_not_the_outer_one():
    with recording() as outer:
        with recording() as inner:
            require_number("n", 3, 3)
        require_number("m", 4, 4)
    assert ([m.what for m in outer], [m.what for m in inner]) == (["m"], ["n"])


def test_nothing_is_shown_where_one_kind_of_comparison_had_no_element():
    """The packet has a row for each kind, and one of them would be pending: the test has to fail as well."""
    with recording() as made:
        assert shows_nothing(made)
        require_number("n", 3, 3)
        assert not shows_nothing(made)
    with recording() as made:
        require_within("x", torch.tensor([1.0]), torch.tensor([1.0]).double(), 1.0, ("i",))
        require_equal("no rows", torch.zeros(0), torch.zeros(0), ("i",))
        assert shows_nothing(made)
        require_equal("rows", torch.zeros(1), torch.zeros(1), ("i",))
        assert not shows_nothing(made)


def test_a_refused_legal_call_is_a_violation():
    with pytest.raises(ContractViolation, match="size mismatch"), must_run("a call"):
        raise RuntimeError("size mismatch")


def test_at_least_25_faults_each_plant_and_differ():
    faults = load_mutants()
    assert len(faults) >= 25
    for name, fault in faults.items():
        source = (SOURCES / fault.file).read_text()
        assert mutate(fault, source) != source, name
        assert plant(name).name == f"torch!{name}"
        assert (CONTRACTS / f"test_{fault.killed_by}.py").is_file(), f"{name}: no contract {fault.killed_by}"


def test_a_fault_without_its_place_is_refused():
    fault = load_mutants()["wrong-column"].model_copy(update={"find": "not there"})
    with pytest.raises(BadInput, match="wrong-column"):
        mutate(fault, "pass")


def test_every_deviation_names_a_subject_and_tests_that_exist():
    names = {
        node.name
        for path in CONTRACTS.glob("test_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    ids = set()
    for entry in load_deviations():
        assert entry.subject in SUBJECTS
        assert entry.test in names, entry.id
        assert entry.bounded_by in names, f"{entry.id}: no real test at the bounded level"
        assert entry.terms or entry.bound > 1e300, f"{entry.id}: a bound without a derivation"
        assert entry.id not in ids
        ids.add(entry.id)


ENTRY = """[[deviation]]
id = "x"
subject = "torch"
versions = ["1"]
test = "t"
measured = "m"
reason = "r"
"""
TERMS = """terms = [
    { what = "a", steps = 6, unit = "bf16", size = 3.0 },
    { what = "b", steps = 1, unit = 0.5, size = 2.0 },
]
"""


def test_a_bound_is_the_sum_of_its_terms(tmp_path):
    path = tmp_path / "deviations.toml"
    path.write_text(ENTRY + TERMS)
    assert load_deviations(path)[0].bound == 6 * 2**-8 * 3.0 + 1.0


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("bound = 1.0\n" + TERMS, "give one of them"),
        ("", "bound"),
        ('terms = [{ what = "a", steps = 0, unit = "bf16", size = 1.0 }]\n', "steps"),
        ('terms = [{ what = "a", steps = 1, unit = "int4", size = 1.0 }]\n', "unit"),
    ],
)
def test_a_bound_without_a_clear_derivation_is_refused(tmp_path, more, says):
    path = tmp_path / "deviations.toml"
    path.write_text(ENTRY + more)
    with pytest.raises(BadInput, match=says):
        load_deviations(path)


def test_what_a_subject_says_the_engine_prepares_is_in_the_engines_source():
    """A line that is gone is an excuse for a layout that the engine hands over."""
    package = importlib.util.find_spec("vllm")
    if package is None or not package.submodule_search_locations:
        pytest.skip("vllm is not installed")
    source = (Path(package.submodule_search_locations[0]) / vllm_cpu.DRIVER).read_text(encoding="utf-8")
    lines = source.splitlines()
    said = {line for paths in vllm_cpu.PREPARED.values() for line in paths.values()}
    assert said, "nothing is declared"
    assert [line for line in sorted(said) if line not in lines] == []
