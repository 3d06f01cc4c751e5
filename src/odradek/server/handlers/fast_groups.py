"""Requests of group members, straight to their coordinator: no context, no coroutine, and no task while they wait.

The compiled codec and the same decision as in the handlers beside these; what is left out is only what a listener
without access rules and quotas does not need. A thousand members that rebalance send three thousand of them.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.protocol.api import ApiKey, request_class, response_class, response_header_version
from odradek.protocol.codec import Message, decoder, encoder
from odradek.protocol.errors import KafkaError, MalformedFrame
from odradek.server.net.routes import FastAnswer, FastPath
from odradek.server.waiting.deferred import Deferred

if TYPE_CHECKING:
    from odradek.server.coordinators.groups import DecideOnGroup, GroupRunner
    from odradek.server.rooms import Rooms

RequestT = TypeVar("RequestT", bound=Message)

_HEADER = Struct(">ii")
_FLEXIBLE_HEADER = Struct(">iiB")


def frame_head(api_key: ApiKey, version: int) -> Callable[[int, int], bytes]:
    """What comes before an answer's body, for that body's size and a correlation id."""
    if response_header_version(api_key, version) >= 1:
        return lambda size, correlation_id: _FLEXIBLE_HEADER.pack(size + 5, correlation_id, 0)
    return lambda size, correlation_id: _HEADER.pack(size + 4, correlation_id)


def fast_group_request(
    api_key: ApiKey,
    version: int,
    *,
    decide: Callable[[GroupRunner, RequestT], DecideOnGroup | None],
    answer: Callable[[RequestT, Any, int], Message],
) -> FastPath:
    """The handler for one version of an API.

    `decide` puts a request to its shard, or leaves it (None) to the generic path; `answer` makes the response of what
    comes back, which may be a KafkaError.
    """
    decode = decoder(request_class(api_key), version)
    encode = encoder(response_class(api_key), version)
    head = frame_head(api_key, version)

    def framed(correlation_id: int, response: Message) -> bytes:
        body = encode(response)
        return head(len(body), correlation_id) + body

    def kept(deferred: Deferred[Any], correlation_id: int) -> bytes:
        try:
            outcome = deferred.result()
        except KafkaError as refused:
            outcome = refused
        return framed(correlation_id, answer(deferred.asked, outcome, version))

    def handle(rooms: Rooms, frame: memoryview, position: int, correlation_id: int) -> FastAnswer:
        try:
            request: Any = decode(frame, position)[0]
        except (MalformedFrame, IndexError):
            return None
        runner = rooms.groups.runner(request.group_id)
        if runner is None:
            return None
        decision = decide(runner, request)
        if decision is None:
            return None
        try:
            outcome: Any = runner.put(decision)
        except KafkaError as refused:
            outcome = refused
        if isinstance(outcome, Deferred):
            outcome.asked, outcome.frame = request, kept
            return outcome
        return framed(correlation_id, answer(request, outcome, version))

    return handle
