"""The stand-in server: one thread a connection, sends a script and writes down when it sent what."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tests.unit.golden.script import Script, plain


@dataclass
class Exchange:
    """One request and when each send of its answer was handed to the kernel (`time.monotonic_ns`)."""

    method: str
    route: str
    headers: Mapping[str, str]
    body: bytes
    script: Script
    before_ns: list[int] = field(default_factory=list)
    """Taken just before each `sendall`: no client can have received the bytes earlier."""
    after_ns: list[int] = field(default_factory=list)
    """Taken just after each `sendall`."""
    broken: str | None = None
    """The client went away before the script was over."""

    @property
    def json(self) -> Any:
        """The request body."""
        return json.loads(self.body)

    @property
    def id_before_ns(self) -> list[int]:
        """For each id, when the send that completes its event began."""
        return [self.before_ns[n] for n in self.script.id_sends]


Reply = Callable[[Exchange], Script]


class GoldenServer:
    """Serves scripts on loopback; a context manager.

    `reply` is one script for every request, a list of scripts for one request after the other (the last one
    stays), or a function of the request. With `certificate` (a PEM file with its key) it speaks TLS.
    """

    def __init__(self, reply: Script | list[Script] | Reply, certificate: Path | None = None) -> None:
        self._reply = reply
        self._tls = None
        if certificate is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(certificate)
        self.exchanges: list[Exchange] = []
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._stop = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._acceptor = threading.Thread(target=self._accept, name="golden-accept", daemon=True)

    @property
    def base_url(self) -> str:
        """The address, without `/v1`."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._acceptor.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        # A blocked accept does not notice that its socket was closed; a connection does wake it.
        with socket.create_connection(self._listener.getsockname()):
            pass
        self._acceptor.join()
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            if self._stop.is_set():
                connection.close()
                return
            thread = threading.Thread(
                target=self._serve, args=(connection,), name="golden-serve", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
        except OSError:
            connection.close()  # the client does not trust this certificate
            return
        with connection:
            request = _read_request(connection)
            if request is None:
                return
            with self._lock:
                request.script = self._script_for(request)
                self.exchanges.append(request)
            self._play(connection, request)

    def _script_for(self, request: Exchange) -> Script:
        if isinstance(self._reply, Script):
            return self._reply
        if isinstance(self._reply, list):
            return self._reply.pop(0) if len(self._reply) > 1 else self._reply[0]
        return self._reply(request)

    def _play(self, connection: socket.socket, request: Exchange) -> None:
        script = request.script
        due_ns = time.monotonic_ns()
        try:
            for send in script.sends:
                if send.wait_s:
                    # Waits add up from the schedule, not from the last send, so that lateness does not pile
                    # up.
                    due_ns += int(send.wait_s * 1e9)
                    if self._stop.wait(max(0.0, (due_ns - time.monotonic_ns()) / 1e9)):
                        return
                request.before_ns.append(time.monotonic_ns())
                connection.sendall(send.data)
                request.after_ns.append(time.monotonic_ns())
            if script.reset:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif script.linger_s:
                self._stop.wait(script.linger_s)
        except OSError as error:
            request.broken = str(error)


def _read_request(connection: socket.socket) -> Exchange | None:
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return None
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    method, route, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    while len(body) < int(headers.get("content-length", "0")):
        body += connection.recv(65536)
    return Exchange(method, route, headers, body, plain(500, b""))
