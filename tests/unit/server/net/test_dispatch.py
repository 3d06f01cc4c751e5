"""Endpoints are compiled once, and errors find their place."""

from __future__ import annotations

import pytest

from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_cluster import DescribeClusterResponse
from odradek.protocol.messages.fetch import FetchResponse
from odradek.server.net.dispatch import Endpoints, UnservedRequest
from odradek.server.net.routes import Role


def test_an_endpoint_is_compiled_once() -> None:
    endpoints = Endpoints(Role.BROKER, "PLAINTEXT")
    assert endpoints.get(ApiKey.FETCH << 16 | 12) is None
    endpoint = endpoints.compile(ApiKey.FETCH, 12)
    assert endpoints.get(ApiKey.FETCH << 16 | 12) is endpoint
    assert endpoints.get(ApiKey.FETCH << 16 | 11) is None
    assert endpoint.listener_name == "PLAINTEXT"


@pytest.mark.parametrize(
    ("role", "key", "version", "word"),
    [
        (Role.BROKER, 9999, 0, "API key 9999"),
        (Role.BROKER, -1, 0, "API key -1"),
        (Role.CONTROLLER, ApiKey.PRODUCE, 9, "API key 0"),
        (Role.BROKER, ApiKey.PRODUCE, 2, "version 2 of PRODUCE"),
        (Role.BROKER, ApiKey.PRODUCE, 14, "versions 3 to 13"),
        (Role.BROKER, ApiKey.PRODUCE, -1, "version -1"),
    ],
)
def test_what_is_not_served_is_said_so(role: Role, key: int, version: int, word: str) -> None:
    with pytest.raises(UnservedRequest, match=word):
        Endpoints(role, "PLAINTEXT").compile(key, version)


def test_errors_are_put_where_an_api_has_a_place_for_them() -> None:
    endpoints = Endpoints(Role.BROKER, "PLAINTEXT")
    fetch = endpoints.compile(ApiKey.FETCH, 12).error_answer
    assert fetch is not None
    assert fetch(ErrorCode.INVALID_REQUEST, "why") == FetchResponse(error_code=42)
    cluster = endpoints.compile(ApiKey.DESCRIBE_CLUSTER, 0).error_answer
    assert cluster is not None
    answer = cluster(ErrorCode.INVALID_REQUEST, "why")
    assert isinstance(answer, DescribeClusterResponse)
    assert (answer.error_code, answer.error_message) == (42, "why")
    assert endpoints.compile(ApiKey.PRODUCE, 9).error_answer is None
