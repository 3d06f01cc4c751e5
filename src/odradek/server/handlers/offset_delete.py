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
from odradek.server.context import Context
from odradek.server.routes import Role, serves


@serves(ApiKey.OFFSET_DELETE, on=Role.BROKER)
async def handle(ctx: Context, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    known, refused = _sort(ctx, request)
    existing = OffsetDeleteRequest(group_id=request.group_id, topics=known)
    try:
        response: OffsetDeleteResponse = await ctx.node.coordinators.ask(
            request.group_id, lambda shard, ticket, now: shard.delete_offsets(ticket, existing)
        )
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code)
    merged = {topic.name: topic for topic in response.topics}
    for topic in refused:
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
    for topic in request.topics:
        image = ctx.node.image.topics.by_name.get(topic.name)
        count = 0 if image is None else len(image.partitions)
        good = [part for part in topic.partitions if 0 <= part.partition_index < count]
        bad = [part for part in topic.partitions if not 0 <= part.partition_index < count]
        if good:
            known.append(OffsetDeleteRequestTopic(name=topic.name, partitions=good))
        if bad or image is None:
            refused.append(OffsetDeleteResponseTopic(name=topic.name, partitions=[_unknown(part) for part in bad]))
    return known, refused


def _unknown(part: OffsetDeleteRequestPartition) -> OffsetDeleteResponsePartition:
    return OffsetDeleteResponsePartition(
        partition_index=part.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
