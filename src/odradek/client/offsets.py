"""A group's committed offsets, read and written at its coordinator; for members, for loners and for administrators."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from odradek.client.cluster import Cluster, TopicPartition, by_topic
from odradek.client.leaders import Answers
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)
from odradek.values import value

NAMES_NOT_IDS = 9
"""The last version of OffsetCommit and OffsetFetch that speaks of topics by name, as the callers here do."""


@value
class CommittedOffset:
    """Where a group goes on reading."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@value
class Membership:
    """As whom a commit is made; the default is nobody, which only an empty group accepts."""

    member_id: str = ""
    generation_id: int = -1
    group_instance_id: str | None = None


NOBODY = Membership()


@value
class GroupMetadata:
    """A group, and as whom offsets are committed to it in a transaction."""

    group_id: str
    member: Membership = NOBODY


def committable(offsets: Mapping[TopicPartition, CommittedOffset | int]) -> dict[TopicPartition, CommittedOffset]:
    """Offsets as they are committed, from those or from plain numbers."""
    return {partition: CommittedOffset(held) if isinstance(held, int) else held for partition, held in offsets.items()}


async def fetch_offsets(
    cluster: Cluster, group_id: str, partitions: Collection[TopicPartition] | None, *, require_stable: bool = False
) -> Answers[CommittedOffset]:
    """What is committed, for some partitions or for all; one that has no committed offset is left out. One try."""
    grouped = None if partitions is None else by_topic(partitions)
    request = OffsetFetchRequest(
        group_id=group_id,
        topics=None
        if grouped is None
        else [OffsetFetchRequestTopic(name=topic, partition_indexes=some) for topic, some in grouped.items()],
        groups=[
            OffsetFetchRequestGroup(
                group_id=group_id,
                topics=None
                if grouped is None
                else [OffsetFetchRequestTopics(name=topic, partition_indexes=some) for topic, some in grouped.items()],
            )
        ],
        require_stable=require_stable,
    )
    response = await cluster.ask_coordinator(group_id, request, OffsetFetchResponse, max_version=NAMES_NOT_IDS)
    found: Answers[CommittedOffset] = {}
    if response.groups:
        group = response.groups[0]
        cluster.check_coordinated(group_id, group.error_code)
        for topics in group.topics:
            for each in topics.partitions:
                _note(found, TopicPartition(topics.name, each.partition_index), each)
        return found
    cluster.check_coordinated(group_id, response.error_code)
    for topic in response.topics:
        for one in topic.partitions:
            _note(found, TopicPartition(topic.name, one.partition_index), one)
    return found


async def commit_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset], member: Membership = NOBODY
) -> dict[TopicPartition, KafkaError | None]:
    """Store where the group goes on; the outcome for each partition. One try; raises what concerns the whole group."""
    request = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=member.generation_id,
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offsets[TopicPartition(topic, index)].offset,
                        committed_leader_epoch=offsets[TopicPartition(topic, index)].leader_epoch,
                        committed_metadata=offsets[TopicPartition(topic, index)].metadata,
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(offsets).items()
        ],
    )
    response = await cluster.ask_coordinator(group_id, request, OffsetCommitResponse, max_version=NAMES_NOT_IDS)
    outcomes: dict[TopicPartition, KafkaError | None] = {}
    for topic in response.topics:
        for each in topic.partitions:
            if each.error_code in _OF_THE_WHOLE_GROUP:
                cluster.check_coordinated(group_id, each.error_code)
            failure = KafkaError(ErrorCode(each.error_code)) if each.error_code else None
            outcomes[TopicPartition(topic.name, each.partition_index)] = failure
    return outcomes


_OF_THE_WHOLE_GROUP = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_GROUP_ID,
    }
)


def _note(
    found: Answers[CommittedOffset],
    partition: TopicPartition,
    heard: OffsetFetchResponsePartition | OffsetFetchResponsePartitions,
) -> None:
    if heard.error_code:
        found[partition] = KafkaError(ErrorCode(heard.error_code))
    elif heard.committed_offset >= 0:
        found[partition] = CommittedOffset(heard.committed_offset, heard.committed_leader_epoch, heard.metadata or "")
