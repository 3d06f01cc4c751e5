"""What a connection asks again and again is answered as if it were asked for the first time."""

from __future__ import annotations

import asyncio
import errno
import itertools
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.unit.server.asking import fetch, fetched, produce, values, wanted
from tests.unit.server.rig import FakeWire, Rig, framed, request_body

from odradek.ids import ZERO_UUID, NodeId
from odradek.protocol.api import ApiKey
from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.fast.cached_produce import MAX_SHAPES, CachedProduce
from odradek.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    OpData,
    RequestedEntryData,
)
from odradek.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.produce import ProduceResponse
from odradek.security.acl import Operation, PatternType, Permission, ResourceType
from odradek.server.net import connection as net_connection
from odradek.server.net.connection import Connection
from odradek.sim.disk import SimulatedFile
from odradek.values import replace

VERSIONS = range(5, 14)
CLOSED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}
HEADER_BYTES = 9
"""Of an answer from version 9 on, with its size."""


def on_a_node(test: Callable[[Rig], Coroutine[Any, Any, None]], **properties: str) -> None:
    """Run a test with a node and a topic `t` of two partitions."""
    rig = Rig(properties={key.replace("_", "."): text for key, text in properties.items()})

    async def run() -> None:
        await rig.create_topic("t", 2)
        await test(rig)

    rig.run(run)


def frame_of(
    rig: Rig, version: int, *, acks: int = 1, partition: int = 0, topic: str = "t", value: bytes = b"v"
) -> bytes:
    request = produce(topic, value, topic_id=rig.topic_id(topic), acks=acks, partition=partition)
    return framed(request_body(request, version, 77))


def connect(rig: Rig) -> FakeWire:
    wire = FakeWire()
    wire.owner = rig.network.accept[9092](wire)
    return wire


def accustomed(rig: Rig, frame: bytes, *, times: int = 3) -> FakeWire:
    """A connection on which that frame has come so often that it is known."""
    wire = connect(rig)
    for _ in range(times):
        wire.feed(frame)
    wire.sent.clear()
    return wire


def cached_reader_of(wire: FakeWire) -> CachedProduce:
    connection = wire.owner
    assert isinstance(connection, Connection)
    assert isinstance(connection._cached, CachedProduce)
    return connection._cached


def log_ends(rig: Rig) -> list[int]:
    return [hosted.partition.log.log_end_offset for hosted in rig.node.rooms.replicas]


def log_end(rig: Rig) -> int:
    return sum(log_ends(rig))


def forbid_other_ways(rig: Rig, version: int) -> None:
    """Let a request fail that is not answered as a cached one."""
    endpoint = rig.node.rooms.listeners.by_name["PLAINTEXT"].scope.endpoints.get(version)
    assert endpoint is not None

    def fail(*_: object) -> None:
        raise AssertionError("asked in another way")

    endpoint.read = endpoint.decode = fail


async def set_quota(rig: Rig, client_id: str, bytes_a_second: float) -> None:
    entry = RequestedEntryData(
        entity=[EntityData(entity_type="client-id", entity_name=client_id)],
        ops=[OpData(key="producer_byte_rate", value=bytes_a_second, remove=False)],
    )
    await rig.connect().ask(AlterClientQuotasRequest(entries=[entry], validate_only=False), 1)


@pytest.mark.parametrize("acks", [1, -1, 0])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_answer_differs_in_nothing_but_the_offset(version: int, acks: int) -> None:
    async def test(rig: Rig) -> None:
        frame = frame_of(rig, version, acks=acks)
        wire = connect(rig)
        answers = []
        for number in range(5):
            if number == 3:
                forbid_other_ways(rig, version)
            wire.feed(frame)
            answers.append(bytes(wire.sent))
            wire.sent.clear()
        assert not wire.closed
        if not acks:
            assert answers == [b""] * 5
        else:
            header_bytes = HEADER_BYTES if version >= 9 else 8
            for number, answer in enumerate(answers):
                response = decode(ProduceResponse, version, answers[0][header_bytes:])
                response.responses[0].partition_responses[0].base_offset = number
                assert answer == answers[0][:header_bytes] + encode(response, version)
        hosted = rig.node.rooms.replicas.require("t", 0)
        assert (hosted.appends, hosted.failed_appends) == (5, 0)
        assert hosted.bytes_in == hosted.partition.log.size_bytes
        endpoint = rig.node.rooms.listeners.by_name["PLAINTEXT"].scope.endpoints.get(version)
        assert endpoint is not None
        assert endpoint.served == 5

    on_a_node(test)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_frame_with_any_byte_changed_does_what_it_does_on_a_new_connection(version: int) -> None:
    async def test(rig: Rig) -> None:
        draw = random.Random(version)
        usual = frame_of(rig, version)
        for position in range(len(usual)):
            changed = bytearray(usual)
            changed[position] = draw.choice((0, 1, 2, 0x7F, 0x80, 0xFF, changed[position] ^ 1))
            outcomes = []
            for wire in (connect(rig), accustomed(rig, usual)):
                before = log_ends(rig)
                wire.feed(changed)
                await asyncio.sleep(0)
                grown = [end != old for end, old in zip(log_ends(rig), before, strict=True)]
                sent = bytes(wire.sent)
                for end in itertools.compress(before, grown):
                    sent = sent.replace(end.to_bytes(8), bytes(8), 1)  # The base offset is another one each time.
                outcomes.append((sent, wire.closed, grown))
                wire.lose(None)
            assert outcomes[0] == outcomes[1], position

    on_a_node(test)


@pytest.mark.parametrize("version", [7, 13])
@pytest.mark.parametrize("size", [1, 40, 60, 100, 127, 128, 1_000, 16_000, 17_000, 70_000])
def test_batches_of_any_size(size: int, version: int) -> None:
    async def test(rig: Rig) -> None:
        wire = accustomed(rig, frame_of(rig, version))
        for number in range(3):
            wire.feed(frame_of(rig, version, value=b"x" * size))
            assert log_end(rig) == 4 + number
        response = await rig.connect().ask(fetch("t", wanted(offset=5), topic_id=rig.topic_id("t")), 13)
        assert values(fetched(response)[0]) == [b"x" * size]

    on_a_node(test)


@pytest.mark.parametrize("version", [7, 13])
def test_a_frame_in_two_pieces_and_two_frames_in_one(version: int) -> None:
    async def test(rig: Rig) -> None:
        frame = frame_of(rig, version)
        wire = accustomed(rig, frame)
        for cut in range(len(frame) + 1):
            before = log_end(rig)
            wire.feed(frame[:cut])
            wire.feed(frame[cut:])
            assert log_end(rig) == before + 1
        wire.feed(frame * 3 + frame[:20])
        assert log_end(rig) == before + 4
        wire.feed(frame[20:])
        assert log_end(rig) == before + 5

    on_a_node(test)


def test_no_more_partitions_are_remembered_than_are_worth_it() -> None:
    async def test(rig: Rig) -> None:
        await rig.create_topic("wide", MAX_SHAPES + 10)
        wire = connect(rig)
        for _ in range(3):
            for partition in range(MAX_SHAPES + 10):
                wire.feed(frame_of(rig, 13, topic="wide", partition=partition))
        assert log_end(rig) == 3 * (MAX_SHAPES + 10)
        assert len(cached_reader_of(wire)._plans) == MAX_SHAPES

    on_a_node(test)


@pytest.mark.parametrize("version", [7, 12])
def test_topics_with_names_of_other_lengths(version: int) -> None:
    async def test(rig: Rig) -> None:
        await rig.create_topic("another", 1)
        wire = connect(rig)
        for _ in range(4):
            wire.feed(frame_of(rig, version))
            wire.feed(frame_of(rig, version, topic="another"))
        assert [rig.node.rooms.replicas.require(name, 0).partition.log.log_end_offset for name in ("t", "another")] == [
            4,
            4,
        ]

    on_a_node(test)


def test_a_deleted_topic_is_not_written_to() -> None:
    async def test(rig: Rig) -> None:
        frame = frame_of(rig, 13)
        wire = accustomed(rig, frame)
        deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="t", topic_id=ZERO_UUID)], timeout_ms=1000)
        await rig.connect().ask(deletion, 6)
        wire.feed(frame)
        response = decode(ProduceResponse, 13, bytes(wire.sent)[HEADER_BYTES:])
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID

    on_a_node(test)


def test_a_partition_that_has_followers_from_now_on() -> None:
    async def test(rig: Rig) -> None:
        frame = frame_of(rig, 13, acks=-1)
        wire = accustomed(rig, frame)
        partition = rig.node.rooms.replicas.require("t", 0).partition
        with_another = replace(
            partition.state,
            partition_epoch=partition.state.partition_epoch + 1,
            replicas=(NodeId(1), NodeId(2)),
            isr=(NodeId(1), NodeId(2)),
        )
        partition.apply(with_another, now_ms=rig.clock.monotonic_ms())
        wire.feed(frame)
        assert (bytes(wire.sent), log_end(rig)) == (b"", 4), "nobody else has it yet"
        partition.stop_leading()
        wire.sent.clear()
        wire = accustomed(rig, frame, times=0)
        wire.feed(frame)
        response = decode(ProduceResponse, 13, bytes(wire.sent)[HEADER_BYTES:])
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    on_a_node(test)


def test_a_topic_that_is_synced_from_now_on() -> None:
    async def test(rig: Rig) -> None:
        frame = frame_of(rig, 13)
        wire = accustomed(rig, frame)
        change = AlterableConfig(name="flush.messages", config_operation=0, value="1")
        resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
        await rig.connect().ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
        wire.feed(frame)
        assert not wire.sent, "it was answered before it was synced"
        answered = asyncio.Event()
        wire.on_change = answered.set
        await answered.wait()
        log = rig.node.rooms.replicas.require("t", 0).partition.log
        assert log.recovery_point == log.high_watermark == log.log_end_offset == 4

    on_a_node(test)


def test_a_client_with_a_quota_from_now_on() -> None:
    async def test(rig: Rig) -> None:
        frame = frame_of(rig, 13)
        wire = accustomed(rig, frame)
        await set_quota(rig, "tester", 1.0)
        wire.feed(frame)
        response = decode(ProduceResponse, 13, bytes(wire.sent)[HEADER_BYTES:])
        assert response.throttle_time_ms > 0

    on_a_node(test)


def test_who_calls_itself_something_else_is_another_client() -> None:
    """What was remembered is not taken for the one that goes by another name now."""

    async def test(rig: Rig) -> None:
        await set_quota(rig, "one", 1.0)
        request = produce("t", b"v", topic_id=rig.topic_id("t"), acks=1)
        frames = {name: framed(request_body(request, 13, 77, client_id=name)) for name in ("one", "two")}
        throttled = []
        wire = accustomed(rig, frames["two"])
        for name in ("two", "one", "two", "two"):
            wire.feed(frames[name])
            await asyncio.sleep(300)  # Longer than it is not heard after an answer.
            response = decode(ProduceResponse, 13, bytes(wire.sent)[HEADER_BYTES:])
            throttled.append(response.throttle_time_ms > 0)
            wire.sent.clear()
        assert throttled == [False, True, False, False]

    on_a_node(test)


@pytest.mark.parametrize("version", [7, 9, 13])
def test_rules_about_who_may_ask_and_how_much_leave_the_readers_on(version: int) -> None:
    async def test(rig: Rig) -> None:
        await set_quota(rig, "tester", 1e9)
        rules = AclCreation(
            resource_type=ResourceType.TOPIC,
            resource_name="t",
            resource_pattern_type=PatternType.LITERAL,
            principal="User:ANONYMOUS",
            host="*",
            operation=Operation.WRITE,
            permission_type=Permission.ALLOW,
        )
        frame = frame_of(rig, version)

        def error() -> int:
            response = decode(ProduceResponse, version, bytes(wire.sent)[HEADER_BYTES if version >= 9 else 8 :])
            wire.sent.clear()
            code: int = response.responses[0].partition_responses[0].error_code
            return code

        wire = accustomed(rig, frame, times=1)
        endpoint = rig.node.rooms.listeners.by_name["PLAINTEXT"].scope.endpoints.get(version)
        assert endpoint is not None

        def fail(*_: object) -> None:
            raise AssertionError("not read by hand")

        endpoint.decode = fail  # type: ignore[assignment]
        for allowed in (False, True):
            if allowed:
                await rig.node.rooms.controller.create_acls(CreateAclsRequest(creations=[rules]))
            for stranger in (rig.connect().wire, wire):
                wire = stranger
                wire.on_change = lambda: None
                wire.sent.clear()
                wire.feed(frame)
                assert error() == (0 if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            read, endpoint.read = endpoint.read, fail  # type: ignore[assignment]
            wire.feed(frame)
            assert error() == (0 if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            endpoint.read = read

    on_a_node(test, **CLOSED)


def test_who_waits_for_records_is_told() -> None:
    async def test(rig: Rig) -> None:
        frame = frame_of(rig, 13)
        wire = accustomed(rig, frame)
        forbid_other_ways(rig, 13)
        reader = rig.connect()
        waiting = asyncio.ensure_future(
            reader.ask(fetch("t", wanted(offset=3), topic_id=rig.topic_id("t"), max_wait_ms=60_000, min_bytes=1), 13)
        )
        await asyncio.sleep(0.01)
        assert not waiting.done()
        wire.feed(frame)
        assert values(fetched(await waiting)[0]) == [b"v"]

    on_a_node(test)


def test_a_client_that_does_not_read_its_answers_is_not_read_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(net_connection, "MAX_UNSENT_BYTES", 2_000)

    async def test(rig: Rig) -> None:
        frame = frame_of(rig, 13)
        wire = accustomed(rig, frame)
        wire.stalled = True
        sent = 0
        while not wire.paused:
            wire.feed(frame)
            sent += 1
            assert sent < 100
        wire.drain()
        assert not wire.paused

    on_a_node(test)


@pytest.mark.parametrize("acks", [0, 1])
def test_a_failing_disk_is_told_of_once(acks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(rig: Rig) -> None:
        frame = frame_of(rig, 13, acks=acks)
        wire = accustomed(rig, frame)
        writes = 0

        def fail(self: SimulatedFile, data: object, position: int) -> None:
            nonlocal writes
            writes += 1
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as broken:
            broken.setattr(SimulatedFile, "write", fail)
            wire.feed(frame)
        assert writes == 1
        if acks:
            response = decode(ProduceResponse, 13, bytes(wire.sent)[HEADER_BYTES:])
            assert response.responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
            wire.sent.clear()
            wire.feed(frame)
            response = decode(ProduceResponse, 13, bytes(wire.sent)[HEADER_BYTES:])
            assert response.responses[0].partition_responses[0].base_offset == 3
        else:
            assert wire.closed
        assert rig.node.rooms.replicas.require("t", 0).failed_appends == 1

    on_a_node(test)


def test_what_comes_behind_a_batch_that_was_refused_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(rig: Rig) -> None:
        wire = connect(rig)

        def send(sequence: int) -> tuple[int, int]:
            more = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
            request = produce("t", b"v", topic_id=rig.topic_id("t"), acks=1, **more)
            wire.sent.clear()
            wire.feed(framed(request_body(request, 13, 77)))
            response = decode(ProduceResponse, 13, bytes(wire.sent)[HEADER_BYTES:])
            (answer,) = response.responses[0].partition_responses
            return answer.error_code, answer.base_offset

        def fail(self: SimulatedFile, data: object, position: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        assert [send(sequence) for sequence in range(3)] == [(0, 0), (0, 1), (0, 2)]
        with monkeypatch.context() as broken:
            broken.setattr(SimulatedFile, "write", fail)
            assert send(3) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert send(4) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert [send(sequence) for sequence in range(3, 6)] == [(0, 3), (0, 4), (0, 5)]

    on_a_node(test)


def test_old_versions_are_not_cached() -> None:
    async def test(rig: Rig) -> None:
        wire = accustomed(rig, framed(request_body(produce("t", b"v"), 4, 77)))
        connection = wire.owner
        assert isinstance(connection, Connection)
        assert connection._cached is None
        assert log_end(rig) == 3
        assert rig.node.rooms.listeners.by_name["PLAINTEXT"].scope.endpoints.get(ApiKey.PRODUCE << 16 | 4) is not None

    on_a_node(test)
