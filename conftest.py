"""Loads the plugins of draftproof; everything else lives in fixtures/.

Their order decides nothing: options are parsed when they are first asked for (`fixtures.request`), and hooks that have
to come before or after others say so themselves (`tryfirst`, `trylast`, wrappers).
"""

import importlib.util
import sys

NEEDED = (
    "pydantic",
    "numpy",
    "scipy",
    "httpx",
    "msgspec",
    "filelock",
    "psutil",
    "unidiff",
    "hypothesis",
    "jinja2",
)
"""Packages without which no plugin can be loaded."""

if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
    print(
        f"draftproof is not set up in this Python ({sys.executable}): {', '.join(missing)} not installed.\n"
        "Run ./draftproof test, or pip install -e '.[cpu,dev]' in the checkout.",
        file=sys.stderr,
    )
    raise SystemExit(4)

pytest_plugins = [
    "fixtures.options",
    "fixtures.gdn.plugin",
    "fixtures.layers.plugin",
    "fixtures.steps.plugin",
    "fixtures.runner.plugin",
    "fixtures.evidence.plugin",
    "fixtures.report.plugin",
    "fixtures.arms.external",
    "fixtures.run.selection",
    "fixtures.run.progress",
    "fixtures.run.findings",
    "fixtures.run.fail_closed",
    "fixtures.run.plugin",
    "fixtures.run.plan_text",
    "fixtures.subject_process.plugin",
    "fixtures.traffic.plugin",
    "fixtures.gate.plugin",
    "fixtures.fault_injection.plugin",
    "fixtures.run.outcome",
    "fixtures.run.ending",
    "fixtures.doctor.plugin",
]
