"""What measures the contracts: the clock around the oracle, and the memory that is kept between cases."""

from __future__ import annotations

import ctypes
import time

import pytest

from fixtures.gdn.clock import CLOCKED, Clock
from fixtures.gdn.memory import kept_pages


def test_nested_calls_count_once(monkeypatch):
    now = iter(float(n) for n in range(100))
    monkeypatch.setattr(time, "thread_time", lambda: next(now))
    clock = Clock()
    inner = clock.around(lambda: "inner")
    outer = clock.around(inner)
    assert outer() == "inner"
    # Read at the outer start, the inner start and the outer end: the inner call lies inside.
    assert clock.read() == 2.0
    assert clock.read() == 0.0


def test_time_counts_also_when_the_oracle_raises(monkeypatch):
    now = iter([1.0, 5.0])
    monkeypatch.setattr(time, "thread_time", lambda: next(now))
    clock = Clock()

    def refuse():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        clock.around(refuse)()
    assert clock.read() == 4.0


def test_everything_that_is_clocked_exists():
    for module, names in CLOCKED:
        assert all(callable(getattr(module, name)) for name in names)


class Libc:
    def __init__(self):
        self.calls = []

    def mallopt(self, name, value):
        self.calls.append((name, value))

    def malloc_trim(self, pad):
        self.calls.append(("trim", pad))


def test_pages_are_kept_within_and_given_back_afterwards(monkeypatch):
    libc = Libc()
    monkeypatch.setattr(ctypes, "CDLL", lambda _: libc)

    def fail():
        # M_MMAP_MAX is -4 and M_TRIM_THRESHOLD -1 in malloc.h.
        assert libc.calls == [(-4, 0), (-1, 2**31 - 1)]
        raise KeyError("a failing contract")

    with pytest.raises(KeyError), kept_pages():
        fail()
    assert libc.calls[2:] == [(-4, 65536), (-1, 128 * 1024), ("trim", 0)]


def test_a_c_library_without_mallopt_is_left_alone(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    ran = False
    with kept_pages():
        ran = True
    assert ran
