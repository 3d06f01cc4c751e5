"""Envelope, version 0: a client's request that a broker forwards, answered on the client's behalf (KIP-590).

The handler of the request itself runs, and sees the client's principal and address. An answer that says NOT_CONTROLLER
anywhere becomes that error of the envelope, so that the broker looks for the active controller and asks again.
"""

from __future__ import annotations

from odradek.protocol.api import ApiKey, response_header_version
from odradek.protocol.codec import Message, Struct, encode
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedFrame
from odradek.protocol.frame import RequestHeader, ResponseHeader, decode_request_header
from odradek.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.access.caller import Caller
from odradek.server.handlers.context import Context
from odradek.server.handlers.forwarding import address_of, principal_of
from odradek.server.net.context import RequestContext
from odradek.server.net.dispatch import Endpoint, UnservedRequest
from odradek.server.net.routes import Role, route_of, serves


@serves(ApiKey.ENVELOPE, on=Role.CONTROLLER, overlaps=True)
async def handle(ctx: Context, request: EnvelopeRequest) -> EnvelopeResponse:
    require(ctx.caller, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    if not ctx.rooms.quorum.is_active:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    epoch = ctx.rooms.quorum.epoch
    try:
        header, position = decode_request_header(request.request_data, 0)
        key, version = ApiKey(header.request_api_key), header.request_api_version
        endpoint = ctx.listener.endpoints.get(key << 16 | version) or ctx.listener.endpoints.compile(key, version)
        if not route_of(key, Role.CONTROLLER).forwarded:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        wrapped, _ = endpoint.decode(request.request_data, position)
        on_behalf = _context(ctx, request, header)
    except (MalformedFrame, IndexError, ValueError):
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    except UnservedRequest:
        return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    answer = await _answer(endpoint, on_behalf, wrapped, key)
    lost = not ctx.rooms.quorum.is_active or ctx.rooms.quorum.epoch != epoch
    if lost and _says_not_controller(answer):
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    head = encode(ResponseHeader(correlation_id=header.correlation_id), response_header_version(key, version))
    return EnvelopeResponse(response_data=head + encode(answer, version))


async def _answer(endpoint: Endpoint, ctx: Context, request: Message, key: ApiKey) -> Message:
    try:
        answer: Message | None = await endpoint.handle(ctx, request)
    except KafkaError as refused:
        if endpoint.error_answer is None:
            from odradek.server.handlers.error_answers import error_answer

            return error_answer(request, refused)
        return endpoint.error_answer(refused.code, str(refused))
    assert answer is not None, f"{key.name} has no answer"
    return answer


def _context(ctx: Context, request: EnvelopeRequest, header: RequestHeader) -> Context:
    """Who asked, and from where, is what the broker says; it is heard on, whatever its clients ask for."""
    broker = ctx.caller
    caller = Caller(
        address=address_of(request.client_host_address),
        client_id=header.client_id,
        listener=broker.listener,
        connection_id=broker.connection_id,
        authorizer=broker.authorizer,
        mute=lambda duration_ms: None,
        principal=broker.principal if request.request_principal is None else principal_of(request.request_principal),
    )
    return RequestContext(ctx.rooms, caller, ctx.listener, header.request_api_version)


def _says_not_controller(part: object) -> bool:
    """Whether that error stands anywhere in an answer."""
    if isinstance(part, list):
        return any(_says_not_controller(each) for each in part)
    if not isinstance(part, Struct):
        return False
    if getattr(part, "error_code", 0) == ErrorCode.NOT_CONTROLLER:
        return True
    return any(_says_not_controller(getattr(part, field.name)) for field in part.FIELDS)
