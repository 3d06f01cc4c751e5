"""Clients of one run: producers that must lose and double nothing, consumers that watch, one who asks for bounds."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from odradek.ids import ZERO_UUID, Uuid
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.protocol.records.batch import build_batch, decode_records, iter_batches
from odradek.protocol.records.record import Record
from odradek.sim.client import ClientConnection, Disconnected
from odradek.sim.cluster import BROKER, PORT, Cluster
from odradek.sim.history import Acknowledged, Bounds, Partition, Read, Rejected, Sent
from odradek.values import value

ResponseT = TypeVar("ResponseT", bound=Message)

REQUEST_PATIENCE_S = 20.0
MAX_IN_FLIGHT = 5
"""As many batches of one producer as the broker remembers."""

PRODUCE_VERSIONS = (3, 8, 9, 12, 13)
FETCH_VERSIONS = (4, 11, 12, 13, 17)
BY_TOPIC_ID = 13
EARLIEST, LATEST = -2, -1
_IS_THERE = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
_LOST_STATE = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH)


@value
class TopicPlan:
    """A topic of the run."""

    name: str
    partitions: int
    configs: tuple[tuple[str, str], ...]


PLANS = (
    TopicPlan("plain", 2, ()),
    TopicPlan("durable", 2, (("flush.messages", "1"),)),
    TopicPlan(
        "rolling",
        1,
        (
            ("segment.ms", "1500"),
            ("segment.index.bytes", "64"),
            ("index.interval.bytes", "1"),
            ("retention.ms", "5000"),
        ),
    ),
    TopicPlan("durable-rolling", 1, (("flush.messages", "1"), ("segment.ms", "1200"))),
)
DURABLE_TOPICS = tuple(plan.name for plan in PLANS if ("flush.messages", "1") in plan.configs)
PARTITIONS = tuple(Partition(plan.name, index) for plan in PLANS for index in range(plan.partitions))


class TryAgain(Exception):
    """The broker could not do it now."""


class Client:
    """A connection that is made again when it is lost."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.draw: random.Random = cluster.draw(name)
        self.topic_ids: dict[str, Uuid] = {}
        self._network = cluster.client_network(name)
        self._connection: ClientConnection | None = None

    async def ask(self, request: Message, response: type[ResponseT], version: int) -> ResponseT:
        return await self.wait(self.ask_soon(request, response, version))

    def ask_soon(self, request: Message, response: type[ResponseT], version: int) -> asyncio.Future[ResponseT]:
        if self._connection is None:
            raise Disconnected
        return self._connection.ask(request, response, version)

    async def wait(self, answer: asyncio.Future[ResponseT]) -> ResponseT:
        async with asyncio.timeout(REQUEST_PATIENCE_S):
            return await answer

    async def persist(self, attempt: Callable[[], Awaitable[None]]) -> None:
        """Try until it works, on a new connection each time; the run's own deadline ends what never does."""
        while True:
            try:
                self._connection = await ClientConnection.open(
                    self._network, host=BROKER, port=PORT, client_id=self.name
                )
                await attempt()
                return
            except (Disconnected, OSError, TimeoutError, TryAgain):
                pass
            finally:
                if self._connection is not None:
                    self._connection.close()
                    self._connection = None
            await asyncio.sleep(0.01 + self.draw.random() * 0.2)

    async def learn_topic_ids(self) -> None:
        topics = [MetadataRequestTopic(name=plan.name) for plan in PLANS]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        response = await self.ask(request, MetadataResponse, 12)
        for topic in response.topics:
            if topic.error_code or topic.name is None:
                raise TryAgain
            self.topic_ids[topic.name] = topic.topic_id


async def create_topics(cluster: Cluster) -> None:
    """Create what the run needs; an answer that was lost may have been a success."""
    client = Client(cluster, "admin")
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=plan.name,
                num_partitions=plan.partitions,
                replication_factor=1,
                assignments=[],
                configs=[CreatableTopicConfig(name=key, value=setting) for key, setting in plan.configs],
            )
            for plan in PLANS
        ]
    )

    async def attempt() -> None:
        response = await client.ask(request, CreateTopicsResponse, 7)
        for topic in response.topics:
            if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise TryAgain
        await client.learn_topic_ids()

    await client.persist(attempt)


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

    def __init__(self, cluster: Cluster, name: str, batches: int) -> None:
        super().__init__(cluster, name)
        self._left = batches
        self._version = self.draw.choice(PRODUCE_VERSIONS)
        self._producer_id = -1
        self._producer_epoch = -1
        self._sequences: dict[Partition, int] = {}
        self._numbers: dict[Partition, int] = {}
        self._unacknowledged: list[Batch] = []

    async def run(self) -> None:
        await self.persist(self._produce)

    async def _produce(self) -> None:
        if not self.topic_ids:
            await self.learn_topic_ids()
        if self._producer_id < 0:
            await self._identify()
        in_flight = deque(([batch], self._send([batch])) for batch in self._unacknowledged)
        while self._left or in_flight:
            while self._left and len(in_flight) < self.draw.randrange(1, MAX_IN_FLIGHT + 1):
                batches = self._next_batches()
                in_flight.append((batches, self._send(batches)))
            batches, answer = in_flight.popleft()
            self._hear(batches, await self.wait(answer))
            if self.draw.random() < 0.7:
                await asyncio.sleep(self.draw.random() * 0.2)

    async def _identify(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        response = await self.ask(request, InitProducerIdResponse, 4)
        if response.error_code:
            raise TryAgain
        self._producer_id, self._producer_epoch = response.producer_id, response.producer_epoch
        self._sequences.clear()

    def _next_batches(self) -> list[Batch]:
        """What goes into one request: mostly one batch, now and then one for each of several partitions."""
        self._left -= 1
        partitions = self.draw.sample(PARTITIONS, self.draw.choice((1, 1, 1, 2, 3)))
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
                f"sends {partition} sequence {batch.sequence} of producer {self._producer_id}, "
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
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=batch.sequence,
        )

    def _note(self, batches: Sequence[Batch], sends: Sequence[int], heard: asyncio.Future[ProduceResponse]) -> None:
        """Put what was promised into the history at once, whenever this producer may come to look at it."""
        if heard.cancelled() or heard.exception() is not None:
            return
        for batch, count, answer in zip(batches, sends, _partitions(heard.result()), strict=True):
            if answer.error_code in _IS_THERE:
                offset = -1 if answer.error_code else answer.base_offset
                self.cluster.history.add(Acknowledged(self.name, batch.partition, offset, batch.records, count > 1))
                self.cluster.trace.note(self.name, f"{batch.partition} acknowledged at {offset}")

    def _hear(self, batches: Sequence[Batch], response: ProduceResponse) -> None:
        """Forget what is done; raise if something is to be done again."""
        failed = False
        for batch, answer in zip(batches, _partitions(response), strict=True):
            error = ErrorCode(answer.error_code)
            if error in _IS_THERE:
                self._unacknowledged.remove(batch)
                continue
            failed = True
            self.cluster.trace.note(self.name, f"{batch.partition} {error.name}")
            if error in _LOST_STATE:
                # Whether batches in flight were written is unknown, so none of them may be sent under another id.
                self.cluster.history.add(Rejected(self.name, batch.partition, error.name, batch.records))
                self._unacknowledged.clear()
                self._producer_id = -1
                break
        if failed:
            raise TryAgain


def _partitions(response: ProduceResponse) -> list[PartitionProduceResponse]:
    """The answers in the order of the batches: Kafka keeps it, and this node must."""
    return [partition for topic in response.responses for partition in topic.partition_responses]


class Reader(Client):
    """Knows how to ask for bounds and how to read a stretch of a log."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        super().__init__(cluster, name)
        self._version = self.draw.choice(FETCH_VERSIONS)
        self._final = False

    async def bounds(self, partition: Partition) -> Bounds:
        asked_at = len(self.cluster.history.events)
        ends = []
        for timestamp in (EARLIEST, LATEST):
            asked = ListOffsetsPartition(partition_index=partition.index, timestamp=timestamp)
            topic = ListOffsetsTopic(name=partition.topic, partitions=[asked])
            response = await self.ask(ListOffsetsRequest(replica_id=-1, topics=[topic]), ListOffsetsResponse, 7)
            answer = response.topics[0].partitions[0]
            if answer.error_code:
                raise TryAgain
            ends.append(answer.offset)
        found = Bounds(partition, ends[0], ends[1], asked_at, self._final)
        self.cluster.history.add(found)
        return found

    async def fetch(self, offsets: dict[Partition, int], *, max_wait_ms: int) -> list[tuple[Partition, PartitionData]]:
        """One Fetch of these partitions from these offsets."""
        if not self.topic_ids:
            await self.learn_topic_ids()
        by_id = self._version >= BY_TOPIC_ID
        topics: dict[str, list[FetchPartition]] = {}
        for partition, offset in offsets.items():
            asked = FetchPartition(
                partition=partition.index,
                fetch_offset=offset,
                partition_max_bytes=self.draw.choice((1, 5_000, 1 << 20)),
            )
            topics.setdefault(partition.topic, []).append(asked)
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=self.draw.choice((1, 20_000, 1 << 22)),
            topics=[
                FetchTopic(
                    topic="" if by_id else name, topic_id=self.topic_ids[name] if by_id else ZERO_UUID, partitions=asked
                )
                for name, asked in topics.items()
            ],
        )
        response = await self.ask(request, FetchResponse, self._version)
        if response.error_code:
            raise TryAgain
        names = {topic_id: name for name, topic_id in self.topic_ids.items()}
        return [
            (Partition(names[topic.topic_id] if by_id else topic.topic, data.partition_index), data)
            for topic in response.responses
            for data in topic.partitions
        ]

    def take(self, partition: Partition, data: PartitionData, offset: int) -> int:
        """Note what came from this offset on; returns where to go on."""
        for batch in iter_batches(_bytes(data)):
            records = [record for record in decode_records(batch) if record.offset >= offset]
            if not records:
                continue
            values = tuple(record.value or b"" for record in records)
            event = Read(self.name, partition, records[0].offset, values, self._final)
            self.cluster.history.add(event)
            offset = records[-1].offset + 1
        return offset


class Consumer(Reader):
    """Follows all partitions, and finds its place again when the log moved under it."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        super().__init__(cluster, name)
        self._offsets = dict.fromkeys(PARTITIONS, 0)

    async def run(self) -> None:
        await self.persist(self._consume)

    async def _consume(self) -> None:
        while True:
            for partition, data in await self.fetch(self._offsets, max_wait_ms=300):
                offset = self._offsets[partition]
                if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    found = await self.bounds(partition)
                    self._offsets[partition] = min(max(offset, found.log_start_offset), found.log_end_offset)
                elif data.error_code:
                    raise TryAgain
                else:
                    self._offsets[partition] = self.take(partition, data, offset)
            await asyncio.sleep(self.draw.random() * 0.1)


class Observer(Reader):
    """Asks now and then where logs start and end."""

    async def run(self) -> None:
        await self.persist(self._observe)

    async def _observe(self) -> None:
        while True:
            await self.bounds(self.draw.choice(PARTITIONS))
            await asyncio.sleep(self.draw.random() * 0.5)


class FinalReader(Reader):
    """Reads everything that is there, once nothing more goes wrong."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, "final")
        self._final = True

    async def run(self) -> None:
        for partition in PARTITIONS:
            await self.persist(lambda partition=partition: self._read(partition))  # type: ignore[misc]

    async def _read(self, partition: Partition) -> None:
        found = await self.bounds(partition)
        offset = found.log_start_offset
        while offset < found.log_end_offset:
            ((_, data),) = await self.fetch({partition: offset}, max_wait_ms=100)
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise TryAgain  # Retention was faster; the last bounds that are told count.
            if data.error_code:
                raise TryAgain
            offset = self.take(partition, data, offset)


def _bytes(data: PartitionData) -> bytes | bytearray | memoryview:
    records = data.records
    if records is None:
        return b""
    assert isinstance(records, bytes | bytearray | memoryview)
    return records
