"""Loads the plugins of draftproof; everything else lives in fixtures/."""

pytest_plugins = [
    "fixtures.options",
    "fixtures.gdn.plugin",
    "fixtures.layers.plugin",
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
