"""TxnOffsetCommit in all its versions, what OffsetFetch says meanwhile, and what a transaction's end makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from tests.unit.server.asking import deletion
from tests.unit.server.group_clients import QUICK, commit, committed, node_with_topic, stable_member
from tests.unit.server.rig import Client, Rig
from tests.unit.server.transactions import UNVERIFIED

from odradek.coordinator.shard import ProducerKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.end_txn import EndTxnRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

PRODUCER = ProducerKey(7, 2)
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


def commit_in_transaction(
    offsets: Mapping[int, int], *, topic: str = "t", group_id: str = "g", metadata: str = "", **more: Any
) -> TxnOffsetCommitRequest:
    fields: dict[str, Any] = {"producer_id": PRODUCER.producer_id, "producer_epoch": PRODUCER.producer_epoch} | more
    parts = [
        TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=metadata
        )
        for index, offset in offsets.items()
    ]
    return TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id=group_id,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=parts)],
        **fields,
    )


def codes(response: TxnOffsetCommitResponse) -> dict[tuple[str, int], int]:
    return {
        (topic.name, part.partition_index): part.error_code for topic in response.topics for part in topic.partitions
    }


async def committing(client: Client, offsets: Mapping[int, int], version: int = 3, **more: Any) -> int:
    """The one error of all partitions."""
    response = await client.ask(commit_in_transaction(offsets, **more), version)
    (code,) = set(codes(response).values())
    return code


async def stable(client: Client, *, named: bool = True) -> dict[int, int]:
    """By partition: its offset, or the error, as a negative number."""
    wanted = [OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1, 2])] if named else None
    group = OffsetFetchRequestGroup(group_id="g", topics=wanted)
    response = await client.ask(OffsetFetchRequest(groups=[group], require_stable=True), 9)
    return {
        part.partition_index: -part.error_code or part.committed_offset
        for topic in response.groups[0].topics
        for part in topic.partitions
    }


def end(rig: Rig, *, committed: bool, producer: ProducerKey = PRODUCER) -> None:
    runner = rig.node.rooms.groups.runner("g")
    assert runner is not None
    runner.write_marker(producer, committed=committed, coordinator_epoch=0).result()


async def restarted(rig: Rig) -> Client:
    """The coordinator loads its log."""
    await rig.restart()
    await asyncio.sleep(1)
    return rig.connect()


async def begun_at(client: Client, group_id: str, *, adds_offsets: bool) -> ProducerKey:
    """The producer of `tx`, after it has said that it will commit the group's offsets, if that is left to it."""
    await client.ask(FindCoordinatorRequest(key="tx", key_type=1), 3)
    request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
    response = await client.ask(request, 4)
    while response.error_code:  # The coordinator is loading.
        await asyncio.sleep(0.1)
        response = await client.ask(request, 4)
    key = ProducerKey(response.producer_id, response.producer_epoch)
    if adds_offsets:
        adding = AddOffsetsToTxnRequest(
            transactional_id="tx", producer_id=key.producer_id, producer_epoch=key.producer_epoch, group_id=group_id
        )
        assert (await client.ask(adding, 3)).error_code == 0
    return key


@pytest.mark.parametrize("version", range(6))
def test_offsets_of_a_transaction_count_once_it_is_committed(version: int) -> None:
    """With the real coordinator of the transaction, who is asked before the offsets are written."""
    rig = Rig(properties=QUICK)

    async def run() -> None:
        client = await node_with_topic(rig)
        await client.ask(commit("g", "t", {0: 1, 1: 2}), 9)
        key = await begun_at(client, "g", adds_offsets=version < 5)
        producer = {"producer_id": key.producer_id, "producer_epoch": key.producer_epoch}
        response = await client.ask(commit_in_transaction({0: 5, 2: 6, 3: 1}, **producer), version)
        assert codes(response) == {("t", 3): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ("t", 0): 0, ("t", 2): 0}
        assert await committed(client) == {0: 1, 1: 2}
        ended = await client.ask(
            EndTxnRequest(transactional_id="tx", committed=True, **producer), 5 if version == 5 else 4
        )
        assert ended.error_code == 0
        await asyncio.sleep(1)
        assert await committed(client) == {0: 5, 1: 2, 2: 6}

    rig.run(run)


@pytest.mark.parametrize("version", range(5))
def test_offsets_that_were_not_added_to_the_transaction_are_refused(version: int) -> None:
    rig = Rig(properties=QUICK)

    async def run() -> None:
        client = await node_with_topic(rig)
        await client.ask(commit("g", "t", {0: 1}), 9)
        key = await begun_at(client, "g", adds_offsets=False)
        producer = {"producer_id": key.producer_id, "producer_epoch": key.producer_epoch}
        told = await committing(client, {0: 5}, version, **producer)
        assert told == (ErrorCode.TRANSACTION_ABORTABLE if version == 4 else ErrorCode.INVALID_TXN_STATE)
        stranger = await committing(client, {0: 5}, version, producer_id=key.producer_id + 1, producer_epoch=0)
        assert stranger == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await stable(client) == {0: 1, 1: -1, 2: -1}

    rig.run(run)


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("ends", ["commit", "abort"])
def test_who_requires_stable_offsets_waits_for_the_end_also_of_a_coordinator_that_was_loaded(
    ends: str, moved: bool
) -> None:
    rig = Rig(properties=QUICK | UNVERIFIED)

    async def run() -> None:
        client = await node_with_topic(rig)
        await client.ask(commit("g", "t", {0: 1, 1: 2}), 9)
        assert await committing(client, {0: 5, 2: 6}) == 0
        if moved:
            client = await restarted(rig)
        assert await committed(client) == {0: 1, 1: 2}
        assert await stable(client) == {0: -UNSTABLE, 1: 2, 2: -UNSTABLE}
        assert await stable(client, named=False) == {0: -UNSTABLE, 1: 2}
        await client.ask(commit("g", "t", {0: 9}), 9)
        if moved:
            client = await restarted(rig)
        end(rig, committed=ends == "commit", producer=ProducerKey(8, 0))
        assert await stable(client) == {0: -UNSTABLE, 1: 2, 2: -UNSTABLE}, "another's end is not this one's"
        end(rig, committed=ends == "commit")
        for _ in range(2):
            told = {0: 9, 1: 2, 2: 6} if ends == "commit" else {0: 9, 1: 2}
            assert await committed(client) == told
            assert await stable(client) == {2: -1} | told
            client = await restarted(rig)

    rig.run(run)


def test_a_member_is_checked_where_it_says_who_it_is() -> None:
    rig = Rig(properties=QUICK | UNVERIFIED)

    async def run() -> None:
        client = await node_with_topic(rig)
        assert await committing(client, {0: 1}, generation_id=1, member_id="m") == ErrorCode.ILLEGAL_GENERATION
        joined = await stable_member(client)
        member = {"member_id": joined.member_id, "generation_id": 1}
        assert await committing(client, {0: 1}, **member) == 0
        assert await committing(client, {0: 1}, version=2) == 0, "it could not say"
        assert await committing(client, {0: 1}) == 0, "it need not say"
        assert await committing(client, {0: 1}, **member | {"generation_id": 0}) == ErrorCode.ILLEGAL_GENERATION
        assert await committing(client, {0: 1}, **member | {"member_id": "x"}) == ErrorCode.UNKNOWN_MEMBER_ID
        foreign = await committing(client, {0: 1}, **member, group_instance_id="x")
        assert foreign == ErrorCode.UNKNOWN_MEMBER_ID
        assert await committing(client, {0: 1}, group_id="") == ErrorCode.INVALID_GROUP_ID

    rig.run(run)


def test_a_member_of_a_consumer_group_is_checked_by_its_epoch_which_producers_take_for_a_generation() -> None:
    rig = Rig(properties=QUICK | UNVERIFIED)

    async def run() -> None:
        client = await node_with_topic(rig)
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0)
        request.rebalance_timeout_ms, request.topic_partitions, request.subscribed_topic_names = 60_000, [], ["t"]
        joined = await client.ask(request, 1)
        member = {"member_id": "m", "generation_id": joined.member_epoch}
        assert await committing(client, {0: 1}, **member) == 0
        assert await committing(client, {0: 1}) == 0
        for epoch in (joined.member_epoch + 1, joined.member_epoch - 1):
            stale = await committing(client, {0: 1}, **member | {"generation_id": epoch})
            assert stale == ErrorCode.ILLEGAL_GENERATION
        assert await committing(client, {0: 1}, **member | {"member_id": "x"}) == ErrorCode.UNKNOWN_MEMBER_ID

    rig.run(run)


def test_what_is_refused_is_not_written() -> None:
    rig = Rig(properties=QUICK | UNVERIFIED)

    async def run() -> None:
        client = await node_with_topic(rig)
        assert await committing(client, {0: 5}) == 0
        end(rig, committed=True)
        old = await committing(client, {0: 6}, producer_epoch=PRODUCER.producer_epoch - 1)
        assert old == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await committing(client, {0: 6}, topic="x") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await committing(client, {0: 6}, metadata="m" * 5000) == ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert await stable(client) == {0: 5, 1: -1, 2: -1}

    rig.run(run)


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.COORDINATOR_NOT_AVAILABLE), (2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)],
)
def test_old_producers_are_not_told_that_a_coordinator_is_loading(version: int, code: ErrorCode) -> None:
    rig = Rig(properties=QUICK | UNVERIFIED)

    async def run() -> None:
        client = await node_with_topic(rig)
        runner = rig.node.rooms.groups.runner("g")
        assert runner is not None
        runner.state = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await committing(client, {0: 1}, version) == code
        with pytest.raises(KafkaError):
            end(rig, committed=True)
        runner.state = ErrorCode.NONE

    rig.run(run)


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("way", ["offsets", "group", "topic"])
def test_what_is_deleted_meanwhile_does_not_come_back_with_the_commit(way: str, moved: bool) -> None:
    rig = Rig(properties=QUICK | UNVERIFIED)

    async def run() -> None:
        client = await node_with_topic(rig)
        await client.ask(commit("g", "t", {1: 2}), 9)
        assert await committing(client, {0: 5, 1: 6}) == 0
        match way:
            case "offsets":
                parts = [OffsetDeleteRequestPartition(partition_index=index) for index in (0, 1, 2)]
                topic = OffsetDeleteRequestTopic(name="t", partitions=parts)
                deleted = await client.ask(OffsetDeleteRequest(group_id="g", topics=[topic]), 0)
                assert deleted.error_code == 0
            case "group":
                (result,) = (await client.ask(DeleteGroupsRequest(groups_names=["g"]), 2)).results
                assert result.error_code == 0
            case _:
                await client.ask(deletion("t"), 6)
                await asyncio.sleep(1)
        if moved:
            client = await restarted(rig)
        assert await stable(client) == {0: -1, 1: -1, 2: -1}
        end(rig, committed=True)
        assert await committed(client) == {}
        client = await restarted(rig)
        assert await committed(client) == {}

    rig.run(run)


def test_a_group_with_an_open_transaction_does_not_expire_nor_do_offsets_that_it_may_set() -> None:
    quick = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "10000"}
    rig = Rig(properties=QUICK | UNVERIFIED | quick)

    async def run() -> None:
        client = await node_with_topic(rig)
        await client.ask(commit("g", "t", {0: 1, 1: 2}), 9)
        assert await committing(client, {0: 5}) == 0
        assert await committing(client, {2: 5}, group_id="pending alone") == 0
        await asyncio.sleep(90)
        assert await committed(client) == {0: 1}
        groups = rig.node.rooms.groups
        for group_id in ("g", "pending alone"):
            runner = groups.runner(group_id)
            assert runner is not None
            assert group_id in runner.shard.groups
            runner.write_marker(PRODUCER, committed=False, coordinator_epoch=0).result()
        await asyncio.sleep(20)
        assert groups.counts() == (0, 0)

    rig.run(run)
