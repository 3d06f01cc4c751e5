"""Followers and their leader by the fast path: what it is taken for, and what is left to the generic one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.server.quorum_rig import QuorumRig, Seat, setting, settings_in

from odradek.protocol.api import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.messages.fetch import FetchRequest
from odradek.server.access.authorizer import Authorizer
from odradek.server.handlers import fetch_metadata_log
from odradek.server.net.dispatch import Endpoint
from odradek.server.net.routes import Role, route_of


@pytest.fixture
def generic(monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """The fetches that took the generic path."""
    seen: list[Message] = []
    handle = fetch_metadata_log.handle

    async def noted(ctx: Any, request: FetchRequest) -> Any:
        seen.append(request)
        return await handle(ctx, request)

    made = Endpoint.__init__

    def make(self: Endpoint, route: Any, *args: Any, **options: Any) -> None:
        made(self, route, *args, **options)
        if route is route_of(ApiKey.FETCH, Role.CONTROLLER):
            self.handle = noted

    monkeypatch.setattr(Endpoint, "__init__", make)
    return seen


async def follow_for_a_while(rig: QuorumRig) -> Seat:
    leader = await rig.begun()
    await rig.agree()
    for name in "abc":
        await asyncio.sleep(1)
        await rig.append(leader, setting(name))
    await rig.agree(within_s=1)
    for seat in rig.seats:
        assert settings_in(seat) == ["a", "b", "c"]
    return leader


def test_whoever_follows_is_known_and_asks_no_coroutine(generic: list[Message]) -> None:
    rig = QuorumRig(3)

    async def test() -> None:
        leader = await follow_for_a_while(rig)
        assert sorted(known.key.node_id for known in leader.quorum.known_followers.values()) == sorted(
            seat.node_id for seat in rig.seats if seat is not leader
        )
        before = len(generic)
        await asyncio.sleep(5)
        assert len(generic) == before

    rig.run(test)


def test_a_leader_that_knows_older_versions_only_is_followed_too(
    monkeypatch: pytest.MonkeyPatch, generic: list[Message]
) -> None:
    monkeypatch.setattr(FetchRequest, "max_stable_version", 17)
    rig = QuorumRig(3)

    async def test() -> None:
        leader = await follow_for_a_while(rig)
        assert leader.quorum.known_followers == {}
        assert len(generic) > 10

    rig.run(test)


def test_quotas_do_not_close_the_fast_path_and_rules_about_who_may_ask_do(generic: list[Message]) -> None:
    rig = QuorumRig(3)

    async def test() -> None:
        leader = await follow_for_a_while(rig)
        leader.guarded = True
        before = len(generic)
        await asyncio.sleep(2)
        assert len(generic) == before

        leader.authorizer = Authorizer(super_users=frozenset(), allow_if_no_acl=True)
        await asyncio.sleep(2)
        assert len(generic) > before

    rig.run(test)


def test_a_read_that_fails_costs_the_connection_and_not_the_append() -> None:
    rig = QuorumRig(3)

    async def test() -> None:
        leader = await follow_for_a_while(rig)
        read = leader.quorum.log.read
        failed = 0

        def fail_once(*args: Any, **options: Any) -> bytes:
            nonlocal failed
            failed += 1
            if failed <= 2:
                raise OSError("a bad sector")
            return read(*args, **options)

        await asyncio.sleep(0.1)
        leader.quorum.log.read = fail_once  # type: ignore[method-assign]
        await rig.append(leader, setting("d"))
        await rig.agree()
        assert failed > 2
        assert leader.quorum.is_active
        for seat in rig.seats:
            assert settings_in(seat) == ["a", "b", "c", "d"]

    rig.run(test)


def test_a_fetch_whose_connection_is_gone_says_nothing_for_its_follower() -> None:
    """A node that died must not count as one that still fetches, however often the log moves after it."""
    rig = QuorumRig(3)

    async def test() -> None:
        leader = await follow_for_a_while(rig)
        follower = next(seat for seat in rig.seats if seat is not leader)
        await asyncio.sleep(0.1)
        follower.crash()
        await asyncio.sleep(0.5)
        progress = leader.quorum.raft.progress
        assert progress is not None
        replica = progress.find(follower.voter.key)
        assert replica is not None
        heard_ms = replica.last_fetch_ms
        for name in "de":
            await rig.append(leader, setting(name))
        assert replica.last_fetch_ms == heard_ms

    rig.run(test)


def test_a_fetch_that_moves_the_high_watermark_when_its_time_is_up_is_answered_once() -> None:
    """Seed 23 of `quorum` found that it wakes all who wait for that, itself among them."""
    rig = QuorumRig(3)

    async def test() -> None:
        leader = await follow_for_a_while(rig)
        quorum = leader.quorum
        note_fetch = quorum.note_fetch

        def note_and_wake() -> None:
            note_fetch()
            quorum.commits.wake()

        quorum.note_fetch = note_and_wake  # type: ignore[method-assign]
        await asyncio.sleep(2)
        await rig.append(leader, setting("d"))
        await rig.agree()

    rig.run(test)
    assert [seat.failures for seat in rig.seats] == [[], [], []]
