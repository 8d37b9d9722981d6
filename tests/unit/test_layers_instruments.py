"""Faults, deviations and bounds of the layers around the state: the instruments themselves."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch

from fixtures.gdn.deviations import load_deviations
from fixtures.gdn.mutants import mutate
from fixtures.layers import oracle
from fixtures.layers.mutants import SOURCES, load_mutants, plant
from fixtures.layers.mutants.relevance import FAMILIES
from fixtures.layers.operations import Sum
from fixtures.layers.plugin import LAYER_OPERATIONS, summary_lines
from fixtures.layers.subjects import SUBJECTS

CONTRACTS = Path(__file__).parents[1] / "contracts" / "layers"


def test_at_least_15_faults_each_plant_and_differ():
    faults = load_mutants()
    assert len(faults) >= 15
    for name, fault in faults.items():
        source = (SOURCES / fault.file).read_text()
        assert mutate(fault, source) != source, name
        assert plant(name).name == f"torch!{name}"
        assert (CONTRACTS / f"test_{fault.killed_by}.py").is_file(), f"{name}: no contract {fault.killed_by}"
        assert fault.killed_by in FAMILIES[fault.file], f"{name}: {fault.killed_by} never meets {fault.file}"


def test_every_family_has_a_fault():
    families = {path.stem.removeprefix("test_") for path in CONTRACTS.glob("test_*.py")}
    assert {fault.killed_by for fault in load_mutants().values()} == families - {"layers_fault_detection"}


def test_every_deviation_names_a_subject_and_tests_that_exist():
    names = {
        node.name
        for path in CONTRACTS.glob("test_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    for entry in load_deviations(LAYER_OPERATIONS.deviations):
        assert entry.subject in SUBJECTS
        assert entry.test in names, entry.id
        assert not entry.bounded_by or entry.bounded_by in names, entry.id


def test_the_norm_of_a_sum_depends_on_what_is_normalised():
    x, residual = (torch.randn(2, 64).bfloat16() for _ in range(2))
    weight = torch.ones(64)
    made = {what: oracle.summed_norm(x, residual, weight, 1e-6, what) for what in Sum}
    stored = (x.float() + residual.float()).bfloat16()
    assert torch.equal(made[Sum.STORED], oracle.rms_norm(stored, weight, 1e-6))
    assert not torch.equal(made[Sum.EXACT], made[Sum.STORED])
    assert not torch.equal(made[Sum.STORED], made[Sum.STORED_BY_EXACT_VARIANCE])


def test_rotation_keeps_lengths_and_leaves_the_rest():
    cache = oracle.rotary_cache(64, 16, 10_000.0, torch.float64)
    x = torch.randn(3, 2, 24, dtype=torch.float64)
    cosines, sines = cache[torch.tensor([0, 7, 63])].chunk(2, dim=-1)
    turned, size = oracle.rotate(x, cosines, sines)
    assert torch.allclose(turned.norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(turned[0], x[0]), "position 0 turns nothing"
    assert torch.equal(turned[..., 16:], x[..., 16:])
    assert bool((size[..., 16:] == 0).all())


@pytest.mark.parametrize("sections", [(6, 5, 5), (8, 4, 4)])
def test_sections_interleave_time_height_and_width(sections):
    cache = torch.arange(8.0).unsqueeze(1).expand(8, 32)
    cosines, _ = oracle.text_or_sections(cache, torch.tensor([[1], [2], [3]]), sections)
    chosen = cosines[0].long().tolist()
    assert chosen[:6] == [1, 2, 3, 1, 2, 3]
    assert chosen.count(2) == sections[1]
    assert chosen.count(3) == sections[2]


def test_a_half_step_of_the_activation_is_what_quantisation_may_change():
    x = torch.randn(5, 64, generator=torch.Generator().manual_seed(0))
    weight = torch.randn(64, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    step = x.abs().amax(-1, keepdim=True) / 127
    rounded = (x / step).round() * step
    change = ((rounded.double() - x.double()) @ weight).abs()
    limit = oracle.activation_error(x, weight, 8)
    assert bool((change <= limit).all())
    assert bool((oracle.activation_error(x, weight, 0) == 0).all())


def test_the_summary_tells_invariance_and_leads_per_subject():
    gap = {"kind": "int4 head", "rows": 4, "separated": 1, "flipped": 2, "lead enough by the worst case": 9.0}
    row = {"contract": "row_invariance", "outcome": "passed"}
    lines = summary_lines(
        [
            ("torch", "contract", row),
            ("torch", "contract", {**row, "outcome": "known deviation"}),
            ("torch", "contract", {**row, "contract": "w4a16"}),
            ("torch", "head_gap", {**gap, "largest lead that flipped": 0.5, "smallest separated lead": 3.0}),
            (
                "torch",
                "head_gap",
                {**gap, "largest lead that flipped": 0.25, "smallest separated lead": None},
            ),
        ]
    )
    assert lines[0] == "torch: row-count invariance: 1 known deviation, 1 passed"
    assert "torch: int4 head: top-1 changed in 4 of 8 rows, by leads of up to 0.5" in lines[1]
    assert "unchanged in 2, with leads from 3; by the worst case 9 to 9 is enough" in lines[1]
