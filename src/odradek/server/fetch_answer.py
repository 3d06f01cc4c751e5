"""What a follower waits for: the answer to a Fetch, of which whoever brings it tells by a plain call."""

from __future__ import annotations

from collections.abc import Callable

from odradek.client.connection import Connection, decode_answer
from odradek.client.errors import ConnectionLost
from odradek.protocol.errors import MalformedFrame
from odradek.protocol.messages.fetch import FetchResponse
from odradek.replication.fetch_forms import VERSION, Answered, read_answer


class FetchAnswer:
    """As a future would be, but there is no turn of the loop between the answer and who waits for it."""

    __slots__ = ("_failure", "_response", "connection", "full", "is_taken", "on_arrival", "serial")

    def __init__(self, serial: int, connection: Connection, on_arrival: Callable[[], object], *, full: bool) -> None:
        self.serial = serial
        """Of the request;"""
        self.connection = connection
        """by which it was asked,"""
        self.full = full
        """and whether that was for a session."""
        self.on_arrival = on_arrival
        self.is_taken = False
        """Whether what it says is done already."""
        self._response: FetchResponse | memoryview | None = None
        self._failure: Exception | None = None

    def done(self) -> bool:
        return self._response is not None or self._failure is not None

    def set_result(self, response: FetchResponse | memoryview) -> None:
        """A message, or the frame of one, which is lent, where the request was sent as bytes."""
        self._response = response
        self.on_arrival()
        if not self.is_taken and isinstance(response, memoryview):
            self._response = memoryview(bytes(response))

    def set_exception(self, why: Exception) -> None:
        self._failure = why
        self.on_arrival()

    def exception(self) -> Exception | None:
        return self._failure

    def plain(self) -> list[Answered] | None:
        """What it says, if there is nothing to it; else `result` has it all."""
        return read_answer(self._response) if isinstance(self._response, memoryview) else None

    def result(self) -> FetchResponse:
        if self._failure is not None:
            raise self._failure
        assert self._response is not None
        if isinstance(self._response, memoryview):
            try:
                return decode_answer(self._response, FetchResponse, VERSION)
            except MalformedFrame as wrong:
                raise ConnectionLost(f"an answer of the leader makes no sense: {wrong}") from wrong
        return self._response
