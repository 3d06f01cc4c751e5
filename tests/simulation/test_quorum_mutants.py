"""The checkers of clusters are worth something: nodes with a planted fault are found out within a few seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from odradek.ids import NodeId, Offset
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
from odradek.server import controller, replay
from odradek.server.broker_watch import BrokerWatch
from odradek.server.metadata_log import MetadataLog
from odradek.server.quorum import Quorum
from odradek.server.replay import Replay
from odradek.sim.run import play
from odradek.storage.checkpoints import replace_file

SEEDS = range(500, 900)


def caught(*expected: str, **options: Any) -> bool:
    """Whether some seed breaks a promise in these words, or in some of them; stops with the first that does."""
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

    async def look_away(self: BrokerWatch, broker: BrokerRegistration, **_: Any) -> None:
        pass

    def forget(self: BrokerSessions, *, now_ms: int) -> list[tuple[NodeId, int]]:
        expired(self, now_ms=now_ms)
        return []

    monkeypatch.setattr(BrokerSessions, "expired", forget)
    monkeypatch.setattr(BrokerWatch, "_probe", look_away)
    assert caught(" is not fenced, ")


@pytest.mark.slow
def test_a_heartbeat_that_revives_an_old_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    def anyone(image: Image, broker_id: NodeId, broker_epoch: int) -> BrokerRegistration:
        return image.cluster.brokers[broker_id]

    monkeypatch.setattr(heartbeats, "registered", anyone)
    monkeypatch.setattr(controller, "registered", anyone)
    assert caught(" and has itself seen no more than ")


@pytest.mark.slow
def test_a_lost_disk_that_is_forgotten_at_the_second_start(monkeypatch: pytest.MonkeyPatch) -> None:
    read = MetadataLog.read_amnesia

    def forget(self: MetadataLog) -> Amnesia | None:
        return read(self) if self.read_state() is None else None

    monkeypatch.setattr(MetadataLog, "read_amnesia", forget)
    assert caught(" was committed as ", "asks to truncate", " cut its log to ")
