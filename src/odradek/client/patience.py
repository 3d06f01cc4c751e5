"""Questions that shall not wait for long: an answer within the time, or the reason why there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from odradek.client.cluster import Cluster
from odradek.client.errors import ClientError, ConnectionLost, RequestTimedOut
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError

ResponseT = TypeVar("ResponseT", bound=Message)
AnswerT = TypeVar("AnswerT")


async def ask_within(
    cluster: Cluster, request: Message, response: type[ResponseT], *, timeout_ms: int, node_id: int | None = None
) -> ResponseT:
    """One try at a broker or at any, which takes no longer than that with connecting; raises as `Cluster.ask` does.

    A request that times out takes its connection with it. Were it only given up, the next one would wait behind it:
    answers come in order.
    """
    clock = cluster.ports.clock
    deadline_ms = clock.monotonic_ms() + timeout_ms
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await (cluster.any_connection() if node_id is None else cluster.connection(node_id))
    except TimeoutError:
        raise RequestTimedOut(f"no connection within {timeout_ms} ms") from None
    left_ms = max(deadline_ms - clock.monotonic_ms(), 1)
    return await cluster.ask(request, response, node_id=node_id, timeout_ms=left_ms)


async def answer_or_error(asking: Awaitable[AnswerT]) -> AnswerT | KafkaError:
    """What was answered; a refusal, or a broker that cannot be reached, as the error that stands for it."""
    try:
        return await asking
    except KafkaError as refused:
        return refused
    except ClientError as failure:
        code = ErrorCode.NETWORK_EXCEPTION if isinstance(failure, ConnectionLost) else ErrorCode.REQUEST_TIMED_OUT
        return KafkaError(code, str(failure))
