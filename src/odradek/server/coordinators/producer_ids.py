"""Producer ids for this broker's clients, from blocks that the controller hands out (AllocateProducerIds)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.ids import NodeId, ProducerId
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

if TYPE_CHECKING:
    from odradek.server.peers.controller_channel import ControllerChannel


class ProducerIds:
    """What is left of this broker's block, and the request for the next one."""

    def __init__(
        self, channel: ControllerChannel, node_id: NodeId, broker_epoch: Callable[[], int], *, timeout_ms: int
    ) -> None:
        self._channel = channel
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._timeout_ms = timeout_ms
        self._ids = range(0)
        self._next_block: asyncio.Task[None] | None = None

    async def next(self) -> ProducerId:
        """An id that nobody had before; KafkaError if there is none to be had now."""
        await self.at_hand()
        return self.take()

    async def at_hand(self) -> None:
        """Come back when `take` has one; KafkaError if there is none to be had now."""
        while not self._ids:
            await asyncio.shield(self._allocation())

    def take(self) -> ProducerId:
        """As `next`, for who cannot wait: KafkaError says to ask again where none is at hand, and one will be."""
        if not self._ids:
            self._allocation()
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no producer id is at hand yet")
        first = self._ids[0]
        self._ids = self._ids[1:]
        return ProducerId(first)

    def _allocation(self) -> asyncio.Task[None]:
        """Of the next block; one for all who want ids meanwhile."""
        if self._next_block is None or self._next_block.done():
            self._next_block = asyncio.ensure_future(self._allocate())
            self._next_block.add_done_callback(_look)
        return self._next_block

    def close(self) -> None:
        if self._next_block is not None:
            self._next_block.cancel()

    async def _allocate(self) -> None:
        request = AllocateProducerIdsRequest(broker_id=self._node_id, broker_epoch=self._broker_epoch())
        try:
            response: AllocateProducerIdsResponse = await self._channel.ask(request, timeout_ms=self._timeout_ms)
        except KafkaError as failure:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(failure)) from failure
        if response.error_code:
            code = ErrorCode(response.error_code)
            # The producer is to ask again: what the broker lacks is none of its doing.
            known = code is ErrorCode.KAFKA_STORAGE_ERROR
            raise KafkaError(code if known else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, code.name)
        self._ids = range(response.producer_id_start, response.producer_id_start + response.producer_id_len)


def _look(task: asyncio.Task[None]) -> None:
    """At an outcome for which nobody may wait any more, lest the loop complain."""
    if not task.cancelled():
        task.exception()
