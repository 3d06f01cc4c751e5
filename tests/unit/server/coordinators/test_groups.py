"""The shell of the coordinators: loading, restarts, syncing, and logs that refuse."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.server.asking import deletion
from tests.unit.server.group_clients import (
    QUICK,
    commit,
    committed,
    find_coordinator,
    give_a_follower,
    heartbeat,
    join,
    node_with_topic,
    stable_member,
    sync,
)
from tests.unit.server.rig import Client, Rig

from odradek.coordinator.group.classic import ClassicGroup
from odradek.coordinator.group.kinds import GROUP_RECORDS
from odradek.coordinator.group.rebalance import Rebalances
from odradek.coordinator.group.shard import GroupShard
from odradek.coordinator.record_format import decode_record
from odradek.coordinator.shard import CoordinatorDecision, Moment
from odradek.decisions import Ticket
from odradek.ids import LeaderEpoch, NodeId, Uuid
from odradek.metadata.image import Changes
from odradek.metadata.image.topics import PartitionsOf, TopicChanges
from odradek.ports import FileSlice
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from odradek.protocol.messages.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.join_group import JoinGroupResponse
from odradek.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from odradek.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.records.batch import build_batch, decode_records, iter_batches
from odradek.protocol.records.record import Record
from odradek.server.coordinators.groups import GroupCoordinator
from odradek.server.partitions.replicas import HostedPartition
from odradek.storage.directories import LogDirectory
from odradek.storage.log import Log
from odradek.values import replace


def log_of(rig: Rig, group_id: str) -> HostedPartition:
    index = rig.node.rooms.groups.partition_of(group_id)
    return rig.node.rooms.replicas.require("__consumer_offsets", index)


def test_a_group_outlives_its_coordinator() -> None:
    rig = Rig(properties=QUICK)

    async def run() -> None:
        client = await node_with_topic(rig)
        joined = await stable_member(client)
        member = {"member_id": joined.member_id, "generation_id_or_member_epoch": 1}
        for offset in range(100):
            await client.ask(commit("g", "t", {0: offset, 1: 7}, **member), 9)
        for end in ("orderly", "crash"):
            if end == "orderly":
                await rig.restart()
            else:
                rig.crash()
                rig.device.locks.clear()
                await rig.start()
            client = rig.connect()
            while (beat := await client.ask(heartbeat(joined), 4)).error_code != 0:
                assert beat.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert await committed(client) == {0: 99, 1: 7}
        # It has the session timeout to be heard of, and then its place is empty.
        await asyncio.sleep(9.9)
        assert (await client.ask(heartbeat(joined), 4)).error_code == 0
        await asyncio.sleep(10.1)
        assert (await client.ask(heartbeat(joined), 4)).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    rig.run(run)


def load_in_small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others get their turn after each step, and every record is one."""
    monkeypatch.setattr(GroupCoordinator, "slice_is_over", lambda self: True)
    monkeypatch.setattr("odradek.coordinator.record_format.MAX_REPLAYED_BYTES", 0)


def test_while_a_shard_is_loaded_requests_are_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(properties=QUICK | {"offsets.load.buffer.size": "100"})
    load_in_small_slices(monkeypatch)

    async def run() -> None:
        client = await node_with_topic(rig)
        for offset in range(50):
            await client.ask(commit("g", "t", {0: offset}), 9)
        await rig.restart()
        client = rig.connect()
        group = OffsetFetchRequestGroup(group_id="g", topics=None)
        codes = []
        while not codes or codes[-1] != 0:
            codes.append((await client.ask(OffsetFetchRequest(groups=[group]), 9)).groups[0].error_code)
            await asyncio.sleep(0)
        assert codes[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await committed(client) == {0: 49}

    rig.run(run)


def test_answers_wait_for_the_sync_that_was_asked_for() -> None:
    rig = Rig(properties=QUICK | {"log.flush.interval.messages": "1"})

    async def run() -> None:
        client = await node_with_topic(rig)
        for offset in range(3):
            await client.ask(commit("g", "t", {0: offset}), 9)
            assert await committed(client) == {0: offset}
            partition_log = log_of(rig, "g").partition.log
            assert partition_log.recovery_point == partition_log.log_end_offset == offset + 1
        joined = await stable_member(client)
        assert joined.generation_id == 1

    rig.run(run)


async def lose_power(rig: Rig) -> Client:
    rig.life.end()
    rig.device.crash("power")
    await rig.start()
    return rig.connect()


def as_static(member_id: str, epoch: int) -> ConsumerGroupHeartbeatRequest:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id=member_id, member_epoch=epoch, instance_id="static", topic_partitions=None
    )
    if epoch == 0:
        request.rebalance_timeout_ms = 60_000
        request.subscribed_topic_names = ["t"]
        request.topic_partitions = []
    return request


async def beat(client: Client, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    """Over the time in which the coordinator is found and loads."""
    for _ in range(100):
        response: ConsumerGroupHeartbeatResponse = await client.ask(request, 1)
        if response.error_code not in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
            break
        await asyncio.sleep(0.1)
    return response


@pytest.mark.parametrize("synced", [True, False])
def test_a_static_member_that_was_replaced_owns_its_partitions_after_a_power_loss(synced: bool) -> None:
    """One copy that is not synced may forget who left and who came: then only the session tells that the first is gone.

    So it is with Kafka. Where the log is synced, or other replicas have it, nobody was answered before it is kept.
    """
    kept = {"log.flush.interval.messages": "1"} if synced else {}
    session = {"broker.heartbeat.interval.ms": "500", "broker.session.timeout.ms": "3000"}
    rig = Rig(seed=2, properties=QUICK | session | kept)  # Of what is not synced, this seed keeps nothing.
    rig.device.provide("/data")

    async def run() -> None:
        client = await node_with_topic(rig)
        first, second, third = (f"{number}" * 22 for number in (1, 2, 3))
        joined = await beat(client, as_static(first, 0))
        await rig.node.rooms.replicas.flush([log_of(rig, "g")])
        assert joined.error_code == 0
        assert (await beat(client, as_static(first, -2))).error_code == 0
        replaced = await beat(client, as_static(second, 0))
        assert (replaced.error_code, replaced.assignment) == (0, joined.assignment)
        client = await lose_power(rig)
        if synced:
            assert (await beat(client, as_static(second, replaced.member_epoch))).error_code == 0
            return
        told = (await beat(client, as_static(second, replaced.member_epoch))).error_code
        assert told in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
        assert (await beat(client, as_static(third, 0))).error_code == ErrorCode.UNRELEASED_INSTANCE_ID
        await asyncio.sleep(46)
        back = await beat(client, as_static(third, 0))
        assert (back.error_code, back.assignment) == (0, joined.assignment)

    rig.run(run)


def test_commits_of_one_turn_are_one_batch() -> None:
    rig = Rig(properties=QUICK)

    async def run() -> None:
        client = await node_with_topic(rig)
        joined = await stable_member(client)
        member = {"member_id": joined.member_id, "generation_id_or_member_epoch": 1}
        partition_log = log_of(rig, "g").partition.log
        before = partition_log.log_end_offset
        clients = [rig.connect() for _ in range(120)]
        for offset, each in enumerate(clients):
            each.send(commit("g", "t", {0: offset, 1: offset}, **member), 9)
        # What is decided next sees them, though the turn is not over.
        fetching = rig.connect().send(
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]), 9
        )
        assert fetching
        assert partition_log.log_end_offset == before + 240
        read = partition_log.read(before, max_bytes=1 << 20, end_offset=1 << 40, minimum_one=True)
        assert isinstance(read.records, FileSlice)
        sizes = [len(list(decode_records(batch))) for batch in iter_batches(read.records.read())]
        assert sizes == [200, 40]
        assert all(len(each.answered) == 1 for each in clients)
        assert await committed(client) == {0: 119, 1: 119}

    rig.run(run)


def test_commits_that_are_too_large_together_are_written_one_by_one() -> None:
    rig = Rig(properties=QUICK)

    async def run() -> None:
        client = await node_with_topic(rig)
        joined = await stable_member(client)
        member = {"member_id": joined.member_id, "generation_id_or_member_epoch": 1}
        hosted = log_of(rig, "g")
        hosted.partition.log.config = replace(hosted.partition.log.config, max_message_bytes=220)
        clients = [rig.connect() for _ in range(3)]
        requests = [commit("g", "t", dict.fromkeys(range(count), 5), **member) for count in (1, 3, 1)]
        requests[2].topics[0].partitions[0].partition_index = 2
        numbers = [each.send(request, 9) for each, request in zip(clients, requests, strict=True)]
        answers = [
            await each.answer(number, request, 9)
            for each, number, request in zip(clients, numbers, requests, strict=True)
        ]
        codes = [{part.error_code for part in answer.topics[0].partitions} for answer in answers]
        assert codes == [{0}, {ErrorCode.UNKNOWN_SERVER_ERROR}, {0}]
        assert await committed(client) == {0: 5, 2: 5}

    rig.run(run)


def test_answers_wait_for_the_replicas() -> None:
    rig = Rig(properties=QUICK)

    async def run() -> None:
        client = await node_with_topic(rig)
        joined = await stable_member(client)
        follow = give_a_follower(rig, log_of(rig, "g"))
        member = {"member_id": joined.member_id, "generation_id_or_member_epoch": 1}
        # The fast path, the generic one (two topics), and one that writes nothing and must not tell what may be lost.
        twice = commit("g", "t", {0: 1}, **member)
        twice.topics += commit("g", "t", {1: 2}, **member).topics
        fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
        asked = [(commit("g", "t", {0: 1}, **member), 9), (twice, 9), (fetch, 9), (heartbeat(joined), 4)]
        clients = [rig.connect() for _ in asked]
        numbers = [each.send(*request) for each, request in zip(clients, asked, strict=True)]
        await asyncio.sleep(1)
        assert not any(each.has_answer(number) for each, number in zip(clients, numbers, strict=True))
        follow()
        await asyncio.sleep(0.01)
        assert all(each.has_answer(number) for each, number in zip(clients, numbers, strict=True))
        assert await committed(client) == {0: 1, 1: 2}

    rig.run(run)


def test_replicas_that_do_not_follow_are_not_waited_for_forever() -> None:
    rig = Rig(properties=QUICK | {"offsets.commit.timeout.ms": "2000"})

    async def run() -> None:
        client = await node_with_topic(rig)
        joined = await stable_member(client)
        follow = give_a_follower(rig, log_of(rig, "g"))
        member = {"member_id": joined.member_id, "generation_id_or_member_epoch": 1}
        first, second = commit("g", "t", {0: 1}, **member), commit("g", "t", {1: 2}, **member)
        late, later = rig.connect(), rig.connect()
        numbers = [late.send(first, 9)]
        await asyncio.sleep(1.5)
        numbers.append(later.send(second, 9))
        await asyncio.sleep(0.6)
        assert late.has_answer(numbers[0])
        assert not later.has_answer(numbers[1])
        refused = await late.answer(numbers[0], first, 9)
        assert refused.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        await asyncio.sleep(1.5)
        assert later.has_answer(numbers[1])
        follow()
        assert await committed(client) == {0: 1, 1: 2}

    rig.run(run)


def test_too_few_replicas_refuse_what_would_be_written() -> None:
    rig = Rig(properties=QUICK | {"min.insync.replicas": "2"})

    async def run() -> None:
        client = await node_with_topic(rig)
        joined = await stable_member(client)
        hosted = log_of(rig, "g")
        give_a_follower(rig, hosted)
        alone = replace(
            hosted.partition.state,
            partition_epoch=hosted.partition.state.partition_epoch + 1,
            isr=(hosted.partition.node_id,),
        )
        hosted.partition.apply(alone, now_ms=rig.clock.monotonic_ms())
        member = {"member_id": joined.member_id, "generation_id_or_member_epoch": 1}
        refused = await client.ask(commit("g", "t", {0: 1}, **member), 9)
        assert refused.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await committed(client) == {}
        assert (await client.ask(heartbeat(joined), 4)).error_code == 0

    rig.run(run)


def test_a_leader_loads_what_is_not_committed_yet_and_answers_once_it_is() -> None:
    rig = Rig(properties=QUICK)

    async def run() -> None:
        client = await node_with_topic(rig)
        joined = await stable_member(client)
        hosted = log_of(rig, "g")
        follow = give_a_follower(rig, hosted)
        member = {"member_id": joined.member_id, "generation_id_or_member_epoch": 1}
        rig.connect().send(commit("g", "t", {0: 5}, **member), 9)
        await asyncio.sleep(0.01)
        elected_again = replace(
            hosted.partition.state,
            partition_epoch=hosted.partition.state.partition_epoch + 1,
            leader_epoch=LeaderEpoch(hosted.partition.state.leader_epoch + 1),
        )
        hosted.partition.apply(elected_again, now_ms=rig.clock.monotonic_ms())
        coordinators = rig.node.rooms.groups
        topic = rig.node.rooms.image.topics.by_name["__consumer_offsets"]
        touched = PartitionsOf(topic, tuple(range(len(topic.partitions))), topic)
        changes = TopicChanges(created=(), changed=(touched,), deleted=())
        coordinators.apply(rig.node.rooms.image, Changes(topics=changes, configs=(), brokers_changed=False))
        await asyncio.sleep(0.1)
        number = client.send(heartbeat(joined), 4)
        await asyncio.sleep(0.1)
        assert not client.has_answer(number)
        follow()
        await asyncio.sleep(0.01)
        assert client.has_answer(number)
        assert await committed(client) == {0: 5}

    rig.run(run)


def elect(rig: Rig, hosted: HostedPartition, leader: NodeId) -> None:
    coordinators, state = rig.node.rooms.groups, hosted.partition.state
    topic = rig.node.rooms.image.topics.by_name["__consumer_offsets"]
    touched = PartitionsOf(topic, (hosted.index,), topic)
    changes = TopicChanges(created=(), changed=(touched,), deleted=())
    elected = replace(
        state,
        leader=leader,
        partition_epoch=state.partition_epoch + 1,
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
    )
    hosted.partition.apply(elected, now_ms=rig.clock.monotonic_ms())
    coordinators.apply(coordinators._image, Changes(topics=changes, configs=(), brokers_changed=False))


def elect_elsewhere_and_back(rig: Rig, hosted: HostedPartition) -> None:
    """Another leads the partition for a moment."""
    for leader in (NodeId(2), hosted.partition.node_id):
        elect(rig, hosted, leader)


@pytest.mark.parametrize("turns", [0, 1, 5, 35])
def test_a_load_that_leadership_has_left_comes_to_nothing(turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or two shards would run on one log, and the one that nobody talks to would end its members' sessions."""
    rig = Rig(properties=QUICK | {"offsets.load.buffer.size": "100"})
    load_in_small_slices(monkeypatch)

    async def run() -> None:
        client = await node_with_topic(rig)
        joined = await stable_member(client)
        member = {"member_id": joined.member_id, "generation_id_or_member_epoch": 1}
        for offset in range(30):
            await client.ask(commit("g", "t", {offset % 3: offset}, **member), 9)
        hosted = log_of(rig, "g")
        elect_elsewhere_and_back(rig, hosted)
        for _ in range(turns):
            await asyncio.sleep(0)
        abandoned = rig.node.rooms.groups.runner("g")
        elect_elsewhere_and_back(rig, hosted)
        await asyncio.sleep(1)
        assert abandoned is not None
        assert abandoned.state is ErrorCode.NOT_COORDINATOR
        end_offset = hosted.partition.log.log_end_offset
        for _ in range(5):
            assert (await client.ask(heartbeat(joined), 4)).error_code == 0
            await asyncio.sleep(9)
        assert hosted.partition.log.log_end_offset == end_offset
        assert await committed(client) == {0: 27, 1: 28, 2: 29}

    rig.run(run)


def recreate_topic(rig: Rig, name: str) -> None:
    """A topic is deleted, and another made under its name, in one delta of the metadata log."""
    node = rig.node
    old = node.rooms.image.topics.by_name[name]
    new = replace(old, topic_id=Uuid(b"recreated topic!"))
    topics = node.rooms.image.topics.copy()
    del topics.by_id[old.topic_id]
    topics.by_name[name] = topics.by_id[new.topic_id] = new
    created = PartitionsOf(new, tuple(range(len(new.partitions))), None)
    changes = TopicChanges(created=(created,), changed=(), deleted=(old,))
    node.rooms.groups.apply(
        replace(node.rooms.image, topics=topics), Changes(topics=changes, configs=(), brokers_changed=False)
    )


@pytest.mark.parametrize("loading", [False, True])
def test_a_recreated_topic_does_not_inherit_offsets(loading: bool) -> None:
    rig = Rig(properties=QUICK | {"offsets.load.buffer.size": "100"})

    async def run() -> None:
        client = await node_with_topic(rig)
        await rig.create_topic("u", 1)
        await client.ask(commit("g", "t", {0: 5, 1: 6}), 9)
        await client.ask(commit("g", "u", {0: 7}), 9)
        if loading:
            elect_elsewhere_and_back(rig, log_of(rig, "g"))
        recreate_topic(rig, "t")
        await asyncio.sleep(1)
        assert await committed(client) == {}
        assert await committed(client, topic="u", partitions=1) == {0: 7}

    rig.run(run)


def test_offsets_of_a_topic_that_was_made_anew_while_nobody_coordinated_are_not_taken_for_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(properties=QUICK)

    async def run() -> None:
        client = await node_with_topic(rig)
        await rig.create_topic("u", 1)
        await client.ask(commit("g", "t", {0: 5, 1: 6}), 9)
        await client.ask(commit("g", "u", {0: 7}), 9)
        with monkeypatch.context() as away:
            away.setattr(GroupCoordinator, "apply", lambda *changes: None)
            await client.ask(deletion("t"), 6)
            await rig.create_topic("t", 3)
        await rig.restart()
        client = rig.connect()
        await asyncio.sleep(1)
        assert await committed(client) == {}
        assert await committed(client, topic="u", partitions=1) == {0: 7}
        hosted = log_of(rig, "g")
        end_offset = hosted.partition.log.log_end_offset
        await rig.restart()
        await asyncio.sleep(1)
        assert log_of(rig, "g").partition.log.log_end_offset == end_offset, "they are forgotten once"

    rig.run(run)


def test_offsets_of_a_deleted_topic_go_once_the_log_takes_it() -> None:
    rig = Rig(properties=QUICK)

    async def run() -> None:
        client = await node_with_topic(rig)
        await client.ask(commit("g", "t", {0: 5, 1: 6}), 9)
        rig.device.capacity = rig.device.used
        recreate_topic(rig, "t")
        await asyncio.sleep(1)
        assert await committed(client) == {0: 5, 1: 6}
        rig.device.capacity = 1 << 40
        await asyncio.sleep(10)
        assert await committed(client) == {}

    rig.run(run)


def neighbour_of(rig: Rig, group_id: str) -> str:
    """Another group of the same shard."""
    coordinators = rig.node.rooms.groups
    names = (f"neighbour {number}" for number in range(100))
    return next(name for name in names if coordinators.partition_of(name) == coordinators.partition_of(group_id))


class Broken:
    """A method that breaks for the group `g`, as often as it is told to."""

    def __init__(self, patch: pytest.MonkeyPatch, owner: type, name: str, group_of: Callable[..., str]) -> None:
        self.times = 0
        whole = getattr(owner, name)

        def method(this: Any, *arguments: Any) -> Any:
            if self.times and group_of(*arguments) == "g":
                self.times -= 1
                raise AssertionError("the world is not as it was")
            return whole(this, *arguments)

        patch.setattr(owner, name, method)


def test_a_request_that_breaks_is_told_so_and_nobody_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(properties=QUICK)
    broken = Broken(monkeypatch, Rebalances, "sync", lambda group, *rest: str(group.group_id))

    async def run() -> None:
        client = await node_with_topic(rig)
        neighbour = neighbour_of(rig, "g")
        joined: JoinGroupResponse = await client.ask(join(), 3)
        beside = await stable_member(client, neighbour)
        broken.times = 2
        for _ in range(2):
            refused = await client.ask(sync(joined, tester=b"all"), 5)
            assert refused.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert (await client.ask(heartbeat(beside, neighbour), 4)).error_code == 0
        assert (await client.ask(sync(joined, tester=b"all"), 5)).error_code == 0
        assert rig.node.failed is None
        assert rig.node.rooms.containment.total == 2

    rig.run(run)
    assert caplog.text.count("Traceback") == 1


def test_a_decision_that_breaks_leaves_nobody_waiting() -> None:
    rig = Rig(properties=QUICK | {"group.initial.rebalance.delay.ms": "3000"})

    async def run() -> None:
        client = await node_with_topic(rig)
        at = client.send(join(), 3)
        await asyncio.sleep(1)
        runner = rig.node.rooms.groups.runner("g")
        assert runner is not None
        (group,) = runner.shard.groups.values()
        assert isinstance(group, ClassicGroup)

        def lose(shard: GroupShard, ticket: Ticket, now: Moment) -> CoordinatorDecision:
            for member in group.members.values():
                group.end_join(member)
            raise AssertionError("its ticket is gone")

        with pytest.raises(KafkaError):
            await runner.ask(lose)
        assert (await client.answer(at, join(), 3)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR

    rig.run(run)


def test_a_timer_that_breaks_is_tried_again_and_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(properties=QUICK)
    broken = Broken(monkeypatch, Rebalances, "session_timeout", lambda group, *rest: str(group.group_id))

    async def run() -> None:
        client = await node_with_topic(rig)
        neighbour = neighbour_of(rig, "g")
        joined, beside = await stable_member(client), await stable_member(client, neighbour)
        broken.times = 1
        await asyncio.sleep(11)
        assert (await client.ask(heartbeat(beside, neighbour), 4)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert rig.node.rooms.containment.total == 1
        await asyncio.sleep(30)
        assert (await client.ask(heartbeat(joined), 4)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert rig.node.failed is None

    rig.run(run)


@pytest.mark.parametrize("way", ["fast", "generic"])
def test_a_replay_that_breaks_loads_the_shard_anew(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(properties=QUICK)
    if way == "fast":
        broken = Broken(monkeypatch, GroupShard, "replay_commit", lambda commit, now: str(commit.group_id))
    else:
        broken = Broken(monkeypatch, GroupShard, "replay", lambda record, producer: str(record.key.group))

    async def run() -> None:
        client = await node_with_topic(rig)
        neighbour = neighbour_of(rig, "g")
        beside = await stable_member(client, neighbour)
        request = commit("g", "t", {0: 5})
        if way == "generic":
            request.topics += commit("g", "t", {1: 6}).topics
        await client.ask(commit("g", "t", {0: 4}), 9)
        broken.times = 1
        refused = await client.ask(request, 9)
        assert refused.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        await asyncio.sleep(0.1)
        assert (await client.ask(heartbeat(beside, neighbour), 4)).error_code == 0
        assert (await committed(client))[0] == 5
        assert rig.node.failed is None

    rig.run(run)


def test_a_log_that_breaks_whoever_loads_it_stops_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(properties=QUICK)
    broken = Broken(monkeypatch, GroupShard, "replay_encoded", lambda key, content: key[4:5].decode())

    async def run() -> None:
        client = await node_with_topic(rig)
        await client.ask(commit("g", "t", {0: 4}), 9)
        broken.times = 1_000
        for _ in range(2):
            await rig.restart()
            client = rig.connect()
            await asyncio.sleep(1)
            refused = await client.ask(commit("g", "t", {0: 1}), 9)
            assert refused.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
            assert rig.node.failed is None
            assert rig.node.rooms.containment.total == 1

    rig.run(run)


@pytest.mark.parametrize("members", [False, True])
def test_a_group_is_deleted_in_as_many_batches_as_it_takes(members: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(properties=QUICK)
    monkeypatch.setattr("odradek.coordinator.group.shard.MAX_RECORDS_PER_CLEANUP", 4)

    async def run() -> None:
        client = await node_with_topic(rig)
        await rig.create_topic("u", 30)
        for index in range(30):
            await client.ask(commit("g", "u", {index: 5}), 9)
        if members:
            await stable_member(client)
        hosted = log_of(rig, "g")
        hosted.partition.log.config = replace(hosted.partition.log.config, max_message_bytes=300)
        (result,) = (await client.ask(DeleteGroupsRequest(groups_names=["g"]), 2)).results
        assert result.error_code == (ErrorCode.NON_EMPTY_GROUP if members else 0)
        assert len(await committed(client, topic="u", partitions=30)) == (30 if members else 0)
        assert rig.node.rooms.groups.counts() == ((1, 30) if members else (0, 0))
        assert rig.node.rooms.containment.total == 0

    rig.run(run)


def test_a_full_disk_refuses_commits_and_goes_on_with_the_rest() -> None:
    rig = Rig(properties=QUICK)

    async def run() -> None:
        client = await node_with_topic(rig)
        joined = await stable_member(client)
        member = {"member_id": joined.member_id, "generation_id_or_member_epoch": 1}
        await client.ask(commit("g", "t", {0: 1}, **member), 9)
        rig.device.capacity = rig.device.used
        refused = await client.ask(commit("g", "t", {0: 2}, **member), 9)
        assert refused.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
        assert (await client.ask(join("new"), 3)).error_code == ErrorCode.NOT_COORDINATOR
        assert await committed(client) == {0: 1}
        assert (await client.ask(heartbeat(joined), 4)).error_code == 0
        rig.device.capacity = 1 << 40
        await client.ask(commit("g", "t", {0: 3}, **member), 9)
        assert await committed(client) == {0: 3}
        assert (await stable_member(client, "new")).generation_id == 1

    rig.run(run)


def test_groups_whose_partition_found_no_room_are_served_once_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(properties=QUICK)
    open_log = LogDirectory.open_log
    room = True

    def make_or_refuse(directory: LogDirectory, topic: str, *which: Any, **how: Any) -> Log:
        if not room and topic == "__consumer_offsets":
            raise OSError(errno.ENOSPC, "No space left on device")
        return open_log(directory, topic, *which, **how)

    monkeypatch.setattr(LogDirectory, "open_log", make_or_refuse)

    async def run() -> None:
        nonlocal room
        await rig.create_topic("t", 3)
        client = rig.connect()
        room = False
        await find_coordinator(client)
        assert (await client.ask(join(), 3)).error_code == ErrorCode.NOT_COORDINATOR
        await asyncio.sleep(20)
        assert (await client.ask(join(), 3)).error_code == ErrorCode.NOT_COORDINATOR
        room = True
        await asyncio.sleep(6)
        await stable_member(client)
        for group in "abcdef":
            await client.ask(commit(group, "t", {0: 3}), 9)
            assert await committed(client, group) == {0: 3}

    rig.run(run)


def test_what_kafka_reads_is_in_the_log() -> None:
    rig = Rig(properties=QUICK)

    async def run() -> list[bytes]:
        client = await node_with_topic(rig)
        joined = await stable_member(client)
        await client.ask(commit("g", "t", {0: 5}, member_id=joined.member_id, generation_id_or_member_epoch=1), 9)
        partition_log = log_of(rig, "g").partition.log
        read = partition_log.read(0, max_bytes=1 << 20, end_offset=partition_log.high_watermark, minimum_one=True)
        records = read.records if isinstance(read.records, bytes) else read.records.read()
        return [bytes(batch) for batch in iter_batches(records)]

    kinds, versions = [], []
    for batch in rig.run(run):
        for record in decode_records(batch):
            assert record.key is not None
            decoded = decode_record(GROUP_RECORDS, record.key, record.value)
            assert decoded is not None
            kinds.append(type(decoded.value).__name__)
            versions.append((record.key[:2], (record.value or b"")[:2]))
    assert kinds == ["GroupMetadataValue", "GroupMetadataValue", "OffsetCommitValue"]
    assert versions == [(b"\0\2", b"\0\3"), (b"\0\2", b"\0\3"), (b"\0\1", b"\0\4")]


@pytest.mark.parametrize("codec", ["1", "4"])
def test_batches_are_compressed_as_the_configuration_says(codec: str) -> None:
    rig = Rig(properties=QUICK | {"offsets.topic.compression.codec": codec})

    async def run() -> None:
        client = await node_with_topic(rig)
        await client.ask(commit("g", "t", {0: 5}), 9)
        partition_log = log_of(rig, "g").partition.log
        read = partition_log.read(0, max_bytes=1 << 20, end_offset=1, minimum_one=True)
        records = read.records if isinstance(read.records, bytes) else read.records.read()
        assert records[22] == int(codec)
        await rig.restart()
        client = rig.connect()
        await asyncio.sleep(1)
        assert await committed(client) == {0: 5}

    rig.run(run)


@pytest.mark.parametrize("client_id", ["tester", "__admin_client"])
def test_clients_do_not_write_to_the_coordinators_log(client_id: str) -> None:
    rig = Rig(properties=QUICK)

    async def run() -> None:
        client = rig.connect()
        await find_coordinator(client)
        batch = build_batch([Record(key=b"\0\x63", value=b"junk")], timestamp=rig.clock.now_ms())
        part = PartitionProduceData(index=0, records=bytes(batch))
        topic = TopicProduceData(name="__consumer_offsets", partition_data=[part])
        request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
        at = client.send(request, 9, client_id=client_id)
        response = await client.answer(at, request, 9)
        code = 0 if client_id == "__admin_client" else ErrorCode.INVALID_TOPIC_EXCEPTION
        assert response.responses[0].partition_responses[0].error_code == code
        # A kind of record that nobody knows is passed over.
        await rig.restart()
        await asyncio.sleep(1)
        assert await committed(rig.connect()) == {}

    rig.run(run)


def test_a_log_that_cannot_be_read_is_coordinated_by_nobody(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(properties=QUICK)

    async def run() -> None:
        client = await node_with_topic(rig)
        bad = memoryview(build_batch([Record(key=b"\0\1junk", value=b"\0\3")], timestamp=rig.clock.now_ms()))
        rig.node.rooms.replicas.append(log_of(rig, "g"), bad, now_ms=rig.clock.now_ms())
        await rig.restart()
        client = rig.connect()
        await asyncio.sleep(1)
        refused = await client.ask(commit("g", "t", {0: 1}), 9)
        assert refused.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR

    rig.run(run)
    assert "cannot be loaded" in caplog.text


def test_stopping_lets_everyone_go_who_waits() -> None:
    rig = Rig(properties=QUICK | {"group.initial.rebalance.delay.ms": "60000"})

    async def run() -> None:
        client = rig.connect()
        await find_coordinator(client)
        client.send(join(), 3)
        await asyncio.sleep(0.1)

    rig.run(run)


def test_a_rebalance_of_a_thousand_members_writes_one_record() -> None:
    rig = Rig(properties=QUICK | {"group.initial.rebalance.delay.ms": "1000"})

    async def run() -> None:
        client = rig.connect()
        await find_coordinator(client)
        clients = [rig.connect() for _ in range(1000)]
        asked = [each.send(join(), 3, client_id=f"m{number}") for number, each in enumerate(clients)]
        joined: list[JoinGroupResponse] = [
            await each.answer(at, join(), 3) for each, at in zip(clients, asked, strict=True)
        ]
        before = log_of(rig, "g").partition.log.log_end_offset
        (leader,) = (answer for answer in joined if answer.members)
        assignments = {f"m{number}": b"x" for number in range(1000)}
        requests = [sync(answer, **(assignments if answer is leader else {})) for answer in joined]
        asked = [each.send(request, 5) for each, request in zip(clients, requests, strict=True)]
        for each, at, request in zip(clients, asked, requests, strict=True):
            assert (await each.answer(at, request, 5)).assignment == b"x"
        assert log_of(rig, "g").partition.log.log_end_offset == before + 1

    rig.run(run)
