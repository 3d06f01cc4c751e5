"""Raft cores that hand each other their requests directly: a cluster without disks, sockets or waiting."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

from tests.unit.metadata.building import uuid

from odradek.ids import ZERO_UUID, LeaderEpoch, NodeId, Offset
from odradek.metadata.raft.amnesia import Amnesia
from odradek.metadata.raft.control_records import recorded_voters
from odradek.metadata.raft.core import Raft
from odradek.metadata.raft.quorum_state import QuorumState
from odradek.metadata.raft.snapshot import SnapshotId
from odradek.metadata.raft.state import Role, Send, Timing
from odradek.metadata.raft.voters import Membership, Voter
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from odradek.protocol.messages.control_records import KRaftVersionRecord, VotersRecord
from odradek.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from odradek.protocol.messages.vote import VoteRequest
from odradek.storage.leader_epochs import EpochEnd
from odradek.values import replace

TIMING = Timing(election_timeout_ms=1000, election_backoff_max_ms=1000, fetch_timeout_ms=2000)
CLUSTER = "cluster"


class ListLog:
    """A log that is a list of epochs, one a record."""

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.messages: list[Message | None] = []
        self.log_start_offset = Offset(0)
        self.oldest_snapshot: SnapshotId | None = None
        self.newest_snapshot: SnapshotId | None = None

    @property
    def log_end_offset(self) -> Offset:
        return Offset(len(self.epochs))

    @property
    def last_epoch(self) -> LeaderEpoch:
        return LeaderEpoch(self.epochs[-1] if self.epochs else 0)

    def end_of_epoch(self, epoch: LeaderEpoch) -> EpochEnd:
        known = [each for each in self.epochs if each <= epoch]
        if not known or epoch > self.epochs[-1]:
            return EpochEnd(LeaderEpoch(-1), Offset(-1))
        return EpochEnd(LeaderEpoch(known[-1]), Offset(len(known)))

    def append(self, epoch: int, message: Message | None = None) -> None:
        self.epochs.append(epoch)
        self.messages.append(message)


class Replica:
    """A core, what it has written down, and what it wants sent."""

    def __init__(
        self, me: Voter, voters: tuple[Voter, ...], *, dynamic: bool = False, state: QuorumState | None = None
    ) -> None:
        self.me = me
        self.log = ListLog()
        self.state = state
        self.amnesia: Amnesia | None = None
        self.outbox: deque[Send] = deque()
        self.membership = Membership(voters)
        if dynamic:
            self.membership.loaded(1, voters)
        self.raft = self.begin()

    def begin(self) -> Raft:
        """A core on what is written down: a start."""
        self.raft = Raft(
            self.me,
            cluster_id=CLUSTER,
            listener_name="CONTROLLER",
            may_vote=True,
            log=self.log,
            membership=self.membership,
            state=self.state,
            timing=TIMING,
            draw=random.Random(self.me.node_id).randrange,
            amnesia=self.amnesia,
        )
        return self.raft

    def settle(self) -> None:
        """Do what the core wants, in its order."""
        while (ready := self.raft.take()) is not None:
            if ready.amnesia is not None:
                self.amnesia = ready.amnesia
            if ready.state is not None:
                self.state = ready.state
            if ready.remembers:
                self.amnesia = None
            for message in ready.records:
                self.log.append(self.raft.epoch, message)
                offset = len(self.log.epochs) - 1
                if isinstance(message, KRaftVersionRecord):
                    self.membership.level_appended(offset, message.kraft_version)
                if isinstance(message, VotersRecord):
                    self.membership.voters_appended(offset, recorded_voters(message))
            if ready.records:
                self.raft.membership_changed()
                self.raft.synced(self.log.log_end_offset)
            self.outbox += ready.sends


class Cluster:
    """Replicas that reach each other at once, unless a way is cut."""

    def __init__(self, count: int = 3, *, dynamic: bool = False) -> None:
        self.now_ms = 0
        self.voters = tuple(
            Voter(NodeId(number), f"c{number}", 9093, uuid(number) if dynamic else ZERO_UUID)
            for number in range(1, count + 1)
        )
        self.replicas = {
            voter.node_id: Replica(replace(voter, directory_id=uuid(voter.node_id)), self.voters, dynamic=dynamic)
            for voter in self.voters
        }
        self.down: list[int] = []
        self.drop: Callable[[int, int], bool] = lambda source, target: False

    def __getitem__(self, node_id: int) -> Replica:
        return self.replicas[NodeId(node_id)]

    @property
    def leader(self) -> Replica | None:
        leaders = [each for each in self.replicas.values() if each.raft.is_leader and each.me.node_id not in self.down]
        newest = max((each.raft.epoch for each in leaders), default=0)
        return next((each for each in leaders if each.raft.epoch == newest), None)

    def begin(self) -> None:
        for replica in self.replicas.values():
            replica.raft.begin(self.now_ms)
        self.deliver()

    def deliver(self) -> None:
        """Everything that is on its way arrives, and what follows from it."""
        moving = True
        while moving:
            moving = False
            for replica in self.replicas.values():
                replica.settle()
                while replica.outbox:
                    moving = True
                    self._carry(replica, replica.outbox.popleft())

    def _carry(self, replica: Replica, send: Send) -> None:
        source, target = replica.me.node_id, send.to.node_id
        if source in self.down:
            return
        if target in self.down or self.drop(source, target):
            replica.raft.unreachable(send, self.now_ms)
            return
        other = self[target]
        response: Message
        match send.request:
            case VoteRequest():
                response = other.raft.vote_asked(send.request, self.now_ms)
            case BeginQuorumEpochRequest():
                response = other.raft.epoch_begun(send.request, self.now_ms)
            case EndQuorumEpochRequest():
                response = other.raft.epoch_ended(send.request, self.now_ms)
            case _:
                raise AssertionError(send)
        other.settle()
        if not self.drop(target, source):
            replica.raft.answered(send, response, self.now_ms)

    def pass_time(self, duration_ms: int, *, fetching: bool = True) -> None:
        """Step by step; followers fetch meanwhile."""
        for _ in range(duration_ms // 5):
            self.now_ms += 5
            for replica in self.replicas.values():
                if replica.me.node_id not in self.down:
                    due_ms = replica.raft.next_due_ms
                    if due_ms is not None and due_ms <= self.now_ms:
                        replica.raft.tick(self.now_ms)
            self.deliver()
            if fetching:
                self.fetch()

    def fetch(self) -> None:
        for replica in self.replicas.values():
            raft = replica.raft
            if raft.role in (Role.FOLLOWER, Role.PROSPECTIVE) and replica.me.node_id not in self.down:
                self.fetch_once(replica)
        self.deliver()

    def fetch_once(self, replica: Replica) -> None:
        """One fetch of a follower, its answer and what it does with it."""
        raft, leader_id = replica.raft, replica.raft.leader_id
        if leader_id in self.down or leader_id not in self.replicas or self.drop(raft.me.node_id, leader_id):
            raft.doubt_leader(self.now_ms)
            return
        leader = self[leader_id]
        end_offset = replica.log.log_end_offset
        verdict = leader.raft.fetched(
            replica.me.key,
            epoch=raft.epoch,
            fetch_offset=end_offset,
            last_fetched_epoch=replica.log.last_epoch,
            now_ms=self.now_ms,
        )
        if verdict.error is not ErrorCode.NONE:
            return
        if verdict.diverging is not None:
            del replica.log.epochs[raft.truncation_point(verdict.diverging) :]
            del replica.log.messages[len(replica.log.epochs) :]
            replica.membership.truncated(len(replica.log.epochs))
            return
        for epoch, message in zip(leader.log.epochs[end_offset:], leader.log.messages[end_offset:], strict=True):
            replica.log.append(epoch, message)
            if isinstance(message, VotersRecord):
                replica.membership.voters_appended(len(replica.log.epochs) - 1, recorded_voters(message))
        raft.fetch_accepted(leader.raft.high_watermark, self.now_ms)
