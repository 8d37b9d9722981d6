"""Everything in this folder is a contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.gdn.memory import kept_pages

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and not (
            item.get_closest_marker("bench_contracts") or item.get_closest_marker("faults")
        ):
            item.add_marker(pytest.mark.contracts)


@pytest.fixture(scope="module", autouse=True)
def _pages():
    """Tensors of a module's cases reuse each other's memory; it is given back after the module."""
    with kept_pages():
        yield
