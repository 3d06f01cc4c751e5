"""TxnOffsetCommit, versions 0 to 5: a group's offsets, which count once a producer's transaction is committed.

They are checked as OffsetCommit's are, and written to the same log as a batch of that transaction; the member may say
who it is from version 3 on (KIP-447). The marker that ends the transaction makes them real or forgets them. From
version 5 on the log becomes part of the transaction here (KIP-890); before, AddOffsetsToTxn has to have done that.
"""

from __future__ import annotations

from odradek.ids import NO_SEQUENCE
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
from odradek.server.coordinators.verification import TransactionalProducer
from odradek.server.handlers.context import Context
from odradek.server.handlers.offset_commit import merge_topics, refused_topic, sort_topics
from odradek.server.net.routes import Role, serves
from odradek.storage.producer_state import Verification

_LOADING_IS_KNOWN_SINCE = 2
_ABORTABLE_IS_KNOWN_SINCE = 4
_ADDS_PARTITIONS_SINCE = 5

_COORDINATOR_IS_AWAY = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
"""That of the transaction."""


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
        topics, refused = sort_topics(ctx.rooms, ctx.caller, topics, by_id=False)
        if not topics and refused:
            return _answer(refused)
        response: OffsetCommitResponse = await ctx.rooms.groups.ask(
            request.group_id,
            lambda shard, ticket, now: shard.commit_in_transaction(ticket, request, topics, now),
            await _proof_of_transaction(ctx, request),
        )
    except KafkaError as error:
        code = _known(error.code, ctx.api_version)
        return _answer(merge_topics(refused, [refused_topic(topic, topic.partitions, code) for topic in topics]))
    return _answer(merge_topics(refused, response.topics))


async def _proof_of_transaction(ctx: Context, request: TxnOffsetCommitRequest) -> Verification | None:
    """That the transaction may write to the group's log, if it has not begun there; KafkaError if it may not."""
    runner = ctx.rooms.groups.runner(request.group_id)
    adds_partitions = ctx.api_version >= _ADDS_PARTITIONS_SINCE
    if runner is None or not runner.hosted.partition.is_leader:
        raise KafkaError(ErrorCode.NOT_COORDINATOR)
    hosted = runner.hosted
    if not (adds_partitions or hosted.partition.log.producers.settings.verifies):
        return None
    producer = TransactionalProducer(request.transactional_id, request.producer_id, request.producer_epoch)
    proofs = await ctx.rooms.verifier.prove(producer, {hosted: NO_SEQUENCE}, adds_partitions=adds_partitions)
    proof = proofs[hosted]
    if isinstance(proof, KafkaError):
        raise KafkaError(_told_of_transaction(proof.code, ctx.api_version))
    return proof


def _told_of_transaction(code: ErrorCode, version: int) -> ErrorCode:
    """What stands against it, as clients of each version know to go on."""
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_IS_KNOWN_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    waits = code is ErrorCode.CONCURRENT_TRANSACTIONS and version < _ADDS_PARTITIONS_SINCE
    if waits or code in _COORDINATOR_IS_AWAY:
        # Not of the group's own coordinator, for which clients would look anew.
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return code


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
