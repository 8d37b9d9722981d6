"""The graph contract itself, on a capture that every machine has: a traced step, whose baked-in values show."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fixtures.gdn.operations import ContractViolation
from fixtures.layers.operations import StepBuffers
from fixtures.layers.replay import make_buffers, refill, require_replays, require_untouched_capture
from fixtures.layers.subjects.torch_reference import TorchLayers

CPU = torch.device("cpu")


class Traced(TorchLayers):
    """Capture by tracing: reads of static buffers stay reads, numbers that the host looked at become constants."""

    def step(self, buffers):
        super().step(buffers)
        self._buffers = buffers

    def capture(self, step, device):
        step()
        buffers = self._buffers
        names = list(buffers.tensors())

        def functional(*tensors):
            self.step_on(StepBuffers(**dict(zip(names, tensors, strict=True))))
            return tensors

        graph = make_fx(functional)(*(t.clone() for t in buffers.tensors().values()))
        return lambda: graph(*self.bound(buffers).values())

    def step_on(self, buffers):
        TorchLayers.step(self, buffers)

    def bound(self, buffers):
        return buffers.tensors()


class BakedPosition(Traced):
    """The host reads the position while capturing."""

    def step_on(self, buffers):
        held = buffers.positions
        buffers.positions = torch.zeros_like(held)
        TorchLayers.step(self, buffers)
        buffers.positions = held


class OldTable(Traced):
    """The graph holds the address of a copy of the block table."""

    def bound(self, buffers):
        if not hasattr(self, "_copy"):
            self._copy = buffers.table.clone()
        return {**buffers.tensors(), "table": self._copy}


class OldCounts(Traced):
    """The same with the accepted counts."""

    def bound(self, buffers):
        if not hasattr(self, "_copy"):
            self._copy = buffers.accepted.clone()
        return {**buffers.tensors(), "accepted": self._copy}


class OldRows(Traced):
    """The same with the inputs of the rows."""

    def bound(self, buffers):
        if not hasattr(self, "_copy"):
            self._copy = buffers.rows.clone()
        return {**buffers.tensors(), "rows": self._copy}


class ColdOutput(Traced):
    """The output goes to memory of the graph's own."""

    def bound(self, buffers):
        return {**buffers.tensors(), "out": torch.empty_like(buffers.out)}


class LeakyCapture(Traced):
    """Warm-up writes the null slot."""

    def capture(self, step, device):
        replay = super().capture(step, device)
        self._buffers.pool[0] += 1
        return replay


def generator():
    return torch.Generator().manual_seed(3)


def test_a_sound_capture_passes():
    require_replays(Traced(), CPU, generator(), 12)


@pytest.mark.parametrize("kind", [BakedPosition, OldTable, OldCounts, OldRows, ColdOutput])
def test_what_a_capture_bakes_in_is_seen(kind):
    with pytest.raises(ContractViolation, match=r"replay \d"):
        require_replays(kind(), CPU, generator(), 12)


def test_a_capture_that_writes_is_seen():
    buffers = make_buffers(generator(), CPU)
    refill(buffers, generator(), live=0)
    require_untouched_capture(Traced(), buffers, CPU)
    with pytest.raises(ContractViolation, match="pool after capture"):
        require_untouched_capture(LeakyCapture(), buffers, CPU)
