"""ListOffsets: the ends of a partition, and points in time."""

from __future__ import annotations

import errno
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.unit.server.asking import produce, produce_bytes
from tests.unit.server.rig import Client, Rig

from odradek.ids import Offset
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.records.batch import build_batch
from odradek.protocol.records.record import Record
from odradek.sim.clock import FIRST_MS
from odradek.sim.disk import SimulatedFile

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6


def on_a_node(test: Callable[[Rig, Client], Coroutine[Any, Any, None]]) -> None:
    """Run a test with a node, a client, and a topic `t` that holds six records, deleted up to offset 1."""
    rig = Rig()

    async def run() -> None:
        hosted, _ = await rig.create_topic("t", 2)
        client = rig.connect()
        for times in ((10, 30, 20), (50,), (40, 5)):
            records = [Record(value=b"x", timestamp=FIRST_MS + each) for each in times]
            await client.ask(produce_bytes("t", build_batch(records)), 9)
        rig.node.rooms.replicas.delete_records(hosted, Offset(1))
        await test(rig, client)

    rig.run(run)


def asking(*wanted: ListOffsetsPartition, topic: str = "t", isolation_level: int = 0) -> ListOffsetsRequest:
    topics = [ListOffsetsTopic(name=topic, partitions=list(wanted))]
    return ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics)


async def look_up(
    client: Client, timestamp: int, version: int = 11, *, partition: int = 0, epoch: int = -1, topic: str = "t"
) -> ListOffsetsPartitionResponse:
    wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
    response = await client.ask(asking(wanted, topic=topic), version)
    ((found,),) = [each.partitions for each in response.topics]
    assert isinstance(found, ListOffsetsPartitionResponse)
    return found


@pytest.mark.parametrize("version", range(1, 12))
def test_the_ends(version: int) -> None:
    async def test(rig: Rig, client: Client) -> None:
        for timestamp, offset in ((LATEST, 6), (EARLIEST, 1)):
            found = await look_up(client, timestamp, version)
            assert (found.error_code, found.offset, found.timestamp) == (0, offset, -1)
            assert found.leader_epoch == (0 if version >= 4 else -1)
        empty = await look_up(client, LATEST, version, partition=1)
        assert (empty.error_code, empty.offset) == (0, 0)

    on_a_node(test)


@pytest.mark.parametrize(
    ("timestamp", "since", "offset", "found_timestamp"),
    [
        (MAX_TIMESTAMP, 7, 3, FIRST_MS + 50),
        (EARLIEST_LOCAL, 8, 1, -1),
        (LATEST_TIERED, 9, -1, -1),
        (EARLIEST_PENDING_UPLOAD, 11, -1, -1),
    ],
)
def test_special_timestamps_exist_from_some_version_on(
    timestamp: int, since: int, offset: int, found_timestamp: int
) -> None:
    async def test(rig: Rig, client: Client) -> None:
        for version in range(1, 12):
            found = await look_up(client, timestamp, version)
            if version < since:
                assert (found.error_code, found.offset) == (ErrorCode.UNSUPPORTED_VERSION, -1)
            else:
                assert (found.error_code, found.offset, found.timestamp) == (0, offset, found_timestamp)
                assert found.leader_epoch == (0 if offset >= 0 else -1)

    on_a_node(test)


@pytest.mark.parametrize("timestamp", [-7, -(2**63)])
def test_other_negative_timestamps_are_refused(timestamp: int) -> None:
    async def test(rig: Rig, client: Client) -> None:
        assert (await look_up(client, timestamp)).error_code == ErrorCode.UNSUPPORTED_VERSION

    on_a_node(test)


@pytest.mark.parametrize(
    ("timestamp", "offset", "found_timestamp"),
    [(0, 1, 30), (10, 1, 30), (30, 1, 30), (31, 3, 50), (50, 3, 50), (51, -1, None), (2**62, -1, None)],
)
def test_a_time_finds_the_first_record_at_least_as_late(
    timestamp: int, offset: int, found_timestamp: int | None
) -> None:
    """In the order of the log: records before the log's start do not count, times may go back."""

    async def test(rig: Rig, client: Client) -> None:
        found = await look_up(client, timestamp + FIRST_MS if timestamp else 0)
        assert (found.error_code, found.offset) == (0, offset)
        assert found.timestamp == (-1 if found_timestamp is None else FIRST_MS + found_timestamp)
        assert found.leader_epoch == (-1 if offset < 0 else 0)

    on_a_node(test)


def test_an_empty_partition_has_no_largest_timestamp() -> None:
    async def test(rig: Rig, client: Client) -> None:
        for timestamp in (MAX_TIMESTAMP, 0):
            found = await look_up(client, timestamp, partition=1)
            assert (found.error_code, found.offset, found.timestamp, found.leader_epoch) == (0, -1, -1, -1)

    on_a_node(test)


def test_read_committed_ends_at_the_last_stable_offset() -> None:
    async def test(rig: Rig, client: Client) -> None:
        wanted = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
        response = await client.ask(asking(wanted, isolation_level=1), 11)
        assert response.topics[0].partitions[0].offset == 6

    on_a_node(test)


def test_what_is_not_here_is_unknown() -> None:
    async def test(rig: Rig, client: Client) -> None:
        for topic, partition in (("nowhere", 0), ("t", 9), ("t", -1)):
            found = await look_up(client, LATEST, topic=topic, partition=partition)
            assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert (found.offset, found.timestamp, found.leader_epoch) == (-1, -1, -1)

    on_a_node(test)


def test_another_epoch_is_fenced() -> None:
    async def test(rig: Rig, _: Client) -> None:
        await rig.restart()
        client = rig.connect()
        epoch = rig.node.rooms.replicas.require("t", 0).partition.state.leader_epoch
        assert (await look_up(client, LATEST, epoch=epoch)).offset == 6
        assert (await look_up(client, LATEST)).leader_epoch == epoch
        assert (await look_up(client, EARLIEST)).leader_epoch == 0
        assert (await look_up(client, LATEST, epoch=epoch + 1)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert (await look_up(client, LATEST, epoch=epoch - 1)).error_code == ErrorCode.FENCED_LEADER_EPOCH

    on_a_node(test)


def test_a_partition_asked_for_twice_is_refused_once() -> None:
    async def test(rig: Rig, client: Client) -> None:
        wanted = [ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in (0, 1, 0)]
        response = await client.ask(asking(*wanted), 11)
        (topic,) = response.topics
        assert [(each.partition_index, each.error_code) for each in topic.partitions] == [
            (0, ErrorCode.INVALID_REQUEST),
            (1, 0),
        ]

    on_a_node(test)


def test_a_disk_that_cannot_be_searched_goes_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(properties={"log.dirs": "/a,/b", "metadata.log.dir": "/c"})
    read = SimulatedFile.read

    def broken(self: SimulatedFile, position: int, length: int) -> bytes:
        if "/t-" in self.path:
            raise OSError(errno.EIO, "Input/output error", self.path)
        return read(self, position, length)

    async def test() -> None:
        (hosted,) = await rig.create_topic("t")
        client = rig.connect()
        await client.ask(produce("t", b"x", timestamp=FIRST_MS), 9)
        with monkeypatch.context() as patched:
            patched.setattr(SimulatedFile, "read", broken)
            found = await look_up(client, FIRST_MS)
        assert found.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert not hosted.directory.online
        assert (await look_up(client, LATEST)).error_code == ErrorCode.KAFKA_STORAGE_ERROR

    rig.run(test)
