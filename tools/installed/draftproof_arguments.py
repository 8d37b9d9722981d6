"""The only module that pip installs: `--evidence DIR` means the same wherever DIR is.

pytest chooses its root folder from every word of the command line that is an existing path, before it knows which words
belong to options. An existing DIR outside the checkout would become the root, and the options of the checkout would be
unknown. As `--evidence=DIR` it is one word, and no path.

Standard library and pytest only: the launcher `./draftproof` uses this module before anything is installed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

TAKE_A_PATH = ("--evidence", "--packets", "--lane")
"""Options of the suite whose value can be a path that exists."""


def joined(arguments: Sequence[str]) -> list[str]:
    """The arguments, with each option of `TAKE_A_PATH` and its value as one word."""
    words, found = iter(arguments), []
    for word in words:
        value = next(words, None) if word in TAKE_A_PATH else None
        found.append(word if value is None else f"{word}={value}")
    return found


def checkout_around(folder: Path) -> Path | None:
    """The checkout of draftproof that a folder belongs to; `None` outside of any."""
    return next((f for f in (folder, *folder.parents) if (f / "fixtures" / "options.py").is_file()), None)


def pytest_load_initial_conftests(early_config: object) -> None:
    """Start pytest again with the options joined, where it missed the checkout that it was started in."""
    invocation = early_config.invocation_params  # type: ignore[attr-defined]
    root = early_config.rootpath  # type: ignore[attr-defined]
    given = [str(word) for word in invocation.args]
    if joined(given) == given or checkout_around(root) or not checkout_around(Path(invocation.dir)):
        return
    command = [sys.executable, "-m", "pytest", *joined(given)]
    raise SystemExit(subprocess.call(command, cwd=invocation.dir))
