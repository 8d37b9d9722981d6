"""What stands beside the runs on a device: the same faults on another engine, other topologies, the client's cost."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from fixtures.client.transcript import Transcript
from fixtures.engine.patch_sets import load_fault
from fixtures.evidence.reading import Packet
from fixtures.fault_injection.observer import expectation_of
from fixtures.judge.comparison import Relation
from fixtures.judge.detection import SOUND, Detection, Matrix, Observation, build_matrix, merge_matrices
from fixtures.judge.matrix import compare_arms
from fixtures.judge.rows import Purpose
from fixtures.lanes.lane import load_lane
from fixtures.parsing import BadInput, load_json

OURS = "draftproof"
"""Name of this suite's client among the contenders of `benchmarks.client`."""


class Play(BaseModel):
    """One client in one round of `benchmarks.client`."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    client: str
    cpu_s: float
    events: int
    delays_s: tuple[float, ...] = ()


class ClientCost(BaseModel):
    """The file that `python -m benchmarks.client --out` writes."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    machine: str
    free: tuple[Play, ...]
    paced: tuple[Play, ...]


@dataclass(frozen=True)
class Rate:
    """A measured run: where it was made and what it gave."""

    run: str
    lane: str
    tok_s: float


def matrix_of(packets: Iterable[Packet]) -> Matrix:
    """All faults that were tried in some packets, each as the last of them saw it."""
    matrices: list[Matrix] = []
    names: list[str] = []
    for packet in packets:
        seen = [Observation.from_row(row) for row in packet.rows.get("detection", ())]
        tried = dict.fromkeys(s.fault for s in seen if s.fault != SOUND)
        engine = load_lane(packet.identity["lane"]["name"]).engine
        matrices.append(
            build_matrix(seen, {name: expectation_of(load_fault(name, engine)) for name in tried})
        )
        names += tried
    return merge_matrices(matrices, names)


def faults_table(ours: Matrix, theirs: Matrix) -> tuple[list[list[str]], list[str]]:
    """Fault by fault, what fired on the device and what on the other engine, and whether one predicts the other.

    Args:
        ours: of the device.
        theirs: of the other engine.
    Returns:
        Rows without a head, and lines of summary.
    """
    other = {d.expectation.name: d for d in theirs.detections}
    rows, says, alone = [], [], []
    for d in sorted(ours.detections, key=lambda d: d.expectation.name):
        name = d.expectation.name
        twin = other.get(name)
        says.append(_prediction(twin, d))
        fired = "not tried" if twin is None else _fired(twin)
        if twin is not None:
            sides = (
                ("the CPU", set(twin.fired) - set(d.fired)),
                ("the device", set(d.fired) - set(twin.fired)),
            )
            alone += [f"{name}: {', '.join(sorted(only))} on {where}" for where, only in sides if only]
        rows.append([f"`{name}`", fired, _fired(d), says[-1], ", ".join(d.workloads)])
    lines = [f"- {says.count(word)} of {len(says)}: {word}" for word in dict.fromkeys(says)]
    lines.append(f"- checks beyond those that fired on one engine only: {'; '.join(alone) or 'none'}")
    lines.append(f"- survivors on the device: {', '.join(ours.survivors) or 'none'}")
    alarms = {d.expectation.name: d.false_alarms for d in ours.detections if d.false_alarms}
    told = "; ".join(f"{name}: {', '.join(checks)}" for name, checks in alarms.items())
    lines.append(f"- checks that had to stay quiet and fired there: {told or 'none'}")
    sound = "; ".join(f"{check} ({why})" for check, why in ours.alarms_on_sound.items())
    lines.append(f"- checks that reject the sound engine there: {sound or 'none'}")
    return rows, lines


def _prediction(cpu: Detection | None, device: Detection) -> str:
    if cpu is None:
        return "nothing to compare"
    if cpu.survived != device.survived:
        return "verdicts differ"
    if set(cpu.killed_by) != set(device.killed_by):
        return "same verdict, other named checks"
    return "same verdict, same named checks"


def _fired(d: Detection) -> str:
    """Checks that fired with the number of findings, those that the manifest names in bold."""
    words = [f"**{c} {n}**" if c in d.killed_by else f"{c} {n}" for c, n in d.fired.items()]
    return ("survives: " if d.survived else "") + (", ".join(words) or "nothing fired")


def topology_rows(packets: Mapping[str, Packet]) -> list[list[str]]:
    """Answers of lanes that differ in nothing but the number of devices, held against each other.

    No verdict: each topology is an identity of its own with an oracle of its own.
    """
    rows = []
    for (name, one), (other, two) in itertools.permutations(packets.items(), 2):
        if _identity(one) != _identity(two) or not _devices(one) < _devices(two):
            continue
        first, second = _answers(one, name), _answers(two, other)
        for role in ("target", "candidate"):
            arms = [_first_arm(p, role) for p in (one, two)]
            if None in arms:
                continue
            ours, theirs = f"{name}/{arms[0]}", f"{other}/{arms[1]}"
            matrix = compare_arms([*first, *second], ours, [theirs])
            cells = matrix.cells[theirs]
            if not cells:
                continue
            equal = matrix.count(theirs, Relation.EQUAL)
            apart = [
                f"{key[1]}@{c.first_divergence}"
                for key, c in cells.items()
                if c.relation is not Relation.EQUAL
            ]
            rows.append([role, name, other, f"{equal} of {len(cells)}", ", ".join(apart) or "-"])
    return rows


def _devices(packet: Packet) -> int:
    return int(packet.identity["lane"]["topology"]["devices"])


def _identity(packet: Packet) -> tuple[Any, ...]:
    """What two lanes share that differ in their devices alone."""
    lane = packet.identity["lane"]
    engine = lane["engine"]
    eager = "--enforce-eager" in engine["arguments"]
    engine_id = engine["distribution"], engine["version"], eager, packet.identity["stack"]["name"]
    return lane["model"]["path"], *engine_id, json.dumps(lane["speculation"]), lane["suites"]["parity"]


def _answers(packet: Packet, name: str) -> list[Transcript]:
    """Answers of the parity suite, with the run's name before the arm's."""
    suite = packet.identity["lane"]["suites"]["parity"]
    said = [r for r in packet.rows.get("transcript", ()) if r["purpose"] == Purpose.PARITY.value]
    return [
        Transcript.from_row({**row, "arm": f"{name}/{row['arm']}"}) for row in said if row["suite"] == suite
    ]


def _first_arm(packet: Packet, role: str) -> str | None:
    return next((str(r["arm"]) for r in packet.rows.get("arm", ()) if r["role"] == role), None)


def client_rows(path: Path, rates: Sequence[Rate]) -> tuple[list[list[str]], list[str]]:
    """What the client adds to a token: its CPU time an event as a share of each run's time a token.

    Every token is charged as an event of its own, with a wake-up of its own where the file has a paced part: the most
    that it can be.

    Raises:
        BadInput: not a file of `benchmarks.client`, or one without this suite's client.
    """
    cost = load_json(path, ClientCost)
    free, paced = ([p for p in part if p.client == OURS] for part in (cost.free, cost.paced))
    if not free:
        raise BadInput(f"{path}: free: no round of the client {OURS!r}")
    least_us = statistics.median(_event_us(p) for p in free)
    most_us = max(least_us, *(_event_us(p) for p in paced)) if paced else least_us
    per_event = f"{least_us:.1f}", f"{most_us:.1f}"
    rows = [
        [r.run, f"`{r.lane}`", f"{1e6 / r.tok_s:.0f}", *per_event, f"{most_us * r.tok_s / 1e4:.2f} %"]
        for r in rates
    ]
    lines = [f"- {cost.machine}"]
    late = sorted(d * 1e6 for p in paced for d in p.delays_s)
    if late:
        lines.append(
            f"- from the server's send to the time that an id is dated with, {len(late)} events: median "
            f"{statistics.median(late):.0f} us, 99th percentile {late[int(0.99 * (len(late) - 1))]:.0f} us"
        )
    return rows, lines


def _event_us(play: Play) -> float:
    return play.cpu_s / play.events * 1e6
