"""OffsetFetch, versions 1 to 10: a group's offsets; several groups at once from 8 on, topics by id from 10 on.

Without topics (null) all offsets of the group are told. With `require_stable` a partition for which an open transaction
has committed an offset is answered with UNSTABLE_OFFSET_COMMIT (KIP-447).
"""

from __future__ import annotations

from odradek.ids import ZERO_UUID
from odradek.metadata.image.topics import TopicsImage
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require, topic_check
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves

SEVERAL_GROUPS_SINCE = 8
_GROUP_ERROR_SINCE = 2
_TOPIC_IDS_SINCE = 10
_NO_OFFSET = -1


@serves(ApiKey.OFFSET_FETCH, on=Role.BROKER)
async def handle(ctx: Context, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if ctx.api_version >= SEVERAL_GROUPS_SINCE:
        return OffsetFetchResponse(groups=[await _fetch(ctx, group, request) for group in request.groups])
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    group = await _fetch(ctx, OffsetFetchRequestGroup(group_id=request.group_id, topics=topics), request)
    if group.error_code and ctx.api_version < _GROUP_ERROR_SINCE:
        group.topics = [_refused(topic, ErrorCode(group.error_code)) for topic in topics or ()]
    return OffsetFetchResponse(error_code=group.error_code, topics=[_older(topic) for topic in group.topics])


async def _fetch(
    ctx: Context, wanted: OffsetFetchRequestGroup, request: OffsetFetchRequest
) -> OffsetFetchResponseGroup:
    by_id = ctx.api_version >= _TOPIC_IDS_SINCE
    unknown: list[OffsetFetchResponseTopics] = []
    if by_id and wanted.topics is not None:
        unknown = _name_topics(ctx.rooms.image.topics, wanted)
    may_describe = topic_check(ctx.caller, Operation.DESCRIBE)
    if may_describe is not None and wanted.topics is not None:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        unknown += [_refused(topic, code) for topic in wanted.topics if not may_describe(topic.name)]
        wanted.topics = [topic for topic in wanted.topics if may_describe(topic.name)]
    try:
        require(ctx.caller, Operation.DESCRIBE, ResourceType.GROUP, wanted.group_id)
        group: OffsetFetchResponseGroup = await ctx.rooms.groups.ask(
            wanted.group_id,
            lambda shard, ticket, now: shard.fetch_offsets(ticket, wanted, require_stable=request.require_stable),
        )
    except KafkaError as refused:
        return OffsetFetchResponseGroup(group_id=wanted.group_id, topics=[], error_code=refused.code)
    if may_describe is not None:
        group.topics = [topic for topic in group.topics if may_describe(topic.name)]
    if by_id:
        group.topics = _identified(ctx.rooms.image.topics, group.topics)
    group.topics += unknown
    return group


def _name_topics(topics: TopicsImage, wanted: OffsetFetchRequestGroup) -> list[OffsetFetchResponseTopics]:
    """Give the topics their names; the answer about those that have none."""
    known: list[OffsetFetchRequestTopics] = []
    unknown: list[OffsetFetchResponseTopics] = []
    for topic in wanted.topics or ():
        image = topics.by_id.get(topic.topic_id)
        if image is None:
            unknown.append(_refused(topic, ErrorCode.UNKNOWN_TOPIC_ID))
        else:
            topic.name = image.name
            known.append(topic)
    wanted.topics = known
    return unknown


def _identified(topics: TopicsImage, fetched: list[OffsetFetchResponseTopics]) -> list[OffsetFetchResponseTopics]:
    """With their ids; one that has been deleted meanwhile has none and is left out."""
    known = []
    for topic in fetched:
        image = topics.by_name.get(topic.name)
        if image is not None:
            topic.topic_id = image.topic_id
            known.append(topic)
    return known


def _refused(topic: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id or ZERO_UUID,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=_NO_OFFSET, metadata="", error_code=code
            )
            for index in topic.partition_indexes
        ],
    )


def _older(topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=topic.name,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=part.partition_index,
                committed_offset=part.committed_offset,
                committed_leader_epoch=part.committed_leader_epoch,
                metadata=part.metadata,
                error_code=part.error_code,
            )
            for part in topic.partitions
        ],
    )
