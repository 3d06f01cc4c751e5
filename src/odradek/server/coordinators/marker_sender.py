"""Tells the leaders of a transaction's partitions how it has ended, again and again until all of them know.

What goes to one broker goes in one request at a time, that of all transactions together. Whoever does not answer, does
not lead any more or has too few replicas is asked again, or its successor is. A partition that is gone needs no marker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

from odradek.ids import NO_NODE, NodeId
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.server.containment import Containment, Cost

if TYPE_CHECKING:
    from odradek.coordinator.transaction.state import TopicPartition, Transaction
    from odradek.metadata.image import Image
    from odradek.server.coordinators.markers import MarkerWriter
    from odradek.server.coordinators.transactions import TransactionRunner
    from odradek.server.peers.broker_channels import BrokerChannels

RETRY_MS = 100
"""Between two tries; Kafka's brokers wait as long before they ask again."""

MAX_PARTITIONS_PER_REQUEST = 2_000
"""The rest goes in the next one: so many appends take some milliseconds."""

_ANOTHER_SENDS = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
"""The partition knows of a later epoch, of the producer or of the coordinator: that one's markers count, not these."""


class Ending:
    """A transaction whose partitions are being told."""

    __slots__ = ("is_anothers", "left", "runner", "transaction")

    def __init__(self, runner: TransactionRunner, transaction: Transaction) -> None:
        self.runner = runner
        self.transaction = transaction
        self.left = set(transaction.partitions)
        self.is_anothers = False
        """Whether a partition knows that somebody else ends it."""

    @property
    def is_wanted(self) -> bool:
        """Whether its coordinator is still here: otherwise another one sends them."""
        return not self.is_anothers and self.runner.state is ErrorCode.NONE


Told: TypeAlias = "tuple[Ending, TopicPartition]"
"""One marker."""

Codes: TypeAlias = "dict[tuple[int, TopicPartition], ErrorCode]"
"""What leaders answer, by producer id: it has one transaction at a time."""


class MarkerSender:
    """The markers of all transactions that this node coordinates."""

    def __init__(
        self,
        node_id: NodeId,
        image: Callable[[], Image],
        writer: MarkerWriter,
        channels: BrokerChannels,
        containment: Containment,
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._writer = writer
        self._channels = channels
        self._containment = containment
        self._queues: dict[NodeId, list[Told]] = {}
        self._senders: dict[NodeId, asyncio.Task[None]] = {}
        self._again: list[Told] = []
        """What is looked at when the timer fires."""
        self._timer: asyncio.TimerHandle | None = None

    def send(self, runner: TransactionRunner, transaction: Transaction) -> None:
        """Until every partition has its marker; then the shard is told."""
        ending = Ending(runner, transaction)
        if not ending.left:
            self._all_told(ending)
            return
        self._put((ending, partition) for partition in transaction.partitions)

    @property
    def without_leader(self) -> int:
        """How many markers wait for their partition to have a leader."""
        topics = self._image().topics.by_name
        return sum(
            topic in topics
            and index < len(topics[topic].partitions)
            and topics[topic].partitions[index].leader == NO_NODE
            for _, (topic, index) in self._again
        )

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for task in self._senders.values():
            task.cancel()
        self._channels.close()

    # Who is told by whom.

    def _put(self, markers: Iterable[Told]) -> None:
        """Each to the leader of its partition, as far as it has one."""
        topics = self._image().topics.by_name
        for ending, (topic, index) in markers:
            if not ending.is_wanted:
                continue
            known = topics.get(topic)
            if known is None or index >= len(known.partitions):
                self._told(ending, (topic, index))
                continue
            leader = known.partitions[index].leader
            if leader == NO_NODE:
                self._later((ending, (topic, index)))
                continue
            self._queues.setdefault(leader, []).append((ending, (topic, index)))
            if leader not in self._senders:
                self._senders[leader] = asyncio.create_task(self._send_to(leader))

    def _later(self, marker: Told) -> None:
        self._again.append(marker)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(RETRY_MS / 1000, self._try_again)

    def _try_again(self) -> None:
        self._timer = None
        markers, self._again = self._again, []
        self._put(markers)

    async def _send_to(self, leader: NodeId) -> None:
        """All there is for one broker; whatever breaks meanwhile is tried again."""
        queue = self._queues[leader]
        try:
            while queue:
                sent = [each for each in queue[:MAX_PARTITIONS_PER_REQUEST] if each[0].is_wanted]
                del queue[:MAX_PARTITIONS_PER_REQUEST]
                codes: Codes = {}
                try:
                    codes = await self._ask(leader, sent)
                except KafkaError:
                    pass  # Whoever leads is asked again.
                except Exception as failure:  # noqa: BLE001 - whatever breaks costs these markers a moment
                    self._containment.note(Cost.TASK, f"markers for broker {leader}", failure)
                for ending, partition in sent:
                    self._answered(ending, partition, codes.get((ending.transaction.producer_id, partition)))
        finally:
            del self._senders[leader]

    async def _ask(self, leader: NodeId, sent: list[Told]) -> Codes:
        if not sent:
            return {}
        request = WriteTxnMarkersRequest(markers=_markers(sent))
        if leader == self._node_id:
            results = await self._writer.write(request.markers)
        else:
            results = (await self._channels.ask(leader, request, WriteTxnMarkersResponse)).markers
        return _codes(results)

    # What came of it.

    def _answered(self, ending: Ending, partition: TopicPartition, code: ErrorCode | None) -> None:
        if code is ErrorCode.NONE:
            self._told(ending, partition)
        elif code in _ANOTHER_SENDS:
            ending.is_anothers = True
        elif ending.is_wanted:
            self._later((ending, partition))

    def _told(self, ending: Ending, partition: TopicPartition) -> None:
        ending.left.discard(partition)
        if not ending.left and ending.is_wanted:
            self._all_told(ending)

    def _all_told(self, ending: Ending) -> None:
        ending.runner.tell(lambda shard, now: shard.marked(ending.transaction, now))


def _markers(sent: list[Told]) -> list[WritableTxnMarker]:
    """One for each transaction, with its partitions by topic."""
    markers: dict[Ending, dict[str, list[int]]] = {}
    for ending, (topic, index) in sent:
        markers.setdefault(ending, {}).setdefault(topic, []).append(index)
    return [
        WritableTxnMarker(
            producer_id=ending.transaction.producer_id,
            producer_epoch=ending.transaction.producer_epoch,
            transaction_result=ending.transaction.is_committing,
            topics=[WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
            coordinator_epoch=ending.runner.leader_epoch,
            transaction_version=ending.transaction.client_version,
        )
        for ending, topics in markers.items()
    ]


def _codes(results: Iterable[WritableTxnMarkerResult]) -> Codes:
    return {
        (result.producer_id, (topic.name, part.partition_index)): ErrorCode(part.error_code)
        for result in results
        for topic in result.topics
        for part in topic.partitions
    }
