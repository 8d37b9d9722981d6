"""Why a server did not come up, from logs written in the style of the engine's: cause, and the lines that matter."""

from __future__ import annotations

import pytest

from fixtures.engine import startup, vllm

NOISE = [
    "INFO 07-01 10:00:00 [api_server.py:100] vLLM API server version 0.0.0",
    "INFO 07-01 10:00:01 [api_utils.py:10] non-default args: {'model': '/m'}",
    "WARNING 07-01 10:00:02 [cpu.py:5] something that is not an error at all",
]
TRACE = [
    "(EngineCore pid=7) ERROR 07-01 10:00:09 [core.py:9] EngineCore failed to start.",
    "(EngineCore pid=7) ERROR 07-01 10:00:09 [core.py:9] Traceback (most recent call last):",
]
END = ["RuntimeError: Engine core initialization failed. See root cause above."]

SAMPLES: dict[str, tuple[str, str, int | None]] = {
    "cuda-memory": (
        "out of memory",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.",
        1,
    ),
    "xpu-memory": ("out of memory", "RuntimeError: level_zero: UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY", 1),
    "rocm-memory": ("out of memory", "torch.OutOfMemoryError: HIP out of memory.", 1),
    "host-memory": ("out of memory", "RuntimeError: [enforce fail] Cannot allocate memory: 8 GiB", 1),
    "cache-memory": ("out of memory", "ValueError: No available memory for the cache blocks.", 1),
    "utilisation": (
        "out of memory",
        "ValueError: Free memory on device (1/32 GiB) on startup is less than desired GPU memory utilization",
        1,
    ),
    "port": ("port taken", "OSError: [Errno 98] Address already in use", 1),
    "sigill-in-core": ("illegal instruction", "RuntimeError: worker died with SIGILL", 1),
    "exit-code-minus-4": ("illegal instruction", "Process EngineCore finished with exit code -4", 1),
    "level-zero-lost": (
        "device lost",
        "RuntimeError: backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)",
        1,
    ),
    "cuda-lost": ("device lost", "RuntimeError: CUDA error: unspecified launch failure", 1),
    "rocm-lost": ("device lost", "RuntimeError: HIP error: device kernel image is invalid", 1),
    "no-xpu": ("device lost", "RuntimeError: No XPU GPUs are available", 1),
    "no-weights": ("incomplete model folder", "RuntimeError: Cannot find any model weights with `/m`", 1),
    "no-tokenizer": ("incomplete model folder", "OSError: Can't load tokenizer for '/m'.", 1),
    "architecture": (
        "unsupported model",
        "ValueError: Model architectures ['X'] are not supported for now.",
        1,
    ),
    "model-type": (
        "unsupported model",
        "model type `x` but Transformers does not recognize this architecture",
        1,
    ),
    "quantisation": ("unsupported model", "ValueError: Unknown quantization method: x.", 1),
    "no-module": ("import error", "ModuleNotFoundError: No module named 'vllm'", 1),
    "library": ("import error", "OSError: libze_loader.so.1: cannot open shared object file", 1),
    "symbol": ("import error", "ImportError: _C.so: undefined symbol: _ZN3c10", 1),
    "argument": ("bad argument", "api_server.py: error: unrecognized arguments: --nonsense", 2),
    "sigill": ("illegal instruction", "", 132),
    "killed": ("killed", "", 137),
    "unknown": ("died", "", 1),
    "still-running": ("hang", "INFO Loading weights took 3 s", None),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_failed_start_is_named_and_shown_in_the_lines_that_matter(name: str) -> None:
    """The cause stands behind noise and before a general error; at most ten lines, the telling one among them."""
    cause, line, code = SAMPLES[name]
    log = "\n".join(
        [*NOISE * 5, *(TRACE if code == 1 and line else []), line, *(END if code == 1 and line else [])]
    )
    failure = startup.classify(log, code, 12.0)
    assert failure.cause == cause
    assert 1 <= len(failure.log_lines) <= 10
    if line and code is not None:
        assert line in failure.message
        assert any(line in shown for shown in failure.log_lines), failure.log_lines
    if code is None:
        assert "loading weights" in failure.message


def test_a_log_without_any_trouble_has_no_cause_in_it() -> None:
    """The quiet side: what an engine says on its way up is taken for no cause, only the exit code is left."""
    phases = [text for text, _ in vllm.PHASES]
    assert startup.classify("\n".join([*NOISE, *phases]), 1, 1.0).cause == "died"


def test_every_cause_has_a_sample() -> None:
    """A pattern that nothing shows working may match nothing."""
    known = {cause for cause, _ in vllm.CAUSES} | {"killed", "died", "hang", "illegal instruction"}
    assert known == {cause for cause, _, _ in SAMPLES.values()}


def test_a_hang_comes_with_the_stacks_that_were_dumped() -> None:
    failure = startup.classify("", None, 300.0, "Thread 1 (idle): futex_wait")
    assert "futex_wait" in str(failure)
