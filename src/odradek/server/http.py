"""A window to look through with a browser or Prometheus: `/metrics` and `/health`.

As much of HTTP as GET needs, over the same ports as everything else. It only ever reads: nothing here changes the node.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.ports import Listening, Wire, WireOwner
from odradek.server.metrics import exposition

if TYPE_CHECKING:
    from odradek.server.rooms import Rooms

log = logging.getLogger(__name__)

MAX_REQUEST_BYTES = 16 * 1024
"""Request line and headers; there is no body to read."""

_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_JSON = "application/json"
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


class HttpListener:
    """The open port."""

    def __init__(self, rooms: Rooms, is_healthy: Callable[[], bool]) -> None:
        """Healthy is a node that serves and can go on."""
        self._rooms = rooms
        self._is_healthy = is_healthy
        self._listening: Listening | None = None
        self._connections: dict[_HttpConnection, None] = {}

    async def open(self, host: str, port: int) -> int:
        """Returns the port, which the system chose if 0 was asked for."""
        self._listening = await self._rooms.world.network.listen(host, port, self._accept)
        return self._listening.port

    def close(self) -> None:
        if self._listening is not None:
            self._listening.close()
        for connection in list(self._connections):
            connection.wire.close()

    def _accept(self, wire: Wire) -> WireOwner:
        connection = _HttpConnection(self, wire)
        self._connections[connection] = None
        return connection

    def forget(self, connection: _HttpConnection) -> None:
        self._connections.pop(connection, None)

    def answer(self, method: str, path: str) -> bytes:
        """The whole response."""
        if method not in ("GET", "HEAD"):
            return _response(405, _TEXT, "Only GET is served here.\n")
        route = path.partition("?")[0]
        if route == "/metrics":
            return _response(200, _TEXT, exposition(self._rooms))
        if route == "/health":
            return self._health()
        return _response(404, _TEXT, "Nothing here. There is /metrics for Prometheus, and /health.\n")

    def _health(self) -> bytes:
        rooms = self._rooms
        healthy = self._is_healthy()
        said = {
            "status": "ok" if healthy else "unavailable",
            "node_id": rooms.node_id,
            "cluster_id": rooms.cluster_id,
            "offline_log_dirs": [each.path for each in rooms.replicas.directories if not each.online],
            "unexpected_failures": rooms.containment.total,
        }
        return _response(200 if healthy else 503, _JSON, json.dumps(said) + "\n")


class _HttpConnection:
    """One request, one answer, and the connection closes."""

    def __init__(self, listener: HttpListener, wire: Wire) -> None:
        self.wire = wire
        self._listener = listener
        self._space = memoryview(bytearray(MAX_REQUEST_BYTES))
        self._filled = 0

    def buffer(self) -> memoryview:
        return self._space[self._filled :]

    def received(self, count: int) -> None:
        self._filled += count
        head = bytes(self._space[: self._filled])
        if b"\r\n\r\n" in head or b"\n\n" in head:
            self._reply(_answer_to(self._listener, head))
        elif self._filled == MAX_REQUEST_BYTES:
            self._reply(_response(400, _TEXT, "The request is too long.\n"))

    def drained(self) -> None:
        """Nothing waits for it: `finish` closes by itself."""

    def lost(self, why: Exception | None) -> None:
        self._listener.forget(self)

    def _reply(self, response: bytes) -> None:
        self.wire.pause()
        self.wire.send([response])
        self.wire.finish()


def _answer_to(listener: HttpListener, head: bytes) -> bytes:
    words = head.split(b"\n", 1)[0].split()
    if len(words) != 3 or not words[2].startswith(b"HTTP/"):
        return _response(400, _TEXT, "This port speaks HTTP.\n")
    response = listener.answer(words[0].decode("latin-1"), words[1].decode("latin-1"))
    return response.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if words[0] == b"HEAD" else response


def _response(status: int, content_type: str, body: str) -> bytes:
    content = body.encode()
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + content
