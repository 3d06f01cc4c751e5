"""What ConsumerGroupDescribe tells of a KIP-848 group."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.coordinator.group.assignors.spec import Assignment as Partitions
from odradek.coordinator.group.consumer import ConsumerGroup, assignor_asked_for
from odradek.coordinator.group.consumer_member import ConsumerMember, without_epochs
from odradek.metadata.image.topics import TopicsImage
from odradek.protocol.messages.consumer_group_describe import Assignment, DescribedGroup, Member, TopicPartitions

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
"""Which protocol a member speaks."""


def described(group: ConsumerGroup, topics: TopicsImage, assignors: Sequence[str]) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=assignor_asked_for(group.members.values(), assignors),
        members=[_member(group, member, topics) for member in group.members.values()],
    )


def _member(group: ConsumerGroup, member: ConsumerMember, topics: TopicsImage) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=_named(without_epochs(member.assigned), topics),
        target_assignment=_named(group.target_of(member), topics),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _named(assignment: Partitions, topics: TopicsImage) -> Assignment:
    """Topics that are gone have no name to be told by."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic, topic_name=topics.by_id[topic].name, partitions=list(partitions))
            for topic, partitions in assignment.items()
            if topic in topics.by_id
        ]
    )
