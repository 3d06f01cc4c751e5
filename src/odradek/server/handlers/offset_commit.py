"""OffsetCommit, versions 2 to 10: a group's offsets, by topic name or (from 10 on) by topic id.

Partitions that do not exist are refused one by one; what is left goes to the group's coordinator as one.
"""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import allowed, topic_check
from odradek.server.handlers.context import Context
from odradek.server.handlers.fast_commit import fast_commit
from odradek.server.net.routes import Role, serves

_TOPIC_IDS_SINCE = 10


@serves(ApiKey.OFFSET_COMMIT, on=Role.BROKER, fast_path=fast_commit)
async def handle(ctx: Context, request: OffsetCommitRequest) -> OffsetCommitResponse:
    if not allowed(ctx.caller, Operation.READ, ResourceType.GROUP, request.group_id):
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return OffsetCommitResponse(topics=[refused_topic(topic, topic.partitions, code) for topic in request.topics])
    known, refused = sort_topics(ctx, request.topics, by_id=ctx.api_version >= _TOPIC_IDS_SINCE)
    if not known and refused:
        return OffsetCommitResponse(topics=refused)
    request.topics = known
    version = ctx.api_version
    try:
        response: OffsetCommitResponse = await ctx.rooms.groups.ask(
            request.group_id, lambda shard, ticket, now: shard.commit(ticket, request, version, now)
        )
    except KafkaError as error:
        response = OffsetCommitResponse(topics=[refused_topic(topic, topic.partitions, error.code) for topic in known])
    return OffsetCommitResponse(topics=merge_topics(refused, response.topics)) if refused else response


def sort_topics(
    ctx: Context, wanted: list[OffsetCommitRequestTopic], *, by_id: bool
) -> tuple[list[OffsetCommitRequestTopic], list[OffsetCommitResponseTopic]]:
    """What exists, with its name and id; and the answer about what does not."""
    topics = ctx.rooms.image.topics
    known: list[OffsetCommitRequestTopic] = []
    refused: list[OffsetCommitResponseTopic] = []
    may_read = topic_check(ctx.caller, Operation.READ)
    for topic in wanted:
        image = topics.by_id.get(topic.topic_id) if by_id else topics.by_name.get(topic.name)
        name = topic.name if image is None else image.name
        if may_read is not None and not (by_id and image is None) and not may_read(name):
            refused.append(refused_topic(topic, topic.partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        if image is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refused.append(refused_topic(topic, topic.partitions, code))
            continue
        topic.name, topic.topic_id = image.name, image.topic_id
        count = len(image.partitions)
        good = [part for part in topic.partitions if 0 <= part.partition_index < count]
        if len(good) < len(topic.partitions):
            bad = [part for part in topic.partitions if not 0 <= part.partition_index < count]
            refused.append(refused_topic(topic, bad, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            topic.partitions = good
        if good:
            known.append(topic)
    return known, refused


def refused_topic(
    topic: OffsetCommitRequestTopic, partitions: list[OffsetCommitRequestPartition], code: ErrorCode
) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=code) for part in partitions
        ],
    )


def merge_topics(
    refused: list[OffsetCommitResponseTopic], committed: list[OffsetCommitResponseTopic]
) -> list[OffsetCommitResponseTopic]:
    """One entry a topic, as clients expect that read the answer into a map; in Kafka's order."""
    merged = {(topic.name, topic.topic_id): topic for topic in refused}
    for topic in committed:
        held = merged.setdefault((topic.name, topic.topic_id), topic)
        if held is not topic:
            held.partitions += topic.partitions
    return list(merged.values())
