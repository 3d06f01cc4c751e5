"""Answers leave in the order of the requests, and handlers that go wrong get the answer, or the end, that is theirs."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from tests.unit.server.asking import fetch, fetched, produce, produced, values, wanted
from tests.unit.server.net.one_node import ASK, answered_ids, endpoint, on_a_node
from tests.unit.server.rig import Client, Rig, decode_response, framed, request_body

from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.describe_cluster import DescribeClusterRequest
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)


def test_requests_are_worked_on_in_the_order_they_came() -> None:
    """A topic is there for the Produce behind its CreateTopics, in one piece from one client."""

    async def test(rig: Rig, client: Client) -> None:
        topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        requests: list[tuple[Any, int]] = [
            (CreateTopicsRequest(topics=[topic]), 7),
            (produce("new", b"x"), 9),
            (fetch("new", wanted(0)), 12),
            (ASK, 9),
        ]
        client.wire.feed(b"".join(framed(request_body(each, version, n)) for n, (each, version) in enumerate(requests)))
        assert await answered_ids(client) == [0, 1, 2, 3]
        answers = [
            decode_response(ApiKey(each.api_key), version, body)
            for (each, version), (_, body) in zip(requests, client.answered, strict=True)
        ]
        assert produced(answers[1]).error_code == 0  # type: ignore[arg-type]
        assert values(fetched(answers[2])[0]) == [b"x"]  # type: ignore[arg-type]

    on_a_node(test)


def test_what_comes_behind_a_waiting_fetch_waits_too() -> None:
    async def test(rig: Rig, client: Client) -> None:
        client.send(fetch("t", wanted(0), max_wait_ms=5_000), 12)
        client.send(produce("t", b"behind"), 9)
        client.send(ASK, 9)
        await asyncio.sleep(1)
        assert client.wire.paused
        assert client.answered == []
        assert rig.node.rooms.replicas.require("t", 0).partition.log.log_end_offset == 0
        await asyncio.sleep(5)
        assert [correlation_id for correlation_id, _ in client.answered] == [1, 2, 3]
        assert not client.wire.paused

    on_a_node(test)


@pytest.mark.parametrize("wait", [False, True])
def test_a_bug_in_a_handler_costs_a_connection_where_the_version_has_no_place_for_an_error(
    wait: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def buggy(ctx: Any, request: Any) -> None:
        if wait:
            await asyncio.sleep(0.1)
        raise ZeroDivisionError("a bug")

    async def test(rig: Rig, client: Client) -> None:
        endpoint(rig, ApiKey.METADATA, 9).handle = buggy
        client.send(ASK, 9)
        await asyncio.sleep(1)
        assert client.wire.closed
        assert (await rig.connect().ask(ASK, 8)).topics[0].error_code == 0

    on_a_node(test)
    assert "a bug" in caplog.text
    assert any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize("wait", [False, True])
def test_an_answer_that_cannot_be_encoded_costs_its_sender_the_connection(
    wait: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def buggy(ctx: Any, request: Any) -> ListOffsetsResponse:
        if wait:
            await asyncio.sleep(0.1)
        partition = ListOffsetsPartitionResponse(partition_index=2**40)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[partition])])

    async def test(rig: Rig, client: Client) -> None:
        endpoint(rig, ApiKey.LIST_OFFSETS, 9).handle = buggy
        client.send(ListOffsetsRequest(replica_id=-1, topics=[]), 9)
        await asyncio.sleep(1)
        assert client.wire.closed
        assert (await rig.connect().ask(ASK, 8)).topics[0].error_code == 0

    on_a_node(test)
    assert any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize("wait", [False, True])
def test_an_error_is_answered_where_the_api_has_a_place_for_it(wait: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def refusing(ctx: Any, request: Any) -> None:
        if wait:
            await asyncio.sleep(0.1)
        raise KafkaError(ErrorCode.INVALID_REQUEST, "because")

    async def test(rig: Rig, client: Client) -> None:
        endpoint(rig, ApiKey.DESCRIBE_CLUSTER, 0).handle = refusing
        endpoint(rig, ApiKey.LIST_OFFSETS, 9).handle = refusing
        request = DescribeClusterRequest(include_cluster_authorized_operations=False)
        response = await client.ask(request, 0)
        assert (response.error_code, response.error_message) == (ErrorCode.INVALID_REQUEST, "because")
        client.send(ListOffsetsRequest(replica_id=-1, topics=[]), 9)
        await asyncio.sleep(1)
        assert client.wire.closed

    with caplog.at_level(logging.WARNING):
        on_a_node(test)
    assert len(caplog.records) == 1


@pytest.mark.parametrize("wait", [False, True])
def test_a_broken_invariant_costs_the_request(wait: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def broken(ctx: Any, request: Any) -> None:
        if wait:
            await asyncio.sleep(0.1)
        raise AssertionError("cannot be")

    async def test(rig: Rig, client: Client) -> None:
        contained: list[BaseException] = []
        rig.node.rooms.containment.on_contained = contained.append
        endpoint(rig, ApiKey.DESCRIBE_CLUSTER, 0).handle = broken
        request = DescribeClusterRequest(include_cluster_authorized_operations=False)
        for _ in range(2):
            assert (await client.ask(request, 0)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert (await client.ask(ASK, 9)).topics[0].error_code == 0
        assert [str(failure) for failure in contained] == ["cannot be"] * 2
        assert rig.node.failed is None

    on_a_node(test)
    told = [record for record in caplog.records if "cannot be" in record.getMessage()]
    assert [record.exc_info is not None for record in told] == [True, False], "a traceback once"
