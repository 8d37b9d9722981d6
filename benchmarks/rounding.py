"""How far two correct paths of a target-only server are apart, beside what the bound of a near tie allows.

    python -m benchmarks.rounding [--lane canary-cpu] [--suite chat-parity] [--prompts 10] [--steps 96] [--every 4]

Each prompt is continued greedily, and the server says what it thought at each step: one path, step by step. Then the
same ids are given to it as a prompt, up to every few steps: the other path, one prefill. Both are right, so what
differs is rounding. Printed: how much the gap between the two best tokens moved, in nats and as a share of the bound at
that place. Free text has many small gaps; the canary's own tasks have none.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fixtures.arms.arm import make_arm
from fixtures.arms.servers import Arms
from fixtures.client.ask import run_suite
from fixtures.client.endpoint import Endpoint
from fixtures.client.scoring import score, score_steps
from fixtures.diagnosis.replay import default_pool
from fixtures.engine.pool import parse_pool
from fixtures.evidence.files import write_atomically
from fixtures.judge.rounding import tie_bound
from fixtures.judge.rows import RowList
from fixtures.lanes.lane import Lane, load_lane
from fixtures.prompts.suite import Prompt, load_suite
from fixtures.run.folder import run_folder


@dataclass(frozen=True)
class Place:
    """One position of one continuation, reached on two paths."""

    prompt: str
    step: int
    gap_nats: float
    """Best less second best, step by step."""
    moved_nats: float
    """Change of that gap on the other path."""
    magnitude: float
    bound_nats: float

    @property
    def turned_over(self) -> bool:
        """Whether the other path prefers the other token."""
        return self.gap_nats + self.moved_nats < 0


def measure(
    endpoint: Endpoint,
    lane: Lane,
    layers: int | None,
    prompt: Prompt,
    prompt_ids: Sequence[int],
    steps: int,
    every: int,
) -> Iterator[Place]:
    """Both paths through one prompt's continuation."""
    walked = score_steps(endpoint, prompt_ids, steps)
    said = [step.chosen for step in walked if step.chosen is not None]
    for n in range(0, steps, every):
        first, second = list(walked[n].logprobs)[:2]
        jumped = score(endpoint, [*prompt_ids, *said[:n]]).logprobs
        if first not in jumped or second not in jumped:
            raise SystemExit(f"{prompt.id}, step {n}: the prefill does not know both of the best two tokens")
        gap = walked[n].logprobs[first] - walked[n].logprobs[second]
        bound = tie_bound(walked[n].logprobs.values(), lane.model.dtype, layers=layers)
        yield Place(prompt.id, n, gap, jumped[first] - jumped[second] - gap, bound.magnitude, bound.nats)


def show(places: Sequence[Place], title: str) -> None:
    """Print what was measured."""
    table = Table("gap of the best two", "nats", "share of the bound", title=title)
    moved = sorted((abs(p.moved_nats), abs(p.moved_nats) / p.bound_nats) for p in places)
    shares = sorted(share for _, share in moved)
    for name, q in (("median", 0.5), ("99 %", 0.99), ("largest", 1.0)):
        at = min(len(moved) - 1, int(q * len(moved)))
        table.add_row(name, f"{moved[at][0]:.4f}", f"{shares[at]:.3f}")
    Console().print(table)
    beyond = sum(share > 1 for share in shares)
    over = [p for p in places if p.turned_over]
    widest = max((p.gap_nats for p in over), default=0.0)
    print(
        f"{len(places)} places, |logit| {statistics.median(p.magnitude for p in places):.3g} and bound "
        f"{statistics.median(p.bound_nats for p in places):.3g} nats in the median; {beyond} moved by more than the "
        f"bound; the order turned over at {len(over)}, the widest of them {widest:.3g} nats apart"
    )


def main() -> None:
    """Start target-only, measure, print, and write every place where `--out` says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rounding")
    parser.add_argument("--lane", default="canary-cpu")
    parser.add_argument("--suite", default="chat-parity")
    parser.add_argument("--prompts", type=int, default=10)
    parser.add_argument("--steps", type=int, default=96)
    parser.add_argument("--every", type=int, default=4)
    parser.add_argument("--gpu-pool")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    lane, suite = load_lane(options.lane), load_suite(options.suite)
    chosen = suite.model_copy(update={"prompts": suite.prompts[: options.prompts]})
    pool = parse_pool(options.gpu_pool or default_pool(lane), kind=lane.topology.device)
    folder = run_folder()
    arms = Arms(pool, folder, RowList(), lambda secret: None)
    try:
        target = make_arm(lane, "target")
        server = arms.server(target)
        asked = run_suite(server.endpoint, chosen, arm=target.label, max_tokens=1)
        ids = {t.prompt_id: t.prompt_token_ids for t in asked}
        places = [
            place
            for prompt in chosen.prompts
            for place in measure(
                server.endpoint,
                lane,
                server.spec.layers,
                prompt,
                ids[prompt.id],
                options.steps,
                options.every,
            )
        ]
    finally:
        arms.close()
        shutil.rmtree(folder, ignore_errors=True)
    show(places, f"{lane.name}, {lane.engine.distribution} {lane.engine.version}, {suite.name}")
    if options.out is not None:
        write_atomically(options.out, json.dumps([asdict(p) for p in places], indent=1))


if __name__ == "__main__":
    main()
