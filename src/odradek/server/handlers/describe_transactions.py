"""DescribeTransactions, version 0: producer, state and open partitions of transactional ids coordinated here.

Of the partitions those are left out whose topic the caller may not describe.
"""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import allowed, require
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


@serves(ApiKey.DESCRIBE_TRANSACTIONS, on=Role.BROKER)
async def handle(ctx: Context, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[await _describe(ctx, each) for each in request.transactional_ids]
    )


async def _describe(ctx: Context, transactional_id: str) -> TransactionState:
    try:
        require(ctx.caller, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        state: TransactionState = await ctx.rooms.transactions.ask(
            transactional_id, lambda shard, ticket, now: shard.describe(ticket, transactional_id)
        )
    except KafkaError as refused:
        from odradek.coordinator.transaction.shard import description  # Not before there is a coordinator to ask.

        return description(transactional_id, refused.code)
    state.topics = [
        each for each in state.topics if allowed(ctx.caller, Operation.DESCRIBE, ResourceType.TOPIC, each.topic)
    ]
    return state
