"""DescribeTopicPartitions, version 0: partitions of topics in the order of their names, a page at a time.

Without names, all topics. `max.request.partition.size.limit` bounds a page; the cursor says where the next one begins.
"""

from __future__ import annotations

from odradek.ids import NO_NODE, ZERO_UUID
from odradek.metadata.image.topics import PartitionRegistration, TopicImage
from odradek.metadata.topic_names import is_internal, name_error
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorized_operations import NOT_ASKED_FOR, TOPIC_OPERATIONS
from odradek.server.access.authorizer import allowed_operations, topic_check
from odradek.server.handlers.context import Context
from odradek.server.handlers.listener_view import ListenerView
from odradek.server.net.routes import Role, serves


@serves(ApiKey.DESCRIBE_TOPIC_PARTITIONS, on=Role.BROKER)
async def handle(ctx: Context, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    cursor = request.cursor
    topics = ctx.rooms.image.topics
    first_name, first_index = (cursor.topic_name, cursor.partition_index) if cursor else ("", 0)
    named = [topic.name for topic in request.topics]
    may_describe = topic_check(ctx.caller, Operation.DESCRIBE)
    names = sorted(name for name in dict.fromkeys(named or topics.by_name) if name >= first_name)
    refusals: list[DescribeTopicPartitionsResponseTopic] = []
    if may_describe is not None:
        if named:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            refusals = [_error(name, code) for name in names if not may_describe(name)]
        names = [name for name in names if may_describe(name)]
    if cursor is not None and (cursor.partition_index < 0 or (named and names[:1] != [first_name])):
        # A page can only begin at a partition, and within the topics that were asked for.
        return DescribeTopicPartitionsResponse(topics=[_error(name, ErrorCode.INVALID_REQUEST) for name in named])
    view = ListenerView(ctx.rooms.image.cluster, ctx.caller.listener)
    room = max(min(ctx.rooms.config.max_request_partition_size_limit, request.response_partition_limit), 1)
    answers: list[DescribeTopicPartitionsResponseTopic] = []
    next_cursor: Cursor | None = None
    for name in names:
        if room == 0:
            next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = topics.by_name.get(name)
        if topic is None:
            known = name_error(name) is None
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known else ErrorCode.INVALID_TOPIC_EXCEPTION
            answers.append(_error(name, code, _operations(ctx, name)))
            continue
        start = first_index if name == first_name else 0
        end = min(len(topic.partitions), start + room)
        answers.append(_described(view, topic, range(start, end), _operations(ctx, name)))
        room -= max(end - start, 0)
        if end < len(topic.partitions):
            next_cursor = Cursor(topic_name=name, partition_index=end)
            break
    return DescribeTopicPartitionsResponse(topics=refusals + answers, next_cursor=next_cursor)


def _operations(ctx: Context, topic: str) -> int:
    return allowed_operations(ctx.caller, ResourceType.TOPIC, topic, TOPIC_OPERATIONS)


def _described(
    view: ListenerView, topic: TopicImage, indexes: range, operations: int
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=[_partition(view, index, topic.partitions[index]) for index in indexes],
        topic_authorized_operations=operations,
    )


def _partition(
    view: ListenerView, index: int, partition: PartitionRegistration
) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        partition_index=index,
        leader_id=partition.leader if view.is_reachable(partition.leader) else NO_NODE,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=view.offline(partition),
    )


def _error(name: str, code: ErrorCode, operations: int = NOT_ASKED_FOR) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        topic_id=ZERO_UUID,
        is_internal=is_internal(name),
        partitions=[],
        topic_authorized_operations=operations,
    )
