"""A run of compacted partitions: keyed records are written and read while leaders go, and the cleaner is at work."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from odradek.ports import FileSlice
from odradek.protocol.messages.fetch import PartitionData
from odradek.protocol.records.batch import build_batch, decode_records, iter_batches, read_header
from odradek.protocol.records.record import Record
from odradek.sim.cluster import Cluster
from odradek.sim.consumer import batches_in
from odradek.sim.history import Partition, TableFollowed, TableHeld, TablePut
from odradek.sim.producer import Batch
from odradek.sim.quorum import SETTLE_S
from odradek.sim.replication import (
    FEWEST_FAULTS,
    MANY,
    RUN_S,
    create_topics,
    library_client,
    play_on,
    settle,
    watch,
)
from odradek.sim.replication_clients import LeaderConsumer, LeaderProducer
from odradek.sim.replication_cluster import MIN, ReplicationCluster
from odradek.sim.replication_faults import ReplicationFaults
from odradek.sim.workload import TopicPlan
from odradek.storage.log import Log

STATES = (
    "segments replaced",
    "cleaning undone at start",
    "swap finished at start",
    "follower cut its log",
    "leader moved",
    "process crash",
    "power loss",
    "crash before a change of names",
    "crash inside a write",
    "clean restart",
)
"""What a set of seeds must have met to prove anything about compaction."""

SETTINGS = {
    "log.initial.task.delay.ms": "0",
    "log.flush.scheduler.interval.ms": "700",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.io.buffer.size": "1",
    "log.cleaner.threads": "2",
}

KEYS = 6
DELETED_EVERY = 7
"""So many records of a producer one is a tombstone."""


class CompactedCluster(ReplicationCluster):
    """Its topics are compacted as soon as anything is sealed, in slices as small as they may be."""

    is_fixed = True
    internal = ()
    plans = (
        TopicPlan(
            "table",
            2,
            (
                MIN,
                ("cleanup.policy", "compact"),
                ("segment.ms", "700"),
                ("min.cleanable.dirty.ratio", "0.01"),
                # Longer than any run: a reader that is kept from reading for some time must miss none of them.
                ("delete.retention.ms", "600000"),
                ("file.delete.delay.ms", "2000"),
            ),
        ),
    )
    settings = SETTINGS


class TableProducer(LeaderProducer):
    """Writes the same keys over and over, and deletes some."""

    longest_pause_s = 0.5

    def acknowledged(self, batch: Batch, offset: int, *, again: bool) -> None:
        self.cluster.history.add(TablePut(batch.partition, offset, tuple(map(pair_of, batch.records))))

    def _encoded(self, batch: Batch) -> bytearray:
        return build_batch(
            [Record(*pair_of(record)) for record in batch.records],
            timestamp=batch.timestamp,
            producer_id=self.producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=batch.sequence,
        )


class TableReader(LeaderConsumer):
    """Keeps what a partition amounts to, as a client does that restores its state: slowly, and from the start on."""

    longest_pause_s = 2.0

    def __init__(self, cluster: Cluster, name: str, partition: Partition) -> None:
        super().__init__(cluster, name, partitions=[partition])
        self.table: dict[bytes, bytes] = {}

    @property
    def offset(self) -> int:
        return self._offsets[self.wanted]

    def take(self, partition: Partition, data: PartitionData, offset: int) -> int:
        for batch in batches_in(data):
            for each in decode_records(batch):
                assert each.key is not None, "all records here have keys"
                if each.offset >= offset:
                    self.table.pop(each.key, None)
                    if each.value is not None:
                        self.table[each.key] = each.value
            offset = max(offset, read_header(batch).last_offset + 1)
        return offset


def pair_of(record: bytes) -> tuple[bytes, bytes | None]:
    """Key and value of what a producer sends: its number says both."""
    number = int(record.split(b"/", 2)[1])
    return b"key-%d" % (number % KEYS), None if number % DELETED_EVERY == 0 else record


async def scenario(cluster: Cluster, *, power: bool) -> None:
    assert isinstance(cluster, CompactedCluster)
    draw = cluster.draw("scenario")
    faults = ReplicationFaults(cluster, power=power)
    for machine in cluster.machines.values():
        faults.start(machine)
    await create_topics(cluster, library_client(cluster))
    producers = [
        TableProducer(cluster, f"producer-{number}", MANY, partitions=[partition])
        for number, partition in enumerate(draw.choices(cluster.partitions, k=draw.choice((2, 3))))
    ]
    readers = [TableReader(cluster, f"reader-{each.index}", each) for each in cluster.partitions]
    watching = [asyncio.create_task(watch(cluster, faults))]
    watching += [asyncio.create_task(reader.run()) for reader in readers]
    working = [asyncio.create_task(producer.run()) for producer in producers]
    await faults.run(draw.randrange(FEWEST_FAULTS, 8), RUN_S)
    await play_on(cluster)
    for producer in producers:
        producer.finish()
    await asyncio.gather(*working)
    await settle(cluster)
    for reader in readers:
        await _note_followed(cluster, reader)
    for task in watching:
        task.cancel()
    await asyncio.gather(*watching, return_exceptions=True)
    for partition in cluster.partitions:
        for machine, hosted in cluster.hosted(partition):
            records = tuple(_records(hosted.partition.log))
            cluster.history.add(TableHeld(machine.name, partition, records))


async def _note_followed(cluster: CompactedCluster, reader: TableReader) -> None:
    """Once it has come to the end."""
    began = cluster.loop.time()
    while any(reader.offset < hosted.partition.log.high_watermark for _, hosted in cluster.hosted(reader.wanted)):
        await asyncio.sleep(0.2)
        if cluster.loop.time() - began > SETTLE_S:
            cluster.loop.failures.append(f"{reader.name} came no further than {reader.offset} of {reader.wanted}")
            return
    cluster.history.add(TableFollowed(reader.name, reader.wanted, tuple(sorted(reader.table.items()))))


def _records(log: Log) -> Iterator[tuple[int, bytes, bytes | None]]:
    offset = int(log.log_start_offset)
    while offset < log.high_watermark:
        read = log.read(offset, max_bytes=1 << 20, end_offset=log.high_watermark, minimum_one=True).records
        data = read.read() if isinstance(read, FileSlice) else read
        for batch in iter_batches(memoryview(data)):
            offset = read_header(batch).last_offset + 1
            for each in decode_records(batch):
                yield each.offset, each.key or b"", each.value
