"""Produce: what is appended, what is refused, and what an answer says of it."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.unit.server.asking import fetch, fetched, produce, produce_bytes, produced, values, wanted
from tests.unit.server.rig import Client, Rig

from odradek.ids import ZERO_UUID, Uuid
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.records.batch import build_batch
from odradek.protocol.records.record import Record
from odradek.sim.disk import SimulatedFile


def on_a_node(test: Callable[[Rig, Client], Coroutine[Any, Any, None]], **properties: str) -> None:
    """Run a test with a node, a client of it, and a topic `t` of two partitions."""
    rig = Rig(properties={key.replace("_", "."): text for key, text in properties.items()})

    async def run() -> None:
        await rig.create_topic("t", 2)
        await test(rig, rig.connect())

    rig.run(run)


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", range(3, 14))
def test_a_batch_is_appended_and_its_place_told(version: int, acks: int) -> None:
    async def test(rig: Rig, client: Client) -> None:
        topic_id = rig.topic_id("t")
        for offset in (0, 2):
            response = await client.ask(produce("t", b"a", b"b", topic_id=topic_id, acks=acks), version)
            answer = produced(response)
            assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, offset, -1)
            assert answer.log_start_offset == (0 if version >= 5 else -1)
            if version >= 13:
                assert response.responses[0].topic_id == topic_id
            else:
                assert response.responses[0].name == "t"
        assert rig.node.rooms.replicas.require("t", 0).partition.log.high_watermark == 4

    on_a_node(test)


def test_acks_0_is_appended_and_not_answered() -> None:
    async def test(rig: Rig, client: Client) -> None:
        silent = client.send(produce("t", b"a", acks=0), 9)
        await client.ask(produce("t", b"b"), 9)
        assert not client.has_answer(silent)
        assert values(fetched(await client.ask(fetch("t", wanted(0)), 12))[0]) == [b"a", b"b"]

    on_a_node(test)


@pytest.mark.parametrize(
    "wrong",
    [
        produce("nowhere", b"x", acks=0),
        produce("t", b"x", partition=9, acks=0),
        produce_bytes("t", b"", acks=0),
        produce_bytes("t", build_batch([Record(value=b"x")])[:-1], acks=0),
    ],
    ids=["topic", "partition", "nothing", "torn"],
)
def test_an_error_with_acks_0_closes_the_connection(wrong: ProduceRequest, caplog: pytest.LogCaptureFixture) -> None:
    async def test(rig: Rig, client: Client) -> None:
        client.send(wrong, 9)
        await asyncio.sleep(0.1)
        assert client.wire.closed
        assert client.answered == []

    with caplog.at_level(logging.WARNING):
        on_a_node(test)
    assert len(caplog.records) == 1


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_other_acks_are_refused(acks: int) -> None:
    async def test(rig: Rig, client: Client) -> None:
        answer = produced(await client.ask(produce("t", b"x", acks=acks), 9))
        assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
        assert answer.base_offset == -1
        assert rig.node.rooms.replicas.require("t", 0).partition.log.log_end_offset == 0

    on_a_node(test)


def test_what_is_not_here_is_told_partition_by_partition() -> None:
    async def test(rig: Rig, client: Client) -> None:
        def data(index: int) -> PartitionProduceData:
            return PartitionProduceData(index=index, records=build_batch([Record(value=b"x")]))

        by_name = ProduceRequest(
            acks=1,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData(name="t", partition_data=[data(0), data(7), data(1)]),
                TopicProduceData(name="nowhere", partition_data=[data(0)]),
            ],
        )
        response = await client.ask(by_name, 9)
        codes = [[part.error_code for part in topic.partition_responses] for topic in response.responses]
        assert codes == [[0, 3, 0], [3]]
        by_id = ProduceRequest(
            acks=1,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData(topic_id=rig.topic_id("t"), partition_data=[data(0), data(7)]),
                TopicProduceData(topic_id=Uuid(b"\x07" * 16), partition_data=[data(0)]),
            ],
        )
        response = await client.ask(by_id, 13)
        codes = [[part.error_code for part in topic.partition_responses] for topic in response.responses]
        assert codes == [[0, 3], [ErrorCode.UNKNOWN_TOPIC_ID]]

    on_a_node(test)


def test_bad_batches_are_refused_with_kafkas_codes() -> None:
    async def test(rig: Rig, client: Client) -> None:
        sound = bytes(build_batch([Record(value=b"x")]))
        flipped = sound[:-1] + bytes((sound[-1] ^ 1,))
        for records, code in (
            (flipped, ErrorCode.CORRUPT_MESSAGE),
            (sound + sound, ErrorCode.INVALID_RECORD),
            (sound[:16] + b"\x01" + sound[17:], ErrorCode.INVALID_RECORD),
            (bytes(build_batch([Record(value=b"x" * 2_000_000)])), ErrorCode.MESSAGE_TOO_LARGE),
            (None, ErrorCode.INVALID_RECORD),
        ):
            answer = produced(await client.ask(produce_bytes("t", records), 9))
            assert (answer.error_code, answer.base_offset) == (code, -1)
            assert answer.error_message
        assert rig.node.rooms.replicas.require("t", 0).partition.log.log_end_offset == 0

    on_a_node(test)


@pytest.mark.parametrize("version", [8, 9, 13])
def test_a_transactional_batch_without_a_transaction_is_refused(version: int) -> None:
    """It would hold the last stable offset where it is for good."""

    async def test(rig: Rig, client: Client) -> None:
        open_ended = produce(
            "t",
            b"x",
            topic_id=rig.topic_id("t"),
            producer_id=5,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        answer = produced(await client.ask(open_ended, version))
        assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        await client.ask(produce("t", b"plain"), 9)
        committed = await client.ask(fetch("t", wanted(0), isolation_level=1), 12)
        assert values(fetched(committed)[0]) == [b"plain"]

    on_a_node(test)


def test_a_repeated_batch_gets_its_first_offset_and_a_gap_is_refused() -> None:
    async def test(rig: Rig, client: Client) -> None:
        async def send(sequence: int, epoch: int = 0) -> tuple[int, int]:
            request = produce("t", b"a", b"b", producer_id=5, producer_epoch=epoch, base_sequence=sequence)
            answer = produced(await client.ask(request, 9))
            return answer.error_code, answer.base_offset

        assert await send(0) == (0, 0)
        assert await send(2) == (0, 2)
        assert await send(0) == (0, 0)
        assert await send(2) == (0, 2)
        assert await send(6) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert await send(4) == (0, 4)
        assert await send(0, epoch=1) == (0, 6)
        assert await send(6, epoch=0) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
        assert rig.node.rooms.replicas.require("t", 0).partition.log.log_end_offset == 8

    on_a_node(test)


def test_log_append_time_is_told() -> None:
    rig = Rig()

    async def test() -> None:
        await rig.create_topic("stamped", 1, {"message.timestamp.type": "LogAppendTime"})
        await asyncio.sleep(3)
        answer = produced(await rig.connect().ask(produce("stamped", b"x", timestamp=5), 9))
        assert answer.log_append_time_ms == rig.clock.now_ms()

    rig.run(test)


# Disks.


def test_a_synced_topic_is_answered_once_it_is_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    sync = SimulatedFile.sync

    def noted(self: SimulatedFile) -> None:
        synced.append(self.path)
        sync(self)

    rig = Rig()

    async def test() -> None:
        (hosted,) = await rig.create_topic("synced", 1, {"flush.messages": "2"})
        client = rig.connect()
        monkeypatch.setattr(SimulatedFile, "sync", noted)
        await client.ask(produce("synced", b"one"), 9)
        assert not synced
        await client.ask(produce("synced", b"two"), 9)
        assert "/data/synced-0/00000000000000000000.log" in synced
        assert hosted.partition.log.recovery_point == 2

    rig.run(test)


def test_later_batches_are_appended_while_a_sync_is_waited_for_and_answered_in_order() -> None:
    rig = Rig()

    async def test() -> None:
        (hosted,) = await rig.create_topic("synced", 1, {"flush.messages": "1"})
        await rig.create_topic("plain")
        client = rig.connect()
        sent = [client.send(produce("synced" if number % 2 else "plain", b"x"), 9) for number in range(1, 9)]
        assert hosted.partition.log.log_end_offset == 4
        assert client.answered == []
        await asyncio.sleep(5)
        assert [correlation_id for correlation_id, _ in client.answered] == sent

    rig.run(test)


def test_a_topic_deleted_while_it_is_synced_accuses_no_disk() -> None:
    rig = Rig()

    async def test() -> None:
        await rig.create_topic("synced", 1, {"flush.messages": "1"})
        client, admin = rig.connect(), rig.connect()
        for _ in range(20):
            asked = produce("synced", b"x")
            deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="synced", topic_id=ZERO_UUID)], timeout_ms=1)
            deleted = admin.send(deletion, 6)
            answers = [client.send(asked, 9) for _ in range(5)]
            await admin.answer(deleted, deletion, 6)
            for each in answers:
                assert produced(await client.answer(each, asked, 9)).error_code in (0, 3)
            assert all(directory.online for directory in rig.node.rooms.replicas.directories)
            await rig.create_topic("synced", 1, {"flush.messages": "1"})

    rig.run(test)


def test_a_full_disk_refuses_writes_and_serves_reads(caplog: pytest.LogCaptureFixture) -> None:
    async def test(rig: Rig, client: Client) -> None:
        await client.ask(produce("t", b"before"), 9)
        capacity, rig.device.capacity = rig.device.capacity, rig.device.used + 10
        for _ in range(3):
            answer = produced(await client.ask(produce("t", b"too much"), 9))
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert values(fetched(await client.ask(fetch("t", wanted(0)), 12))[0]) == [b"before"]
        rig.device.capacity = capacity
        assert produced(await client.ask(produce("t", b"after"), 9)).base_offset == 1
        assert values(fetched(await client.ask(fetch("t", wanted(0)), 12))[0]) == [b"before", b"after"]

    on_a_node(test)


def test_a_failing_disk_takes_its_directory_offline_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(properties={"log.dirs": "/a,/b", "metadata.log.dir": "/c"})
    write = SimulatedFile.write

    def broken(self: SimulatedFile, data: bytes, position: int) -> None:
        if self.path.startswith("/b/"):
            raise OSError(errno.EIO, "Input/output error", self.path)
        write(self, data, position)

    async def test() -> None:
        hosted = await rig.create_topic("t", 4)
        client = rig.connect()
        monkeypatch.setattr(SimulatedFile, "write", broken)
        where = [each.directory.path for each in hosted]
        for _ in range(2):
            for index in range(4):
                answer = produced(await client.ask(produce("t", b"x", partition=index), 9))
                assert answer.error_code == (ErrorCode.KAFKA_STORAGE_ERROR if where[index] == "/b" else 0)
                by_id = produce("", b"x", partition=index, topic_id=rig.topic_id("t"))
                answer = produced(await client.ask(by_id, 13))
                assert answer.error_code == (ErrorCode.KAFKA_STORAGE_ERROR if where[index] == "/b" else 0)
        assert [directory.online for directory in rig.node.rooms.replicas.directories] == [True, False]
        await rig.create_topic("new", 2)
        assert {each.directory.path for each in rig.node.rooms.replicas if each.topic == "new"} == {"/a"}

    rig.run(test)


def test_a_sync_that_fails_is_answered_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(properties={"log.dirs": "/a,/b", "metadata.log.dir": "/c"})

    def broken(self: SimulatedFile) -> None:
        if "/synced-" in self.path:
            raise OSError(errno.EIO, "Input/output error", self.path)

    async def test() -> None:
        (hosted,) = await rig.create_topic("synced", 1, {"flush.messages": "1"})
        client = rig.connect()
        with monkeypatch.context() as patched:
            patched.setattr(SimulatedFile, "sync", broken)
            answer = produced(await client.ask(produce("synced", b"x"), 9))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert not hosted.directory.online
        assert not client.wire.closed

    rig.run(test)
