"""AddPartitionsToTxn, versions 0 to 5: partitions that a transaction is about to write to.

Up to version 3 a producer adds them. From version 4 on brokers ask, for many producers at once: whether partitions are
part of a transaction, or, for producers that leave that to them, to add them (KIP-890).
"""

from __future__ import annotations

import asyncio

from odradek.coordinator.transaction.shard import partition_results, partitions_of
from odradek.coordinator.transaction.state import EPOCH_RISES, TopicPartition
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTransaction,
)
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import allowed, topic_check
from odradek.server.handlers.context import Context
from odradek.server.handlers.transaction_codes import known_code
from odradek.server.net.routes import Role, serves

_FROM_BROKERS_SINCE = 4


@serves(ApiKey.ADD_PARTITIONS_TO_TXN, on=Role.BROKER)
async def handle(ctx: Context, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    if ctx.api_version < _FROM_BROKERS_SINCE:
        result = await _of_client(ctx, request)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=result.topic_results)
    if not allowed(ctx.caller, Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    results = await asyncio.gather(*(_of_broker(ctx, asked) for asked in request.transactions))
    return AddPartitionsToTxnResponse(results_by_transaction=results)


async def _of_client(ctx: Context, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResult:
    asked = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    if not allowed(ctx.caller, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, asked.transactional_id):
        return partition_results(asked, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    refused = _refused(ctx, asked)
    if refused is not None:
        return refused
    result = await ctx.rooms.transactions.partitions(asked, client_version=0)
    for topic in result.topic_results:
        for part in topic.results_by_partition:
            part.partition_error_code = known_code(part.partition_error_code, ctx.api_version)
    return result


async def _of_broker(ctx: Context, asked: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
    refused = _refused(ctx, asked, is_broker=True)
    if refused is not None:
        return refused
    return await ctx.rooms.transactions.partitions(asked, client_version=EPOCH_RISES)


def _refused(
    ctx: Context, asked: AddPartitionsToTxnTransaction, *, is_broker: bool = False
) -> AddPartitionsToTxnResult | None:
    """The answer where one of the partitions cannot be part of it: then none of them is tried."""
    topics = ctx.rooms.image.topics.by_name
    may_write = None if is_broker else topic_check(ctx.caller, Operation.WRITE)
    wrong: dict[TopicPartition, ErrorCode] = {}
    for name, index in partitions_of(asked):
        known = topics.get(name)
        if may_write is not None and not may_write(name):
            wrong[name, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif known is None or not 0 <= index < len(known.partitions):
            wrong[name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not wrong:
        return None
    return partition_results(asked, lambda each: wrong.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED))
