"""DeleteRecords, versions 0 to 2: move a partition's start forward; segments before it go with the next retention.

Answered when all replicas that are alive start there.
"""

from __future__ import annotations

from odradek.ids import NO_OFFSET, Offset
from odradek.metadata.topic_names import is_internal
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves
from odradek.server.partitions.acks import PendingDeletion
from odradek.server.partitions.hosted_partition import HostedPartition

UP_TO_HIGH_WATERMARK = -1


@serves(ApiKey.DELETE_RECORDS, on=Role.BROKER)
async def handle(ctx: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    waiting: list[tuple[HostedPartition, PendingDeletion, DeleteRecordsPartitionResult]] = []
    topics = [
        DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[
                _delete(ctx, topic.name, part.partition_index, part.offset, waiting) for part in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    deadline_ms = ctx.rooms.world.clock.monotonic_ms() + request.timeout_ms
    for hosted, pending, result in waiting:
        left_ms = max(deadline_ms - ctx.rooms.world.clock.monotonic_ms(), 0)
        result.error_code = await pending.wait(hosted, ctx.rooms.purgatory, timeout_ms=left_ms)
        result.low_watermark = hosted.partition.low_watermark
    return DeleteRecordsResponse(topics=topics)


def _delete(
    ctx: Context,
    topic: str,
    index: int,
    offset: int,
    waiting: list[tuple[HostedPartition, PendingDeletion, DeleteRecordsPartitionResult]],
) -> DeleteRecordsPartitionResult:
    replicas = ctx.rooms.replicas
    try:
        require(ctx.caller, Operation.DELETE, ResourceType.TOPIC, topic)
        hosted = replicas.require(topic, index)
        if is_internal(topic):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        hosted.partition.require_leader()
        log = hosted.partition.log
        if "delete" not in log.config.cleanup_policy:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        before = log.high_watermark if offset == UP_TO_HIGH_WATERMARK else offset
        if before < 0 or before > log.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        replicas.delete_records(hosted, Offset(before))
    except KafkaError as error:
        return DeleteRecordsPartitionResult(partition_index=index, low_watermark=NO_OFFSET, error_code=error.code)
    low_watermark = hosted.partition.low_watermark
    result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark, error_code=0)
    if low_watermark < before:
        waiting.append((hosted, PendingDeletion(before), result))
    return result
