"""Requests that change what the cluster agrees on go from the broker that was asked to the active controller (KIP-590).

The client's request is sent on in an Envelope, with who sent it and from where; the controller's own handler answers,
and the broker hands that answer back. It leaves once this node has heard of new topics, too, as far as that comes soon:
who created a topic here finds it here.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from odradek.ids import ZERO_UUID
from odradek.protocol.api import ApiKey, request_header_version, response_class, response_header_version
from odradek.protocol.codec import Message, decode, decoder, encode
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedFrame
from odradek.protocol.frame import RequestHeader, ResponseHeader
from odradek.protocol.messages.default_principal import DefaultPrincipalData
from odradek.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse

if TYPE_CHECKING:
    from odradek.metadata.image import Image
    from odradek.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
    from odradek.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
    from odradek.protocol.messages.delete_topics import DeleteTopicsResponse
    from odradek.server.handlers.context import Context
    from odradek.server.rooms import Rooms

HEARD_OF_WITHIN_MS = 1_000
"""How long an answer waits for this node to hear of what was decided; usually a matter of milliseconds."""

_PRINCIPAL_VERSION = 0


async def forward(ctx: Context, request: Message) -> Message:
    """The active controller's answer to a client's request; a refusal in the request's own terms if there is none."""
    try:
        return await forward_as_client(ctx, request, ctx.api_version)
    except KafkaError as failure:
        from odradek.server.handlers.error_answers import error_answer

        return error_answer(request, failure)


async def forward_as_client(ctx: Context, request: Message, version: int) -> Message:
    """Ask on behalf of the client, also what it did not ask itself (a topic that is created when it is needed).

    KafkaError if no controller answers in time, or if it does not take the request.
    """
    rooms = ctx.rooms
    key = ApiKey(request.api_key)
    header = RequestHeader(
        request_api_key=key, request_api_version=version, correlation_id=0, client_id=ctx.caller.client_id
    )
    envelope = EnvelopeRequest(
        request_data=encode(header, request_header_version(key, version)) + encode(request, version),
        request_principal=principal_bytes(ctx.caller.principal),
        client_host_address=address_bytes(ctx.caller.address),
    )
    response: EnvelopeResponse = await rooms.forwarding.ask(envelope, timeout_ms=rooms.config.request_timeout_ms)
    if response.error_code or response.response_data is None:
        code = ErrorCode(response.error_code)
        # What only the two of us can have got wrong is not the client's doing.
        known = code in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.NOT_CONTROLLER)
        raise KafkaError(code if known else ErrorCode.UNKNOWN_SERVER_ERROR, f"The controller answered {code.name}.")
    answer = _unwrap(response.response_data, key, version)
    await _hear_of(rooms, request, answer)
    return answer


def _unwrap(data: bytes, key: ApiKey, version: int) -> Message:
    try:
        _, position = decoder(ResponseHeader, response_header_version(key, version))(data, 0)
        answer, _ = decoder(response_class(key), version)(data, position)
    except MalformedFrame as wrong:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The controller's answer makes no sense: {wrong}.") from wrong
    return answer


class InternalTopics:
    """Topics that the cluster itself needs: this broker asks for them in its own name."""

    def __init__(self, rooms: Rooms, *, timeout_ms: int) -> None:
        self._rooms = rooms
        self._timeout_ms = timeout_ms

    async def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        response: CreateTopicsResponse = await self._rooms.channel.ask(request, timeout_ms=self._timeout_ms)
        await _hear_of(self._rooms, request, response)
        return response


# --- hearing of it ----------------------------------------------------------------------------------------------------


async def _hear_of(rooms: Rooms, request: Message, answer: Message) -> None:
    """Wait a little until this node's image shows what was answered."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + HEARD_OF_WITHIN_MS / 1000
    while not _is_known(rooms.image, request, answer) and (left := deadline - loop.time()) > 0:
        await rooms.next_image(timeout_ms=int(left * 1000) + 1)


def _is_known(image: Image, request: Any, answer: Any) -> bool:
    match request.api_key:
        case ApiKey.CREATE_TOPICS:
            return _created(image, request, answer)
        case ApiKey.DELETE_TOPICS:
            return _deleted(image, answer)
        case ApiKey.CREATE_PARTITIONS:
            return _grown(image, request, answer)
        case _:
            return True


def _created(image: Image, request: CreateTopicsRequest, answer: CreateTopicsResponse) -> bool:
    created = [each.name for each in answer.topics if not each.error_code and not request.validate_only]
    return all(name in image.topics.by_name for name in created)


def _deleted(image: Image, answer: DeleteTopicsResponse) -> bool:
    gone = [each.topic_id for each in answer.responses if not each.error_code]
    # Before version 6 topics have no ids in the answer.
    return not any(topic_id in image.topics.by_id for topic_id in gone if topic_id != ZERO_UUID)


def _grown(image: Image, request: CreatePartitionsRequest, answer: CreatePartitionsResponse) -> bool:
    known = image.topics.by_name
    refused = [each.name for each in answer.results if each.error_code]
    return request.validate_only or all(
        each.name in refused or each.name not in known or len(known[each.name].partitions) >= each.count
        for each in request.topics
    )


# --- who asked, and from where ----------------------------------------------------------------------------------------


def principal_bytes(principal: str) -> bytes:
    kind, _, name = principal.partition(":")
    data = encode(DefaultPrincipalData(type=kind, name=name, token_authenticated=False), _PRINCIPAL_VERSION)
    return _PRINCIPAL_VERSION.to_bytes(2) + data


def principal_of(data: bytes) -> str:
    """What `principal_bytes` (or Kafka's serializer) wrote; MalformedFrame for anything else."""
    if len(data) < 2 or int.from_bytes(data[:2]) != _PRINCIPAL_VERSION:
        raise MalformedFrame("a principal of an unknown version")
    told = decode(DefaultPrincipalData, _PRINCIPAL_VERSION, data[2:])
    return f"{told.type}:{told.name}"


def address_bytes(host: str) -> bytes:
    """An IP address as Java's InetAddress has it; a name, which only made-up networks have, as text."""
    from ipaddress import ip_address

    try:
        return ip_address(host.partition("%")[0]).packed
    except ValueError:
        return host.encode()


def address_of(data: bytes) -> str:
    from ipaddress import ip_address

    if len(data) in (4, 16):
        return str(ip_address(data))
    return data.decode("utf-8", "replace")
