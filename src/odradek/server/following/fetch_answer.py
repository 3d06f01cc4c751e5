"""What a follower waits for: the answer to a Fetch, of which whoever brings it tells by a plain call."""

from __future__ import annotations

from collections.abc import Callable

from odradek.client.connection import Connection, decode_answer
from odradek.client.errors import ConnectionLost
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import MalformedFrame
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse
from odradek.replication.fetch_forms import VERSION


class FetchAnswer:
    """As a future would be, but there is no turn of the loop between the answer and who waits for it.

    While nothing is out of the ordinary, it is one for all requests that go by its connection, one after the other.
    """

    __slots__ = (
        "_failure",
        "_on_arrival",
        "_response",
        "connection",
        "full",
        "in_forms",
        "is_taken",
        "serial",
        "set_result",
        "version",
    )

    def __init__(
        self,
        connection: Connection,
        heard: Callable[[FetchResponse | memoryview], None],
        on_arrival: Callable[[], object],
    ) -> None:
        """`heard` is told of the answer, and either does what it says or lets it be kept."""
        self.connection = connection
        self.version = min(connection.versions[ApiKey.FETCH][1], FetchRequest.max_stable_version)
        self.in_forms = self.version == VERSION
        """Whether `fetch_forms` knows that version."""
        self.serial = 0
        """Of the request,"""
        self.full = False
        """and whether that is for a session."""
        self.is_taken = False
        """Whether what it says is done already, and nothing was asked since."""
        self.set_result = heard
        """Called with a message, or where the request was sent as bytes, with the frame of one, which is lent."""
        self._on_arrival = on_arrival
        self._response: FetchResponse | memoryview | None = None
        self._failure: Exception | None = None

    def overtaken(self, on_arrival: Callable[[], object]) -> None:
        """Another request is to go out before the answer is there, which is then kept for whoever is told of it."""
        self.set_result = self.keep
        self._on_arrival = on_arrival

    def keep(self, response: FetchResponse | memoryview) -> None:
        self._response = memoryview(bytes(response)) if isinstance(response, memoryview) else response
        self._on_arrival()

    def done(self) -> bool:
        return self.is_taken or self._response is not None or self._failure is not None

    def set_exception(self, why: Exception) -> None:
        self._failure = why
        self._on_arrival()

    def exception(self) -> Exception | None:
        return self._failure

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
