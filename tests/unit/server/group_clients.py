"""Members of classic groups against a whole node, one request a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.unit.server.rig import Client, Rig

from odradek.ids import NodeId
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.heartbeat import HeartbeatRequest
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.server.partitions.hosted_partition import HostedPartition
from odradek.values import replace

QUICK = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "3"}
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
"""To the topic `t`."""


async def find_coordinator(client: Client, group_id: str = "g") -> None:
    """Which also makes `__consumer_offsets`."""
    response = await client.ask(FindCoordinatorRequest(key=group_id), 3)
    assert response.error_code == 0, response


def join(group_id: str = "g", **more: Any) -> JoinGroupRequest:
    fields: dict[str, Any] = {
        "group_id": group_id,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
    }
    return JoinGroupRequest(**fields | more)


def sync(joined: JoinGroupResponse, group_id: str = "g", **assignments: bytes) -> SyncGroupRequest:
    """By the first letters of the member ids, which are the client ids."""
    by_client = {member.member_id.split("-")[0]: member.member_id for member in joined.members}
    return SyncGroupRequest(
        group_id=group_id,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name=joined.protocol_name,
        assignments=[
            SyncGroupRequestAssignment(member_id=by_client[name], assignment=content)
            for name, content in assignments.items()
        ],
    )


def heartbeat(joined: JoinGroupResponse, group_id: str = "g") -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group_id, generation_id=joined.generation_id, member_id=joined.member_id)


async def stable_member(client: Client, group_id: str = "g", assignment: bytes = b"all") -> JoinGroupResponse:
    """Alone in its group."""
    joined: JoinGroupResponse = await client.ask(join(group_id), 3)
    assert joined.error_code == 0, joined
    synced = await client.ask(sync(joined, group_id, tester=assignment), 5)
    assert (synced.error_code, synced.assignment) == (0, assignment)
    return joined


def commit(group_id: str, topic: str, offsets: dict[int, int], **more: Any) -> OffsetCommitRequest:
    """As an administrator does, unless `more` names a member."""
    fields: dict[str, Any] = {"member_id": "", "generation_id_or_member_epoch": -1, **more}
    parts = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
        for index, offset in offsets.items()
    ]
    topic_id = fields.pop("topic_id", bytes(16))
    return OffsetCommitRequest(
        group_id=group_id,
        topics=[OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=parts)],
        **fields,
    )


async def committed(client: Client, group_id: str = "g", topic: str = "t", partitions: int = 3) -> dict[int, int]:
    """What is not -1."""
    wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=list(range(partitions)))
    group = OffsetFetchRequestGroup(group_id=group_id, topics=[wanted])
    response = await client.ask(OffsetFetchRequest(groups=[group]), 9)
    (told,) = response.groups
    assert told.error_code == 0, told
    return {
        part.partition_index: part.committed_offset
        for each in told.topics
        for part in each.partitions
        if part.committed_offset >= 0
    }


async def node_with_topic(rig: Rig) -> Client:
    """A client of a node that has the topic `t` with three partitions, and a coordinator."""
    await rig.create_topic("t", 3)
    client = rig.connect()
    await find_coordinator(client)
    return client


def give_a_follower(rig: Rig, hosted: HostedPartition) -> Callable[[], None]:
    """A second replica in sync, which has what there is whenever the returned call is made."""
    follower = NodeId(2)
    state = hosted.partition.state
    both = replace(
        state,
        partition_epoch=state.partition_epoch + 1,
        replicas=(*state.replicas, follower),
        isr=(*state.isr, follower),
    )
    hosted.partition.apply(both, now_ms=rig.clock.monotonic_ms())

    def fetch() -> None:
        log = hosted.partition.log
        rig.node.rooms.replicas.update_follower_fetch_state(
            hosted,
            follower,
            fetch_offset=log.log_end_offset,
            log_start_offset=log.log_start_offset,
            broker_epoch=1,
        )

    fetch()
    return fetch
