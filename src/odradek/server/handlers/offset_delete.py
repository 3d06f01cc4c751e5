"""OffsetDelete, version 0: forget a group's offsets of topics that none of its members is subscribed to."""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require, topic_check
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


@serves(ApiKey.OFFSET_DELETE, on=Role.BROKER)
async def handle(ctx: Context, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    known, refused = _sort(ctx, request)
    existing = OffsetDeleteRequest(group_id=request.group_id, topics=known)
    try:
        require(ctx.caller, Operation.DELETE, ResourceType.GROUP, request.group_id)
        response: OffsetDeleteResponse = await ctx.rooms.groups.ask(
            request.group_id, lambda shard, ticket, now: shard.delete_offsets(ticket, existing)
        )
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code)
    merged = {topic.name: topic for topic in refused}
    for topic in response.topics:
        held = merged.setdefault(topic.name, topic)
        if held is not topic:
            held.partitions += topic.partitions
    return OffsetDeleteResponse(topics=list(merged.values()))


def _sort(
    ctx: Context, request: OffsetDeleteRequest
) -> tuple[list[OffsetDeleteRequestTopic], list[OffsetDeleteResponseTopic]]:
    """What exists, and the answer about what does not."""
    known: list[OffsetDeleteRequestTopic] = []
    refused: list[OffsetDeleteResponseTopic] = []
    may_read = topic_check(ctx.caller, Operation.READ)
    for topic in request.topics:
        if may_read is not None and not may_read(topic.name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            partitions = [_refusal(part, code) for part in topic.partitions]
            refused.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
            continue
        image = ctx.rooms.image.topics.by_name.get(topic.name)
        count = 0 if image is None else len(image.partitions)
        good = [part for part in topic.partitions if 0 <= part.partition_index < count]
        bad = [part for part in topic.partitions if not 0 <= part.partition_index < count]
        if good:
            known.append(OffsetDeleteRequestTopic(name=topic.name, partitions=good))
        if bad or image is None:
            refused.append(
                OffsetDeleteResponseTopic(
                    name=topic.name, partitions=[_refusal(part, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for part in bad]
                )
            )
    return known, refused


def _refusal(part: OffsetDeleteRequestPartition, code: ErrorCode) -> OffsetDeleteResponsePartition:
    return OffsetDeleteResponsePartition(partition_index=part.partition_index, error_code=code)
