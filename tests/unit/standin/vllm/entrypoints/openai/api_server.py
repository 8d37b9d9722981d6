"""A stand-in server: a child that must not survive, a socket file, shared memory, then loopback HTTP.

`STANDIN_START_S` is the time until it listens; `STANDIN_NOTES` a folder in which it notes its port by process id.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

ANSWER = {"role": "assistant", "content": "ready"}


class Handler(BaseHTTPRequestHandler):
    """`/health`, what the server says about itself, and one answer of two ids to everything that is posted."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        said: dict[str, Any] = {}
        if self.path == "/version":
            said = {"version": os.environ.get("STANDIN_VERSION", "0.32.0")}
        elif self.path == "/v1/models":
            card = {"id": option("--served-model-name"), "root": option("--model"), "max_model_len": 2048}
            said = {"data": [card]}
        elif self.path == "/metrics":
            caching = os.environ.get("STANDIN_CACHING", "False")
            self._send(
                "text/plain", f'vllm:cache_config_info{{enable_prefix_caching="{caching}"}} 1.0\n'.encode()
            )
            return
        self._send("application/json", json.dumps(said).encode())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        choice = {"index": 0, "delta": ANSWER, "token_ids": [1, 2], "finish_reason": "stop"}
        events: list[dict[str, Any]] = [
            {"choices": [choice], "prompt_token_ids": [1]},
            {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}},
        ]
        body = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        self._send("text/event-stream", body.encode())

    def _send(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def option(name: str, default: str = "") -> str:
    """The value of an option of the command line."""
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


def main() -> None:
    """Do what an engine does, in no time."""
    print("non-default args: stand-in", flush=True)
    memory = shared_memory.SharedMemory(create=True, size=4096)
    child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(120)"
    subprocess.Popen([sys.executable, "-S", "-c", child])
    if folder := os.environ.get("VLLM_RPC_BASE_PATH"):
        channel = socket.socket(socket.AF_UNIX)
        channel.bind(f"{folder}/{'0' * 36}")
    time.sleep(float(os.environ["STANDIN_START_S"]))
    server = ThreadingHTTPServer(("127.0.0.1", int(option("--port", "0"))), Handler)
    notes = Path(os.environ["STANDIN_NOTES"])
    (notes / str(os.getpid())).write_text(f"{server.server_port} {memory.name}")
    print("Application startup complete", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
