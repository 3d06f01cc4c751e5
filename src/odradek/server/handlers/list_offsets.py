"""ListOffsets, versions 1 to 11: where a partition begins and ends, and where a point in time lies.

A leader that took over a moment ago may not know yet how much its predecessors have committed. It says so
(OFFSET_NOT_AVAILABLE) rather than tell an end that lies before one which consumers were told already. Followers are
told the end of the log, consumers the end of what they may read.

Special timestamps: -1 latest, -2 earliest, -3 the record with the largest timestamp, -4 earliest on local disk, and -5
and -6, which speak of tiered storage and find nothing here.
"""

from __future__ import annotations

from odradek.ids import NO_OFFSET, NO_TIMESTAMP
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.list_offsets import (
    EARLIEST,
    LATEST,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.handlers.fast_list_offsets import epoch_of, fast_list_offsets
from odradek.server.net.routes import Role, serves
from odradek.server.partitions.offsets_by_time import offset_by_time
from odradek.server.partitions.visible import LOG_END, visible_to

CONSUMER = -1
DEBUGGING_REPLICA = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
_NOT_AVAILABLE_VERSION = 5
_SINCE_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


@serves(ApiKey.LIST_OFFSETS, on=Role.BROKER, fast_path=fast_list_offsets)
async def handle(ctx: Context, request: ListOffsetsRequest) -> ListOffsetsResponse:
    repeated = _repeated_partitions(request)
    topics = []
    for topic in request.topics:
        # One answer a partition, however often it was asked for.
        answers: dict[int, ListOffsetsPartitionResponse] = {}
        for wanted in topic.partitions:
            index = wanted.partition_index
            try:
                if (topic.name, index) in repeated:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                answers[index] = await _look_up(ctx, request, topic.name, wanted)
            except KafkaError as error:
                answers[index] = ListOffsetsPartitionResponse(partition_index=index, error_code=error.code)
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=list(answers.values())))
    return ListOffsetsResponse(topics=topics)


async def _look_up(
    ctx: Context, request: ListOffsetsRequest, topic: str, wanted: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    require(ctx.caller, Operation.DESCRIBE, ResourceType.TOPIC, topic)
    timestamp = wanted.timestamp
    if timestamp < EARLIEST_PENDING_UPLOAD or ctx.api_version < _SINCE_VERSION.get(timestamp, 0):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    hosted = ctx.rooms.replicas.require(topic, wanted.partition_index)
    partition = hosted.partition
    if request.replica_id == DEBUGGING_REPLICA:
        partition.require_replica(wanted.current_leader_epoch)
    else:
        partition.require_leader(wanted.current_leader_epoch)
    log = partition.log
    is_consumer = request.replica_id == CONSUMER
    end_offset = hosted.readable_end(visible_to(CONSUMER, request.isolation_level) if is_consumer else LOG_END)
    found_timestamp, offset = NO_TIMESTAMP, NO_OFFSET
    if timestamp == LATEST:
        offset = end_offset
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        offset = log.log_start_offset
    elif timestamp == MAX_TIMESTAMP or timestamp >= 0:
        wanted_time = None if timestamp == MAX_TIMESTAMP else timestamp
        found = await offset_by_time(ctx.rooms.replicas, ctx.rooms.world.workers, hosted, wanted_time, end_offset)
        if found is not None and found.offset < end_offset:
            found_timestamp, offset = found.timestamp, found.offset
    if is_consumer and not partition.knows_its_end and (timestamp == LATEST or offset == NO_OFFSET):
        known = ctx.api_version >= _NOT_AVAILABLE_VERSION
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE if known else ErrorCode.LEADER_NOT_AVAILABLE)
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        error_code=0,
        timestamp=found_timestamp,
        offset=offset,
        leader_epoch=epoch_of(log, offset, latest=timestamp == LATEST),
    )


def _repeated_partitions(request: ListOffsetsRequest) -> set[tuple[str, int]]:
    seen: set[tuple[str, int]] = set()
    repeated: set[tuple[str, int]] = set()
    for topic in request.topics:
        for wanted in topic.partitions:
            key = (topic.name, wanted.partition_index)
            (repeated if key in seen else seen).add(key)
    return repeated
