"""Loads the plugins of draftproof; everything else lives in fixtures/."""

pytest_plugins = [
    "fixtures.options",
    "fixtures.gdn.plugin",
    "fixtures.evidence.plugin",
    "fixtures.session.plugin",
    "fixtures.session.gate",
    "fixtures.session.seeding",
    "fixtures.session.outcome",
    "fixtures.session.doctor",
]
