"""How sharp and how quiet the test of sampled answers is: alarms on one distribution, and shifts that are planted.

    python -m benchmarks.sampling [--pairs 2000] [PACKET]

Made-up answers first: pairs of samples from one distribution whose tokens depend on each other; how often p falls
below a level has to be that level. With the packet of a `-m sampling` run, target-only's real answers as well: pairs
are drawn from them again and again, as they are and with 5 % moved from the commonest token to the next.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from fixtures.evidence.reading import InvalidEvidence, read_packet
from fixtures.judge.sampling import DETECT_SHIFT, FALSE_ALARM_RATE, Answer, Sample, compare_samples
from fixtures.workload.sampling import ANSWERS, PROMPTS, TOKENS

SEED = 7
SHARES = (0.20, 0.15, 0.12, 0.10, 0.09, 0.08, 0.07, 0.06, 0.05, 0.04, 0.04)
"""Shares of the made-up tokens."""
STAY = 0.3
"""Probability with which a made-up token repeats the one before."""
LEVELS = (0.1, 0.01, 0.001, 0.0001)


def made_up(rng: np.random.Generator) -> list[list[int]]:
    """One sample of as many answers of as many tokens as a run draws."""
    tokens = rng.choice(len(SHARES), size=(ANSWERS, TOKENS), p=SHARES)
    stays = rng.random((ANSWERS, TOKENS)) < STAY
    for place in range(1, TOKENS):
        tokens[:, place] = np.where(stays[:, place], tokens[:, place - 1], tokens[:, place])
    return list(tokens.tolist())


def redrawn(answers: Sequence[Answer], rng: np.random.Generator) -> list[Answer]:
    """As many of the answers as a run draws, each of them as often as chance has it."""
    return [answers[i] for i in rng.integers(len(answers), size=ANSWERS)]


def shifted(answers: Sequence[Answer], rng: np.random.Generator) -> list[list[int]]:
    """The answers with `DETECT_SHIFT` of all tokens moved from the commonest to the next.

    Raises:
        ValueError: the commonest token is rarer than that.
    """
    counts = Counter(token for answer in answers for token in answer)
    (commonest, count), (following, _) = counts.most_common(2)
    moved = DETECT_SHIFT * counts.total() / count
    if moved > 1:
        raise ValueError(f"the commonest token has a share of {count / counts.total():.3f}: nothing to move")
    return [[following if t == commonest and rng.random() < moved else t for t in a] for a in answers]


def p_values(pairs: Iterator[tuple[Sequence[Answer], Sequence[Answer]]]) -> list[float]:
    """p of each pair; a pair that cannot be compared counts as certainly the same."""
    found = (compare_samples(first, second).p for first, second in pairs)
    return [1.0 if p is None else p for p in found]


def told(name: str, p: Sequence[float], levels: Sequence[float]) -> str:
    """One line: how many of the p fall below each level, beside how many should."""
    counts = (
        f"{sum(x < level for x in p)} below {level:g} ({len(p) * level:g} expected)" for level in levels
    )
    return f"{name}: {len(p)} pairs: {', '.join(counts)}; least {min(p):.2g}"


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sampling",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("packet", nargs="?", type=Path, help="packet of a run of -m sampling")
    parser.add_argument("--pairs", type=int, default=2000, help="pairs of samples (default: 2000)")
    options = parser.parse_args()
    if options.pairs < 1:
        parser.error(f"--pairs {options.pairs}: at least 1")
    rng, pairs = np.random.default_rng(SEED), range(options.pairs)
    if options.packet is not None:
        try:
            rows = read_packet(options.packet).rows
        except InvalidEvidence as error:
            parser.error(f"{options.packet}: {error}")
        roles = {row["arm"]: row["role"] for row in rows.get("arm", ())}
        samples = [s for s in map(Sample, rows.get("sample", ())) if roles.get(s.arm) == "target"]
        if not samples:
            parser.error(f"{options.packet}: no sampled answers of target-only")
    print(told("made up", p_values((made_up(rng), made_up(rng)) for _ in pairs), LEVELS), flush=True)
    level = FALSE_ALARM_RATE / len(PROMPTS)
    for sample in samples if options.packet is not None else ():
        said = sample.answers
        same = p_values((redrawn(said, rng), redrawn(said, rng)) for _ in pairs)
        print(told(f"{sample.prompt}, as it is", same, LEVELS), flush=True)
        other = p_values((redrawn(said, rng), shifted(redrawn(said, rng), rng)) for _ in pairs)
        seen = sum(p < level for p in other)
        print(f"{sample.prompt}, {DETECT_SHIFT:.0%} moved: {seen} of {len(other)} rejected at {level:g}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
