"""TxnOffsetCommit, versions 0 to 5: a group's offsets, which count once a producer's transaction is committed.

They are checked as OffsetCommit's are, and written to the same log as a batch of that transaction; the member may say
who it is from version 3 on (KIP-447). The marker that ends the transaction makes them real or forgets them.
"""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
)
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.handlers.offset_commit import merge_topics, refused_topic, sort_topics
from odradek.server.net.routes import Role, serves

_LOADING_IS_KNOWN_SINCE = 2


@serves(ApiKey.TXN_OFFSET_COMMIT, on=Role.BROKER)
async def handle(ctx: Context, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    topics = [
        OffsetCommitRequestTopic(
            name=topic.name,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=part.partition_index,
                    committed_offset=part.committed_offset,
                    committed_leader_epoch=part.committed_leader_epoch,
                    committed_metadata=part.committed_metadata,
                )
                for part in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    refused: list[OffsetCommitResponseTopic] = []
    try:
        require(ctx.caller, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        require(ctx.caller, Operation.READ, ResourceType.GROUP, request.group_id)
        topics, refused = sort_topics(ctx, topics, by_id=False)
        if not topics and refused:
            return _answer(refused)
        response: OffsetCommitResponse = await ctx.rooms.groups.ask(
            request.group_id, lambda shard, ticket, now: shard.commit_in_transaction(ticket, request, topics, now)
        )
    except KafkaError as error:
        code = _known(error.code, ctx.api_version)
        return _answer(merge_topics(refused, [refused_topic(topic, topic.partitions, code) for topic in topics]))
    return _answer(merge_topics(refused, response.topics))


def _known(code: ErrorCode, version: int) -> ErrorCode:
    """Producers before Kafka 2.3 may fail where they are told that a coordinator is loading (KAFKA-7296)."""
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _LOADING_IS_KNOWN_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def _answer(topics: list[OffsetCommitResponseTopic]) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=part.partition_index, error_code=part.error_code)
                    for part in topic.partitions
                ],
            )
            for topic in topics
        ]
    )
