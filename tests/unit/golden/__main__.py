"""The stand-in server as a process of its own, so that a client's CPU time holds nothing of the server.

`python -m tests.unit.golden --events N --per-second R` prints its address and serves the same stream to every
request; `GET /sent` gives the send times of the last stream. It ends when its standard input is closed.
"""

from __future__ import annotations

import argparse
import json
import sys

from tests.unit.golden.script import Script, plain, script, stream, usage
from tests.unit.golden.server import Exchange, GoldenServer


def main() -> None:
    """Serve until standard input ends."""
    options = argparse.ArgumentParser(prog="python -m tests.unit.golden")
    options.add_argument("--events", type=int, required=True)
    options.add_argument("--per-second", type=float, required=True, help="0: no pauses")
    asked = options.parse_args()
    wait_s = 1 / asked.per_second if asked.per_second else 0.0
    counted = usage(3, asked.events)
    paced = script(stream([" word"] * asked.events, role_wait_s=0.0, wait_s=wait_s, usage=counted))
    quick = script(stream([" word"] * 200, role_wait_s=0.0, usage=usage(3, 200)))

    def reply(request: Exchange) -> Script:
        if request.route == "/sent":
            last = next(e for e in reversed(server.exchanges) if e.script is paced)
            return plain(200, json.dumps(last.id_before_ns).encode())
        # A request for few tokens is a client's warm-up.
        return quick if (request.json.get("max_tokens") or asked.events) < asked.events else paced

    with GoldenServer(reply) as server:
        print(server.base_url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
