"""Consumer groups of both protocols: who is in them, and what they have committed."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from odradek.client.admin.base import AdminBase, Outcomes, outcome
from odradek.client.cluster import TopicPartition, by_topic
from odradek.client.errors import check
from odradek.client.group_assignment import read_assignment
from odradek.client.leaders import Answers
from odradek.client.offsets import CommittedOffset, commit_offsets, fetch_offsets
from odradek.client.patience import ask_within
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedFrame
from odradek.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from odradek.protocol.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from odradek.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from odradek.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from odradek.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from odradek.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from odradek.values import value

_CONSUMER = "consumer"


@value
class MemberDescription:
    """A member and the partitions it was given."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: tuple[TopicPartition, ...]


@value
class GroupDescription:
    """A group as its coordinator sees it."""

    group_id: str
    type: str
    """`classic` or `consumer`."""
    state: str
    assignor: str
    coordinator: int
    epoch: int
    """The epoch of a `consumer` group; -1 for a classic one, which does not tell its generation."""
    members: tuple[MemberDescription, ...]


class GroupAdmin(AdminBase):
    """What can be asked about groups."""

    async def list_groups(self, *, states: Collection[str] = (), types: Collection[str] = ()) -> list[ListedGroup]:
        """The groups of all coordinators, by name; raises if one of these does not tell."""
        found: list[ListedGroup] = []
        for groups in (await self.list_groups_by_broker(states=states, types=types)).values():
            if isinstance(groups, KafkaError):
                raise groups
            found += groups
        return sorted(found, key=lambda group: group.group_id)

    async def list_groups_by_broker(
        self, *, states: Collection[str] = (), types: Collection[str] = (), timeout_ms: int | None = None
    ) -> dict[int, list[ListedGroup] | KafkaError]:
        """The groups that each broker coordinates; an error for one that does not tell in time."""
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))

        async def ask(node_id: int, left_ms: int) -> list[ListedGroup]:
            response = await ask_within(self.cluster, request, ListGroupsResponse, node_id=node_id, timeout_ms=left_ms)
            if response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
                return []
            check(response.error_code)
            return response.groups

        return await self._ask_brokers(None, ask, timeout_ms)

    async def describe_groups(self, group_ids: Sequence[str]) -> dict[str, GroupDescription | KafkaError]:
        """State and members of groups of either protocol."""
        described = await asyncio.gather(*[self._describe_group(group_id) for group_id in group_ids])
        return dict(zip(group_ids, described, strict=True))

    async def delete_groups(self, group_ids: Sequence[str]) -> Outcomes[str]:
        """Delete groups without members, with all they have committed."""
        outcomes: Outcomes[str] = {}
        for group_id in group_ids:
            try:
                await self.cluster.retrying(partial(self._delete_group, group_id))
                outcomes[group_id] = None
            except KafkaError as failure:
                outcomes[group_id] = failure
        return outcomes

    async def group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None
    ) -> Answers[CommittedOffset]:
        """What a group has committed, for some partitions or for all."""
        return await self.cluster.retrying(lambda: fetch_offsets(self.cluster, group_id, partitions))

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> Outcomes[TopicPartition]:
        """Commit for a group that has no members now."""
        return await self.cluster.retrying(lambda: commit_offsets(self.cluster, group_id, offsets))

    async def delete_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> Outcomes[TopicPartition]:
        """Delete what a group has committed for partitions it is not subscribed to."""
        request = OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
                )
                for topic, indexes in by_topic(partitions).items()
            ],
        )

        async def attempt() -> Outcomes[TopicPartition]:
            response = await self.cluster.ask_coordinator(group_id, request, OffsetDeleteResponse)
            self.cluster.check_coordinated(group_id, response.error_code)
            return {
                TopicPartition(topic.name, each.partition_index): outcome(each.error_code)
                for topic in response.topics
                for each in topic.partitions
            }

        return await self.cluster.retrying(attempt)

    async def _delete_group(self, group_id: str) -> None:
        request = DeleteGroupsRequest(groups_names=[group_id])
        response = await self.cluster.ask_coordinator(group_id, request, DeleteGroupsResponse)
        self.cluster.check_coordinated(group_id, response.results[0].error_code)

    async def _describe_group(self, group_id: str) -> GroupDescription | KafkaError:
        try:
            try:
                return await self.cluster.retrying(lambda: self._describe_new_protocol(group_id))
            except KafkaError as other:
                if other.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                    raise
            return await self.cluster.retrying(lambda: self._describe_classic(group_id))
        except KafkaError as failure:
            return failure

    async def _describe_new_protocol(self, group_id: str) -> GroupDescription:
        request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
        response = await self.cluster.ask_coordinator(group_id, request, ConsumerGroupDescribeResponse)
        group = response.groups[0]
        self.cluster.check_coordinated(group_id, group.error_code, group.error_message or "")
        return _new_description(group, await self.cluster.coordinator(group_id))

    async def _describe_classic(self, group_id: str) -> GroupDescription:
        request = DescribeGroupsRequest(groups=[group_id])
        response = await self.cluster.ask_coordinator(group_id, request, DescribeGroupsResponse)
        group = response.groups[0]
        self.cluster.check_coordinated(group_id, group.error_code, group.error_message or "")
        return _classic_description(group, await self.cluster.coordinator(group_id))


def _new_description(group: DescribedConsumerGroup, coordinator: int) -> GroupDescription:
    return GroupDescription(
        group_id=group.group_id,
        type=_CONSUMER,
        state=group.group_state,
        assignor=group.assignor_name,
        coordinator=coordinator,
        epoch=group.group_epoch,
        members=tuple(
            MemberDescription(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                _assigned(member.assignment),
            )
            for member in group.members
        ),
    )


def _assigned(assignment: Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, partition)
        for topic in assignment.topic_partitions
        for partition in topic.partitions
    )


def _classic_description(group: DescribedGroup, coordinator: int) -> GroupDescription:
    return GroupDescription(
        group_id=group.group_id,
        type="classic",
        state=group.group_state,
        assignor=group.protocol_data,
        coordinator=coordinator,
        epoch=-1,
        members=tuple(
            MemberDescription(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                _written(member.member_assignment) if group.protocol_type == _CONSUMER else (),
            )
            for member in group.members
        ),
    )


def _written(data: bytes) -> tuple[TopicPartition, ...]:
    try:
        return tuple(read_assignment(data))
    except MalformedFrame:
        return ()  # Between a group's leader and its members anything may be written; brokers do not look.
