"""What a follower's fetches say: checked against a leader that remembers as KIP-227 has it."""

from __future__ import annotations

import random

import pytest

from odradek.replication.fetch_plan import FULL_EPOCH, LARGEST_EPOCH, NO_SESSION, FetchPlan


class Leader:
    """The other side of a session: what it was told to send."""

    def __init__(self) -> None:
        self.session = NO_SESSION
        self.epoch = FULL_EPOCH
        self.partitions: dict[str, int] = {}
        self.made = 0

    def fetch(self, plan: FetchPlan[str], positions: dict[str, int], *, room: bool) -> None:
        planned = plan.next_fetch()
        if planned.session_epoch == FULL_EPOCH:
            assert not planned.forgotten
            self.partitions = {}
            self.made += 1
            self.session, self.epoch = (self.made, 1) if room else (NO_SESSION, FULL_EPOCH)
        else:
            assert (planned.session_id, planned.session_epoch) == (self.session, self.epoch)
            self.epoch = 1 if self.epoch == LARGEST_EPOCH else self.epoch + 1
        for key in planned.mentioned:
            self.partitions[key] = positions[key]
        for key in planned.forgotten:
            del self.partitions[key]
        if planned.session_epoch == FULL_EPOCH:
            plan.opened(self.session)


@pytest.mark.parametrize("seed", range(50))
def test_the_leader_always_knows_all_positions(seed: int) -> None:
    draw = random.Random(seed)
    plan: FetchPlan[str] = FetchPlan()
    leader = Leader()
    positions: dict[str, int] = {}
    for step in range(200):
        for _ in range(draw.randrange(4)):
            key = f"t-{draw.randrange(8)}"
            if key in positions and draw.random() < 0.4:
                del positions[key]
                plan.leave_out(key)
            else:
                positions[key] = step
                plan.want(key)
        if draw.random() < 0.05:
            plan.lost()
        leader.fetch(plan, positions, room=draw.random() < 0.8)
        assert leader.partitions == positions
        assert plan.wanted.keys() == positions.keys()
        assert not plan.has_news()


def test_only_what_moved_is_said() -> None:
    plan: FetchPlan[str] = FetchPlan()
    for key in "abc":
        plan.want(key)
    assert plan.opens_session
    assert plan.next_fetch().mentioned == ("a", "b", "c")
    plan.opened(7)
    assert not plan.opens_session
    plan.want("b")
    assert plan.has_news()
    planned = plan.next_fetch()
    assert (planned.session_id, planned.session_epoch, planned.mentioned) == (7, 1, ("b",))
    plan.leave_out("a")
    planned = plan.next_fetch()
    assert (planned.session_epoch, planned.mentioned, planned.forgotten) == (2, (), ("a",))


def test_a_usual_fetch_says_what_moved_and_leaves_all_else_to_a_planned_one() -> None:
    plan: FetchPlan[str] = FetchPlan()
    for key in "abc":
        plan.want(key)
    assert plan.next_usual() is None
    plan.next_fetch()
    plan.opened(7)
    plan.want("c")
    usual = plan.next_usual()
    assert usual is not None
    assert (usual[:2], list(usual[2])) == ((7, 1), ["c"])
    assert not plan.has_news()
    plan.want("d")
    plan.leave_out("a")
    assert plan.next_usual() is None
    assert plan.has_news()
    planned = plan.next_fetch()
    assert (planned.session_epoch, planned.mentioned, planned.forgotten) == (2, ("d",), ("a",))
    usual = plan.next_usual()
    assert usual is not None
    assert (usual[:2], list(usual[2])) == ((7, 3), [])
    for key in "bcd":
        plan.leave_out(key)
    assert plan.next_usual() is None
    plan.want("a")
    plan.lost()
    assert plan.next_usual() is None


def test_a_lost_session_is_named_once_more_so_that_the_leader_drops_it() -> None:
    plan: FetchPlan[str] = FetchPlan()
    plan.want("a")
    plan.next_fetch()
    plan.opened(7)
    plan.lost()
    planned = plan.next_fetch()
    assert (planned.session_id, planned.session_epoch, planned.mentioned) == (7, FULL_EPOCH, ("a",))


def test_without_room_for_sessions_nobody_asks_for_one_in_a_hurry() -> None:
    plan: FetchPlan[str] = FetchPlan()
    plan.want("a")
    plan.next_fetch()
    plan.opened(NO_SESSION)
    assert not plan.opens_session
    assert plan.next_fetch().mentioned == ("a",)


def test_work_follows_what_moved_and_not_the_number_of_partitions() -> None:
    looks = 0

    class Key:
        def __hash__(self) -> int:
            nonlocal looks
            looks += 1
            return id(self)

    plan: FetchPlan[Key] = FetchPlan()
    keys = [Key() for _ in range(1_000)]
    for key in keys:
        plan.want(key)
    plan.next_fetch()
    plan.opened(1)
    plan.want(keys[7])
    looks = 0
    assert plan.next_fetch().mentioned == (keys[7],)
    assert looks < 10
