"""Result files of other tools, made up: sound ones, for tests to change."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np

from fixtures.evidence.verify import Report
from fixtures.judge.finding import Outcome

LAB_ROW = Path(__file__).parent / "data" / "lab-row-incident-retrospective.json"
"""A row that the lab published."""


def written(tmp_path: Path, data: object, name: str = "result.json") -> Path:
    """A file with `data`: bytes as they are, anything else as JSON."""
    path = tmp_path / name
    path.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
    return path


def checks(report: Report, outcome: Outcome) -> set[str]:
    """Checks of a report that came to an outcome."""
    return {f.check for f in report.findings if f.outcome is outcome}


def messages(report: Report, check: str, outcome: Outcome | None = None) -> list[str]:
    return [f.message for f in report.findings if f.check == check and outcome in (None, f.outcome)]


def vllm_run(requests: int = 6, failed: int = 0, seed: int = 3) -> dict[str, Any]:
    """What vllm bench serve --save-detailed writes, with every number right; failures come last."""
    draw = random.Random(seed)
    itls = [[draw.uniform(0.008, 0.012) for _ in range(119)] for _ in range(requests)]
    ttfts = [draw.uniform(0.1, 0.2) for _ in range(requests)]
    latencies = [t + sum(g) for t, g in zip(ttfts, itls, strict=True)]
    tpots = [(e - t) / 119 for e, t in zip(latencies, ttfts, strict=True)]
    duration = max(latencies) + 0.5
    gaps = [g for one in itls for g in one]
    run: dict[str, Any] = {"num_prompts": requests + failed, "request_rate": "inf", "duration": duration}
    run |= {"completed": requests, "failed": failed, "total_input_tokens": 10 * requests}
    run |= {"total_output_tokens": 120 * requests, "request_throughput": requests / duration}
    run |= {
        "output_throughput": 120 * requests / duration,
        "total_token_throughput": 130 * requests / duration,
    }
    for name, values in (("ttft", ttfts), ("tpot", tpots), ("itl", gaps), ("e2el", latencies)):
        run |= {
            f"mean_{name}_ms": float(np.mean(values)) * 1000,
            f"median_{name}_ms": float(np.median(values)) * 1000,
            f"std_{name}_ms": float(np.std(values)) * 1000,
            f"p99_{name}_ms": float(np.percentile(values, 99)) * 1000,
        }
    run |= {"input_lens": [10] * (requests + failed), "output_lens": [120] * requests + [0] * failed}
    run |= {"ttfts": ttfts + [0.0] * failed, "itls": itls + [[]] * failed}
    run |= {"latencies": latencies + [0.0] * failed, "start_times": [100.0] * (requests + failed)}
    run |= {"errors": [""] * requests + ["Bad Gateway"] * failed}
    return run


def sglang_run(chunk: int = 4) -> dict[str, Any]:
    """What sglang's native backend writes: each chunk's gap spread over its tokens."""
    draw = random.Random(5)
    itls = [[gap for _ in range(30) for gap in [draw.uniform(0.002, 0.004)] * chunk] for _ in range(4)]
    run = {"backend": "sglang", "request_rate": float("inf"), "duration": 9.0, "completed": 4}
    run |= {
        "total_output_tokens": 4 * (1 + 30 * chunk),
        "total_output_tokens_retokenized": 480,
        "accept_length": None,
    }
    run |= {"output_lens": [1 + 30 * chunk] * 4, "ttfts": [0.1] * 4, "itls": itls, "errors": [""] * 4}
    return run | {"input_lens": [8] * 4, "mean_ttft_ms": 100.0}


def benchy_report() -> dict[str, Any]:
    def block(*values: float) -> dict[str, Any]:
        return {"mean": float(np.mean(values)), "std": float(np.std(values)), "values": list(values)}

    test = {"concurrency": 1, "context_size": 0, "prompt_size": 512, "response_size": 128}
    test |= {
        "is_context_prefill_phase": False,
        "pp_throughput": block(900.0, 950.0),
        "tg_throughput": block(50.0, 54.0),
    }
    test |= {"ttfr": block(570.0, 540.0), "est_ppt": block(568.0, 538.0), "e2e_ttft": block(580.0, 550.0)}
    return {
        "version": "0.3.0",
        "latency_mode": "api",
        "latency_ms": 2.0,
        "max_concurrency": 1,
        "benchmarks": [test],
    }


def aiperf_record(number: int, **changes: Any) -> dict[str, Any]:
    gaps = [9.0 + 0.01 * i for i in range(9)]
    latency = 500.0 + sum(gaps)
    metrics = {
        "output_sequence_length": {"value": 10, "unit": "tokens"},
        "time_to_first_token": {"value": 500.0, "unit": "ms"},
        "request_latency": {"value": latency, "unit": "ms"},
        "inter_token_latency": {"value": (latency - 500) / 9, "unit": "ms"},
        "inter_chunk_latency": {"value": gaps, "unit": "ms"},
    }
    about = {"session_num": number, "x_request_id": f"r{number}", "benchmark_phase": "profiling"}
    return {"metadata": about, "metrics": metrics, "error": None} | changes


def lines(*records: object) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def guidellm_report(requests: int = 4) -> dict[str, Any]:
    successful = []
    for i in range(requests):
        start = 1_760_000_000.0 + 3 * i
        first, last = start + 0.5 + i / 100, start + 1.7
        timings = {"request_start": start, "first_token_iteration": first, "last_token_iteration": last}
        timings |= {"request_end": start + 1.75, "token_iterations": 60}
        request = {
            "request_id": f"q{i}",
            "info": {"timings": timings},
            "output_metrics": {"text_tokens": 120},
        }
        request |= {
            "time_to_first_token_ms": 1000 * (first - start),
            "request_latency": 1.75,
            "output_tokens": 120,
        }
        request |= {
            "inter_token_latency_ms": 1000 * (last - first) / 119,
            "output_tokens_per_second": 120 / 1.75,
        }
        successful.append(request)
    ttfts = [r["time_to_first_token_ms"] for r in successful]
    block = {
        "count": requests,
        "min": min(ttfts),
        "max": max(ttfts),
        "mean": sum(ttfts) / requests,
        "median": ttfts[1],
    }
    metrics = {"time_to_first_token_ms": {"successful": block}}
    return {
        "benchmarks": [
            {"requests": {"successful": successful}, "metrics": metrics, "start_time": 1_760_000_000.0}
        ]
    }
