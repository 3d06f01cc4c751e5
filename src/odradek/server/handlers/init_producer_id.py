"""InitProducerId, versions 0 to 5: a producer id that nobody had before, or the next epoch of a transactional id's.

A producer without a transactional id always gets a new one, in epoch 0, whatever id it had. One with it fences all that
had it before, and a transaction of theirs that is still open is aborted first.
"""

from __future__ import annotations

from odradek.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import allowed, allowed_somewhere
from odradek.server.handlers.context import Context
from odradek.server.handlers.transaction_codes import known_code
from odradek.server.net.routes import Role, serves

_FENCED_IS_KNOWN_SINCE = 4


@serves(ApiKey.INIT_PRODUCER_ID, on=Role.BROKER)
async def handle(ctx: Context, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if not _may_write(ctx, request.transactional_id):
        transactional = request.transactional_id is not None
        return _refusal(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if transactional else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        )
    has_id = request.producer_id != NO_PRODUCER_ID
    has_epoch = request.producer_epoch != NO_PRODUCER_EPOCH
    if has_id != has_epoch or request.transactional_id == "":
        return _refusal(ErrorCode.INVALID_REQUEST)
    try:
        if request.transactional_id is None:
            return InitProducerIdResponse(producer_id=await ctx.rooms.producer_ids.next(), producer_epoch=0)
        await ctx.rooms.producer_ids.at_hand()
        response: InitProducerIdResponse = await ctx.rooms.transactions.ask(
            request.transactional_id, lambda shard, ticket, now: shard.init_producer_id(ticket, request, now)
        )
    except KafkaError as refused:
        return _refusal(refused.code)
    response.error_code = known_code(response.error_code, ctx.api_version, since=_FENCED_IS_KNOWN_SINCE)
    return response


def _may_write(ctx: Context, transactional_id: str | None) -> bool:
    if transactional_id is not None:
        return allowed(ctx.caller, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    return allowed(ctx.caller, Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER) or allowed_somewhere(
        ctx.caller, Operation.WRITE, ResourceType.TOPIC
    )


def _refusal(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
