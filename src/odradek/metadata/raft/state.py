"""What a replica of the quorum is: its role, its epoch, its vote and the leader it knows, and how these may change."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Protocol

from odradek.ids import NO_NODE, NO_OFFSET, ZERO_UUID, LeaderEpoch, NodeId, Offset
from odradek.metadata.raft.amnesia import Amnesia
from odradek.metadata.raft.election import Ballot
from odradek.metadata.raft.progress import Progress
from odradek.metadata.raft.quorum_state import QuorumState
from odradek.metadata.raft.snapshot import BOOTSTRAP_SNAPSHOT, SnapshotId
from odradek.metadata.raft.voters import Membership, ReplicaKey, Voter
from odradek.metadata.raft.wire import Address, Standing
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode
from odradek.storage.config import LONG_MAX
from odradek.storage.leader_epochs import EpochEnd
from odradek.values import value


class Role(enum.Enum):
    """What a replica is at the moment; diagrams in the docs are drawn from `TRANSITIONS`."""

    UNATTACHED = "unattached"
    """It knows of no leader. A leader that resigned is one of these, with its vote in that epoch given to itself."""
    FOLLOWER = "follower"
    PROSPECTIVE = "prospective"
    """It asks whether an election would find a majority (pre-vote)."""
    CANDIDATE = "candidate"
    LEADER = "leader"


TRANSITIONS: dict[Role, tuple[Role, ...]] = {
    Role.UNATTACHED: (Role.UNATTACHED, Role.FOLLOWER, Role.PROSPECTIVE, Role.LEADER),
    Role.FOLLOWER: (Role.UNATTACHED, Role.FOLLOWER, Role.PROSPECTIVE),
    Role.PROSPECTIVE: (Role.UNATTACHED, Role.FOLLOWER, Role.CANDIDATE),
    Role.CANDIDATE: (Role.UNATTACHED, Role.FOLLOWER, Role.PROSPECTIVE, Role.LEADER),
    Role.LEADER: (Role.UNATTACHED, Role.FOLLOWER),
}
"""What may become what. A lone voter leads at once: nobody is there to be asked."""


class LogView(Protocol):
    """What the core must know of the log, at the moment it asks."""

    @property
    def log_start_offset(self) -> Offset: ...

    @property
    def log_end_offset(self) -> Offset: ...

    @property
    def last_epoch(self) -> LeaderEpoch:
        """Of the last record, or of the snapshot that stands for it; 0 if there is nothing."""

    def end_of_epoch(self, epoch: LeaderEpoch) -> EpochEnd:
        """See `LeaderEpochs.end_offset_for`."""

    @property
    def oldest_snapshot(self) -> SnapshotId | None: ...

    @property
    def newest_snapshot(self) -> SnapshotId | None: ...


@value
class Timing:
    """Kafka's `controller.quorum.*` timeouts."""

    election_timeout_ms: int
    election_backoff_max_ms: int
    fetch_timeout_ms: int

    @property
    def check_quorum_ms(self) -> int:
        """A leader that a majority has not fetched from for so long resigns: as in Kafka."""
        return self.fetch_timeout_ms * 3 // 2

    @property
    def begin_epoch_ms(self) -> int:
        return self.fetch_timeout_ms // 2

    @property
    def stagger_ms(self) -> int:
        """What keeps two followers that lose their leader at the same moment from standing against each other."""
        return max(self.election_timeout_ms // 40, 1)


@value
class Send:
    """One request to one voter; tell its outcome with `answered` or `unreachable`."""

    to: Voter
    request: Message


@value
class Ready:
    """What to do now, in this order."""

    amnesia: Amnesia | None
    """To be on the device before anything else happens, and to stay."""
    state: QuorumState | None
    """To be on the device before anything else follows."""
    remembers: bool
    """Whether the file about `amnesia` is to be removed, once `state` is on the device."""
    records: tuple[Message, ...]
    """To be appended, as one control batch of the current epoch."""
    sends: tuple[Send, ...]


@value
class FetchVerdict:
    """Whether a replica may read on from where it is; if not, where its log departs, or which snapshot to load."""

    error: ErrorCode = ErrorCode.NONE
    diverging: EpochEnd | None = None
    snapshot: SnapshotId | None = None

    @property
    def stays(self) -> bool:
        """Whether it may read on."""
        return self.error is ErrorCode.NONE and self.diverging is None and self.snapshot is None


READ_ON = FetchVerdict()
"""What most are told."""


class State:
    """The state of one replica. `now_ms` is monotonic everywhere."""

    def __init__(
        self,
        me: Voter,
        *,
        cluster_id: str,
        listener_name: str,
        may_vote: bool,
        log: LogView,
        membership: Membership,
        state: QuorumState | None,
        timing: Timing,
        draw: Callable[[int], int],
        amnesia: Amnesia | None = None,
    ) -> None:
        """`state` and `amnesia` are None where there is no such file; `draw(n)` gives a random number below n."""
        self.me = me
        self._voters_seen: tuple[Voter, ...] | None = None
        """Of whom `_is_voter` was found out: it is asked for at every step."""
        self._is_voter = False
        self._standing = Standing(NO_NODE, LeaderEpoch(-1), None)
        self.membership = membership
        self.role = Role.UNATTACHED
        self._cluster_id = cluster_id
        self._listener_name = listener_name
        self.may_vote = may_vote
        self._log = log
        self._timing = timing
        self._draw = draw
        held = state or QuorumState()
        self.epoch = held.leader_epoch
        self.leader_id = NO_NODE
        self.leader_address: Address | None = None
        self.voted: ReplicaKey | None = None
        if held.leader_id == me.node_id:
            self.voted = me.key
        elif held.voted_id != NO_NODE:
            self.voted = ReplicaKey(held.voted_id, held.voted_directory_id)
        self._last_leader = NO_NODE if log.last_epoch > self.epoch else held.leader_id
        self.high_watermark = NO_OFFSET
        """Known to be committed, and here; -1 until a leader has said."""
        self.told_high_watermark = NO_OFFSET
        """What leaders have said is committed, be it here or not; -1 until one has."""
        self.progress: Progress | None = None
        self._ballot: Ballot | None = None
        self._deadline_ms = 0
        self._tries = 0
        self._suspects = False
        self._has_fetched = False
        self._begin_due_ms: dict[NodeId, int] = {}
        self.closing = False
        self.amnesia = amnesia
        """Set while this voter may once have promised what it does not remember: see `_may_trust`."""
        self._unsaved_amnesia = False
        self._remembers = False
        self._unsaved = False
        self._records: list[Message] = []
        self._sends: list[Send] = []
        if log.last_epoch > self.epoch:
            self._move_to(LeaderEpoch(log.last_epoch))
        elif held.leader_id != NO_NODE and self.voted is None:
            self.voted = ReplicaKey(held.leader_id)  # Nobody else can lead this epoch.
        is_new = state is None and self.has_nothing
        if is_new and amnesia is None and self.is_voter and not membership.is_dynamic and not self.is_lone_voter:
            self._know_no_more(Amnesia())
        if held.leader_id == me.node_id:
            self._remember()  # It led, and was struck down before it could remove the file.

    # What the shell looks at.

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def is_voter(self) -> bool:
        """Whether this very replica, with this directory, has a vote."""
        voters = self.membership.voters
        if voters is not self._voters_seen:
            self._voters_seen = voters
            self._is_voter = self.may_vote and self.membership.is_voter(self.me.key)
        return self._is_voter

    @property
    def is_lone_voter(self) -> bool:
        return self.is_voter and len(self.membership.voters) == 1

    @property
    def has_nothing(self) -> bool:
        """Whether no record has come here yet, or all are lost."""
        return self._log.log_end_offset == 0 and self._newest_snapshot() is None

    @property
    def may_stand(self) -> bool:
        """Whether this voter may be elected: one that has forgotten what it promised only begins a new quorum."""
        if self.amnesia is None:
            return self.is_voter
        return self.is_voter and self.amnesia.quorum_is_new and self._log.log_end_offset == 0

    @property
    def standing(self) -> Standing:
        known = self._standing
        if known.epoch != self.epoch or known.leader_id != self.leader_id or known.address != self.leader_address:
            known = self._standing = Standing(self.leader_id, self.epoch, self.leader_address)
        return known

    @property
    def next_due_ms(self) -> int | None:
        """When `tick` has something to do; None if never."""
        if self.closing:
            return None
        if self.role is Role.LEADER:
            if self.is_lone_voter or self.progress is None:
                return None
            due = [*self._begin_due_ms.values()]
            due.append(self.progress.majority_heard_ms(LONG_MAX) + self._timing.check_quorum_ms)
            return min(due)
        if not self.may_stand:
            return None
        again_ms = self._ballot.next_due_ms if self._ballot is not None else None
        return self._deadline_ms if again_ms is None else min(self._deadline_ms, again_ms)

    @property
    def has_ready(self) -> bool:
        """Whether `take` has something."""
        unsaved = self._unsaved or self._unsaved_amnesia or self._remembers
        return unsaved or bool(self._records) or bool(self._sends)

    def take(self) -> Ready | None:
        """What came of the events since the last time; None if nothing is to be done."""
        if not self.has_ready:
            return None
        state = None
        if self._unsaved:
            voted = None if self.leader_id == self.me.node_id else self.voted
            state = QuorumState(
                leader_id=self.leader_id,
                leader_epoch=self.epoch,
                voted_id=NO_NODE if voted is None else voted.node_id,
                voted_directory_id=ZERO_UUID if voted is None else voted.directory_id,
            )
        amnesia = self.amnesia if self._unsaved_amnesia else None
        ready = Ready(amnesia, state, self._remembers, tuple(self._records), tuple(self._sends))
        self._unsaved = False
        self._unsaved_amnesia = False
        self._remembers = False
        self._records = []
        self._sends = []
        return ready

    # Changing what this replica is.

    def _know_no_more(self, amnesia: Amnesia) -> None:
        if amnesia != self.amnesia:
            self.amnesia = amnesia
            self._unsaved_amnesia = True

    def _remember(self) -> None:
        """Nothing that this voter ever promised can be missing here any more."""
        if self.amnesia is not None:
            self.amnesia = None
            self._unsaved_amnesia = False
            self._remembers = True

    def _change_role(self, role: Role) -> None:
        assert role in TRANSITIONS[self.role], f"a {self.role.value} replica cannot become {role.value}"
        self.role = role
        if role is not Role.LEADER:
            self.progress = None
            self._begin_due_ms.clear()

    def _move_to(self, epoch: LeaderEpoch) -> None:
        """A newer epoch: nothing that was promised in an older one counts in it."""
        self.epoch = epoch
        self.voted = None
        self.leader_id = NO_NODE
        self.leader_address = None
        self._has_fetched = False
        self._unsaved = True

    def _detach(self, epoch: LeaderEpoch, now_ms: int) -> None:
        if epoch > self.epoch:
            self._move_to(epoch)
        self._change_role(Role.UNATTACHED)
        self._ballot = None
        if self.leader_id != NO_NODE:
            self.leader_id = NO_NODE
            self.leader_address = None
            self._unsaved = True
        self._deadline_ms = now_ms + self._timing.election_timeout_ms + self._patience_ms()

    def _follow(self, epoch: LeaderEpoch, leader_id: NodeId, address: Address, now_ms: int) -> None:
        if epoch > self.epoch:
            self._move_to(epoch)
        if leader_id != self.leader_id:
            self._unsaved = True
        self._change_role(Role.FOLLOWER)
        self._ballot = None
        self._tries = 0
        self._suspects = False
        self.leader_id = leader_id
        self.leader_address = address
        self._deadline_ms = now_ms + self._timing.fetch_timeout_ms
        if self.amnesia is not None and self.amnesia.has_helped(leader_id) == epoch:
            self._remember()  # Its log was empty, and a majority's: all that was ever promised came after that vote.

    def _newest_snapshot(self) -> SnapshotId | None:
        newest = self._log.newest_snapshot
        return None if newest is None or newest.end_offset == BOOTSTRAP_SNAPSHOT.end_offset else newest

    def _patience_ms(self) -> int:
        """How long to wait before (again) asking for an election: by turns, and longer each time it came to nothing."""
        stagger_ms = self._timing.stagger_ms
        spread_ms = min(stagger_ms << min(self._tries, 10), self._timing.election_timeout_ms)
        return stagger_ms * (1 + self._turn()) + self._draw(max(spread_ms, 1))

    def _turn(self) -> int:
        """This voter's place among those that are left when the leader is gone."""
        others = [voter.node_id for voter in self.membership.voters if voter.node_id != self.leader_id]
        return sorted(others).index(self.me.node_id) if self.me.node_id in others else 0
