"""What a follower waits for: the answer to a Fetch, of which whoever brings it tells by a plain call."""

from __future__ import annotations

from collections.abc import Callable

from odradek.protocol.messages.fetch import FetchResponse


class FetchAnswer:
    """As a future would be, but there is no turn of the loop between the answer and who waits for it."""

    __slots__ = ("_failure", "_response", "on_arrival")

    def __init__(self, on_arrival: Callable[[], object]) -> None:
        self.on_arrival = on_arrival
        self._response: FetchResponse | None = None
        self._failure: Exception | None = None

    def done(self) -> bool:
        return self._response is not None or self._failure is not None

    def set_result(self, response: FetchResponse) -> None:
        self._response = response
        self.on_arrival()

    def set_exception(self, why: Exception) -> None:
        self._failure = why
        self.on_arrival()

    def exception(self) -> Exception | None:
        return self._failure

    def result(self) -> FetchResponse:
        if self._failure is not None:
            raise self._failure
        assert self._response is not None
        return self._response
