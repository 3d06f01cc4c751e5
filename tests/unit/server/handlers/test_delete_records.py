"""DeleteRecords: a partition's start moves forward, never back and never past what is committed."""

from __future__ import annotations

import errno
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.unit.server.asking import fetch, fetched, produce, values, wanted
from tests.unit.server.rig import Client, Rig

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.storage.log import Log


def on_a_node(test: Callable[[Rig, Client], Coroutine[Any, Any, None]]) -> None:
    """Run a test with a node, a client, and a topic `t` that holds three batches of a record."""
    rig = Rig()

    async def run() -> None:
        await rig.create_topic("t")
        client = rig.connect()
        for value in (b"a", b"b", b"c"):
            await client.ask(produce("t", value), 9)
        await test(rig, client)

    rig.run(run)


async def delete(
    client: Client, offset: int, version: int = 2, *, topic: str = "t", partition: int = 0
) -> DeleteRecordsPartitionResult:
    part = DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[part])], timeout_ms=1000)
    response = await client.ask(request, version)
    ((result,),) = [each.partitions for each in response.topics]
    assert isinstance(result, DeleteRecordsPartitionResult)
    return result


@pytest.mark.parametrize("version", range(3))
def test_the_start_moves_to_the_offset(version: int) -> None:
    async def test(rig: Rig, client: Client) -> None:
        result = await delete(client, 2, version)
        assert (result.error_code, result.low_watermark) == (0, 2)
        found = await client.ask(fetch("t", wanted(0, 2)), 12)
        assert fetched(found)[0].log_start_offset == 2
        assert values(fetched(found)[0]) == [b"c"]
        gone = await client.ask(fetch("t", wanted(0, 1)), 12)
        assert fetched(gone)[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        back = await delete(client, 1, version)
        assert (back.error_code, back.low_watermark) == (0, 2)

    on_a_node(test)


def test_minus_one_means_all() -> None:
    async def test(rig: Rig, client: Client) -> None:
        result = await delete(client, -1)
        assert (result.error_code, result.low_watermark) == (0, 3)
        await client.ask(produce("t", b"d"), 9)
        assert values(fetched(await client.ask(fetch("t", wanted(0, 3)), 12))[0]) == [b"d"]

    on_a_node(test)


@pytest.mark.parametrize("offset", [4, 2**63 - 1, -2, -(2**63)])
def test_an_offset_outside_is_refused(offset: int) -> None:
    async def test(rig: Rig, client: Client) -> None:
        result = await delete(client, offset)
        assert (result.error_code, result.low_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert rig.node.rooms.replicas.require("t", 0).partition.log.log_start_offset == 0

    on_a_node(test)


def test_only_topics_that_may_delete_can_be_deleted_from() -> None:
    async def test(rig: Rig, client: Client) -> None:
        await rig.create_topic("compacted", 1, {"cleanup.policy": "compact"})
        await rig.create_topic("both", 1, {"cleanup.policy": "compact,delete"})
        await rig.create_topic("__consumer_offsets", 1)
        for topic, code in (
            ("compacted", ErrorCode.POLICY_VIOLATION),
            ("both", ErrorCode.NONE),
            ("__consumer_offsets", ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("__transaction_state", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ):
            assert (await delete(client, 0, topic=topic)).error_code == code
        assert (await delete(client, 0, partition=5)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    on_a_node(test)


def test_the_start_survives_a_restart() -> None:
    async def test(rig: Rig, client: Client) -> None:
        await delete(client, 2)
        await rig.restart()
        log = rig.node.rooms.replicas.require("t", 0).partition.log
        assert (log.log_start_offset, log.log_end_offset) == (2, 3)

    on_a_node(test)


def test_a_failing_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(properties={"log.dirs": "/a,/b", "metadata.log.dir": "/c"})

    def broken(self: Log, offset: int) -> int:
        raise OSError(errno.EIO, "Input/output error")

    async def test() -> None:
        (hosted,) = await rig.create_topic("t")
        client = rig.connect()
        monkeypatch.setattr(Log, "delete_records_before", broken)
        assert (await delete(client, 0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert not hosted.directory.online

    rig.run(test)
