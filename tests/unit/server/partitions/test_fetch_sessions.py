"""Fetch sessions (KIP-227): who has one, who loses it, and what an incremental answer holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.unit.server.asking import fetch, fetched, produce, values, wanted
from tests.unit.server.rig import Client, Rig

from odradek.ids import ZERO_UUID
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.fetch import FetchResponse, ReplicaState
from odradek.server.node import SESSION_EVICTION_MS
from odradek.server.partitions.fetch_sessions import LARGEST_EPOCH
from odradek.server.partitions.reads import Collector

BY_NAME = 12
BY_ID = 13


def on_a_node(test: Callable[[Rig, Client], Coroutine[Any, Any, None]], **properties: str) -> None:
    """Run a test with a node, a client of it, and a topic `t` of three partitions."""
    rig = Rig(properties={key.replace("_", "."): text for key, text in properties.items()})

    async def run() -> None:
        await rig.create_topic("t", 3)
        await test(rig, rig.connect())

    rig.run(run)


async def new_session(client: Client, *indexes: int, version: int = BY_NAME, **more: Any) -> FetchResponse:
    response: FetchResponse = await client.ask(
        fetch("t", *(wanted(index) for index in indexes), session=(0, 0), **more), version
    )
    assert response.error_code == 0
    return response


def test_a_full_fetch_begins_a_session_and_tells_all() -> None:
    async def test(rig: Rig, client: Client) -> None:
        response = await new_session(client, 0, 1, 2)
        assert response.session_id != 0
        assert list(fetched(response)) == [0, 1, 2]
        assert len(rig.node.rooms.fetch_sessions) == 1

    on_a_node(test)


def test_without_a_session_none_is_kept() -> None:
    async def test(rig: Rig, client: Client) -> None:
        response = await client.ask(fetch("t", wanted(0)), BY_NAME)
        assert response.session_id == 0
        assert len(rig.node.rooms.fetch_sessions) == 0
        assert not rig.node.rooms.replicas.require("t", 0).is_read

    on_a_node(test)


def test_an_incremental_answer_holds_changes_only() -> None:
    async def test(rig: Rig, client: Client) -> None:
        session = (await new_session(client, 0, 1, 2)).session_id
        nothing = await client.ask(fetch(session=(session, 1)), BY_NAME)
        assert (nothing.error_code, nothing.session_id, nothing.responses) == (0, session, [])
        await client.ask(produce("t", b"news", partition=1), 9)
        some = await client.ask(fetch(session=(session, 2)), BY_NAME)
        assert {index: values(partition) for index, partition in fetched(some).items()} == {1: [b"news"]}
        # Its reader has not moved on, so it comes again, until it has.
        again = await client.ask(fetch(session=(session, 3)), BY_NAME)
        assert list(fetched(again)) == [1]
        moved = await client.ask(fetch("t", wanted(1, 1), session=(session, 4)), BY_NAME)
        assert fetched(moved) == {}
        rig.node.rooms.replicas.delete_records(rig.node.rooms.replicas.require("t", 1), 1)  # type: ignore[arg-type]
        start_moved = await client.ask(fetch(session=(session, 5)), BY_NAME)
        assert fetched(start_moved)[1].log_start_offset == 1
        assert fetched(await client.ask(fetch(session=(session, 6)), BY_NAME)) == {}

    on_a_node(test)


def test_errors_are_told_every_time() -> None:
    async def test(rig: Rig, client: Client) -> None:
        session = (await new_session(client, 0, 9)).session_id
        for epoch in (1, 2):
            response = await client.ask(fetch(session=(session, epoch), max_wait_ms=500), BY_NAME)
            assert {index: each.error_code for index, each in fetched(response).items()} == {
                9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            }
        assert 1.0 <= rig.loop.time() < 1.5, "the other one is waited for, as with Kafka"

    on_a_node(test)


def test_partitions_are_added_and_forgotten() -> None:
    async def test(rig: Rig, client: Client) -> None:
        session = (await new_session(client, 0, 1)).session_id
        added = await client.ask(fetch("t", wanted(2), session=(session, 1), forgotten=[0]), BY_NAME)
        assert list(fetched(added)) == [2]
        for index in range(3):
            await client.ask(produce("t", b"x", partition=index), 9)
        response = await client.ask(fetch(session=(session, 2)), BY_NAME)
        assert sorted(fetched(response)) == [1, 2]
        assert not rig.node.rooms.replicas.require("t", 0).is_read

    on_a_node(test)


def test_a_session_without_partitions_ends() -> None:
    async def test(rig: Rig, client: Client) -> None:
        session = (await new_session(client, 0)).session_id
        response = await client.ask(fetch("t", session=(session, 1), forgotten=[0]), BY_NAME)
        assert (response.error_code, response.session_id) == (0, 0)
        assert len(rig.node.rooms.fetch_sessions) == 0

    on_a_node(test)


def test_wrong_sessions_are_refused() -> None:
    async def test(rig: Rig, client: Client) -> None:
        session = (await new_session(client, 0)).session_id
        for asked, version, code in (
            ((session + 1, 1), BY_NAME, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
            ((0, 1), BY_NAME, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
            ((0, -2), BY_NAME, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
            ((session, 2), BY_NAME, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
            ((session, -2), BY_NAME, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
            ((session, 1), BY_ID, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
        ):
            response = await client.ask(fetch(session=asked), version)
            assert (response.error_code, response.session_id, response.responses) == (code, 0, []), asked
        assert (await client.ask(fetch(session=(session, 1)), BY_NAME)).error_code == 0
        assert (await client.ask(fetch(session=(session, 1)), BY_NAME)).error_code == 71

    on_a_node(test)


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_fetch_ends_the_session_it_names(epoch: int) -> None:
    async def test(rig: Rig, client: Client) -> None:
        session = (await new_session(client, 0)).session_id
        response = await client.ask(fetch("t", wanted(1), session=(session, epoch)), BY_NAME)
        assert response.error_code == 0
        assert response.session_id != session
        assert (response.session_id == 0) == (epoch == -1)
        assert len(rig.node.rooms.fetch_sessions) == (epoch == 0)
        assert not rig.node.rooms.replicas.require("t", 0).is_read

    on_a_node(test)


def test_epochs_go_round() -> None:
    async def test(rig: Rig, client: Client) -> None:
        session = (await new_session(client, 0)).session_id
        (kept,) = rig.node.rooms.fetch_sessions
        kept.epoch = LARGEST_EPOCH
        for epoch in (LARGEST_EPOCH, 1):
            assert (await client.ask(fetch(session=(session, epoch)), BY_NAME)).error_code == 0

    on_a_node(test)


def test_only_sessions_that_were_silent_for_long_make_room() -> None:
    async def test(rig: Rig, client: Client) -> None:
        first = (await new_session(client, 0)).session_id
        await asyncio.sleep(1)
        second = (await new_session(client, 1)).session_id
        assert (await new_session(client, 2)).session_id == 0
        await asyncio.sleep(SESSION_EVICTION_MS / 1000 + 0.5)
        assert (await client.ask(fetch(session=(first, 1)), BY_NAME)).error_code == 0
        third = (await new_session(client, 2)).session_id
        assert third != 0
        assert not rig.node.rooms.replicas.require("t", 1).is_read
        gone = await client.ask(fetch(session=(second, 1)), BY_NAME)
        assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert (await client.ask(fetch(session=(first, 2)), BY_NAME)).error_code == 0

    on_a_node(test, max_incremental_fetch_session_cache_slots="2")


REPLICA = {"replica_state": ReplicaState(replica_id=7, replica_epoch=1)}
BY_REPLICA_STATE = 17
"""It says who fetches with the replica state, as all do from version 15 on."""


async def open_session(rig: Rig, *indexes: int, **more: Any) -> int:
    """The id of what a client of its own gets; 0 if there is no room for it."""
    topic_id = rig.topic_id("t")
    response = await new_session(rig.connect(), *indexes, version=BY_REPLICA_STATE, topic_id=topic_id, **more)
    return response.session_id


def alive(rig: Rig) -> set[int]:
    return {session.id for session in rig.node.rooms.fetch_sessions}


async def use_all(rig: Rig, *, for_ms: int = SESSION_EVICTION_MS + 1_000) -> None:
    """So long that they have had their time, but none was silent."""
    for _ in range(2):
        await asyncio.sleep(for_ms / 2000)
        for session in list(rig.node.rooms.fetch_sessions):
            rig.node.rooms.fetch_sessions.go_on(session, rig.node.world.clock.monotonic_ms())


def test_a_consumer_gives_way_to_a_replica_at_once() -> None:
    """Or followers would never have a session on a broker with many consumers."""

    async def test(rig: Rig, client: Client) -> None:
        consumers = [await open_session(rig, 0, 1, 2), await open_session(rig, 0)]
        replica = await open_session(rig, 0, **REPLICA)
        assert alive(rig) == {consumers[0], replica}, "the one with fewer partitions goes"
        second = await open_session(rig, 0, **REPLICA)
        assert alive(rig) == {replica, second}
        assert not rig.node.rooms.replicas.require("t", 0).is_read
        assert await open_session(rig, 0, 1, **REPLICA) == 0, "replicas do not take it from each other so soon"

    on_a_node(test, max_incremental_fetch_session_cache_slots="2")


def test_a_replica_gives_way_to_a_consumer_only_when_silent_for_long() -> None:
    async def test(rig: Rig, client: Client) -> None:
        replica = await open_session(rig, 0, **REPLICA)
        assert await open_session(rig, 0, 1, 2) == 0
        await use_all(rig)
        assert await open_session(rig, 0, 1, 2) == 0
        assert alive(rig) == {replica}
        await asyncio.sleep(SESSION_EVICTION_MS / 1000 + 0.5)
        consumer = await open_session(rig, 0)
        assert consumer != 0
        assert alive(rig) == {consumer}

    on_a_node(test, max_incremental_fetch_session_cache_slots="1")


@pytest.mark.parametrize("more", [{}, REPLICA], ids=["consumers", "replicas"])
def test_among_equals_those_who_had_their_time_give_way_to_larger_ones(more: dict[str, Any]) -> None:
    async def test(rig: Rig, client: Client) -> None:
        first, second = await open_session(rig, 0, 1, **more), await open_session(rig, 0, **more)
        assert await open_session(rig, 0, 1, 2, **more) == 0
        await use_all(rig)
        assert await open_session(rig, 0, **more) == 0, "not to one of the same size"
        third = await open_session(rig, 0, 1, 2, **more)
        assert third != 0
        assert alive(rig) == {first, third}
        assert await open_session(rig, 0, 1, **more) == 0
        assert second not in alive(rig)

    on_a_node(test, max_incremental_fetch_session_cache_slots="2")


def test_a_session_is_worth_what_it_has_now() -> None:
    async def test(rig: Rig, client: Client) -> None:
        first, second = await open_session(rig, 0), await open_session(rig, 0, 1)
        topic_id = rig.topic_id("t")
        grown = fetch("t", wanted(1), wanted(2), topic_id=topic_id, session=(first, 1))
        assert (await client.ask(grown, BY_REPLICA_STATE)).error_code == 0
        replica = await open_session(rig, 0, **REPLICA)
        assert alive(rig) == {first, replica}
        ended = fetch("t", topic_id=topic_id, session=(first, 2), forgotten=[0, 1, 2])
        assert (await client.ask(ended, BY_REPLICA_STATE)).session_id == 0
        assert second not in alive(rig)
        assert alive(rig) == {replica}
        assert await open_session(rig, 0) != 0

    on_a_node(test, max_incremental_fetch_session_cache_slots="2")


def test_a_request_that_waits_is_answered_when_its_session_ends() -> None:
    async def test(rig: Rig, client: Client) -> None:
        session = (await new_session(client, 0)).session_id
        asked = fetch(session=(session, 1), max_wait_ms=60_000)
        waiting = client.send(asked, BY_NAME)
        await asyncio.sleep(1)
        assert not client.has_answer(waiting)
        replica = await open_session(rig, 0, **REPLICA)
        assert alive(rig) == {replica}
        response = await client.answer(waiting, asked, BY_NAME)
        assert (response.error_code, response.responses) == (0, [])
        assert rig.loop.time() < 5
        gone = await client.ask(fetch(session=(session, 2)), BY_NAME)
        assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert not rig.node.rooms.replicas.require("t", 0).is_read
        assert len(rig.node.rooms.purgatory) == 0

    on_a_node(test, max_incremental_fetch_session_cache_slots="1")


def test_who_waits_for_long_was_not_silent() -> None:
    async def test(rig: Rig, client: Client) -> None:
        session = (await new_session(client, 0)).session_id
        asked = fetch(session=(session, 1), max_wait_ms=2 * SESSION_EVICTION_MS)
        waiting = client.send(asked, BY_NAME)
        await asyncio.sleep(SESSION_EVICTION_MS / 1000 + 1)
        assert await open_session(rig, 0) == 0
        assert not client.has_answer(waiting)

    on_a_node(test, max_incremental_fetch_session_cache_slots="1")


def test_no_slots_no_sessions() -> None:
    async def test(rig: Rig, client: Client) -> None:
        assert (await new_session(client, 0)).session_id == 0

    on_a_node(test, max_incremental_fetch_session_cache_slots="0")


def test_a_session_waits_like_any_fetch() -> None:
    async def test(rig: Rig, client: Client) -> None:
        session = (await new_session(client, 0, 1)).session_id
        asked = fetch(session=(session, 1), max_wait_ms=60_000)
        waiting = client.send(asked, BY_NAME)
        await asyncio.sleep(1)
        assert not client.has_answer(waiting)
        await rig.connect().ask(produce("t", b"news", partition=1), 9)
        response = await client.answer(waiting, asked, BY_NAME)
        assert list(fetched(response)) == [1]
        assert rig.loop.time() < 5

    on_a_node(test)


def test_a_second_request_on_a_session_lets_the_first_go() -> None:
    async def test(rig: Rig, client: Client) -> None:
        session = (await new_session(client, 0)).session_id
        asked = fetch(session=(session, 1), max_wait_ms=60_000)
        waiting = client.send(asked, BY_NAME)
        other = rig.connect()
        then = fetch(session=(session, 2), max_wait_ms=60_000)
        waiting_too = other.send(then, BY_NAME)
        assert (await client.answer(waiting, asked, BY_NAME)).error_code == 0
        assert not other.has_answer(waiting_too)
        await rig.connect().ask(produce("t", b"news"), 9)
        assert list(fetched(await other.answer(waiting_too, then, BY_NAME))) == [0]

    on_a_node(test)


@pytest.mark.parametrize(
    ("version", "code"), [(BY_NAME, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (BY_ID, ErrorCode.UNKNOWN_TOPIC_ID)]
)
def test_a_topic_that_comes_back_is_found_by_name_but_not_by_its_old_id(version: int, code: ErrorCode) -> None:
    async def test(rig: Rig, client: Client) -> None:
        response = await new_session(client, 0, version=version, topic_id=rig.topic_id("t"))
        deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="t", topic_id=ZERO_UUID)], timeout_ms=1000)
        await client.ask(deletion, 6)
        gone = await client.ask(fetch(session=(response.session_id, 1)), version)
        assert fetched(gone)[0].error_code == code
        again = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        await client.ask(CreateTopicsRequest(topics=[again]), 7)
        await client.ask(produce("t", b"new"), 9)
        back = await client.ask(fetch(session=(response.session_id, 2)), version)
        if version == BY_NAME:
            assert values(fetched(back)[0]) == [b"new"]
        else:
            assert fetched(back)[0].error_code == code

    on_a_node(test)


def test_work_follows_change_and_not_the_number_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 5 of the hot path, by counting what is looked at."""
    count = 1_000
    looked_at: list[int] = []
    read = Collector._read

    def counted(self: Collector, entry: Any, **how: Any) -> Any:
        looked_at.append(entry.index)
        return read(self, entry, **how)

    rig = Rig()

    async def test() -> None:
        await rig.create_topic("wide", count)
        client = rig.connect()
        partitions = [wanted(index) for index in range(count)]
        session = (await client.ask(fetch("wide", *partitions, session=(0, 0)), BY_NAME)).session_id
        monkeypatch.setattr(Collector, "_read", counted)
        for epoch in range(1, 6):
            await client.ask(produce("wide", b"x", partition=777), 9)
            moved = [wanted(777, epoch - 1)] if epoch > 1 else []
            response = await client.ask(fetch("wide", *moved, session=(session, epoch)), BY_NAME)
            assert list(fetched(response)) == [777]
        assert looked_at == [777] * 5

    rig.run(test)
