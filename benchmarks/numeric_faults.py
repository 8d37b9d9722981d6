"""What wrong numbers do to what the prose model says: sound and faulty arithmetic answer, the sound model reads.

    python -m benchmarks.numeric_faults say --text FOLDER --out answers.npz     one GPU, about two minutes
    python -m benchmarks.numeric_faults table answers.npz                       a CPU, seconds: the table of power

`say` lets the token-by-token decoder answer the same held-out prompts once for each fault and dose, in bf16, and reads
each answer with the network's own prefill, in bf16: the gap of each token to the best one, in nats. Sound arithmetic
answers in several batch shapes. `table` takes from these answers as many prompts as a number of tokens needs and asks
the judge of gaps, and beside it the judge of first divergences. No engine is involved.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fixtures.judge.gap_statistics import ANSWERS_BEYOND, FALSE_ALARM_RATE, paired_shift, working_threshold
from fixtures.judge.rounding import tie_bound
from fixtures.models.canary.checkpoint import load_canary
from fixtures.models.canary.network import Canary
from fixtures.models.canary.tokenizer import load_tokenizer, render_prompt
from fixtures.models.prose.decoder import SOUND, Change, Decoder, Numerics
from fixtures.models.prose.text import Library, divide, read_sections
from fixtures.models.prose.train import SHAPE

CHECKPOINT = Path(__file__).parent.parent / "fixtures/models/prose/checkpoint"
ROWS, TOKENS = 1024, 64
"""Answers of an arm and tokens of an answer: 65,536 tokens."""
SHAPES = {"sound": ROWS, "sound, 256 at once": 256}


def bits(kept: int) -> Change:
    """Rounds the significand to `kept` bits."""

    def change(x: Tensor) -> Tensor:
        significand, exponent = torch.frexp(x.float())
        return (torch.round(significand * 2.0**kept) * torch.exp2(exponent.float() - kept)).to(x.dtype)

    return change


def through(dtype: torch.dtype) -> Change:
    """Rounds to another dtype and back."""
    return lambda x: x.to(dtype).to(x.dtype)


def whole(levels: int) -> Change:
    """Symmetric integers with a scale for each row of a matrix: 127 levels for 8 bits, 7 for 4."""

    def change(x: Tensor) -> Tensor:
        scale = x.abs().amax(-1, keepdim=True) / levels
        return torch.round(x / scale) * scale

    return change


def stale(every: int) -> Callable[[], Change]:
    """Each `every`-th scale is the one that was used before it."""

    def make() -> Change:
        kept: list[Tensor] = []
        count = 0

        def change(x: Tensor) -> Tensor:
            nonlocal count
            count += 1
            late = bool(kept) and count % every == 0
            used = kept[0] if late else x
            kept[:] = [x]
            return used

        return change

    return make


FAULTS: Mapping[str, Sequence[tuple[str, Callable[[], Numerics]]]] = {
    "state kept in a narrower type": [
        ("bf16", lambda: Numerics(state=through(torch.bfloat16))),
        ("5 bits", lambda: Numerics(state=bits(5))),
        ("FP8 e4m3", lambda: Numerics(state=through(torch.float8_e4m3fn))),
    ],
    "beta rounded": [(f"{n} bits", lambda n=n: Numerics(beta=bits(n))) for n in (5, 4, 3, 2)],
    "decay rounded": [(f"{n} bits", lambda n=n: Numerics(log_decay=bits(n))) for n in (5, 4, 3, 2)],
    "normalisation's epsilon": [
        (f"{e:g}", lambda e=e: Numerics(gated_norm_epsilon=e)) for e in (0.0, 1e-5, 1e-4, 1e-3, 1e-2)
    ],
    "head quantised": [
        ("8 bits", lambda: Numerics(head=whole(127))),
        ("6 bits", lambda: Numerics(head=whole(31))),
        ("4 bits", lambda: Numerics(head=whole(7))),
    ],
    "stale scale": [(f"1 in {n}", lambda n=n: Numerics(scale=stale(n)())) for n in (4001, 1001, 201, 51)],
    "one layer's state a step late": [
        (f"1 step in {n}", lambda n=n: Numerics(late_every=n)) for n in (200, 50, 20, 5)
    ],
    "keys and values in FP8": [
        ("e4m3", lambda: Numerics(cache=through(torch.float8_e4m3fn))),
        ("e5m2", lambda: Numerics(cache=through(torch.float8_e5m2))),
    ],
    "softmax rounded": [
        ("bf16", lambda: Numerics(attention=through(torch.bfloat16))),
        ("4 bits", lambda: Numerics(attention=bits(4))),
        ("2 bits", lambda: Numerics(attention=bits(2))),
    ],
    "conv weights rounded": [(f"{n} bits", lambda n=n: Numerics(taps=bits(n))) for n in (5, 4, 3, 2)],
    "margin in the sampler": [
        (f"{m:g} nats", lambda m=m: Numerics(margin=m)) for m in (0.02, 0.05, 0.1, 0.2, 0.5)
    ],
    "beta's logit lowered": [
        (f"{d:g}", lambda d=d: Numerics(beta=lambda x: torch.sigmoid(torch.logit(x) - d)))
        for d in (0.02, 0.05, 0.1, 0.2)
    ],
}


def draw_prompts(text: Path, rows: int, seed: int) -> list[list[int]]:
    """Held-out prompts in chat form, 8 to 30 words each."""
    rng = random.Random(f"numeric faults {seed}")
    library, tokenizer = Library(read_sections(text), "held-out"), load_tokenizer(CHECKPOINT)
    prompts = []
    while len(prompts) < rows:
        document, words = library.draw(rng), rng.randint(8, 30)
        if len(document.text.split()) > words + 1:
            prompts.append(list(tokenizer.encode(render_prompt(divide(document.text, words)[0])).ids))
    return prompts


def answer(
    model: Canary, prompts: Sequence[Sequence[int]], numerics: Callable[[], Numerics], at_once: int
) -> Tensor:
    """`[rows, TOKENS]` ids, `at_once` rows at a time."""
    said = []
    for first in range(0, len(prompts), at_once):
        decoder = Decoder(model, torch.bfloat16, numerics())
        said.append(decoder.answer(prompts[first : first + at_once], TOKENS))
    return torch.cat(said)


@torch.no_grad()  # type: ignore[untyped-decorator]
def read(model: Canary, prompts: Sequence[Sequence[int]], said: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Gap in nats and rank (from 1) of each token of each answer, read by prefill, `[rows, TOKENS]`."""
    gaps, ranks = [], []
    for length in sorted({len(p) for p in prompts}):
        rows = [i for i, p in enumerate(prompts) if len(p) == length]
        ids = torch.cat([torch.tensor([list(prompts[i]) for i in rows], device=said.device), said[rows]], 1)
        logits = model.lm_head(model.read(ids)[:, length - 1 : -1]).float()
        chosen = logits.gather(2, said[rows][..., None])
        gaps.append((logits.amax(2, keepdim=True) - chosen)[..., 0].cpu().numpy())
        ranks.append(1 + (logits > chosen).sum(2).cpu().numpy())
    order = np.argsort(
        [i for n in sorted({len(p) for p in prompts}) for i, p in enumerate(prompts) if len(p) == n]
    )
    return np.concatenate(gaps)[order], np.concatenate(ranks)[order]


def arms() -> Iterator[tuple[str, Callable[[], Numerics], int]]:
    """Name, numbers and rows at once of each arm, the sound ones first."""
    for name, at_once in SHAPES.items():
        yield name, lambda: SOUND, at_once
    for fault, doses in FAULTS.items():
        for dose, numerics in doses:
            yield f"{fault}: {dose}", numerics, ROWS


def say(text: Path, out: Path, seeds: int) -> None:
    """Answer and read; the sound arms once for each of `seeds` sets of prompts, the faults for the first set."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = load_canary(CHECKPOINT, "good", SHAPE).to(device).to(torch.bfloat16)
    kept: dict[str, np.ndarray] = {}
    started = time.monotonic()
    for seed in range(seeds):
        prompts = draw_prompts(text, ROWS, seed)
        for name, numerics, at_once in arms():
            if seed and name not in SHAPES:
                break
            said = answer(model, prompts, numerics, at_once)
            gaps, ranks = read(model, prompts, said)
            kept[f"{seed}|{name}|ids"] = said.cpu().numpy().astype(np.int16)
            kept[f"{seed}|{name}|gaps"] = gaps.astype(np.float32)
            kept[f"{seed}|{name}|ranks"] = ranks.astype(np.int16)
            spent = time.monotonic() - started
            print(
                f"{spent:.0f} s {seed} {name}: share {np.mean(gaps > 0):.4f} largest {gaps.max():.3f}",
                flush=True,
            )
        np.savez_compressed(out, **kept)


SIZES = (2_000, 10_000, 50_000)
LEVEL = FALSE_ALARM_RATE / 3
HARD = tie_bound((), "bfloat16", magnitude=16.0, layers=6)
"""Largest logits of the prose model are 14 to 16."""
WINDOW = 65
"""Answers of one run of the suite."""


def seen(said: np.ndarray, null: np.ndarray) -> str:
    """How the judge of gaps sees an arm, from gaps `[answers, TOKENS]`; `-` where it does not."""
    threshold = working_threshold(null[null > 0].tolist(), said.size, null.size)
    ways = ["wrong token"] if (said > HARD.nats).any() else []
    if threshold is None:
        return ", ".join(ways) or "(null too small)"
    sizes = said.size, null.size
    if paired_shift((said > 0).sum(1).tolist(), (null > 0).sum(1).tolist(), sizes, LEVEL).significant:
        ways.append("number")
    clipped = (np.minimum(x, threshold).sum(1).tolist() for x in (said, null))
    if paired_shift(*clipped, sizes, LEVEL).significant:
        ways.append("size")
    if int((said > threshold).any(1).sum()) >= ANSWERS_BEYOND:
        ways.append("threshold")
    return ", ".join(ways) or "-"


def seen_at_first_divergence(ids: np.ndarray, gaps: np.ndarray, own: np.ndarray) -> str:
    """How many answers the judge of first divergences rejects: where the first other token is beyond the bound."""
    differs = ids != own
    rows = differs.any(1)
    first = differs.argmax(1)
    wrong = int((gaps[rows, first[rows]] > HARD.nats).sum())
    return f"{wrong} of {int(rows.sum())}" if wrong else "-"


def table(path: Path) -> Iterator[str]:
    """Lines of a Markdown table: for each fault and dose what sees it with so many tokens."""
    kept = np.load(path)
    null, own = kept["0|sound|gaps"], kept["0|sound|ids"]
    heads = [f"gaps, {size:,} tokens" for size in SIZES] + [f"first divergence, {SIZES[-1]:,}"]
    yield "| fault | not first choice | largest gap | " + " | ".join(heads) + " |"
    yield "| --- | --- | --- |" + " --- |" * len(heads)
    for name in dict.fromkeys(key.split("|")[1] for key in kept.files if key.startswith("0|")):
        gaps, ids = kept[f"0|{name}|gaps"], kept[f"0|{name}|ids"]
        rows = [min(size // TOKENS, len(gaps)) for size in SIZES]
        cells = [seen(gaps[:n], null[:n]) for n in rows]
        cells.append(seen_at_first_divergence(ids[: rows[-1]], gaps[: rows[-1]], own[: rows[-1]]))
        yield f"| {name} | {np.mean(gaps > 0):.2%} | {gaps.max():.2f} | " + " | ".join(cells) + " |"
    runs = alarms = 0
    other = list(SHAPES)[1]
    for seed in sorted({key.split("|")[0] for key in kept.files}):
        pair = kept[f"{seed}|{other}|gaps"], kept[f"{seed}|sound|gaps"]
        for first in range(0, len(pair[0]) - WINDOW + 1, WINDOW):
            runs += 1
            alarms += seen(*(gaps[first : first + WINDOW] for gaps in pair)) not in ("-", "(null too small)")
    yield ""
    yield f"False alarms on sound arithmetic in another batch shape: {alarms} of {runs} runs of {WINDOW} answers."


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    saying = commands.add_parser("say", help="answer and read")
    saying.add_argument("--text", type=Path, required=True, help="folder with kjv.txt and jargon.txt")
    saying.add_argument("--out", type=Path, required=True)
    saying.add_argument("--seeds", type=int, default=3, help="sets of prompts for the sound arms")
    tabling = commands.add_parser("table", help="the table of power")
    tabling.add_argument("answers", type=Path)
    options = parser.parse_args()
    if options.command == "say":
        say(options.text, options.out, options.seeds)
    else:
        print("\n".join(table(options.answers)))


if __name__ == "__main__":
    main()
