"""The offset of a time: workers read and unpack, and what happens meanwhile counts."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.server.asking import produce_bytes
from tests.unit.server.rig import Client, Rig

from odradek.ids import ZERO_UUID, LeaderEpoch, Offset
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.records import batch as batches
from odradek.protocol.records.batch import build_batch
from odradek.protocol.records.compression import Compression
from odradek.protocol.records.record import Record
from odradek.server.partitions.hosted_partition import HostedPartition
from odradek.sim.clock import FIRST_MS
from odradek.sim.disk import SimulatedFile
from odradek.sim.workers import SimulatedWorkers

LATEST, MAX_TIMESTAMP = -1, -3
SMALL_SEGMENTS = {"segment.bytes": "1048576", "file.delete.delay.ms": "0"}


class Jobs:
    """What workers were given, and what is to happen around the first of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.under_way = False
        self.before: list[Callable[[], Awaitable[object]]] = []
        self.after: list[Callable[[], Awaitable[object]]] = []
        run = SimulatedWorkers.run

        async def watched(workers: SimulatedWorkers, job: Callable[[], Any]) -> Any:
            def inside() -> Any:
                self.under_way = True
                try:
                    return job()
                finally:
                    self.under_way = False

            while self.before:
                await self.before.pop()()
            try:
                return await run(workers, inside)
            finally:
                while self.after:
                    await self.after.pop()()

        monkeypatch.setattr(SimulatedWorkers, "run", watched)


async def look_up(client: Client, timestamp: int) -> tuple[int, int, int]:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[wanted])])
    ((found,),) = [each.partitions for each in (await client.ask(request, 11)).topics]
    return found.error_code, found.offset, found.timestamp


async def filled(
    rig: Rig, codec: Compression = Compression.LZ4, batch_count: int = 3
) -> tuple[HostedPartition, Client]:
    """Two records of half a megabyte a batch, a millisecond after each other."""
    (hosted,) = await rig.create_topic("t", 1, SMALL_SEGMENTS)
    client = rig.connect()
    values = [bytes([number]) * 500_000 for number in range(2 * batch_count)]
    for first in range(0, len(values), 2):
        records = [Record(value=values[n], timestamp=FIRST_MS + n) for n in (first, first + 1)]
        await client.ask(produce_bytes("t", build_batch(records, compression=codec)), 9)
    return hosted, client


@pytest.mark.parametrize("codec", Compression)
def test_the_loop_reads_and_unpacks_nothing(codec: Compression, monkeypatch: pytest.MonkeyPatch) -> None:
    """However large a batch is, others wait for a few reads of indexes at most."""
    rig = Rig()
    jobs = Jobs(monkeypatch)
    inside: dict[str, set[bool]] = {"read": set(), "decode": set()}
    read, decode = SimulatedFile.read, batches.decompress

    def watched_read(file: SimulatedFile, position: int, length: int) -> bytes:
        if file.path.endswith(".log") and "/t-" in file.path:
            inside["read"].add(jobs.under_way)
        return read(file, position, length)

    def watched_decompress(*arguments: Any) -> bytes:
        inside["decode"].add(jobs.under_way)
        return decode(*arguments)

    async def test() -> None:
        _, client = await filled(rig, codec)
        monkeypatch.setattr(SimulatedFile, "read", watched_read)
        monkeypatch.setattr(batches, "decompress", watched_decompress)
        assert await look_up(client, FIRST_MS + 3) == (0, 3, FIRST_MS + 3)
        assert await look_up(client, MAX_TIMESTAMP) == (0, 5, FIRST_MS + 5)

    rig.run(test)
    assert inside == {"read": {True}, "decode": set() if codec is Compression.NONE else {True}}


def test_others_are_answered_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    jobs = Jobs(monkeypatch)

    async def test() -> None:
        _, client = await filled(rig)
        answers: list[int] = []

        async def ask_elsewhere() -> None:
            answers.append((await look_up(rig.connect(), LATEST))[1])

        jobs.before.append(ask_elsewhere)
        assert await look_up(client, FIRST_MS + 3) == (0, 3, FIRST_MS + 3)
        assert answers == [6]

    rig.run(test)


def test_records_that_are_deleted_meanwhile_are_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    jobs = Jobs(monkeypatch)

    async def test() -> None:
        hosted, client = await filled(rig)

        async def delete() -> None:
            rig.node.rooms.replicas.delete_records(hosted, Offset(3))

        jobs.after.append(delete)
        assert await look_up(client, FIRST_MS) == (0, 3, FIRST_MS + 3)
        jobs.after.append(delete)
        assert await look_up(client, FIRST_MS + 5) == (0, 5, FIRST_MS + 5)

    rig.run(test)


def test_a_segment_that_goes_meanwhile_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files with it, so that the worker finds none."""
    rig = Rig()
    jobs = Jobs(monkeypatch)

    async def test() -> None:
        hosted, client = await filled(rig, Compression.NONE)
        log = hosted.partition.log
        assert [segment.base_offset for segment in log.segments] == [0, 2, 4]
        first = log.segments[0]

        async def delete() -> None:
            rig.node.rooms.replicas.delete_records(hosted, Offset(2))
            log.apply_retention(rig.clock.now_ms())
            log.purge_deleted(rig.clock.now_ms() + 1)
            assert first.deleted

        jobs.before.append(delete)
        assert await look_up(client, FIRST_MS) == (0, 2, FIRST_MS + 2)
        assert hosted.directory.online

    rig.run(test)


def test_a_topic_that_goes_meanwhile_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    jobs = Jobs(monkeypatch)

    async def test() -> None:
        _, client = await filled(rig)

        async def delete() -> None:
            topics = [DeleteTopicState(name="t", topic_id=ZERO_UUID)]
            await rig.node.rooms.controller.delete_topics(DeleteTopicsRequest(topics=topics, timeout_ms=1), 6)

        jobs.before.append(delete)
        assert await look_up(client, FIRST_MS) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)

    rig.run(test)


def test_another_epoch_meanwhile_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read may be of records that another leader has had cut off since."""
    rig = Rig()
    jobs = Jobs(monkeypatch)

    async def test() -> None:
        hosted, client = await filled(rig)
        partition = hosted.partition

        async def elect() -> None:
            partition.apply(replace(partition.state, leader_epoch=LeaderEpoch(7)), now_ms=0)

        jobs.after.append(elect)
        assert await look_up(client, FIRST_MS) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)
        assert await look_up(client, FIRST_MS) == (0, 0, FIRST_MS)

    rig.run(test)


def test_every_segment_is_searched_up_to_the_end_that_was_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that lie about their batch are passed over; what is appended meanwhile does not keep a search going."""
    rig = Rig()
    jobs = Jobs(monkeypatch)

    async def test() -> None:
        hosted, client = await filled(rig, Compression.NONE)
        for segment in hosted.partition.log.segments:
            segment.max_timestamp = FIRST_MS + 100

        async def append() -> None:
            records = [Record(value=b"x", timestamp=FIRST_MS + 50)]
            await rig.connect().ask(produce_bytes("t", build_batch(records)), 9)

        jobs.before.append(append)
        assert await look_up(client, FIRST_MS + 50) == (0, -1, -1)
        assert await look_up(client, FIRST_MS + 50) == (0, 6, FIRST_MS + 50)

    rig.run(test)


def test_a_disk_that_fails_under_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(properties={"log.dirs": "/a,/b", "metadata.log.dir": "/c"})
    jobs = Jobs(monkeypatch)
    read = SimulatedFile.read

    def broken(file: SimulatedFile, position: int, length: int) -> bytes:
        if jobs.under_way:
            raise OSError(errno.EIO, "Input/output error", file.path)
        return read(file, position, length)

    async def test() -> None:
        hosted, client = await filled(rig)
        with monkeypatch.context() as patched:
            patched.setattr(SimulatedFile, "read", broken)
            error, _, _ = await look_up(client, FIRST_MS)
        assert error == ErrorCode.KAFKA_STORAGE_ERROR
        await asyncio.sleep(0)
        assert not hosted.directory.online

    rig.run(test)
