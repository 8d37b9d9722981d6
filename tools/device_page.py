"""The tables of the page on GPU runs, made from packets: what ran, what came of it, and which packet says so.

    python -m tools.device_page PACKET... --into docs/measurements/gpu.md
    python -m tools.device_page PACKET... --beside CPU_PACKET... --client CLIENT.json --into docs/measurements/gpu.md

Nothing in the tables is typed. Verdicts are derived anew from the packets' rows; a packet whose hashes do not agree is
refused. `--beside` are packets of the same seeded faults on another engine, `--client` what
`python -m benchmarks.client --out` wrote on the same host.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fixtures.engine.programmes import programme
from fixtures.evidence.files import write_atomically
from fixtures.evidence.reading import InvalidEvidence, Packet, read_packet
from fixtures.judge.comparison import Relation
from fixtures.judge.finding import Finding, Outcome
from fixtures.judge.programmes import DraftProgrammeRow
from fixtures.judge.rows import Rows
from fixtures.judge.verdict import Verdict, derive
from fixtures.lanes.lane import load_lane
from fixtures.parsing import BadInput
from fixtures.report.markdown import put_block, table
from fixtures.run.deviations import load_endpoint_deviations
from tools.device_beside import Rate, client_rows, faults_table, matrix_of, topology_rows

BLOCK = "device"
INVALID_EVIDENCE = 12


@dataclass(frozen=True)
class Run:
    """One packet with the verdict that its rows give."""

    name: str
    packet: Packet
    verdict: Verdict

    @property
    def lane(self) -> str:
        """Name of the lane."""
        return str(self.packet.identity["lane"]["name"])

    @property
    def stack(self) -> str:
        """Name of the stack."""
        return str(self.packet.identity["stack"]["name"])

    @property
    def digest(self) -> str:
        """SHA-256 of the packet's list of hashes: the packet, in sixteen digits."""
        sums = (self.packet.directory / "SHA256SUMS").read_bytes()
        return hashlib.sha256(sums).hexdigest()[:16]

    def findings(self, check: str) -> list[Finding]:
        """Findings of a check, or of all checks of a kind that ends in a dot."""
        return [f for f in self.verdict.findings if f.check == check or f.check.startswith(check + ".")]


def read_run(directory: Path) -> Run:
    """Read and judge a packet; raises `InvalidEvidence`."""
    packet = read_packet(directory)
    return Run(directory.name, packet, derive(packet.rows))


def machines(runs: Sequence[Run]) -> str:
    """One line a machine on which the runs were made."""
    lines = []
    for run in runs:
        machine, packages = run.packet.identity["machine"], run.packet.identity["packages"]
        devices = machine.get("devices") or []
        what = (
            f"{len(devices)} x {devices[0]['name']}, driver {devices[0]['driver']}"
            if devices
            else "no device named"
        )
        versions = ", ".join(f"{name} {version}" for name, version in packages.items() if version)
        python = run.packet.identity["python"]
        lines.append(f"- {what}; {machine['cores']} cores; {machine['system']}; Python {python}; {versions}")
    return "\n".join(dict.fromkeys(lines)) + "\n"


def overview(runs: Sequence[Run]) -> str:
    """One row a run: what was judged, the verdict, what parity and canaries came to, the packet."""
    rows = []
    for run in runs:
        equal = [f.message.split(": ", 1)[1] for f in run.findings("parity.exact")]
        said = f"{len(equal)} arms equal to target-only" if equal else ""
        if wrong := _wrong(run.verdict):
            said = "; ".join(f"{_plain(arm)}: {bad} of {total} wrong" for arm, (bad, total) in wrong.items())
        counts = f"{run.verdict.count(Outcome.ACCEPTED)} of {len(run.verdict.findings)}"
        rows.append(
            [run.name, f"`{run.lane}`", f"`{run.stack}`", run.verdict.outcome.value, counts, said, f"`{run.digest}`"]
        )  # fmt: skip
    return _lines(["run", "lane", "stack", "verdict", "checks accepted", "answers", "packet"], rows)


def programmes(runs: Sequence[Run]) -> str:
    """Programme by stack: how many answers are not the target's, and what the failures have in common."""
    told: dict[str, dict[str, str]] = {}
    lines = []
    for run in runs:
        wrong = {arm.rpartition("/")[2]: counts for arm, counts in _counts(run.verdict).items() if "/" in arm}
        if not wrong:
            continue
        for name, (bad, total) in wrong.items():
            told.setdefault(name, {})[run.stack] = f"{total - bad} of {total}"
        found = [f for f in derive(_with_programmes(run)).findings if f.check == "programmes.points_at"]
        lines += [f"- `{run.stack}`: {f.outcome.value}: {f.message}" for f in found]
    stacks = list(dict.fromkeys(stack for row in told.values() for stack in row))
    rows = [[f"`{name}`", *(row.get(stack, "-") for stack in stacks)] for name, row in told.items()]
    return (
        _lines(["programme", *(f"`{s}`" for s in stacks)], rows) + "\n" + "\n".join(lines) + "\n"
        if rows
        else ""
    )


def _with_programmes(run: Run) -> Rows:
    """The packet's rows. Packets of before name an arm's programme in its label alone, and carry its finding."""
    rows = run.packet.rows
    if rows.get("draft_programme"):
        return rows
    drafts = int(run.packet.identity["lane"]["speculation"]["num_speculative_tokens"])
    named = [(arm, programme(arm.rpartition("/")[2])) for arm in _counts(run.verdict) if "/" in arm]
    made = [DraftProgrammeRow(label, p.name, p.steps, p.ragged, drafts).to_row() for label, p in named]
    others = [row for row in rows.get("finding", ()) if row.get("check") != "programmes.points_at"]
    return {**rows, "draft_programme": made, "finding": others}


def speeds(runs: Sequence[Run]) -> str:
    """Every measured arm with its interval, and what came of headline and comparison."""
    rows, lines = [], []
    for run in runs:
        for finding in (*run.findings("speed.arm"), *run.findings("speed.reference")):
            arm, _, numbers = finding.message.partition(": ")
            rows.append([run.name, f"`{run.lane}`", _plain(arm), numbers.split(";")[0]])
        for check in ("speed.headline", "speed.control"):
            lines += [
                f"- {run.name}, {check}: {f.outcome.value}: {_plain(f.message)}" for f in run.findings(check)
            ]
    return (
        _lines(["run", "lane", "arm", "tok/s and its 95 % interval"], rows) + "\n" + "\n".join(lines) + "\n"
        if rows
        else ""
    )


def failed_tests(runs: Sequence[Run]) -> str:
    """Tests that failed, by run and name, with the first line of what was said."""
    rows = []
    for run in runs:
        for row in run.packet.rows.get("test", ()):
            if row["outcome"] in ("failed", "error", "inconclusive", "pending"):
                name = re.sub(r"^.*::", "", str(row["nodeid"]))
                first = (str(row["message"]).strip().splitlines() or [""])[0]
                rows.append([run.name, f"`{name}`", str(row["outcome"]), first[:160]])
    return _lines(["run", "test", "outcome", "what it said"], rows) if rows else "None.\n"


def faults(runs: Sequence[Run], beside: Sequence[Packet]) -> str:
    """Seeded faults on the device, and what the other engine's checks said of them."""
    packets = [run.packet for run in runs if run.packet.rows.get("detection")]
    if not packets:
        return ""
    rows, lines = faults_table(matrix_of(packets), matrix_of(beside))
    head = [
        "fault",
        "fired on the CPU",
        "fired on the device",
        "the CPU's verdict",
        "workloads on the device",
    ]
    return _noted(head, rows, lines)


def topologies(runs: Sequence[Run]) -> str:
    """Two devices against one, as a class of its own."""
    rows = topology_rows({run.name: run.packet for run in runs})
    return _lines(["arm", "run", "held against it", "answers equal", "apart"], rows) if rows else ""


def client(path: Path | None, runs: Sequence[Run]) -> str:
    """What the client adds to a token; raises `BadInput` for a file that is none of its benchmark."""
    if path is None:
        return ""
    rates = [Rate(r.name, r.lane, r.verdict.headline_tok_s) for r in runs if r.verdict.headline_tok_s]
    rows, lines = client_rows(path, rates)
    head = [
        "run",
        "lane",
        "us a token",
        "client's CPU, us an event",
        "paced, a wake-up an event",
        "at most, of a token",
    ]
    return _noted(head, rows, lines)


def known_deviations(runs: Sequence[Run]) -> str:
    """Strict expected failures that were met, by run; a test without an entry in the file has none."""
    rows = []
    for run in runs:
        lane, stacks = load_lane(run.lane), set(run.stack.split("+"))
        met: dict[str, list[str]] = {}
        for row in run.packet.rows.get("test", ()):
            if row["outcome"] == "xfailed":
                name = str(row["nodeid"]).rpartition("::")[2]
                test, _, parameters = name.rstrip("]").partition("[")
                known = [d.id for d in load_endpoint_deviations() if d.covers(test, parameters, lane, stacks)]
                met.setdefault(", ".join(known) or "not in the file any more", []).append(f"`{name}`")
        rows += [[run.name, f"`{known}`", ", ".join(tests)] for known, tests in met.items()]
    return _lines(["run", "known deviation", "tests that met it"], rows) if rows else ""


def render(runs: Sequence[Run], beside: Sequence[Packet] = (), client_file: Path | None = None) -> str:
    """The generated part of the page."""
    endpoint = [r for r in runs if any(t.get("stage") == "endpoint" for t in r.packet.rows.get("test", ()))]
    parts = {
        "Machines": machines(runs),
        "Runs": overview(runs),
        "Draft programmes": programmes(runs),
        "Seeded faults": faults(runs, beside),
        "Two devices against one": topologies(runs),
        "Speed": speeds(runs),
        "The client's share": client(client_file, runs),
        "Known deviations at the endpoint": known_deviations(endpoint),
        "Tests that did not pass": failed_tests(endpoint),
    }
    return "".join(f"### {title}\n\n{text}\n" for title, text in parts.items() if text)


def _counts(verdict: Verdict) -> dict[str, tuple[int, int]]:
    """Answers that are not the reference's, and all answers, by candidate arm."""
    matrix = verdict.parity.against_target if verdict.parity else None
    if matrix is None:
        return {}
    return {
        arm: (len(matrix.cells[arm]) - matrix.count(arm, Relation.EQUAL), len(matrix.cells[arm]))
        for arm in matrix.arms
    }


def _wrong(verdict: Verdict) -> Mapping[str, tuple[int, int]]:
    return {arm: counts for arm, counts in _counts(verdict).items() if counts[0]}


def _plain(text: str) -> str:
    """Labels without the stack, which has a column of its own."""
    return re.sub(r"@[a-z0-9.+-]+", "", text)


def _lines(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    return "\n".join(table(head, rows)) + "\n"


def _noted(head: Sequence[str], rows: Iterable[Sequence[str]], lines: Sequence[str]) -> str:
    """A table with remarks below it."""
    return _lines(head, rows) + "\n" + "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: prints the tables, or puts them into a page; 12 for a packet that does not hold together."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.device_page", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("packets", type=Path, nargs="+", metavar="PACKET")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="a Markdown page with the two marks")
    parser.add_argument(
        "--beside", type=Path, nargs="+", default=[], metavar="PACKET", help="seeded faults on another engine"
    )
    parser.add_argument("--client", type=Path, metavar="FILE", help="what benchmarks.client --out wrote")
    options = parser.parse_args(arguments)
    try:
        beside = [read_packet(p) for p in options.beside]
        text = render([read_run(p) for p in options.packets], beside, options.client)
    except InvalidEvidence as error:
        print(error, file=sys.stderr)
        return INVALID_EVIDENCE
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2
    if options.into is None:
        print(text)
        return 0
    try:
        page = put_block(options.into.read_text(encoding="utf-8"), BLOCK, text)
    except ValueError as error:
        print(f"{options.into}: no place for the tables: {error}", file=sys.stderr)
        return 2
    write_atomically(options.into, page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
