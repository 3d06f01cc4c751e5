"""The fast path through a consumer's ListOffsets answers, byte for byte, what the generic path does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.server.asking import produce
from tests.unit.server.rig import Rig, framed, request_body

from odradek.ids import Offset
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

LATEST, EARLIEST = -1, -2
LONG_NAME = "n" * 200
FAST_SINCE = 6
VERSIONS = range(1, 12)


def asking(*partitions: ListOffsetsPartition, topic: str = "t", **beside: int) -> ListOffsetsRequest:
    topics = [ListOffsetsTopic(name=topic, partitions=list(partitions))]
    return ListOffsetsRequest(**{"replica_id": -1, "timeout_ms": 30_000, **beside}, topics=topics)


def one(timestamp: int, *, partition: int = 0, epoch: int = -1) -> ListOffsetsPartition:
    return ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)


def on_a_node(test: Callable[[Rig], None]) -> None:
    """With a topic `t` that has records at offsets 2 to 4, written in two leader epochs, and one of a long name."""
    rig = Rig()

    async def run() -> None:
        await rig.create_topic("t", 2)
        await rig.create_topic(LONG_NAME, 1)
        for number in range(5):
            if number == 3:
                await rig.restart()
            await rig.connect().ask(produce("t", b"x"), 9)
        rig.node.rooms.replicas.delete_records(rig.node.rooms.replicas.require("t", 0), Offset(2))
        assert rig.node.rooms.replicas.require("t", 0).partition.state.leader_epoch > 0
        test(rig)

    rig.run(run)


def both_ways(rig: Rig, body: bytes, version: int) -> tuple[bytes | None, bytes]:
    """What the fast path says to a request (None: nothing), and all that the generic path sends."""
    endpoint = rig.node.rooms.listeners.by_name["PLAINTEXT"].scope.endpoints.compile(ApiKey.LIST_OFFSETS, version)
    client = rig.connect()
    client.wire.on_change = lambda: None
    fast, endpoint.fast_path = endpoint.fast_path, None
    try:
        client.wire.feed(framed(body))
    finally:
        endpoint.fast_path = fast
    generic = bytes(client.wire.sent)
    if fast is None:
        return None, generic
    position = 10 + len("tester") + endpoint.flexible_header
    short = fast(rig.node.rooms, memoryview(body), position, int.from_bytes(body[4:8]))
    assert short is None or isinstance(short, bytes)
    return short, generic


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("timestamp", [LATEST, EARLIEST])
def test_the_ends_of_a_partition(version: int, timestamp: int) -> None:
    def test(rig: Rig) -> None:
        epoch = rig.node.rooms.replicas.require("t", 0).partition.state.leader_epoch
        for wanted in (one(timestamp), one(timestamp, partition=1), one(timestamp, epoch=epoch)):
            for isolation_level in (0, 1):
                body = request_body(asking(wanted, isolation_level=isolation_level), version, 7)
                short, generic = both_ways(rig, body, version)
                assert short == (generic if version >= FAST_SINCE else None)
                assert generic

    on_a_node(test)


@pytest.mark.parametrize("version", VERSIONS)
def test_all_else_takes_the_generic_path(version: int) -> None:
    def test(rig: Rig) -> None:
        others = [
            asking(),
            asking(one(LATEST), one(EARLIEST, partition=1)),
            asking(one(LATEST, partition=9)),
            asking(one(LATEST), topic="nowhere"),
            asking(one(LATEST), topic=""),
            asking(one(LATEST), topic=LONG_NAME),
            asking(one(LATEST), replica_id=1),
            asking(one(LATEST), replica_id=-2),
            asking(one(0)),
            asking(one(-3)),
            ListOffsetsRequest(replica_id=-1, topics=[]),
        ]
        if version >= 4:  # Older ones say no epoch.
            others += [asking(one(LATEST, epoch=0)), asking(one(EARLIEST, epoch=99))]
        for request in others:
            short, generic = both_ways(rig, request_body(request, version, 7), version)
            assert short is None
            assert generic

    on_a_node(test)


def test_a_leader_that_does_not_know_its_end_yet_says_so_by_the_generic_path(monkeypatch: pytest.MonkeyPatch) -> None:
    def test(rig: Rig) -> None:
        partition = rig.node.rooms.replicas.require("t", 0).partition
        monkeypatch.setattr(type(partition), "knows_its_end", False)
        assert both_ways(rig, request_body(asking(one(LATEST)), 11, 7), 11)[0] is None
        short, generic = both_ways(rig, request_body(asking(one(EARLIEST)), 11, 7), 11)
        assert short == generic

    on_a_node(test)


@pytest.mark.parametrize("version", range(FAST_SINCE, 12))
def test_spoilt_and_cut_requests(version: int) -> None:
    """Whatever a byte is changed to, the fast path says the same or nothing."""

    def test(rig: Rig) -> None:
        body = request_body(asking(one(LATEST)), version, 7)
        start = 10 + len("tester") + 1
        spoilt = [
            body[:at] + bytes([value]) + body[at + 1 :] for at in range(start, len(body)) for value in (0, 1, 2, 3, 255)
        ]
        taken = 0
        for each in [*spoilt, *(body[:end] for end in range(start, len(body))), body + b"\0"]:
            short, generic = both_ways(rig, each, version)
            assert short in (None, generic)
            taken += short is not None
        assert taken

    on_a_node(test)
