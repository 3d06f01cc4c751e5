"""Somebody who writes as a producer that was fenced, with requests of any version made by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from odradek.coordinator.record_format import partition_for
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from odradek.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from odradek.protocol.records.batch import build_batch
from odradek.protocol.records.record import Record
from odradek.sim.client import Disconnected
from odradek.sim.copier import GROUP, Job
from odradek.sim.history import GROUPS, FencedHeard, FencedSent, Partition
from odradek.sim.machine import Machine
from odradek.sim.quorum import BROKER_PORT
from odradek.sim.transaction_cluster import STATE_LOGS, STATE_PARTITIONS, TransactionCluster
from odradek.sim.workload import Client, ResponseT

LONGEST_PAUSE_S = 1.0
FAR_AWAY = 1_000_000
"""An offset that nobody has: whoever took it over would find nothing more to copy."""

STATES = ("fenced produce refused", "fenced partitions refused", "fenced offsets refused", "fenced end refused")


class Impostor(Client):
    """Tries whatever a producer may ask for."""

    cluster: TransactionCluster

    def __init__(self, cluster: TransactionCluster, jobs: Sequence[Job]) -> None:
        super().__init__(cluster, "impostor")
        self._jobs = jobs
        self._tries = 0

    async def run(self) -> None:
        """Until cancelled."""
        kinds: tuple[Callable[[Job, int, int], Awaitable[None]], ...] = (
            self._produce,
            self._produce,
            self._add_partitions,
            self._add_offsets,
            self._commit_offsets,
            self._end,
        )
        while True:
            await asyncio.sleep(self.draw.random() * LONGEST_PAUSE_S)
            job = self.draw.choice(self._jobs)
            if not job.fenced:
                continue
            # Mostly one of the newest, which some may take for current.
            number = max(0, job.fenced - 1 - int(self.draw.expovariate(0.7)))
            self._tries += 1
            try:
                await self.draw.choice(kinds)(job, *job.identities[number])
            except (Disconnected, OSError, TimeoutError):
                continue

    async def _produce(self, job: Job, producer_id: int, epoch: int) -> None:
        partition = self.draw.choice(self.cluster.output)
        record = b"fenced/%d|copy 0 0" % self._tries
        batch = build_batch(
            [Record(key=None, value=record)],
            timestamp=self.cluster.clock.now_ms(),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self.draw.choice((0, 0, 1, 2, 3, 5)),
            transactional=True,
        )
        data = PartitionProduceData(index=partition.index, records=memoryview(batch))
        request = ProduceRequest(
            transactional_id=job.name,
            acks=-1,
            timeout_ms=3_000,
            topic_data=[TopicProduceData(name=partition.topic, partition_data=[data])],
        )
        self.cluster.history.add(FencedSent(partition, record))
        response = await self._ask_leader(partition, request, ProduceResponse, self.draw.choice((3, 9, 11, 12)))
        if response is not None:
            code = response.responses[0].partition_responses[0].error_code
            if code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING):
                self._heard(job, producer_id, epoch, "produce", code)

    async def _add_partitions(self, job: Job, producer_id: int, epoch: int) -> None:
        partition = self.draw.choice(self.cluster.output)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=job.name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=partition.topic, partitions=[partition.index])],
        )
        version = self.draw.choice((0, 3))
        response = await self._ask_leader(_state_log(job), request, AddPartitionsToTxnResponse, version)
        if response is not None:
            code = response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            self._heard(job, producer_id, epoch, "partitions", code)

    async def _add_offsets(self, job: Job, producer_id: int, epoch: int) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=job.name, producer_id=producer_id, producer_epoch=epoch, group_id=GROUP
        )
        response = await self._ask_leader(_state_log(job), request, AddOffsetsToTxnResponse, self.draw.choice((0, 4)))
        if response is not None:
            self._heard(job, producer_id, epoch, "partitions", response.error_code)

    async def _commit_offsets(self, job: Job, producer_id: int, epoch: int) -> None:
        part = TxnOffsetCommitRequestPartition(
            partition_index=job.sources[0].index, committed_offset=FAR_AWAY, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=job.name,
            group_id=GROUP,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[TxnOffsetCommitRequestTopic(name=job.sources[0].topic, partitions=[part])],
        )
        response = await self._ask_leader(GROUPS, request, TxnOffsetCommitResponse, self.draw.choice((2, 3, 4, 5)))
        if response is not None:
            self._heard(job, producer_id, epoch, "offsets", response.topics[0].partitions[0].error_code)

    async def _end(self, job: Job, producer_id: int, epoch: int) -> None:
        """From version 5 on, where the epoch is the one before, this may be the last one's end that is asked for again,
        and is answered as such. That cannot be told from a fenced one where older producers had the name, too.
        """
        versions = (0, 3, 4) if job.is_classic or self.cluster.begins_old else (0, 3, 4, 5)
        request = EndTxnRequest(
            transactional_id=job.name,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=self.draw.random() < 0.7,
        )
        response = await self._ask_leader(_state_log(job), request, EndTxnResponse, self.draw.choice(versions))
        if response is not None:
            self._heard(job, producer_id, epoch, "end", response.error_code)

    def _heard(self, job: Job, producer_id: int, epoch: int, what: str, code: int) -> None:
        if code:
            self.cluster.trace.mark(f"fenced {what} refused")
            return
        self.cluster.history.add(FencedHeard(f"producer {producer_id} of {job.name} with epoch {epoch}", what))

    async def _ask_leader(
        self, partition: Partition, request: Message, response: type[ResponseT], version: int
    ) -> ResponseT | None:
        """The answer of who leads the partition all the while; whoever was replaced may know no better."""
        asked = self._leader(partition)
        if asked is None:
            return None
        connection = await self.connect(asked.name, BROKER_PORT)
        try:
            answer = await self.wait(connection.ask(request, response, version))
        finally:
            connection.close()
        return answer if self._leader(partition) is asked else None

    def _leader(self, partition: Partition) -> Machine | None:
        led = self.cluster.led(partition)
        return None if led is None else led[0]


def _state_log(job: Job) -> Partition:
    return STATE_LOGS[partition_for(job.name, STATE_PARTITIONS)]
