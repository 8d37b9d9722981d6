"""Loads the plugins of draftproof; everything else lives in fixtures/."""

pytest_plugins = [
    "fixtures.options",
    "fixtures.gdn.plugin",
    "fixtures.layers.plugin",
    "fixtures.evidence.plugin",
    "fixtures.session.given",
    "fixtures.session.order",
    "fixtures.session.plugin",
    "fixtures.session.quality",
    "fixtures.gate.plugin",
    "fixtures.fault_injection.plugin",
    "fixtures.session.outcome",
    "fixtures.doctor.plugin",
]
