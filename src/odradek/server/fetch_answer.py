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
        "_take",
        "connection",
        "full",
        "in_forms",
        "is_taken",
        "serial",
        "version",
    )

    def __init__(
        self, connection: Connection, take: Callable[[memoryview], bool], on_arrival: Callable[[], object]
    ) -> None:
        """`take` is shown an answer in bytes first, and says whether nobody else has to look at it."""
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
        self._take: Callable[[memoryview], bool] | None = take
        self._on_arrival = on_arrival
        self._response: FetchResponse | memoryview | None = None
        self._failure: Exception | None = None

    def overtaken(self, on_arrival: Callable[[], object]) -> None:
        """Another request went out meanwhile: this one is to be looked at with care, by whoever is told now."""
        self._take = None
        self._on_arrival = on_arrival

    def done(self) -> bool:
        return self.is_taken or self._response is not None or self._failure is not None

    def set_result(self, response: FetchResponse | memoryview) -> None:
        """A message, or the frame of one, which is lent, where the request was sent as bytes."""
        if type(response) is memoryview:
            if self._take is not None and self._take(response):
                return
            response = memoryview(bytes(response))
        self._response = response
        self._on_arrival()

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
