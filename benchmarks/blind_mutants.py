"""Faults that nobody wrote: random mutations of the torch reference, each given to the contracts until one fails.

    python -m benchmarks.blind_mutants --seed 1 --count 50

A mutation is one operator, comparison, constant, sign, condition or call of `fixtures/gdn/reference`, changed in a
copy of the tree. What lives is read by a person: a hole of the contracts, or a change of the text that changes nothing.
"""

from __future__ import annotations

import argparse
import ast
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from fixtures.lanes.lane import REPOSITORY

REFERENCE = Path("fixtures/gdn/reference")
TREE = ("fixtures", "tests", "patches", "conftest.py", "pyproject.toml")
OTHER: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
PLAIN_CALLS = ("clone", "contiguous", "float", "to", "clamp")
"""Methods whose result is replaced by what they are called on."""
LIMIT_S = 300.0

Change = Callable[[], ast.AST | None]
"""Changes a node in place, or returns what stands in its place."""


def changes(node: ast.AST) -> Iterator[Change]:
    """What can be done to a node."""
    match node:
        case ast.BinOp() | ast.BoolOp() if type(node.op) in OTHER:
            yield lambda: setattr(node, "op", OTHER[type(node.op)]())
        case ast.Compare() if type(node.ops[0]) in OTHER:
            yield lambda: node.ops.__setitem__(0, OTHER[type(node.ops[0])]())  # type: ignore[call-overload]
        case ast.Constant(value=bool()):
            yield lambda: setattr(node, "value", not node.value)
        case ast.Constant(value=int() as number):
            yield lambda: setattr(node, "value", number + 1)
        case ast.Constant(value=float() as number):
            yield lambda: setattr(node, "value", number * 1.01)
        case ast.UnaryOp(op=ast.USub() | ast.Not()):
            yield lambda: node.operand
        case ast.Expr(value=ast.Call()):
            yield ast.Pass
        case ast.If():
            yield lambda: setattr(node, "test", ast.Constant(False))
        case ast.Call(func=ast.Attribute(attr=name) as method) if name in PLAIN_CALLS:
            yield lambda: method.value


class Mutation(ast.NodeTransformer):
    """Makes the change with a number, counted over a whole file."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.what = ""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Count changes on the way down; the wanted one is made."""
        for change in changes(node):
            if self.left == 0:
                self.what = f"line {node.lineno}: {ast.unparse(node).splitlines()[0]}"  # type: ignore[attr-defined]
                self.left -= 1
                return change() or node
            self.left -= 1
        return super().generic_visit(node)


def mutated(source: str, number: int) -> tuple[str, str]:
    """A source with one change, and what was changed; empty words where there are not so many."""
    mutation = Mutation(number)
    tree = ast.fix_missing_locations(mutation.visit(ast.parse(source)))
    return ast.unparse(tree), mutation.what


def every_mutation(tree: Path) -> list[tuple[Path, int]]:
    """File and number of every change."""
    found = []
    for file in sorted((tree / REFERENCE).glob("*.py")):
        number = 0
        while mutated(file.read_text(encoding="utf-8"), number)[1]:
            found.append((file, number))
            number += 1
    return found


def try_one(tree: Path, file: Path, number: int) -> str:
    """Plant one mutation, run the contracts until one fails, take it out; a row of the table."""
    source = file.read_text(encoding="utf-8")
    text, what = mutated(source, number)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += [
        "-m",
        "contracts",
        "--subject",
        "torch",
        "tests/contracts",
        "--ignore",
        "tests/contracts/layers",
    ]
    file.write_text(text, encoding="utf-8")
    began = time.monotonic()
    try:
        run = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        said, code = run.stdout, run.returncode
    except subprocess.TimeoutExpired:
        said, code = "", -1
    finally:
        file.write_text(source, encoding="utf-8")
    first = next((line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))), "no end")
    test = first.split(" - ")[0].rpartition("::")[2]
    verdict = "**lives**" if code == 0 else f"`{test}`"
    return f"| {file.name} | `{what}` | {verdict} | {time.monotonic() - began:.0f} |"


def main() -> None:
    """Try some mutations and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=50)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for name in TREE:
            copy = shutil.copytree if (REPOSITORY / name).is_dir() else shutil.copy
            copy(REPOSITORY / name, tree / name)
        pool = every_mutation(tree)
        random.Random(options.seed).shuffle(pool)
        print(f"{len(pool)} mutations, {min(options.count, len(pool))} of them tried\n")
        print("| file | changed | killed by | s |\n| --- | --- | --- | --- |", flush=True)
        for file, number in pool[: options.count]:
            print(try_one(tree, file, number), flush=True)


if __name__ == "__main__":
    main()
