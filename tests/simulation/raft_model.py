"""The raft core alone, in a world as bad as it may be: thousands of elections a second, where whole nodes have a few.

Messages take any time and any order, or are lost; replicas crash between any two steps and lose what was not synced,
or stand still. What the core says is carried out here as its shell does it: state first, then records, then messages.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

from odradek.ids import NO_EPOCH, NO_NODE, NO_OFFSET, LeaderEpoch, NodeId, Offset
from odradek.metadata.raft.amnesia import Amnesia
from odradek.metadata.raft.core import Raft
from odradek.metadata.raft.quorum_state import QuorumState
from odradek.metadata.raft.snapshot import SnapshotId
from odradek.metadata.raft.state import Role, Send, Timing
from odradek.metadata.raft.voters import Membership, Voter
from odradek.metadata.raft.wire import LeaderNews
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from odradek.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from odradek.protocol.messages.vote import VoteRequest
from odradek.storage.leader_epochs import EpochEnd
from odradek.values import value

TIMING = Timing(election_timeout_ms=100, election_backoff_max_ms=100, fetch_timeout_ms=200)
LONG_POLL_MS = 50

Entry = tuple[int, str]
"""Epoch and content."""


class Broken(Exception):
    """A promise was broken."""


class ModelLog:
    """What a core sees of a log, and what a crash leaves of it."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.synced = 0
        self.oldest_snapshot: SnapshotId | None = None
        self.newest_snapshot: SnapshotId | None = None
        self.log_start_offset = Offset(0)

    @property
    def log_end_offset(self) -> Offset:
        return Offset(len(self.entries))

    @property
    def last_epoch(self) -> LeaderEpoch:
        return LeaderEpoch(self.entries[-1][0] if self.entries else 0)

    def end_of_epoch(self, epoch: LeaderEpoch) -> EpochEnd:
        if not self.entries or epoch < 0 or epoch > self.last_epoch:
            return EpochEnd(NO_EPOCH, NO_OFFSET)
        below = [each for each, _ in self.entries if each <= epoch]
        return EpochEnd(LeaderEpoch(below[-1] if below else epoch), Offset(len(below)))

    def truncate(self, offset: int) -> None:
        del self.entries[offset:]
        self.synced = min(self.synced, offset)

    def crash(self, draw: random.Random) -> None:
        self.truncate(draw.randrange(self.synced, len(self.entries) + 1))
        self.synced = len(self.entries)


@value
class Fetch:
    """What a follower asks for."""

    epoch: int
    offset: int
    last_epoch: int


@value
class Fetched:
    """What it gets."""

    news: LeaderNews
    entries: tuple[Entry, ...]
    diverging: EpochEnd | None
    high_watermark: int


class Replica:
    """One core and its shell."""

    def __init__(self, model: Model, voter: Voter) -> None:
        self.model = model
        self.voter = voter
        self.log = ModelLog()
        self.state: QuorumState | None = None
        self.amnesia: Amnesia | None = None
        self.life = 0
        self.up = False
        self.held_until = 0
        self.fetching = 0
        self.core: Raft

    def start(self) -> None:
        self.life += 1
        self.up = True
        draw = self.model.draw
        self.core = Raft(
            self.voter,
            cluster_id="model",
            listener_name="CONTROLLER",
            may_vote=True,
            log=self.log,
            membership=Membership(self.model.voters),
            state=self.state,
            timing=TIMING,
            draw=lambda bound: draw.randrange(bound),
            amnesia=self.amnesia,
        )
        self.do(lambda: self.core.begin(self.model.now))
        self.tick()

    def crash(self) -> None:
        self.up = False
        self.life += 1
        self.log.crash(self.model.draw)

    def lose_disk(self) -> None:
        """Somebody puts an empty one in its place."""
        self.log = ModelLog()
        self.state = None
        self.amnesia = None
        self.model.known[self.voter.node_id, 0] = 0

    def later(self, delay: int, step: Callable[[], None]) -> None:
        """Something this life does later, and not while it stands still."""
        life = self.life

        def run() -> None:
            if self.up and self.life == life:
                if self.held_until > self.model.now:
                    self.model.at(self.held_until - self.model.now + self.model.draw.randrange(3), run)
                else:
                    step()

        self.model.at(delay, run)

    def tick(self) -> None:
        due = self.core.next_due_ms
        if due is not None and due <= self.model.now:
            self.do(lambda: self.core.tick(self.model.now))
        if self.core.role is Role.FOLLOWER:
            self.fetch()
        elif self.core.is_leader and self.model.draw.random() < 0.3:
            self.append((self.core.epoch, f"{self.voter.node_id}/{self.model.next_number()}"))
        self.later(self.model.draw.randrange(1, 6), self.tick)

    def do(self, event: Callable[[], None]) -> None:
        """An event, and what follows from it, in the order it must."""
        event()
        self.model.look_at(self)
        ready = self.core.take()
        if ready is None:
            return
        if ready.amnesia is not None:
            self.amnesia = ready.amnesia
        if ready.state is not None:
            self.state = self.model.persist(self, ready.state)
        if ready.remembers:
            self.amnesia = None
        for record in ready.records:
            self.append((self.core.epoch, f"{self.voter.node_id}/{type(record).__name__}/{self.model.next_number()}"))
        for send in ready.sends:
            self.model.carry(self, send)

    def append(self, entry: Entry) -> None:
        self.log.entries.append(entry)
        self.later(self.model.draw.randrange(0, 4), self.sync)

    def sync(self) -> None:
        self.log.synced = len(self.log.entries)
        self.do(lambda: self.core.synced(self.log.log_end_offset) and None)

    # Following.

    def fetch(self) -> None:
        if self.fetching == self.life or self.core.leader_id == NO_NODE:
            return
        self.fetching = self.life
        leader, life, epoch = self.core.leader_id, self.life, self.core.epoch
        asked = Fetch(epoch, self.log.log_end_offset, self.log.last_epoch)

        def answered(answer: Fetched | None) -> None:
            self.fetching = 0
            if self.core.epoch == epoch and self.core.leader_id == leader:
                self.take_in(answer)

        def gone() -> None:
            if self.life == life:
                self.fetching = 0
                self.do(lambda: self.core.doubt_leader(self.model.now))

        self.model.ask(self, leader, lambda target, reply: target.serve(asked, self, reply), answered, gone)

    def serve(self, asked: Fetch, follower: Replica, reply: Callable[[Fetched], None], waited: bool = False) -> None:
        verdicts = []

        def fetched() -> None:
            verdicts.append(
                self.core.fetched(
                    follower.voter.key,
                    epoch=asked.epoch,
                    fetch_offset=asked.offset,
                    last_fetched_epoch=asked.last_epoch,
                    now_ms=self.model.now,
                )
            )

        self.do(fetched)
        verdict = verdicts[0]
        standing = self.core.standing
        news = LeaderNews(verdict.error, standing.leader_id, standing.epoch, standing.address)
        if verdict.error is not ErrorCode.NONE or verdict.diverging is not None:
            reply(Fetched(news, (), verdict.diverging, -1))
            return
        most = self.model.draw.choice((1, 2, 100))
        entries = tuple(self.log.entries[asked.offset : asked.offset + most])
        if entries or waited:
            reply(Fetched(news, entries, None, self.core.high_watermark))
        else:
            self.later(LONG_POLL_MS, lambda: self.serve(asked, follower, reply, waited=True))

    def take_in(self, answer: Fetched | None) -> None:
        if answer is None:
            return
        settled: list[bool] = []
        self.do(lambda: settled.append(self.core.heard(answer.news, self.model.now)))
        if settled[0]:
            return
        if answer.diverging is not None:
            point = self.core.truncation_point(answer.diverging)
            self.model.truncations += 1
            if point < self.core.high_watermark:
                raise Broken(f"replica {self.voter.node_id} would cut {point}, below {self.core.high_watermark}")
            self.log.truncate(point)
            return
        self.log.entries += answer.entries
        self.log.synced = len(self.log.entries)
        self.do(lambda: self.core.fetch_accepted(answer.high_watermark, self.model.now) and None)


class Model:
    """Replicas, their messages, and what must hold of them."""

    def __init__(self, seed: int, replicas: int = 3, *, loses_disks: bool = False) -> None:
        self.loses_disks = loses_disks
        self.disk_losses = 0
        self.draw = random.Random(seed)
        self.now = 0
        self.truncations = 0
        self.crashes = 0
        self.number = 0
        self._sequence = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self.voters = tuple(Voter(NodeId(each), f"host-{each}", 9093) for each in range(1, replicas + 1))
        self.replicas = {voter.node_id: Replica(self, voter) for voter in self.voters}
        self.cut: dict[int, int] = {}
        self.leaders: dict[int, int] = {}
        self.committed: list[Entry] = []
        self.known: dict[tuple[int, int], int] = {}

    def next_number(self) -> int:
        self.number += 1
        return self.number

    def at(self, delay: int, step: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (self.now + delay, self._sequence, step))

    def run(self, until_ms: int) -> None:
        for replica in self.replicas.values():
            self.at(self.draw.randrange(5), replica.start)
        self.at(self.draw.randrange(400), self._strike)
        while self._heap and self._heap[0][0] <= until_ms:
            self.now, _, step = heapq.heappop(self._heap)
            step()

    # What goes wrong.

    def _strike(self) -> None:
        replica = self.replicas[self.draw.choice(self.voters).node_id]
        leading = [each for each in self.replicas.values() if each.up and each.core.is_leader]
        if leading and self.draw.random() < 0.5:
            replica = self.draw.choice(leading)
        if (
            self.loses_disks
            and self.committed
            and replica.up
            and self.draw.random() < 0.1
            and self._can_do_without_disk()
        ):
            self.crashes += 1
            self.disk_losses += 1
            replica.crash()
            replica.lose_disk()
            # A leader that was deposed meanwhile knows by then.
            self.at(TIMING.check_quorum_ms + LONG_POLL_MS + self.draw.randrange(300), replica.start)
            self.at(self.draw.randrange(300), self._strike)
            return
        match self.draw.randrange(4):
            case 0 | 1 if replica.up:
                self.crashes += 1
                replica.crash()
                self.at(self.draw.randrange(300), lambda: replica.up or replica.start())  # type: ignore[func-returns-value]
            case 2:
                replica.held_until = self.now + self.draw.randrange(400)
            case _:
                self.cut[replica.voter.node_id] = self.now + self.draw.randrange(400)
        self.at(self.draw.randrange(300), self._strike)

    def _can_do_without_disk(self) -> bool:
        """Whether nobody else has lost what it had, or never had anything."""
        return all(each.amnesia is None and each.log.entries for each in self.replicas.values())

    def persist(self, replica: Replica, state: QuorumState) -> QuorumState:
        """Where a planted fault loses a vote."""
        return state

    # Messages.

    def carry(self, source: Replica, send: Send) -> None:
        def serve(target: Replica, reply: Callable[[Message], None]) -> None:
            answers: list[Message] = []
            target.do(lambda: answers.append(_serve(target.core, send.request, self.now)))
            reply(answers[0])

        def answered(answer: Message) -> None:
            source.do(lambda: source.core.answered(send, answer, self.now))

        def gone() -> None:
            source.do(lambda: source.core.unreachable(send, self.now))

        self.ask(source, send.to.node_id, serve, answered, gone)

    def ask(
        self,
        source: Replica,
        target_id: NodeId,
        serve: Callable[[Replica, Callable[..., None]], None],
        answered: Callable[..., None],
        gone: Callable[[], None],
    ) -> None:
        """A request and its answer, each lost or late as it may be; `gone` after a while without one."""
        target = self.replicas[target_id]
        life = source.life  # Whoever restarts has no connection on which an answer could come.
        done = [False]

        def end(step: Callable[[], None]) -> None:
            if not done[0] and source.life == life:
                done[0] = True
                step()

        def reply(answer: object) -> None:
            if self._passes(target, source):
                source.later(self._delay(), lambda: end(lambda: answered(answer)))

        if not target.up:
            source.later(self._delay(), lambda: end(gone))  # Refused.
            return
        if self._passes(source, target):
            target.later(self._delay(), lambda: serve(target, reply))
        source.later(150, lambda: end(gone))

    def _passes(self, source: Replica, target: Replica) -> bool:
        cut = any(self.cut.get(each.voter.node_id, 0) > self.now for each in (source, target))
        return not cut and self.draw.random() > 0.02

    def _delay(self) -> int:
        return self.draw.randrange(1, 120 if self.draw.random() < 0.05 else 6)

    # What must hold.

    def look_at(self, replica: Replica) -> None:
        core, node_id = replica.core, replica.voter.node_id
        if core.is_leader and self.leaders.setdefault(core.epoch, node_id) != node_id:
            raise Broken(f"epoch {core.epoch} is led by {self.leaders[core.epoch]} and by {node_id}")
        if core.leader_id != NO_NODE and self.leaders.get(core.epoch) not in (None, core.leader_id):
            raise Broken(f"{node_id} believes that {core.leader_id} leads {core.epoch}, not {self.leaders[core.epoch]}")
        if core.epoch < self.known.get((node_id, 0), 0):
            raise Broken(f"{node_id} went back from epoch {self.known[node_id, 0]} to {core.epoch}")
        self.known[node_id, 0] = core.epoch
        high_watermark = core.high_watermark
        if high_watermark > len(replica.log.entries):
            raise Broken(f"{node_id} has committed up to {high_watermark} of {len(replica.log.entries)}")
        if core.is_leader and high_watermark > len(self.committed):
            newest = replica.log.entries[high_watermark - 1][0]
            if newest < core.epoch:
                raise Broken(f"{node_id} leads epoch {core.epoch} and commits with nothing newer than epoch {newest}")
        for offset in range(self.known.get((node_id, replica.life), 0), max(high_watermark, 0)):
            entry = replica.log.entries[offset]
            if offset == len(self.committed):
                self.committed.append(entry)
            elif self.committed[offset] != entry:
                raise Broken(f"{offset} was committed as {self.committed[offset]}, and is {entry} on {node_id}")
        self.known[node_id, replica.life] = max(high_watermark, self.known.get((node_id, replica.life), 0))


def _serve(core: Raft, request: Message, now_ms: int) -> Message:
    match request:
        case VoteRequest():
            return core.vote_asked(request, now_ms)
        case BeginQuorumEpochRequest():
            return core.epoch_begun(request, now_ms)
        case EndQuorumEpochRequest():
            return core.epoch_ended(request, now_ms)
        case _:
            raise AssertionError(type(request))
