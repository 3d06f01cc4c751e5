"""A member of a group against a broker that answers by script."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.client.scripted import HOST, PORT, Ports, ScriptedBroker, play, settings

from odradek.client.cluster import TopicPartition
from odradek.client.consumer import Consumer
from odradek.client.consumer.embedded import write_assignment
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse
from odradek.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from odradek.protocol.messages.leave_group import LeaveGroupResponse
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

T0 = TopicPartition("t", 0)


class OneMember:
    """A coordinator of one member, which may be told to join again and is then kept waiting."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.generation_id = 0
        self.rebalances = False
        self.may_join = asyncio.Event()
        self.may_join.set()
        broker.topics = {"t": 1}
        broker.answers |= {
            ApiKey.FIND_COORDINATOR: self.find,
            ApiKey.JOIN_GROUP: self.join,
            ApiKey.SYNC_GROUP: self.sync,
            ApiKey.HEARTBEAT: self.heartbeat,
            ApiKey.LEAVE_GROUP: lambda request: LeaveGroupResponse(members=[]),
            ApiKey.OFFSET_COMMIT: self.commit,
            ApiKey.OFFSET_FETCH: self.fetch_offsets,
            ApiKey.FETCH: self.fetch,
        }

    def find(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        found = Coordinator(key="g", node_id=1, host=HOST, port=PORT, error_message=None)
        return FindCoordinatorResponse(coordinators=[found])

    async def join(self, request: JoinGroupRequest) -> JoinGroupResponse:
        await self.may_join.wait()
        self.rebalances = False
        self.generation_id += 1
        metadata = request.protocols[0].metadata
        return JoinGroupResponse(
            generation_id=self.generation_id,
            protocol_type="consumer",
            protocol_name=request.protocols[0].name,
            leader="m",
            member_id="m",
            members=[JoinGroupResponseMember(member_id="m", metadata=metadata)],
        )

    def sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        return SyncGroupResponse(assignment=write_assignment([T0]))

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS if self.rebalances else ErrorCode.NONE)

    def commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        current = request.generation_id_or_member_epoch == self.generation_id
        code = ErrorCode.NONE if current else ErrorCode.ILLEGAL_GENERATION
        answered = OffsetCommitResponsePartition(partition_index=0, error_code=code)
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[answered])])

    def fetch_offsets(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        held = OffsetFetchResponsePartitions(partition_index=0, committed_offset=3, metadata="")
        topic = OffsetFetchResponseTopics(name="t", partitions=[held])
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[topic])])

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        await asyncio.sleep(request.max_wait_ms / 1000)
        return FetchResponse(responses=[])


def test_a_commit_that_a_rebalance_overtook_does_not_cost_the_new_membership() -> None:
    """Sent while a JoinGroup waits, it is looked at once that was answered, and is of a generation that is over."""

    async def test(broker: ScriptedBroker, ports: Ports) -> None:
        group = OneMember(broker)
        given = settings(group_id="g", enable_auto_commit=False, heartbeat_interval_ms=100)
        async with Consumer(ports, given) as consumer:
            consumer.subscribe(["t"])
            await consumer.poll(1_000)
            assert consumer.group_membership().generation_id == 1
            await consumer.commit({T0: 4})

            group.rebalances = True
            group.may_join.clear()
            await consumer.poll(1_000)
            overtaken = consumer.commit_async({T0: 5})
            await asyncio.sleep(0.1)
            group.may_join.set()
            with pytest.raises(KafkaError) as refused:
                await overtaken
            assert refused.value.code is ErrorCode.ILLEGAL_GENERATION

            await consumer.poll(1_000)
            assert consumer.group_membership().generation_id == 2
            assert broker.count(ApiKey.JOIN_GROUP) == 2
            await consumer.commit({T0: 5})

    play(test)
