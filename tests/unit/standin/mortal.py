"""A subject that does what its input says: compute, refuse, die, hang, or leave an error behind on its device."""

from __future__ import annotations

import os
import signal
import time

import torch

from fixtures.gdn.operations import Capabilities, Operation

REFUSES, DIES, HANGS, LEAVES, SPOILS, COMPUTES = range(1, 7)


class Spoilt(torch.Tensor):
    """A result that raises once it is brought to the host, as one of a device with an error does."""

    def to(self, *_: object, **__: object) -> Spoilt:
        """The device's word."""
        raise RuntimeError("an illegal memory access")

    def clone(self, *_: object, **__: object) -> Spoilt:
        """Nothing is looked at yet."""
        return self


class Mortal:
    """`gating` of one number: the process' id and twice the number, or what the names above say."""

    capabilities = Capabilities(
        operations=frozenset({Operation.GATING}),
        input_dtypes=(torch.float32,),
        state_dtypes=(torch.float32,),
        head_dims=(64,),
        device_kinds=("cpu",),
    )

    def gating(self, a: torch.Tensor) -> torch.Tensor:
        """A result, or the end."""
        match int(a[0]):
            case 1:
                raise ValueError("not with ones")
            case 2:
                os.kill(os.getpid(), signal.SIGSEGV)
            case 3:
                time.sleep(60)
            case 4:
                os._exit(7)
            case 5:
                return Spoilt()
        return torch.tensor([os.getpid(), 2 * int(a[0])])


def load(_: str) -> Mortal:
    """The subject; a worker's process finds it by this name."""
    return Mortal()
