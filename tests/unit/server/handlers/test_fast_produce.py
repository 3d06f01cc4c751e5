"""The hand-made way through Produce answers, byte for byte, what the generic path does."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from odradek.adapters.world import real_world
from odradek.ids import Uuid
from odradek.ports import Part, Wire
from odradek.protocol.api import ApiKey
from odradek.protocol.codec import decode, encode
from odradek.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from odradek.protocol.records.batch import build_batch
from odradek.protocol.records.record import Record
from odradek.server.configs.node_config import load
from odradek.server.handlers.fast_produce_one import fast_produce_one
from odradek.server.net.connection import Connection
from odradek.server.node import Node

VERSIONS = range(3, 14)
CORRELATION_ID = 77
CLIENT_ID = b"me"


class Listener(Wire):
    """A wire to nowhere that keeps what was sent."""

    peer_host = "test"
    unsent_bytes = 0

    def __init__(self) -> None:
        self.sent = b""
        self.closed = False
        self.owner: Connection | None = None

    def send(self, parts: Sequence[Part]) -> None:
        for part in parts:
            assert isinstance(part, bytes)
            self.sent += part

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True
        assert self.owner is not None
        self.owner.lost(None)

    def finish(self) -> None:
        self.close()


def on_a_node(directory: Path, test: Callable[[Node], None]) -> None:
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(directory),
    }

    async def run() -> None:
        world = real_world()
        node = Node(load(properties), world)
        await node.start()
        try:
            configs: dict[str, list[CreatableTopicConfig]] = {
                "plain": [],
                "stamped": [CreatableTopicConfig(name="message.timestamp.type", value="LogAppendTime")],
                "small": [CreatableTopicConfig(name="max.message.bytes", value="100")],
                "synced": [CreatableTopicConfig(name="flush.messages", value="1")],
            }
            topics = [
                CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=settings)
                for name, settings in configs.items()
            ]
            await node.rooms.controller.create_topics(CreateTopicsRequest(topics=topics, timeout_ms=1000))
            test(node)
        finally:
            await node.stop()
            world.workers.close()

    asyncio.run(run())


def frame_of(
    node: Node,
    version: int,
    topic: str,
    *,
    partitions: Sequence[int] = (0,),
    acks: int = 1,
    batch: bytes | None = None,
    client_id: bytes | None = CLIENT_ID,
) -> bytes:
    known = node.rooms.image.topics.by_name.get(topic)
    if batch is None:
        batch = bytes(build_batch([Record(key=b"k", value=b"v" * 50)], timestamp=node.world.clock.now_ms()))
    request = ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name=topic,
                topic_id=known.topic_id if known else Uuid(b"?" * 16),
                partition_data=[PartitionProduceData(index=index, records=batch) for index in partitions],
            )
        ],
    )
    named = b"\xff\xff" if client_id is None else struct.pack(">h", len(client_id)) + client_id
    header = struct.pack(">hhi", 0, version, CORRELATION_ID) + named + (b"\0" if version >= 9 else b"")
    body = header + encode(request, version)
    return struct.pack(">i", len(body)) + body


def answer_to(node: Node, frame: bytes, *, by_fast_path: bool, version: int) -> tuple[bytes, bool]:
    """What is sent, and whether the connection was closed."""
    scope = node.rooms.listeners.by_name["PLAINTEXT"].scope
    wire = Listener()
    connection = scope.accept(wire)
    assert isinstance(connection, Connection)
    wire.owner = connection
    endpoint = scope.endpoints.get(version) or scope.endpoints.compile(0, version)
    endpoint.fast_path = fast_produce_one(version, "PLAINTEXT") if by_fast_path else None
    name_end = 14 + max(int.from_bytes(frame[12:14], signed=True), 0)
    introduction = struct.pack(">ihhi", name_end - 4, ApiKey.API_VERSIONS, 0, 1) + frame[12:name_end]
    for sent in (introduction, frame):  # A client that is known by its name may take the shortest way.
        wire.sent = b""
        connection.buffer()[: len(sent)] = sent
        connection.received(len(sent))
    return wire.sent, wire.closed


@pytest.mark.parametrize("version", VERSIONS)
def test_both_ways_give_the_same_answer(tmp_path: Path, version: int) -> None:
    def test(node: Node) -> None:
        cases: list[dict[str, Any]] = [
            {"topic": "plain"},
            {"topic": "plain", "partitions": [1], "acks": -1},
            {"topic": "plain", "acks": 0},
            {"topic": "plain", "acks": 2},
            {"topic": "plain", "partitions": [2]},
            {"topic": "plain", "partitions": [0, 1]},
            {"topic": "plain", "partitions": [1, 0], "acks": 0},
            {"topic": "plain", "partitions": [0, 2]},
            {"topic": "small", "partitions": [0, 1]},
            {"topic": "nowhere"},
            {"topic": "small"},
            {"topic": "small", "acks": 0},
            {"topic": "plain", "batch": b""},
            {"topic": "plain", "batch": b"rubbish"},
            {"topic": "plain", "client_id": None},
            {"topic": "plain", "client_id": b""},
            {"topic": "plain", "client_id": b"you"},
        ]
        for case in cases:
            frame = frame_of(node, version, **case)
            ends = [log_ends(node)]
            answers = []
            for by_fast_path in (False, True):
                answers.append(answer_to(node, frame, by_fast_path=by_fast_path, version=version))
                ends.append(log_ends(node))
            generic, fast = answers
            appended = ends[1] - ends[0]
            assert ends[2] - ends[1] == appended, case
            assert fast == with_offsets_moved(generic, version), case

    on_a_node(tmp_path, test)


def log_ends(node: Node) -> int:
    return sum(hosted.partition.log.log_end_offset for hosted in node.rooms.replicas)


def with_offsets_moved(answer: tuple[bytes, bool], version: int) -> tuple[bytes, bool]:
    """The second append of the same batch lands one offset further."""
    sent, closed = answer
    if not sent:
        return answer
    header_size = 9 if version >= 9 else 8
    response = decode(ProduceResponse, version, sent[header_size:])
    for part in response.responses[0].partition_responses:
        if not part.error_code:
            part.base_offset += 1
    return sent[:header_size] + encode(response, version), closed


@pytest.mark.parametrize("version", VERSIONS)
def test_an_append_time_is_told(tmp_path: Path, version: int) -> None:
    def test(node: Node) -> None:
        before = node.world.clock.now_ms()
        sent, _ = answer_to(node, frame_of(node, version, "stamped"), by_fast_path=True, version=version)
        stamps = [int.from_bytes(sent[at : at + 8]) for at in range(len(sent) - 8)]
        assert any(before <= stamp <= node.world.clock.now_ms() for stamp in stamps)

    on_a_node(tmp_path, test)


@pytest.mark.parametrize("version", VERSIONS)
def test_lengths_beyond_all_bounds_are_left_to_the_generic_path(tmp_path: Path, version: int) -> None:
    def test(node: Node) -> None:
        fast = fast_produce_one(version, "PLAINTEXT")
        whole = frame_of(node, version, "plain")[4:]
        start = 10 + 2 + (1 if version >= 9 else 0)
        left_alone = 0
        for position in range(start, len(whole) - 61 - 50):
            spoilt = bytearray(whole)
            spoilt[position : position + 6] = b"\xff" * 6
            left_alone += fast(node.rooms, memoryview(spoilt), start, 1) is None
        assert left_alone > 10

    on_a_node(tmp_path, test)


@pytest.mark.parametrize("version", VERSIONS)
def test_it_leaves_alone_what_it_does_not_know(tmp_path: Path, version: int) -> None:
    def test(node: Node) -> None:
        fast = fast_produce_one(version, "PLAINTEXT")
        start = 10 + 2 + (1 if version >= 9 else 0)
        ends = log_ends(node)
        for partitions in ((0,), (0, 1)):
            whole = frame_of(node, version, "plain", partitions=partitions)[4:]
            for cut in range(start, len(whole)):
                assert fast(node.rooms, memoryview(bytearray(whole[:cut])), start, 1) is None
            assert fast(node.rooms, memoryview(bytearray(whole + b"x")), start, 1) is None
            for tagged in (1, 2, 3) if version >= 9 else ():  # The request, its topic, the topic's last partition.
                spoilt = bytearray(whole)
                spoilt[-tagged] = 1
                assert fast(node.rooms, memoryview(spoilt), start, 1) is None
        synced = frame_of(node, version, "synced")
        assert fast(node.rooms, memoryview(bytearray(synced[4:])), start, 1) is None
        assert log_ends(node) == ends

    on_a_node(tmp_path, test)
