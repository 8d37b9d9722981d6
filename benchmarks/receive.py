"""How true receive times are on a busy machine, client by client, against the sending server's own clock.

    python -m benchmarks.receive [--answers 12] [--ids 150] [--per-second 300] [--busy 0 1 2] [--out FILE.json]

The golden server, in a process of its own, streams answers at a steady pace and writes down when it began each send.
Beside it run busy processes, one for each core that is to be busy, and in one half of the runs a busy thread in the
process of the client, as a test run has threads of its own. Each client receives the same number of answers:

- `socket read`: ids are dated when the client's read returns, as most clients do;
- `kernel stamps`: ids are dated by the kernel, received in the run's own process;
- `reader`: ids are dated by the kernel, received in a process of its own: what measured answers are received with.

An answer is usable if its first 100 ids can be dated (`fixtures.judge.dating`); the error of its rate is against the
rate of the same ids by the server's send times.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import statistics
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.client import golden_server, machine, quantile
from benchmarks.contenders import bare_socket
from fixtures.client.endpoint import Endpoint
from fixtures.client.reader import Reader
from fixtures.client.stream import Asked, transcribe
from fixtures.client.wire import Trace, exchange
from fixtures.judge.dating import WINDOW, undatable
from fixtures.judge.rates import interval_rate_tok_s

Receive = Callable[[str, int], Sequence[int]]
"""Given the server's address and a number of ids, ask for one answer: a receive time for each id, in nanoseconds."""


@dataclass
class Seen:
    """What one client saw of all its answers under one load."""

    client: str
    busy: int
    thread: bool
    answers: int = 0
    usable: int = 0
    late_ns: list[int] = field(default_factory=list)
    """Receive time less send time of each id."""
    rate_errors: list[float] = field(default_factory=list)
    """Of each usable answer: its rate over the server's, less 1, without sign."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all clients under all loads and print a table."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.receive", description=__doc__)
    options.add_argument("--answers", type=int, default=12, help="for each client and load")
    options.add_argument("--ids", type=int, default=150, help="ids of an answer")
    options.add_argument("--per-second", type=float, default=300)
    options.add_argument("--busy", type=int, nargs="+", default=[0, 1, 2], help="busy processes")
    options.add_argument("--out", type=Path, help="also write what was seen to this JSON file")
    asked = options.parse_args(arguments)
    if asked.ids < WINDOW:
        options.error(f"--ids {asked.ids}: {WINDOW} at least, or no answer has a rate")
    console = Console(width=120)
    here = machine()
    console.print(here, soft_wrap=True)
    seen: list[Seen] = []
    with golden_server(asked.ids, asked.per_second) as url, Reader() as reader:
        clients = {
            "socket read": _by_reads,
            "kernel stamps": _by(exchange),
            "reader": _by(reader.exchange),
        }
        for busy in asked.busy:
            for thread in (False, True):
                with _busy_processes(busy), _busy_thread() if thread else contextlib.nullcontext():
                    rows = {name: Seen(name, busy, thread) for name in clients}
                    for _ in range(asked.answers):  # taking turns, so that each meets the same load
                        for name, receive in clients.items():
                            _look(receive, url, asked.ids, rows[name])
                seen += rows.values()
    console.print(_table(seen, asked.ids, asked.per_second))
    if asked.out:
        part = asked.out.with_name(asked.out.name + ".part")
        part.write_text(json.dumps({"machine": here, "seen": [asdict(s) for s in seen]}))
        os.replace(part, asked.out)
    return 0


def _look(receive: Receive, url: str, ids: int, into: Seen) -> None:
    got = receive(url, ids)
    with urllib.request.urlopen(f"{url}/sent") as answer:
        sent: list[int] = json.load(answer)
    into.answers += 1
    into.late_ns += [at - began for at, began in zip(got, sent, strict=True)]
    times_s, sent_s = ([(t - times[0]) / 1e9 for t in times] for times in (got, sent))
    truth = interval_rate_tok_s(sent_s)
    rate = interval_rate_tok_s(times_s)
    if truth is None:
        raise SystemExit(f"the golden server itself could not keep its pace: {undatable(sent_s)}")
    if rate is not None:
        into.usable += 1
        into.rate_errors.append(abs(rate / truth - 1))


def _by_reads(url: str, ids: int) -> Sequence[int]:
    return bare_socket()(url, ids).receipt_ns


def _by(send: Callable[[Endpoint, str, str, bytes], Trace]) -> Receive:
    def receive(url: str, ids: int) -> Sequence[int]:
        body = {"model": "golden", "max_tokens": ids, "stream": True, "return_token_ids": True}
        endpoint = Endpoint(url, None, "golden")
        trace = send(endpoint, "POST", "/v1/chat/completions", msgspec.json.encode(body))
        said = transcribe(trace, Asked("benchmark", "p", "count", "golden", body))
        if said.error:
            raise SystemExit(said.error)
        return said.receipt_ns

    return receive


def _burn() -> None:
    while True:
        sum(range(10_000))


@contextlib.contextmanager
def _busy_processes(count: int) -> Iterator[None]:
    made = [multiprocessing.get_context("spawn").Process(target=_burn, daemon=True) for _ in range(count)]
    for process in made:
        process.start()
    try:
        yield
    finally:
        for process in made:
            process.kill()
            process.join()


@contextlib.contextmanager
def _busy_thread() -> Iterator[None]:
    stop = threading.Event()

    def burn() -> None:
        while not stop.is_set():
            sum(range(2_000))

    thread = threading.Thread(target=burn, name="busy", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _table(seen: Sequence[Seen], ids: int, per_second: float) -> Table:
    table = Table(
        title=f"answers of {ids} ids, {per_second:g} a second: receive time less send time",
        title_justify="left",
    )
    for column in ("busy", "thread", "client", "late p50", "p99", "max", "usable", "rate error p50", "max"):
        table.add_column(column, justify="left" if column == "client" else "right", no_wrap=True)
    for s in seen:
        late = sorted(s.late_ns)
        errors = (
            [f"{e:.2%}" for e in (statistics.median(s.rate_errors), max(s.rate_errors))]
            if s.rate_errors
            else ["not shown"] * 2
        )
        table.add_row(
            str(s.busy),
            "yes" if s.thread else "no",
            s.client,
            *(f"{quantile(late, q) / 1000:.0f} us" for q in (0.5, 0.99, 1.0)),
            f"{s.usable} of {s.answers}",
            *errors,
        )
    return table


if __name__ == "__main__":
    raise SystemExit(main())
