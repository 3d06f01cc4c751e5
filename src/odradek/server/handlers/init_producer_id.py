"""InitProducerId, versions 0 to 5: a producer id that nobody had before, in epoch 0.

A producer without a transactional id always gets a new one, whatever id it had. Not done yet: transactions, so a
transactional id is refused with UNSUPPORTED_VERSION, which clients treat as final.
"""

from __future__ import annotations

from odradek.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import allowed, allowed_somewhere
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves


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
    if request.transactional_id is not None:
        return _refusal(ErrorCode.UNSUPPORTED_VERSION)
    try:
        producer_id = await ctx.rooms.producer_ids.next()
    except KafkaError as refused:
        return _refusal(refused.code)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _may_write(ctx: Context, transactional_id: str | None) -> bool:
    if transactional_id is not None:
        return allowed(ctx.caller, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    return allowed(ctx.caller, Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER) or allowed_somewhere(
        ctx.caller, Operation.WRITE, ResourceType.TOPIC
    )


def _refusal(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
