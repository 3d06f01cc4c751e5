"""Followers pull, leaders count: brokers that replicate, on disks and wires of a made-up world."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import pytest
from tests.unit.server.replica_rig import LEADER, ReplicaRig

from odradek.ids import NodeId, Offset
from odradek.metadata.records import BrokerRegistrationChangeRecord
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from odradek.protocol.messages.list_offsets import LATEST, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.replication import follower
from odradek.server.containment import Cost
from odradek.sim.disk import SimulatedFile
from odradek.sim.network import SimulatedWire
from odradek.storage.log import Log


def test_what_is_acknowledged_is_on_every_replica() -> None:
    rig = ReplicaRig(3)

    async def story() -> None:
        await rig.create_topic("t", [[1, 2, 3]])
        for number in range(5):
            answer = await rig.produce(1, "t", b"a%d" % number, b"b%d" % number)
            assert (answer.error_code, answer.base_offset) == (0, 2 * number)
            assert [end for _, end in rig.ends("t").values()] == [2 * number + 2] * 3
        await rig.until(lambda: set(rig.ends("t").values()) == {(10, 10)})
        first = await rig.content(1, "t")
        assert first == await rig.content(2, "t") == await rig.content(3, "t")

    rig.run(story)


def test_nothing_moves_without_all_who_are_in_sync() -> None:
    rig = ReplicaRig(3)

    async def story() -> None:
        await rig.create_topic("t", [[1, 2, 3]])
        await rig.produce(1, "t", b"a")
        rig.brokers[3].crash()
        answer = await rig.produce(1, "t", b"b", timeout_ms=2_000)
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert rig.ends("t") == {1: (1, 2), 2: (1, 2)}
        await rig.change("t", isr=[1, 2])
        waiting = asyncio.ensure_future(rig.produce(1, "t", b"c", timeout_ms=10_000))
        await asyncio.sleep(1)
        assert not waiting.done()  # The third one was caught up a moment ago, and is asked in again.
        assert rig.registration("t").isr == (1, 2, 3)
        await rig.fence(3)
        await rig.change("t", isr=[1, 2])
        assert (await waiting).error_code == 0
        await rig.until(lambda: rig.ends("t") == {1: (3, 3), 2: (3, 3)})

    rig.run(story)


def test_a_follower_that_lags_leaves_the_isr_and_comes_back() -> None:
    rig = ReplicaRig(3, properties={"replica.lag.time.max.ms": "2000"})

    async def story() -> None:
        await rig.create_topic("t", [[1, 2, 3]])
        await rig.produce(1, "t", b"a")
        leader = rig.brokers[1]
        rig.internet.cut("host-3", "host-1")
        asking = asyncio.ensure_future(rig.produce(1, "t", b"b", timeout_ms=30_000))
        for _ in range(4):
            await asyncio.sleep(1)
            await leader.replicas.check_isrs()
        assert (await asking).error_code == 0
        assert rig.registration("t").isr == (1, 2)
        assert [each.broker_id for each in rig.asked[0].topics[0].partitions[0].new_isr_with_epochs] == [1, 2]
        rig.internet.heal("host-3", "host-1")
        await rig.until(lambda: rig.registration("t").isr == (1, 2, 3), within_s=60)
        assert (await rig.produce(1, "t", b"c")).error_code == 0
        assert rig.ends("t")[3][1] == 3

    rig.run(story)


def test_a_broker_that_caught_up_before_it_was_unfenced_comes_in_when_it_is() -> None:
    """It has nothing to say any more by then: what it has the leader knows, and nobody writes."""
    rig = ReplicaRig(3)

    async def story() -> None:
        await rig.create_topic("t", [[1, 2, 3]], isr=[1])
        await rig.fence(2)
        await rig.produce(1, "t", b"a")
        await rig.until(lambda: rig.registration("t").isr == (1, 3))
        await asyncio.sleep(5)
        await rig.unfence(2)
        await rig.until(lambda: rig.registration("t").isr == (1, 3, 2), within_s=1)

    rig.run(story)


def test_a_follower_without_news_does_not_lag() -> None:
    rig = ReplicaRig(2, properties={"replica.lag.time.max.ms": "2000"})

    async def story() -> None:
        await rig.create_topic("t", [[1, 2]])
        await rig.produce(1, "t", b"a")
        await asyncio.sleep(60)
        sent = asyncio.ensure_future(rig.produce(1, "t", b"b"))
        await asyncio.sleep(0.0005)
        await rig.brokers[1].replicas.check_isrs()
        await sent
        assert rig.asked == []

    rig.run(story)


def test_too_few_in_sync() -> None:
    rig = ReplicaRig(3)

    async def story() -> None:
        await rig.create_topic("t", [[1, 2, 3]], configs={"min.insync.replicas": "2"})
        rig.brokers[2].crash()
        rig.brokers[3].crash()
        before = asyncio.ensure_future(rig.produce(1, "t", b"a", timeout_ms=3_000))
        await asyncio.sleep(0.5)
        await rig.change("t", isr=[1])
        assert (await rig.produce(1, "t", b"b")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await rig.produce(1, "t", b"c", acks=LEADER)).error_code == 0
        # The watermark waits as well (KIP-966), so the one that was taken before is not told otherwise.
        assert (await before).error_code == ErrorCode.REQUEST_TIMED_OUT
        assert rig.ends("t") == {1: (0, 2)}

    rig.run(story)


def test_a_new_leader_goes_on_and_the_old_one_cuts_what_nobody_has() -> None:
    rig = ReplicaRig(3)

    async def story() -> None:
        await rig.create_topic("t", [[1, 2, 3]])
        for number in range(3):
            await rig.produce(1, "t", b"%d" % number)
        rig.internet.cut("host-2", "host-1")
        rig.internet.cut("host-3", "host-1")
        await asyncio.sleep(2)
        lost = await rig.produce(1, "t", b"only on the first", b"and this", timeout_ms=500)
        assert lost.error_code == ErrorCode.REQUEST_TIMED_OUT
        rig.brokers[1].crash()
        await rig.elect("t", 2, [2, 3])
        for number in range(3, 6):
            assert (await rig.produce(2, "t", b"%d" % number)).error_code == 0
        rig.internet.heal("host-2", "host-1")
        rig.internet.heal("host-3", "host-1")
        await rig.brokers[1].start()
        await rig.until(lambda: rig.registration("t").isr == (2, 3, 1), within_s=60)
        await rig.until(lambda: set(rig.ends("t").values()) == {(6, 6)})
        expected = [(number, b"%d" % number) for number in range(6)]
        assert [await rig.content(number, "t") for number in (1, 2, 3)] == [expected] * 3
        assert [entry[0] for entry in rig.hosted(1, "t").partition.log.leader_epochs.entries] == [0, 1]

    rig.run(story)


def test_a_leader_that_was_replaced_unawares_acknowledges_nothing() -> None:
    rig = ReplicaRig(3)

    async def story() -> None:
        await rig.create_topic("t", [[1, 2, 3]])
        await rig.produce(1, "t", b"a")
        rig.brokers[1].informed = False
        await rig.elect("t", 2, [2, 3])
        zombie = asyncio.ensure_future(rig.produce(1, "t", b"zombie", timeout_ms=3_000))
        assert (await rig.produce(2, "t", b"b")).error_code == 0
        assert (await zombie).error_code == ErrorCode.REQUEST_TIMED_OUT
        waiting = asyncio.ensure_future(rig.produce(1, "t", b"another", timeout_ms=30_000))
        await asyncio.sleep(0.5)
        await rig.inform(1)
        answer = await waiting
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, 1)
        await rig.until(lambda: rig.registration("t").isr == (2, 3, 1), within_s=60)
        assert await rig.content(1, "t") == [(0, b"a"), (1, b"b")]

    rig.run(story)


def test_a_new_leader_does_not_tell_its_end_before_it_knows_it() -> None:
    rig = ReplicaRig(2)

    def latest(version: int) -> tuple[ListOffsetsRequest, int]:
        partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
        return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[partition])]), version

    async def ask(version: int) -> tuple[int, int]:
        found = (await rig.request(2, *latest(version))).topics[0].partitions[0]
        return found.error_code, found.offset

    async def story() -> None:
        await rig.create_topic("t", [[1, 2]])
        log = rig.hosted(2, "t").partition.log
        rig.internet.cut("host-1", "host-2")
        rig.internet.cut("host-2", "host-1")
        await asyncio.sleep(1)
        await rig.produce(1, "t", b"a", acks=LEADER)
        rig.internet.heal("host-1", "host-2")
        rig.internet.heal("host-2", "host-1")
        await rig.until(lambda: log.log_end_offset == 1)
        assert log.high_watermark == 0
        rig.brokers[1].crash()
        await rig.elect("t", 2, [1, 2])
        assert await ask(5) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
        assert await ask(4) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        fetched = await rig.request(2, _fetch(rig, offset=1), 17)
        assert [(each.error_code, each.high_watermark, each.records) for each in fetched.responses[0].partitions] == [
            (0, 0, b"")
        ]
        await rig.change("t", isr=[2])
        assert await ask(5) == (0, 1)

    rig.run(story)


def test_a_follower_starts_over_where_its_leader_starts() -> None:
    rig = ReplicaRig(2)

    async def story() -> None:
        await rig.create_topic("t", [[1, 2]])
        await rig.produce(1, "t", b"a")
        rig.brokers[2].crash()
        await rig.fence(2)
        await rig.change("t", isr=[1])
        for number in range(5):
            await rig.produce(1, "t", b"%d" % number, b"x", b"y")
        leader = rig.brokers[1].replicas
        leader.delete_records(leader.require("t", 0), Offset(8))  # In the middle of a batch.
        await rig.brokers[2].start()
        await rig.until(lambda: rig.registration("t").isr == (1, 2), within_s=60)
        log = rig.hosted(2, "t").partition.log
        await rig.until(lambda: log.log_start_offset == 8)
        assert await rig.content(2, "t") == await rig.content(1, "t")
        assert log.log_end_offset == 16

    rig.run(story)


def test_a_second_connection_that_the_leader_has_closed_is_made_again() -> None:
    """It is idle until a follower has to find its place, and would never find it. Seed 20 of replication found this."""
    rig = ReplicaRig(2)

    async def story() -> None:
        await rig.create_topic("t", [[1, 2]])
        await rig.produce(1, "t", b"a")
        hosted = rig.hosted(2, "t")
        connections = rig.brokers[2].fetchers._by_leader[NodeId(1)]._leader
        epoch = hosted.partition.state.leader_epoch
        assert await connections.list_offset(hosted, LATEST, epoch) == 1
        connections.opened[1].close()
        assert await connections.list_offset(hosted, LATEST, epoch) == 1
        assert len(connections.opened) == 2

    rig.run(story)


def test_records_are_deleted_once_no_replica_has_them() -> None:
    rig = ReplicaRig(3)

    async def delete(offset: int, timeout_ms: int = 5_000) -> tuple[int, int]:
        part = DeleteRecordsPartition(partition_index=0, offset=offset)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[part])], timeout_ms=timeout_ms)
        result = (await rig.request(1, request, 2)).topics[0].partitions[0]
        return result.error_code, result.low_watermark

    async def story() -> None:
        await rig.create_topic("t", [[1, 2, 3]])
        await rig.produce(1, "t", b"a", b"b", b"c", b"d")
        assert await delete(2) == (0, 2)
        assert [rig.hosted(number, "t").partition.log.log_start_offset for number in (1, 2, 3)] == [2, 2, 2]
        rig.brokers[3].crash()
        assert await delete(3, timeout_ms=500) == (ErrorCode.REQUEST_TIMED_OUT, 2)
        waiting = asyncio.ensure_future(delete(-1))
        await asyncio.sleep(0.1)
        await rig.fence(3)
        assert await waiting == (0, 4)

    rig.run(story)


def test_what_must_be_synced_is_not_acknowledged_before() -> None:
    rig = ReplicaRig(3)

    async def story() -> None:
        await rig.create_topic("t", [[1, 2, 3]], configs={"flush.messages": "1"})
        for _ in range(3):
            assert (await rig.produce(1, "t", b"a")).error_code == 0
            ends = {number: rig.hosted(number, "t").partition.log.recovery_point for number in (1, 2, 3)}
            assert set(ends.values()) == {rig.hosted(1, "t").partition.log.log_end_offset}

    rig.run(story)


def test_replicas_are_added_and_taken_away() -> None:
    rig = ReplicaRig(3)

    async def story() -> None:
        await rig.create_topic("t", [[1]])
        for number in range(3):
            await rig.produce(1, "t", b"%d" % number)
        directories = [rig.uuid(101), rig.uuid(102), rig.uuid(103)]
        await rig.change("t", replicas=[1, 2, 3], adding_replicas=[2, 3], directories=directories)
        await rig.until(lambda: set(rig.registration("t").isr) == {1, 2, 3})
        assert (await rig.produce(1, "t", b"3")).error_code == 0
        await rig.change("t", leader=2, isr=[2, 3], replicas=[2, 3], adding_replicas=[], directories=directories[1:])
        assert rig.brokers[1].replicas.find("t", 0) is None
        assert (await rig.produce(1, "t", b"x")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await rig.produce(2, "t", b"4")).base_offset == 4
        assert await rig.content(2, "t") == await rig.content(3, "t")

    rig.run(story)


def test_after_an_unclean_election_the_longer_log_is_cut() -> None:
    rig = ReplicaRig(2)

    async def story() -> None:
        await rig.create_topic("t", [[1, 2]])
        await rig.produce(1, "t", b"kept")
        rig.brokers[2].crash()
        await rig.fence(2)
        await rig.change("t", isr=[1])
        await rig.produce(1, "t", b"given", b"up")
        rig.brokers[1].crash()
        await rig.brokers[2].start()
        await rig.elect("t", 2, [2])
        await rig.brokers[1].start()
        await rig.until(lambda: rig.registration("t").isr == (2, 1), within_s=60)
        assert await rig.content(1, "t") == await rig.content(2, "t") == [(0, b"kept")]
        assert (await rig.produce(2, "t", b"new")).base_offset == 1
        assert await rig.content(1, "t") == [(0, b"kept"), (1, b"new")]

    rig.run(story)


def test_nobody_else_speaks_for_a_replica() -> None:
    rig = ReplicaRig(3)

    async def code(fetch: FetchRequest, version: int = 17) -> int:
        response = await rig.request(1, fetch, version)
        return int(response.error_code or response.responses[0].partitions[0].error_code)

    async def story() -> None:
        await rig.create_topic("t", [[1, 2]])
        rig.brokers[2].crash()
        await rig.produce(1, "t", b"a", acks=LEADER)
        epoch = rig.image.cluster.brokers[rig.brokers[2].node_id].broker_epoch
        other = rig.image.cluster.brokers[rig.brokers[3].node_id].broker_epoch
        not_leader, unknown = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH
        assert await code(_fetch(rig, offset=1, replica=2, broker_epoch=epoch - 1)) == not_leader
        assert await code(_fetch(rig, offset=1, replica=2, broker_epoch=epoch + 1)) == not_leader
        assert await code(_fetch(rig, offset=1, replica=2, broker_epoch=-1)) == not_leader
        assert await code(_fetch(rig, offset=1, replica=2, broker_epoch=epoch), version=14) == not_leader
        assert await code(_fetch(rig, offset=1, replica=3, broker_epoch=other, leader_epoch=0)) == unknown
        assert await code(_fetch(rig, offset=1, replica=3, broker_epoch=other)) == not_leader
        assert await code(_fetch(rig, offset=1, replica=9, broker_epoch=1)) == not_leader
        assert await code(_fetch(rig, offset=1, replica=2, broker_epoch=epoch, leader_epoch=1)) == unknown
        beyond = _fetch(rig, offset=5, replica=2, broker_epoch=epoch, leader_epoch=0)
        assert await code(beyond) == ErrorCode.OFFSET_OUT_OF_RANGE
        assert rig.ends("t") == {1: (0, 1)}
        assert await code(_fetch(rig, offset=1, replica=2, broker_epoch=epoch, leader_epoch=0)) == 0
        assert rig.ends("t") == {1: (1, 1)}
        await rig.elect("t", 1, [1])
        assert await code(_fetch(rig, offset=1, replica=2, broker_epoch=epoch, leader_epoch=0)) == 74

    rig.run(story)


def test_only_followers_have_wide_wires() -> None:
    rig = ReplicaRig(2)
    widened: list[SimulatedWire] = []

    async def story() -> None:
        await rig.create_topic("t", [[1, 2]])
        await rig.produce(1, "t", b"a")
        assert {wire.peer_host for wire in widened} == {"host-2"}
        widened.clear()
        await rig.request(1, _fetch(rig, offset=0, replica=-1, broker_epoch=-1), 17)
        assert widened == []

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SimulatedWire, "widen", lambda wire: widened.append(wire))
        rig.run(story)


def test_consumers_read_from_a_replica_in_their_rack() -> None:
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    rig = ReplicaRig(3, properties={"replica.selector.class": selector})

    async def ask(number: int, fetch: FetchRequest) -> tuple[int, int, int]:
        answer = (await rig.request(number, fetch, 17)).responses[0].partitions[0]
        return answer.error_code, answer.preferred_read_replica, len(answer.records)

    async def story() -> None:
        await rig.create_topic("t", [[1, 2, 3]])
        await rig.produce(1, "t", b"a")
        await rig.until(lambda: set(rig.ends("t").values()) == {(1, 1)})
        assert await ask(1, _fetch(rig, offset=0, rack="rack-2")) == (0, 2, 0)
        assert (await ask(1, _fetch(rig, offset=0, rack="rack-1")))[1] == -1
        assert (await ask(1, _fetch(rig, offset=0, rack="elsewhere")))[1] == -1
        code, preferred, size = await ask(2, _fetch(rig, offset=0, rack="rack-2"))
        assert (code, preferred) == (0, -1)
        assert size > 0
        waiting = asyncio.ensure_future(ask(2, _fetch(rig, offset=1, rack="rack-2", max_wait_ms=20_000)))
        await asyncio.sleep(0.1)
        await rig.produce(1, "t", b"b")
        assert (await waiting)[2] > 0
        assert rig.loop.time() < 10

    rig.run(story)


@pytest.mark.parametrize("seed", range(5))
def test_leaders_come_and_go_and_all_logs_agree(seed: int) -> None:
    rig = ReplicaRig(3, seed=seed)
    draw = rig.internet.draw

    async def story() -> None:
        await rig.create_topic("t", [[1, 2, 3]])
        acknowledged: dict[int, bytes] = {}
        leader = 1
        for number in range(40):
            value = b"%d" % number
            answer = await rig.produce(leader, "t", value, timeout_ms=1_000)
            if not answer.error_code:
                acknowledged[answer.base_offset] = value
            if number % 4 == 3:
                leader = draw.choice([each for each in rig.registration("t").isr if each != leader])
                await rig.elect("t", leader, list(rig.registration("t").isr))
        await rig.until(lambda: len(set(rig.ends("t").values())) == 1 and rig.ends("t")[1][0] == rig.ends("t")[1][1])
        contents = [await rig.content(number, "t") for number in (1, 2, 3)]
        assert contents[0] == contents[1] == contents[2]
        assert acknowledged.items() <= dict(contents[0]).items()
        assert len(acknowledged) > 20

    rig.run(story)


def _fetch(
    rig: ReplicaRig,
    *,
    offset: int,
    replica: int = -1,
    broker_epoch: int = -1,
    leader_epoch: int = -1,
    rack: str = "",
    max_wait_ms: int = 0,
) -> FetchRequest:
    partition = FetchPartition(
        partition=0,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        log_start_offset=0,
        partition_max_bytes=1 << 20,
    )
    topic = FetchTopic(topic_id=rig.image.topics.by_name["t"].topic_id, partitions=[partition])
    return FetchRequest(
        replica_id=replica,
        replica_state=ReplicaState(replica_id=replica, replica_epoch=broker_epoch),
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        topics=[topic],
        rack_id=rack,
    )


@pytest.mark.parametrize("in_sync", [True, False])
def test_only_what_a_follower_in_sync_lacks_is_taken_to_be_in_memory(
    monkeypatch: pytest.MonkeyPatch, in_sync: bool
) -> None:
    rig = ReplicaRig()
    looked: list[str] = []

    def resident(self: SimulatedFile, position: int, length: int) -> bool:
        if "/t-" in self.path:
            looked.append(self.path)
        return True

    async def test() -> None:
        await rig.create_topic("t", [[1, 2]], isr=[1, 2] if in_sync else [1])
        if not in_sync:
            await rig.fence(2)  # Or it would be in sync after its first fetch.
        monkeypatch.setattr(SimulatedFile, "resident", resident)
        await rig.produce(1, "t", b"a", acks=1)
        await rig.until(lambda: rig.ends("t")[2][1] == 1)
        assert bool(looked) is not in_sync

    rig.run(test)


def test_a_partition_whose_log_directory_fails_is_followed_no_more_and_the_node_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = ReplicaRig(2)
    write = SimulatedFile.write

    def failing(self: SimulatedFile, data: bytes | memoryview, position: int) -> None:
        if self._device is rig.brokers[2].device:
            raise OSError(errno.EIO, "Input/output error", self.path)
        write(self, data, position)

    async def story() -> None:
        await rig.create_topic("t", [[1, 2], [1, 2]])
        assert (await rig.produce(1, "t", b"a")).error_code == 0
        with monkeypatch.context() as patch:
            patch.setattr(SimulatedFile, "write", failing)
            await rig.produce(1, "t", b"b", acks=LEADER)
            await asyncio.sleep(30)
        assert rig.brokers[2].replicas.offline_count == 2
        assert rig.brokers[2].failed is None

    rig.run(story)


def test_a_log_that_ends_in_an_epoch_never_issued_is_left_alone_and_spoken_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = ReplicaRig(2)

    async def story() -> None:
        await rig.create_topic("t", [[1, 2]])
        for _ in range(3):
            await rig.produce(1, "t", b"a")
        rig.hosted(2, "t").partition.log.leader_epochs.assign(99, 2)
        await rig.elect("t", 1, [1, 2])
        await rig.produce(1, "t", b"b", acks=LEADER)
        endpoints = rig.brokers[1].listener.scope.endpoints
        before = sum(endpoint.served for _, _, endpoint in endpoints.used())
        await asyncio.sleep(60)
        served = sum(endpoint.served for _, _, endpoint in endpoints.used()) - before
        assert served < 300, "it does not ask without a pause"
        assert rig.ends("t")[2][1] == 3
        (warning,) = [record.getMessage() for record in caplog.records if "epoch 99" in record.getMessage()]
        assert warning.startswith("t-0 cannot be fetched from broker 1: it ends at 3 in epoch 99")

    rig.run(story)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_follower_that_never_comes_leaves_the_isr_of_a_partition_that_nobody_writes_to(restarted: bool) -> None:
    rig = ReplicaRig(2, properties={"replica.lag.time.max.ms": "2000"})

    async def story() -> None:
        leader = rig.brokers[1]
        if restarted:
            await rig.create_topic("t", [[1, 2]])
            await rig.produce(1, "t", b"a")
            await asyncio.sleep(3)
            leader.crash()
        rig.internet.cut("host-2", "host-1")
        if restarted:
            await leader.start()
        else:
            await rig.create_topic("t", [[1, 2]])
        for _ in range(4):
            await asyncio.sleep(1)
            await leader.replicas.check_isrs()
        assert rig.registration("t").isr == (1,)

    rig.run(story)


def test_a_follower_that_has_lost_its_log_directory_is_neither_waited_for_nor_asked_in_again() -> None:
    """The controller has taken it out of the ISR; it is active, and was in sync a moment ago."""
    rig = ReplicaRig(2)

    async def story() -> None:
        await rig.create_topic("t", [[1, 2]])
        await rig.produce(1, "t", b"a")
        epoch = rig.image.cluster.brokers[NodeId(2)].broker_epoch
        rig.internet.cut("host-2", "host-1")
        await rig.commit(BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=epoch, log_dirs=[rig.uuid(999)]))
        await rig.change("t", isr=[1])
        assert (await rig.produce(1, "t", b"b", timeout_ms=2_000)).error_code == 0
        await asyncio.sleep(5)
        assert rig.registration("t").isr == (1,)

    rig.run(story)


async def append(rig: ReplicaRig) -> None:
    for name in ("bad", "t"):
        await rig.produce(1, name, b"a", acks=LEADER)


async def diverge(rig: ReplicaRig) -> None:
    """The follower led, and has what the new leader never had."""
    rig.internet.cut("host-1", "host-2")
    for name in ("bad", "t"):
        await rig.elect(name, 2, [1, 2])
        await rig.produce(2, name, b"lost", acks=LEADER)
    rig.brokers[2].crash()
    rig.internet.heal("host-1", "host-2")
    for name in ("bad", "t"):
        await rig.elect(name, 1, [1])
        await rig.produce(1, name, b"a", acks=LEADER)
    await rig.brokers[2].start()


async def fall_behind(rig: ReplicaRig) -> None:
    """What comes next for the follower was deleted."""
    rig.brokers[2].crash()
    await rig.fence(2)
    leader = rig.brokers[1].replicas
    for name in ("bad", "t"):
        await rig.change(name, isr=[1])
        await rig.produce(1, name, b"a", b"b", b"c")
        leader.delete_records(leader.require(name, 0), Offset(3))
    await rig.brokers[2].start()


Happening: TypeAlias = Callable[[ReplicaRig], Coroutine[Any, Any, None]]
WHAT_BREAKS: tuple[tuple[Any, str, Happening], ...] = (
    (follower, "take", append),
    (Log, "append_as_follower", append),
    (Log, "advance_high_watermark", append),
    (Log, "flush_due", append),
    (Log, "flush_work", append),
    (follower, "cut_diverged", diverge),
    (Log, "truncate_to", diverge),
    (follower, "start_at_leader_start", fall_behind),
    (Log, "truncate_fully_and_start_at", fall_behind),
)
"""What a follower does to a log, and what makes it do so."""


@pytest.mark.parametrize("throttled", [False, True])  # A throttled one takes no answer by the fast path.
@pytest.mark.parametrize(("owner", "name", "happen"), WHAT_BREAKS, ids=lambda each: getattr(each, "__name__", each))
def test_a_partition_that_breaks_while_it_is_followed_keeps_no_other_from_it(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, happen: Happening, throttled: bool
) -> None:
    """It is not followed any more, as in Kafka, until it has another leader or epoch."""
    rig = ReplicaRig(2, properties={"log.flush.interval.messages": "1"})
    kept, poisoned = getattr(owner, name), False
    broker = rig.brokers[2]

    def breaking(partition_log: Log, *given: Any, **more: Any) -> Any:
        if poisoned and partition_log.topic == "bad" and partition_log._disk is broker.world.disk:
            raise ZeroDivisionError
        return kept(partition_log, *given, **more)

    def is_whole(name: str) -> bool:
        marks = {mark for watermark_and_end in rig.ends(name).values() for mark in watermark_and_end}
        return len(rig.ends(name)) == 2 and len(marks) == 1 and rig.registration(name).isr == (1, 2)

    async def story() -> None:
        nonlocal poisoned
        configs = {"follower.replication.throttled.replicas": "*"} if throttled else {}
        for each in ("bad", "t"):
            await rig.create_topic(each, [[1, 2]], configs=configs)
            await rig.produce(1, each, b"first")
        await rig.until(lambda: is_whole("bad") and is_whole("t"))
        monkeypatch.setattr(broker, "fail", lambda failure: None)
        broker.containment.on_contained = broker.fail
        poisoned = True
        await happen(rig)
        await rig.until(lambda: is_whole("t"))
        assert (await rig.produce(1, "t", b"b")).error_code == 0
        assert broker.containment.counts[Cost.PARTITION] == broker.containment.total == 1
        assert not is_whole("bad")
        poisoned = False
        await rig.change("bad", leader=1)
        await rig.until(lambda: is_whole("bad"), within_s=60)

    monkeypatch.setattr(owner, name, breaking)
    rig.run(story)
