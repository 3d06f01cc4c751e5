"""A producer that must lose and double nothing."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from odradek.ids import ZERO_UUID
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.protocol.records.batch import build_batch
from odradek.protocol.records.record import Record
from odradek.sim.cluster import Cluster
from odradek.sim.history import Acknowledged, Partition, Rejected, Sent
from odradek.sim.trace import OPERATION
from odradek.sim.workload import BY_TOPIC_ID, PARTITIONS, Client, TryAgain

MAX_IN_FLIGHT = 5
"""As many batches of one producer as the broker remembers."""

PRODUCE_VERSIONS = (3, 8, 9, 12, 13)
_IS_THERE = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
_LOST_STATE = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH)


class Batch:
    """Records under one sequence number, until they are acknowledged."""

    def __init__(self, partition: Partition, sequence: int, records: tuple[bytes, ...], timestamp: int) -> None:
        self.partition = partition
        self.sequence = sequence
        self.records = records
        self.timestamp = timestamp
        self.sends = 0


class Producer(Client):
    """Idempotent, acks=all, up to five batches in flight; what was not acknowledged is sent again in order."""

    longest_pause_s = 0.2

    def __init__(
        self, cluster: Cluster, name: str, batches: int, *, partitions: Sequence[Partition] = PARTITIONS
    ) -> None:
        super().__init__(cluster, name, partitions=partitions)
        self._left = batches
        self._version = self.draw.choice(PRODUCE_VERSIONS)
        self.producer_id = -1
        self._producer_epoch = -1
        self._sequences: dict[Partition, int] = {}
        self._numbers: dict[Partition, int] = {}
        self._unacknowledged: list[Batch] = []
        self.is_known = False
        """Whether anything was acknowledged under this producer id."""

    async def run(self) -> None:
        await self.persist(self._produce)

    def finish(self) -> None:
        """Nothing new; what is under way is brought to its end."""
        self._left = 0

    async def _produce(self) -> None:
        if not self.topic_ids:
            await self.learn_topic_ids()
        if self.producer_id < 0:
            await self._identify()
        in_flight = deque(([batch], self._send([batch])) for batch in self._unacknowledged)
        while self._left or in_flight:
            while self._left and len(in_flight) < self.in_flight_at_most():
                batches = self._next_batches()
                in_flight.append((batches, self._send(batches)))
            batches, answer = in_flight.popleft()
            self._hear(batches, await self.wait(answer))
            if self.draw.random() < 0.7:
                await asyncio.sleep(self.draw.random() * self.longest_pause_s)

    def refused(self, batch: Batch, error: ErrorCode) -> None:
        """For those who want to know."""

    def acknowledged(self, batch: Batch, offset: int, *, again: bool) -> None:
        """What was promised now."""
        self.cluster.history.add(Acknowledged(self.name, batch.partition, offset, batch.records, again))

    def in_flight_at_most(self) -> int:
        return self.draw.randrange(1, MAX_IN_FLIGHT + 1)

    async def _identify(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        response = await self.ask(request, InitProducerIdResponse, 4)
        if response.error_code:
            raise TryAgain
        self.producer_id, self._producer_epoch = response.producer_id, response.producer_epoch
        self._sequences.clear()

    def _next_batches(self) -> list[Batch]:
        """What goes into one request: mostly one batch, now and then one for each of several partitions."""
        self._left -= 1
        partitions = self.draw.sample(self.partitions, min(self.draw.choice((1, 1, 1, 2, 3)), len(self.partitions)))
        return [self._next_batch(partition) for partition in partitions]

    def _next_batch(self, partition: Partition) -> Batch:
        records = []
        for _ in range(self.draw.choice((1, 1, 2, 5))):
            number = self._numbers.get(partition, 0)
            self._numbers[partition] = number + 1
            padding = self.draw.randbytes(self.draw.choice((4, 40, 400, 3000)))
            records.append(b"%s/%d/%s" % (self.name.encode(), number, padding))
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + len(records)
        batch = Batch(partition, sequence, tuple(records), self.cluster.clock.now_ms())
        self._unacknowledged.append(batch)
        return batch

    def _send(self, batches: Sequence[Batch]) -> asyncio.Future[ProduceResponse]:
        by_id = self._version >= BY_TOPIC_ID
        topics = []
        for batch in batches:
            partition = batch.partition
            again = " again" if batch.sends else ""
            self.cluster.history.add(Sent(self.name, partition, batch.records, bool(batch.sends)))
            self.cluster.trace.note(
                self.name,
                f"sends {partition} sequence {batch.sequence} of producer {self.producer_id}, "
                f"{len(batch.records)} records{again}",
            )
            batch.sends += 1
            data = PartitionProduceData(index=partition.index, records=memoryview(self._encoded(batch)))
            topics.append(
                TopicProduceData(
                    name="" if by_id else partition.topic,
                    topic_id=self.topic_ids[partition.topic] if by_id else ZERO_UUID,
                    partition_data=[data],
                )
            )
        request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=10_000, topic_data=topics)
        sends = [batch.sends for batch in batches]
        answer = self.ask_soon(request, ProduceResponse, self._version)
        answer.add_done_callback(lambda heard: self._note(batches, sends, heard))
        return answer

    def _encoded(self, batch: Batch) -> bytearray:
        return build_batch(
            [Record(key=None, value=record) for record in batch.records],
            timestamp=batch.timestamp,
            producer_id=self.producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=batch.sequence,
        )

    def _note(self, batches: Sequence[Batch], sends: Sequence[int], heard: asyncio.Future[ProduceResponse]) -> None:
        """Put what was promised into the history at once, whenever this producer may come to look at it."""
        if heard.cancelled() or heard.exception() is not None:
            return
        for batch, count, answer in zip(batches, sends, self._answers(batches, heard.result()), strict=True):
            if answer.error_code in _IS_THERE:
                offset = -1 if answer.error_code else answer.base_offset
                self.cluster.trace.mark(OPERATION)
                self.acknowledged(batch, offset, again=count > 1)
                self.cluster.trace.note(self.name, f"{batch.partition} acknowledged at {offset}")

    def _answers(self, batches: Sequence[Batch], response: ProduceResponse) -> list[PartitionProduceResponse]:
        """What each batch is answered: a topic that is named several times comes back once, as with Kafka."""
        by_id = self._version >= BY_TOPIC_ID
        answers = {
            (topic.topic_id if by_id else topic.name, partition.index): partition
            for topic in response.responses
            for partition in topic.partition_responses
        }
        assert len(answers) == len(batches), "every batch has one answer"
        partitions = [batch.partition for batch in batches]
        return [answers[self.topic_ids[each.topic] if by_id else each.topic, each.index] for each in partitions]

    def _hear(self, batches: Sequence[Batch], response: ProduceResponse) -> None:
        """Forget what is done; raise if something is to be done again."""
        failed = False
        for batch, answer in zip(batches, self._answers(batches, response), strict=True):
            error = ErrorCode(answer.error_code)
            if error in _IS_THERE:
                self.is_known = True
                self._unacknowledged.remove(batch)
                continue
            failed = True
            self.refused(batch, error)
            self.cluster.trace.note(self.name, f"{batch.partition} {error.name}")
            if error in _LOST_STATE:
                # Whether batches in flight were written is unknown, so none of them may be sent under another id.
                self.cluster.history.add(Rejected(self.name, batch.partition, error.name, batch.records))
                self._unacknowledged.clear()
                self.producer_id = -1
                self.is_known = False
                break
        if failed:
            raise TryAgain
