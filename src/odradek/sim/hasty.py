"""A producer that ends its transactions before it has heard what became of its records, with requests made by hand.

So its records arrive before the end, between the end and the markers, or after them. Each of its transactions has an
epoch of its own, without which those of before KIP-890 could not be told apart.
"""

from __future__ import annotations

import asyncio

from odradek.coordinator.record_format import partition_for
from odradek.protocol.codec import Message
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from odradek.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from odradek.protocol.records.batch import build_batch
from odradek.protocol.records.record import Record
from odradek.sim.client import ClientConnection, Disconnected
from odradek.sim.history import Partition, TransactionEnded, TransactionEnding, TransactionSent
from odradek.sim.quorum import BROKER_PORT
from odradek.sim.transaction_cluster import LATEST_S, STATE_LOGS, STATE_PARTITIONS, TransactionCluster
from odradek.sim.workload import Client, ResponseT, TryAgain

NAME = "hasty"
TIMEOUT_MS = 5_000
COMMITS = 0.3
LONGEST_PAUSE_S = 2.0
STATES = ("hasty end", "hasty record taken", "hasty record refused")


class Hasty(Client):
    """One transaction of one record after the other."""

    cluster: TransactionCluster

    def __init__(self, cluster: TransactionCluster) -> None:
        super().__init__(cluster, NAME)
        self._count = 0
        self._state_log = STATE_LOGS[partition_for(NAME, STATE_PARTITIONS)]

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self.draw.random() * LONGEST_PAUSE_S)
            try:
                coordinator = await self._connect(self._state_log)
                try:
                    await self._transact(coordinator)
                finally:
                    coordinator.close()
            except (Disconnected, OSError, TimeoutError, TryAgain):
                continue

    async def _transact(self, coordinator: ClientConnection) -> None:
        is_classic = self.draw.random() < 0.7
        partition = self.draw.choice(self.cluster.output)
        begin = InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=TIMEOUT_MS)
        producer = await self._ask(coordinator, begin, InitProducerIdResponse, 4)
        if producer.error_code:
            raise TryAgain
        identity = producer.producer_id, producer.producer_epoch
        if is_classic:
            await self._add(coordinator, partition, *identity)
        self._count += 1
        name = f"{NAME}/{self._count}"
        leader = await self._connect(partition)
        try:
            self._send(leader, name, partition, *identity, version=11 if is_classic else 12)
            await asyncio.sleep(self.draw.random() ** 2)
            await self._end(coordinator, name, *identity, version=4 if is_classic else 5)
            await asyncio.sleep(self.draw.random() ** 2 * LATEST_S)  # The record may be under way for as long.
        finally:
            leader.close()

    async def _add(self, coordinator: ClientConnection, partition: Partition, producer_id: int, epoch: int) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=NAME,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=partition.topic, partitions=[partition.index])],
        )
        response = await self._ask(coordinator, request, AddPartitionsToTxnResponse, 3)
        if response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code:
            raise TryAgain

    def _send(
        self, leader: ClientConnection, name: str, partition: Partition, producer_id: int, epoch: int, *, version: int
    ) -> None:
        record = f"{name}|hasty".encode()
        batch = build_batch(
            [Record(key=None, value=record)],
            timestamp=self.cluster.clock.now_ms(),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
            transactional=True,
        )
        data = PartitionProduceData(index=partition.index, records=memoryview(batch))
        topic = TopicProduceData(name=partition.topic, partition_data=[data])
        request = ProduceRequest(transactional_id=NAME, acks=-1, timeout_ms=3_000, topic_data=[topic])
        self.cluster.history.add(TransactionSent(name, partition, record))
        leader.ask(request, ProduceResponse, version).add_done_callback(self._hear)

    def _hear(self, answer: asyncio.Future[ProduceResponse]) -> None:
        if not answer.cancelled() and answer.exception() is None:
            refused = answer.result().responses[0].partition_responses[0].error_code
            self.cluster.trace.mark("hasty record refused" if refused else "hasty record taken")

    async def _end(
        self, coordinator: ClientConnection, name: str, producer_id: int, epoch: int, *, version: int
    ) -> None:
        """What was committed need not be there: it may have come too late for that."""
        committed = self.draw.random() < COMMITS
        self.cluster.history.add(TransactionEnding(name, committed))
        request = EndTxnRequest(
            transactional_id=NAME, producer_id=producer_id, producer_epoch=epoch, committed=committed
        )
        response = await self._ask(coordinator, request, EndTxnResponse, version)
        if not response.error_code:
            self.cluster.trace.mark("hasty end")
            if not committed:
                self.cluster.history.add(TransactionEnded(name, committed=False))

    async def _ask(
        self, connection: ClientConnection, request: Message, response: type[ResponseT], version: int
    ) -> ResponseT:
        return await self.wait(connection.ask(request, response, version))

    async def _connect(self, partition: Partition) -> ClientConnection:
        led = self.cluster.led(partition)
        if led is None:
            raise TryAgain
        return await self.connect(led[0].name, BROKER_PORT)
