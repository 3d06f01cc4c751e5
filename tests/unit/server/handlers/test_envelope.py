"""Forwarded requests: the handler of the request itself answers, for the client that the broker names."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.unit.server.rig import Client, Rig, decode_response, request_body

from odradek.protocol.api import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedFrame
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest
from odradek.protocol.messages.describe_quorum import DescribeQuorumRequest
from odradek.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.server.handlers.error_answers import error_answer
from odradek.server.handlers.forwarding import address_bytes, address_of, principal_bytes, principal_of
from odradek.server.net.routes import Role, routes_of

CONTROLLER_PORT = 9093
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def on_a_node(test: Callable[[Rig, Client], Coroutine[Any, Any, None]], **properties: str) -> None:
    rig = Rig(properties={key.replace("_", "."): text for key, text in properties.items()})

    async def run() -> None:
        await test(rig, rig.connect(CONTROLLER_PORT))

    rig.run(run)


def envelope(data: bytes, *, principal: bytes | None = None, address: bytes = b"\x0a\0\0\x01") -> EnvelopeRequest:
    return EnvelopeRequest(request_data=data, request_principal=principal, client_host_address=address)


def creation(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    return CreateTopicsRequest(topics=[topic], timeout_ms=1000)


def test_the_wrapped_request_is_answered_with_its_own_header() -> None:
    async def test(rig: Rig, client: Client) -> None:
        body = request_body(creation("t"), 7, 4711, client_id="far away")
        response: EnvelopeResponse = await client.ask(envelope(body, principal=principal_bytes("User:alice")), 0)
        assert response.error_code == 0
        assert response.response_data is not None
        assert int.from_bytes(response.response_data[:4]) == 4711
        wrapped: Any = decode_response(ApiKey.CREATE_TOPICS, 7, response.response_data[4:])
        assert [(topic.name, topic.error_code) for topic in wrapped.topics] == [("t", 0)]
        assert "t" in rig.node.rooms.image.topics.by_name

    on_a_node(test)


@pytest.mark.parametrize(
    ("data", "principal", "code"),
    [
        (b"", None, ErrorCode.INVALID_REQUEST),
        (b"\x7f\xff\0\0\0\0\0\0\xff\xff", None, ErrorCode.INVALID_REQUEST),
        (request_body(creation("t"), 7, 1)[:-4], None, ErrorCode.INVALID_REQUEST),
        (request_body(MetadataRequest(topics=[]), 9, 1), None, ErrorCode.UNSUPPORTED_VERSION),
        (request_body(envelope(b""), 0, 1), None, ErrorCode.INVALID_REQUEST),
        (b"\0\x13\0\x63" + request_body(creation("t"), 7, 1)[4:], None, ErrorCode.UNSUPPORTED_VERSION),
        (request_body(creation("t"), 7, 1), b"\0\1", ErrorCode.INVALID_REQUEST),
        (request_body(creation("t"), 7, 1), b"\0\0\xff", ErrorCode.INVALID_REQUEST),
    ],
    ids=["nothing", "no such API", "cut off", "not a controller's", "not forwarded", "version", "principal", "bytes"],
)
def test_what_cannot_be_a_forwarded_request_is_refused(data: bytes, principal: bytes | None, code: ErrorCode) -> None:
    async def test(rig: Rig, client: Client) -> None:
        response: EnvelopeResponse = await client.ask(envelope(data, principal=principal), 0)
        assert (ErrorCode(response.error_code), response.response_data) == (code, None)
        assert "t" not in rig.node.rooms.image.topics.by_name

    on_a_node(test)


def test_the_clients_own_principal_and_address_decide() -> None:
    async def test(rig: Rig, client: Client) -> None:
        async def create(name: str, principal: str) -> int:
            body = request_body(creation(name), 7, 1)
            response = await client.ask(envelope(body, principal=principal_bytes(principal)), 0)
            wrapped: Any = decode_response(ApiKey.CREATE_TOPICS, 7, response.response_data[4:])
            return int(wrapped.topics[0].error_code)

        assert await create("by-root", "User:root") == 0
        assert await create("by-alice", "User:alice") == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    on_a_node(test, authorizer_class_name=STANDARD, super_users="User:root")


def test_one_that_is_not_active_says_so() -> None:
    async def test(rig: Rig, client: Client) -> None:
        quorum = rig.node.rooms.quorum
        inactive = property(lambda _self: False)
        known = type(quorum).is_active
        type(quorum).is_active = inactive  # type: ignore[assignment]
        try:
            response = await client.ask(envelope(request_body(creation("t"), 7, 1)), 0)
        finally:
            type(quorum).is_active = known  # type: ignore[method-assign]
        assert response.error_code == ErrorCode.NOT_CONTROLLER

    on_a_node(test)


def test_principals_are_written_as_kafka_writes_them() -> None:
    written = principal_bytes("User:ANONYMOUS")
    assert written == b"\0\0" + b"\x05User" + b"\x0aANONYMOUS" + b"\0" + b"\0"
    assert principal_of(written) == "User:ANONYMOUS"
    assert principal_of(principal_bytes("User:a:b")) == "User:a:b"
    with pytest.raises(MalformedFrame):
        principal_of(written[:-1])


@pytest.mark.parametrize(
    ("host", "packed"),
    [("10.0.0.1", b"\x0a\0\0\x01"), ("::1", bytes(15) + b"\x01"), ("fe80::1%eth0", b"\xfe\x80" + bytes(13) + b"\x01")],
)
def test_addresses_are_packed_as_java_does(host: str, packed: bytes) -> None:
    assert address_bytes(host) == packed
    assert address_of(packed) == host.partition("%")[0]


def test_names_of_made_up_networks_pass() -> None:
    assert address_of(address_bytes("tester")) == "tester"


def test_every_forwarded_request_can_be_refused() -> None:
    """Either in its own terms, or by the one error that its answer has a place for."""
    why = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "nobody answered")
    for route in routes_of(Role.CONTROLLER).values():
        if not route.forwarded:
            continue
        request = _empty(route.api_key)
        try:
            answer: Message | None = error_answer(request, why)
        except KafkaError:
            answer = None
        assert (answer is not None) != ("error_code" in _response_names(route.api_key)), route.api_key


def test_a_refusal_speaks_of_all_that_was_asked_for() -> None:
    why = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "nobody answered")
    created: Any = error_answer(creation("t"), why)
    assert [(each.name, each.error_code, each.error_message) for each in created.topics] == [
        ("t", ErrorCode.REQUEST_TIMED_OUT, "nobody answered")
    ]
    deleted: Any = error_answer(DeleteTopicsRequest(topic_names=["a", "b"], timeout_ms=0), why)
    assert [(each.name, each.error_code) for each in deleted.responses] == [("a", why.code), ("b", why.code)]
    with pytest.raises(KafkaError):
        error_answer(DescribeQuorumRequest(topics=[]), why)


def _empty(key: ApiKey) -> Message:
    from odradek.protocol.api import request_class

    cls: Any = request_class(key)
    made = object.__new__(cls)
    for field in cls.FIELDS:
        setattr(made, field.name, [])
    return made  # type: ignore[no-any-return]


def _response_names(key: ApiKey) -> tuple[str, ...]:
    from odradek.protocol.api import response_class

    return response_class(key).field_names
