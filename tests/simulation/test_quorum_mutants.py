"""The checkers of clusters are worth something: nodes with a planted fault are found out within a few seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from odradek.ids import NodeId, Offset, Uuid
from odradek.metadata.controller import heartbeats
from odradek.metadata.controller.sessions import BrokerSessions
from odradek.metadata.image import Image
from odradek.metadata.image.cluster import BrokerRegistration
from odradek.metadata.raft.amnesia import Amnesia
from odradek.metadata.raft.core import Raft
from odradek.metadata.raft.progress import Progress
from odradek.metadata.raft.quorum_state import QUORUM_STATE_FILE, QuorumState, encode_quorum_state
from odradek.metadata.raft.state import Role
from odradek.metadata.raft.voters import Membership, ReplicaKey
from odradek.protocol.codec import Message
from odradek.server.controller import controller
from odradek.server.controller.broker_watch import BrokerWatch
from odradek.server.controller.reached_listeners import ReachedListeners
from odradek.server.membership.lifecycle import BrokerLifecycle
from odradek.server.quorum import replay
from odradek.server.quorum.log import MetadataLog
from odradek.server.quorum.quorum import Quorum
from odradek.server.quorum.replay import Replay
from odradek.sim.quorum_faults import QuorumFaults
from odradek.sim.run import play
from odradek.storage.checkpoints import replace_file

SEEDS = range(500, 900)


def caught(*expected: str, aims: tuple[str, ...] = (), **options: Any) -> bool:
    """Whether some seed breaks a promise in these words, or in some of them; stops with the first that does.

    `aims` are the faults that are drawn, where only few of all kinds lead to where the planted one shows.
    """
    make = QuorumFaults.__init__

    def aimed(self: QuorumFaults, *arguments: Any, **given: Any) -> None:
        make(self, *arguments, **given)
        if aims:
            self.kinds = [(1, getattr(self, aim)) for aim in aims]

    with pytest.MonkeyPatch.context() as aiming:
        aiming.setattr(QuorumFaults, "__init__", aimed)
        return any(
            words in broken for seed in SEEDS for broken in play(seed, "quorum", **options).broken for words in expected
        )


@pytest.mark.slow
def test_a_vote_that_is_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(self: MetadataLog, state: QuorumState, membership: Membership) -> None:
        content = encode_quorum_state(state, kraft_version=membership.kraft_version, voters=())
        replace_file(self._world.disk, f"{self.directory}/{QUORUM_STATE_FILE}", content, durable=False)

    monkeypatch.setattr(MetadataLog, "write_state", hasty)
    assert caught(" went back from epoch ", " voted for ", " is led by ", "quorum-state cannot be read", power=True)


@pytest.mark.slow
def test_a_vote_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    grants = Raft._grants

    def generous(self: Raft, candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        if not pre_vote and self.role is not Role.LEADER:
            return up_to_date
        return grants(self, candidate, up_to_date=up_to_date, pre_vote=pre_vote)

    monkeypatch.setattr(Raft, "_grants", generous)
    assert caught(" is led by ", " voted for ")


def test_a_commit_counted_from_an_older_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    def count_all(self: Progress) -> Offset:
        own, synced = self._own, self.synced_end_offset
        ends = sorted((synced if voter is own else voter.end_offset for voter in self.voters), reverse=True)
        return Offset(ends[len(ends) // 2])

    monkeypatch.setattr(Progress, "committed_end_offset", count_all)
    assert caught(" with nothing newer than epoch ", " was committed as ", "asks to truncate")


def test_a_snapshot_without_its_last_record(monkeypatch: pytest.MonkeyPatch) -> None:
    build: Callable[..., bytearray] = replay.build_snapshot

    def forgetful(records: Iterable[Message], **options: Any) -> bytearray:
        return build(list(records)[:-1], **options)

    monkeypatch.setattr(replay, "build_snapshot", forgetful)
    assert caught(" have different images ")


@pytest.mark.slow
def test_a_truncation_past_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    async def truncate(self: Quorum, end_offset: Offset) -> None:
        await self.log.truncate_to(Offset(max(end_offset - 10, self.log.log_start_offset)))
        await self.carry_out()

    monkeypatch.setattr(Quorum, "truncate", truncate)
    assert caught(" cut its log to ", " was committed as ")


def test_a_stale_controller_that_still_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    def pretend(self: Replay) -> None:
        self._written.clear()
        for waiting in self._waiting:
            if waiting.epoch is not None and not waiting.future.done():
                waiting.future.set_result(None)
        self._waiting = [waiting for waiting in self._waiting if waiting.epoch is None]

    monkeypatch.setattr(Replay, "forget_written", pretend)
    assert caught(" was told that ")


@pytest.mark.slow
def test_a_lost_fencing(monkeypatch: pytest.MonkeyPatch) -> None:
    expired = BrokerSessions.expired

    def look_away(self: BrokerWatch, broker: BrokerRegistration) -> None:
        pass

    def forget(self: BrokerSessions, *, now_ms: int) -> list[tuple[NodeId, int]]:
        expired(self, now_ms=now_ms)
        return []

    monkeypatch.setattr(BrokerSessions, "expired", forget)
    monkeypatch.setattr(BrokerWatch, "_look_for", look_away)
    assert caught(" is not fenced, ")


TAKEN_FOR_DEAD = " lives, and controller "


def test_a_broker_that_is_fenced_because_it_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a new controller did that looked at the ports of all whom it had not heard of."""
    start = BrokerWatch.start

    def look_at_all(self: BrokerWatch) -> None:
        start(self)
        for broker in self._image().cluster.brokers.values():
            if broker.broker_id != self._myself:
                self._look_for(broker)

    monkeypatch.setattr(BrokerWatch, "start", look_at_all)
    monkeypatch.setattr(ReachedListeners, "of", lambda self, broker: broker.endpoints)
    assert caught(TAKEN_FOR_DEAD)


def test_a_reset_connection_that_counts_as_a_closed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = BrokerWatch.connection_lost

    def any_loss(self: BrokerWatch, *arguments: Any, closed_by_peer: bool) -> None:
        lost(self, *arguments, closed_by_peer=True)

    monkeypatch.setattr(BrokerWatch, "connection_lost", any_loss)
    assert caught(TAKEN_FOR_DEAD, aims=("_refuse_controllers",))


def test_a_listener_that_was_never_reached_and_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """With brokers that close their connection to the controller now and then, as some client might."""
    monkeypatch.setattr(ReachedListeners, "of", lambda self, broker: broker.endpoints)
    beat = BrokerLifecycle._beat
    beats: list[int] = []

    async def beat_and_close(self: BrokerLifecycle) -> None:
        await beat(self)
        beats.append(1)
        if len(beats) % 7 == 0 and self._channel._connection is not None:
            self._channel._connection.close()

    monkeypatch.setattr(BrokerLifecycle, "_beat", beat_and_close)
    assert caught(TAKEN_FOR_DEAD)


def test_an_id_given_to_who_has_other_directories(monkeypatch: pytest.MonkeyPatch) -> None:
    def anyone(self: BrokerWatch, broker: BrokerRegistration, previous_epoch: int, log_dirs: list[Uuid]) -> bool:
        return broker.broker_id not in self._connections or previous_epoch != broker.broker_epoch

    monkeypatch.setattr(BrokerWatch, "is_succeeded", anyone)
    assert caught(TAKEN_FOR_DEAD, aims=("_replace",))


@pytest.mark.slow
def test_a_heartbeat_that_revives_an_old_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    def anyone(image: Image, broker_id: NodeId, broker_epoch: int) -> BrokerRegistration:
        return image.cluster.brokers[broker_id]

    monkeypatch.setattr(heartbeats, "registered", anyone)
    monkeypatch.setattr(controller, "registered", anyone)
    assert caught(" and has itself seen no more than ", aims=("_replace",))


@pytest.mark.slow
def test_a_lost_disk_that_is_forgotten_at_the_second_start(monkeypatch: pytest.MonkeyPatch) -> None:
    read = MetadataLog.read_amnesia

    def forget(self: MetadataLog) -> Amnesia | None:
        return read(self) if self.read_state() is None else None

    monkeypatch.setattr(MetadataLog, "read_amnesia", forget)
    assert caught(" was committed as ", "asks to truncate", " cut its log to ")
