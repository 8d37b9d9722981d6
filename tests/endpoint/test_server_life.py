"""A server's life: what ran is what was asked, and nothing installed was touched."""

from __future__ import annotations

import pytest

from fixtures.arms.arm import Arm
from fixtures.arms.servers import Arms
from fixtures.engine.audit import audit
from fixtures.workload.expectation import Expectation

pytestmark = [pytest.mark.endpoint, pytest.mark.ours("audit")]


def test_what_was_asked_is_what_ran(arm: Arm, arms: Arms) -> None:
    """Flags, environment and package path of the engine's own processes equal the LaunchSpec.

    A launcher once overwrote a requested variable; the arm labelled "off" ran with it on, and only the log knew.
    """
    server = arms.server(arm)
    differences = audit(
        server.spec,
        server.process_reports,
        package_dir=server.overlay.package_dir,
        version=arm.lane.engine.version,
        environment=server.environment,
    )
    Expectation(arm.label).none_wrong("to run as it was launched", "what was asked for", differences)
    engines = [r for r in server.process_reports if r.kind == "engine"]
    assert len(engines) == 1, f"{len(engines)} engine cores wrote a report"
    assert len(server.spec.expected) >= 8, "the audit has to compare something"


def test_the_installed_engine_is_untouched(arm: Arm, arms: Arms) -> None:
    """Patches go onto a copy: the installed package's fingerprint is the one from before the overlay."""
    arms.server(arm).overlay.check_installed_untouched()
