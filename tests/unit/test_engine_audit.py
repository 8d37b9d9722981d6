"""The audit, the classes of start-up failures, and the launch spec, on made process reports and logs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from fixtures.engine import audit as auditing
from fixtures.engine import startup
from fixtures.engine.launch import LaunchSpec, plan
from fixtures.lanes.lane import load_lane

PACKAGE = Path("/venv/vllm")
ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1"}


@pytest.fixture
def spec() -> LaunchSpec:
    return plan(load_lane("canary-cpu"), role="candidate")


def statements(spec: LaunchSpec, **changes: Any) -> list[auditing.ProcessReport]:
    """An API server and an engine core that are what was asked for, except for `changes` in the core."""
    config: dict[str, Any] = {}
    for path, value in (dict(spec.expected) | changes.pop("config", {})).items():
        part, name = path.split(".")
        config.setdefault(part, {})[name] = value
    facts: dict[str, Any] = {
        "environment": ENVIRONMENT,
        "vllm_file": PACKAGE / "__init__.py",
        "version": "0.32.0",
    }
    core = auditing.ProcessReport("engine", 2, config=config, **(facts | changes))
    return [auditing.ProcessReport("process", 1, facts["vllm_file"], ENVIRONMENT, {}), core]


def differences(spec: LaunchSpec, reports: list[auditing.ProcessReport]) -> list[str]:
    found = auditing.audit(spec, reports, package_dir=PACKAGE, version="0.32.0", environment=ENVIRONMENT)
    return [d.what for d in found]


def test_what_was_asked_passes(spec: LaunchSpec) -> None:
    assert differences(spec, statements(spec)) == []


def test_a_variable_that_a_wrapper_overrode_is_found(spec: LaunchSpec) -> None:
    found = differences(spec, statements(spec, environment={"VLLM_CPU_KVCACHE_SPACE": "8"}))
    assert found == ["environment VLLM_CPU_KVCACHE_SPACE of process 2"]


def test_a_second_engine_earlier_on_the_path_is_found(spec: LaunchSpec) -> None:
    found = differences(spec, statements(spec, vllm_file=Path("/elsewhere/vllm/__init__.py")))
    assert found == ["engine package of process 2"]


@pytest.mark.parametrize(
    ("path", "ran"),
    [
        ("cache_config.enable_prefix_caching", True),
        ("speculative_config.method", "ngram"),
        ("speculative_config.num_speculative_tokens", 2),
        ("model_config.dtype", "torch.float16"),
        ("model_config.enforce_eager", False),
        ("scheduler_config.max_num_seqs", None),
    ],
)
def test_a_flag_that_became_something_else_is_found(spec: LaunchSpec, path: str, ran: object) -> None:
    assert differences(spec, statements(spec, config={path: ran})) == [path]


def test_no_process_report_of_the_engine_core_is_no_pass(spec: LaunchSpec) -> None:
    assert differences(spec, statements(spec)[:1]) == ["engine core"]


def test_another_version_is_found(spec: LaunchSpec) -> None:
    assert differences(spec, statements(spec, version="0.31.0")) == ["engine version"]


@pytest.mark.parametrize(
    "change",
    [
        {"replicate": 2},
        {"stack_digest": "other"},
        {"arguments": ("--seed", "1")},
        {"environment": (("A", "B"),)},
        {"model": Path("/other")},
    ],
)
def test_whatever_reaches_the_server_changes_the_digest(spec: LaunchSpec, change: dict[str, Any]) -> None:
    assert dataclasses.replace(spec, **change).digest != spec.digest


def test_the_name_of_the_lane_does_not_change_the_digest(spec: LaunchSpec) -> None:
    assert dataclasses.replace(spec, lane="other", role="other").digest == spec.digest


@pytest.mark.parametrize(
    ("log", "code", "cause"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory", 1, "out of memory"),
        ("OSError: [Errno 98] Address already in use", 1, "port taken"),
        ("RuntimeError: Cannot find any model weights with `/m`", 1, "incomplete model folder"),
        ("ValueError: Model architectures ['X'] are not supported for now", 1, "unsupported model"),
        ("ModuleNotFoundError: No module named 'vllm'", 1, "import error"),
        (
            "RuntimeError: level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)",
            1,
            "device lost",
        ),
        ("api_server.py: error: unrecognized arguments: --nonsense", 2, "bad argument"),
        ("starting", 132, "illegal instruction"),
        ("starting", 137, "killed"),
        ("starting", 1, "died"),
        ("Loading weights took 3 s", None, "hang"),
    ],
)
def test_a_failed_start_has_a_named_cause(log: str, code: int | None, cause: str) -> None:
    failure = startup.classify(f"INFO first\n{log}\n", code, 12.0)
    assert failure.cause == cause
    assert 1 <= len(failure.log_lines) <= 10


def test_a_scripted_lane_expects_what_the_engine_calls_it() -> None:
    """The lane says `scripted`, the engine says `custom_class`."""
    scripted = plan(load_lane("canary-cpu-uniform"), role="candidate")
    assert scripted.expected["speculative_config.method"] == "custom_class"
