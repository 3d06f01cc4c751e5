"""ListTransactions, versions 0 to 2: the transactional ids coordinated here.

By state and producer id, from 1 on also by how long ago the last transaction began, from 2 on by a regular expression
(RE2) that describes the whole id. Names of states that there are not are answered with. While a coordinator is being
loaded nothing is listed, for something would be missing.
"""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import allowed
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


@serves(ApiKey.LIST_TRANSACTIONS, on=Role.BROKER)
async def handle(ctx: Context, request: ListTransactionsRequest) -> ListTransactionsResponse:
    from odradek.coordinator.expressions import matcher
    from odradek.coordinator.transaction.state import STATES_BY_TITLE  # Not before somebody asks.

    try:
        pattern = request.transactional_id_pattern
        matches = matcher(pattern, "TransactionalIdPattern") if pattern else None
        told = await ctx.rooms.transactions.ask_all(
            lambda shard, ticket, now: shard.list_transactions(ticket, request, matches, now)
        )
    except KafkaError as refused:
        return ListTransactionsResponse(error_code=refused.code)
    return ListTransactionsResponse(
        unknown_state_filters=[title for title in dict.fromkeys(request.state_filters) if title not in STATES_BY_TITLE],
        transaction_states=[
            each
            for response in told
            for each in response.transaction_states
            if allowed(ctx.caller, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, each.transactional_id)
        ],
    )
