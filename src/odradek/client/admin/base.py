"""What all of administration shares: the cluster, retries, and outcomes of many things asked at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from types import TracebackType
from typing import TypeAlias, TypeVar

from odradek.client.cluster import Cluster
from odradek.client.link import Ports
from odradek.client.patience import answer_or_error, ask_within
from odradek.client.settings import ADMIN_TABLE, Given, Settings
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError

ResponseT = TypeVar("ResponseT", bound=Message)
KeyT = TypeVar("KeyT")
AnswerT = TypeVar("AnswerT")

Outcomes: TypeAlias = "dict[KeyT, KafkaError | None]"
"""For each thing asked: None where it was done, else why it was not. Nothing is raised for a part of a request."""


class AdminBase:
    """Owns the cluster's connections; used as an asynchronous context manager or closed by hand."""

    def __init__(self, ports: Ports, settings: Given) -> None:
        self.cluster = Cluster(ports, Settings(ADMIN_TABLE, settings))

    async def close(self) -> None:
        await self.cluster.close()

    async def __aenter__(self) -> AdminBase:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def _timeout_ms(self) -> int:
        return self.cluster.settings.number("default.api.timeout.ms")

    async def _ask(self, request: Message, response: type[ResponseT], *, node_id: int | None = None) -> ResponseT:
        """Any broker's answer (or one broker's), over lost connections: brokers pass on what the controller decides."""
        if node_id is not None and node_id not in self.cluster.brokers:
            await self.cluster.retrying(lambda: self.cluster.refresh(()))
            if node_id not in self.cluster.brokers:
                raise _no_broker(node_id)
        return await self.cluster.retrying(lambda: self.cluster.ask(request, response, node_id=node_id))

    async def _ask_within(self, request: Message, response: type[ResponseT], timeout_ms: int | None) -> ResponseT:
        """Any broker's answer, within a time of the caller's own if there is one."""
        if timeout_ms is None:
            return await self._ask(request, response)
        clock = self.cluster.ports.clock
        deadline_ms = clock.monotonic_ms() + timeout_ms

        async def attempt() -> ResponseT:
            left_ms = max(deadline_ms - clock.monotonic_ms(), 1)
            return await ask_within(self.cluster, request, response, timeout_ms=left_ms)

        return await self.cluster.retrying(attempt, timeout_ms=timeout_ms)

    async def _ask_brokers(
        self,
        wanted: Collection[int] | None,
        ask: Callable[[int, int], Awaitable[AnswerT]],
        timeout_ms: int | None,
    ) -> dict[int, AnswerT | KafkaError]:
        """What some brokers or all answer, asked at the same time; the error of each that did not within the time.

        `ask` takes a broker and the milliseconds left. Whom metadata stops naming meanwhile is left out of all, and
        the others are asked anew: what it looked after they do now.
        """
        clock = self.cluster.ports.clock
        deadline_ms = clock.monotonic_ms() + (self._timeout_ms if timeout_ms is None else timeout_ms)
        answers: dict[int, AnswerT | KafkaError] = {}
        tries = 0
        while True:
            left_ms = max(deadline_ms - clock.monotonic_ms(), 1)
            await self.cluster.retrying(lambda: self.cluster.refresh(()), timeout_ms=left_ms)
            broker_ids = sorted(self.cluster.brokers) if wanted is None else list(wanted)
            if set(broker_ids) != set(answers):
                answers = {each: _no_broker(each) for each in broker_ids if each not in self.cluster.brokers}
            missing = [each for each in broker_ids if each not in answers or _may_change(answers[each])]
            left_ms = max(deadline_ms - clock.monotonic_ms(), 1)
            answered = await asyncio.gather(*[answer_or_error(ask(each, left_ms)) for each in missing])
            answers |= dict(zip(missing, answered, strict=True))
            pause_ms = self.cluster.backoff_ms(tries)
            if not any(map(_may_change, answered)) or clock.monotonic_ms() + pause_ms >= deadline_ms:
                return {each: answers[each] for each in broker_ids}
            await asyncio.sleep(pause_ms / 1000)
            tries += 1


def _no_broker(node_id: int) -> KafkaError:
    return KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"there is no broker {node_id}")


def _may_change(answer: object) -> bool:
    return isinstance(answer, KafkaError) and answer.code.retriable


def outcome(code: int, message: str | None = None) -> KafkaError | None:
    """None, or the error that an item of a response carries."""
    return KafkaError(ErrorCode(code), message or "") if code else None
