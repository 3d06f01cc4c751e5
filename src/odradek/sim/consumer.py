"""Who reads: a consumer that follows everything, one who asks for bounds, and the last reader of all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from odradek.ids import ZERO_UUID
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from odradek.protocol.messages.list_offsets import (
    EARLIEST,
    LATEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.protocol.records.batch import decode_records, iter_batches
from odradek.sim.cluster import Cluster
from odradek.sim.history import Bounds, Partition, Read, TrimSent
from odradek.sim.trace import OPERATION
from odradek.sim.workload import BY_TOPIC_ID, PARTITIONS, Client, TryAgain

FETCH_VERSIONS = (4, 11, 12, 13, 17)
SESSIONS_SINCE = 7
SESSIONLESS = -1


class Reader(Client):
    """Knows how to ask for bounds and how to read a stretch of a log."""

    def __init__(self, cluster: Cluster, name: str, *, partitions: Sequence[Partition] = PARTITIONS) -> None:
        super().__init__(cluster, name, partitions=partitions)
        self._version = self.draw.choice(FETCH_VERSIONS)
        self._final = False
        self._session_id = 0
        self._session_epoch = SESSIONLESS
        self._told: dict[Partition, int] = {}
        """Where the broker's session believes this reader is."""

    async def bounds(self, partition: Partition) -> Bounds:
        asked_at = len(self.cluster.history.events)
        ends = []
        for timestamp in (EARLIEST, LATEST):
            asked = ListOffsetsPartition(
                partition_index=partition.index, current_leader_epoch=self.leader_epoch, timestamp=timestamp
            )
            topic = ListOffsetsTopic(name=partition.topic, partitions=[asked])
            response = await self.ask(ListOffsetsRequest(replica_id=-1, topics=[topic]), ListOffsetsResponse, 7)
            answer = response.topics[0].partitions[0]
            if answer.error_code:
                raise TryAgain
            ends.append(answer.offset)
        observer = self.name if self.leader_epoch >= 0 else ""
        found = Bounds(partition, ends[0], ends[1], asked_at, self._final, observer)
        self.cluster.history.add(found)
        self.cluster.trace.mark(OPERATION)
        return found

    async def fetch(self, offsets: dict[Partition, int], *, max_wait_ms: int) -> list[tuple[Partition, PartitionData]]:
        """One Fetch of these partitions from these offsets; in a session, only of those that have moved."""
        if not self.topic_ids:
            await self.learn_topic_ids()
        if self._session_epoch > 0:
            offsets = {partition: at for partition, at in offsets.items() if self._told.get(partition) != at}
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
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=[
                FetchTopic(
                    topic="" if by_id else name, topic_id=self.topic_ids[name] if by_id else ZERO_UUID, partitions=asked
                )
                for name, asked in topics.items()
            ],
        )
        response = await self.ask(request, FetchResponse, self._version)
        self._note_session(response, offsets)
        if not any(data.error_code for topic in response.responses for data in topic.partitions):
            self.cluster.trace.mark(OPERATION)
        names = {topic_id: name for name, topic_id in self.topic_ids.items()}
        known = {(partition.topic, partition.index): partition for partition in self.partitions}
        return [
            (known[names[topic.topic_id] if by_id else topic.topic, data.partition_index], data)
            for topic in response.responses
            for data in topic.partitions
        ]

    def begin_session(self) -> None:
        """Ask for a session with the next Fetch, which then names all partitions."""
        self._session_id, self._session_epoch = 0, 0
        self._told = {}

    def _note_session(self, response: FetchResponse, offsets: dict[Partition, int]) -> None:
        if self._session_epoch == SESSIONLESS:
            if response.error_code:
                raise TryAgain
            return
        if response.error_code:  # Forgotten, or the answer to an earlier request of it was lost.
            self.begin_session()
            raise TryAgain
        if response.session_id:
            self._session_id = response.session_id
            self._session_epoch += 1
            self._told.update(offsets)
            if self._session_epoch > 1:
                self.cluster.trace.mark("fetch session used")

    def take(self, partition: Partition, data: PartitionData, offset: int) -> int:
        """Note what came from this offset on; returns where to go on."""
        for batch in batches_in(data):
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

    longest_pause_s = 0.1
    max_wait_ms = 300

    def __init__(self, cluster: Cluster, name: str, *, partitions: Sequence[Partition] = PARTITIONS) -> None:
        super().__init__(cluster, name, partitions=partitions)
        self._offsets = dict.fromkeys(partitions, 0)
        if self._version >= SESSIONS_SINCE and self.draw.random() < 0.7:
            self.begin_session()

    async def run(self) -> None:
        await self.persist(self._consume)

    async def _consume(self) -> None:
        while True:
            for partition, data in await self.fetch(self._offsets, max_wait_ms=self.max_wait_ms):
                offset = self._offsets[partition]
                if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    found = await self.bounds(partition)
                    self._offsets[partition] = min(max(offset, found.log_start_offset), found.log_end_offset)
                elif data.error_code:
                    raise TryAgain
                else:
                    self._offsets[partition] = self.take(partition, data, offset)
            await asyncio.sleep(self.draw.random() * self.longest_pause_s)


class Observer(Reader):
    """Asks now and then where logs start and end, and at times lets old records be deleted."""

    longest_pause_s = 0.5
    deletes = 0.05

    async def run(self) -> None:
        await self.persist(self._observe)

    async def _observe(self) -> None:
        while True:
            found = await self.bounds(self.draw.choice(self.partitions))
            if self.draw.random() < self.deletes:
                await self._delete_records(found)
            await asyncio.sleep(self.draw.random() * self.longest_pause_s)

    async def _delete_records(self, found: Bounds) -> None:
        before = self.draw.randrange(found.log_start_offset, found.log_end_offset + 1)
        asked = DeleteRecordsPartition(partition_index=found.partition.index, offset=before)
        topic = DeleteRecordsTopic(name=found.partition.topic, partitions=[asked])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=5_000)
        history = self.cluster.history
        history.add(TrimSent(found.partition, len(history.events), before))
        response = await self.ask(request, DeleteRecordsResponse, 2)
        answer = response.topics[0].partitions[0]
        if not answer.error_code:
            self.cluster.trace.note(self.name, f"{found.partition} deleted before {answer.low_watermark}")
            self.cluster.trace.mark("records deleted")


class FinalReader(Reader):
    """Reads everything that is there, once nothing more goes wrong."""

    def __init__(self, cluster: Cluster, *, partitions: Sequence[Partition] = PARTITIONS) -> None:
        super().__init__(cluster, "final", partitions=partitions)
        self._final = True

    async def run(self) -> None:
        for partition in self.partitions:
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


def batches_in(data: PartitionData) -> Iterator[memoryview]:
    """What a Fetch has brought of a partition."""
    records = data.records
    if records is not None:
        assert isinstance(records, bytes | bytearray | memoryview)
        yield from iter_batches(records)
