"""EndTxn, versions 0 to 5: a transaction commits or aborts.

Answered once the log of the coordinator has it, before all partitions know. From version 5 on the answer holds the
epoch of the producer's next transaction (KIP-890), and a late request of the one before is refused.
"""

from __future__ import annotations

from odradek.coordinator.transaction.state import EPOCH_RISES
from odradek.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.handlers.transaction_codes import known_code
from odradek.server.net.routes import Role, serves

_EPOCH_RISES_SINCE = 5


@serves(ApiKey.END_TXN, on=Role.BROKER)
async def handle(ctx: Context, request: EndTxnRequest) -> EndTxnResponse:
    client_version = EPOCH_RISES if ctx.api_version >= _EPOCH_RISES_SINCE else 0
    try:
        require(ctx.caller, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        await ctx.rooms.producer_ids.at_hand()  # For a producer whose epochs are used up.
        response: EndTxnResponse = await ctx.rooms.transactions.ask(
            request.transactional_id, lambda shard, ticket, now: shard.end(ticket, request, client_version, now)
        )
    except KafkaError as refused:
        return EndTxnResponse(error_code=refused.code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
    response.error_code = known_code(response.error_code, ctx.api_version)
    return response
