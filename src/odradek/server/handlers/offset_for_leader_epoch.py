"""OffsetForLeaderEpoch, versions 2 to 4: where an epoch ended, which tells a consumer whether the log was cut."""

from __future__ import annotations

from odradek.ids import LeaderEpoch
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


@serves(ApiKey.OFFSET_FOR_LEADER_EPOCH, on=Role.BROKER)
async def handle(ctx: Context, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_look_up(ctx, topic.topic, wanted) for wanted in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _look_up(ctx: Context, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        require(ctx.caller, Operation.DESCRIBE, ResourceType.TOPIC, topic)
        hosted = ctx.rooms.replicas.require(topic, wanted.partition)
        hosted.partition.require_leader(wanted.current_leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(error_code=error.code, partition=wanted.partition)
    end = hosted.partition.log.end_offset_for_epoch(LeaderEpoch(wanted.leader_epoch))
    return EpochEndOffset(error_code=0, partition=wanted.partition, leader_epoch=end.epoch, end_offset=end.end_offset)
