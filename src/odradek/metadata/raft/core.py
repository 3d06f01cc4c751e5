"""One replica of the quorum: what it believes, what it promises, and what it wants done.

Events go in (a request, an answer, the clock, a peer that cannot be reached); what follows from them is told by `take`:
a `Ready` whose state is synced first, whose records are appended next, and whose requests are sent last. Nothing here
reads a clock, draws at random or waits.

Kafka's rules throughout (KIP-595, KIP-853, KIP-996); only how soon a follower doubts its leader is our own. Doubting
early is safe: a pre-vote finds out whether the others doubt it too, and changes nothing where they do not.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from odradek.ids import NO_EPOCH, NO_NODE, NO_OFFSET, ZERO_UUID, LeaderEpoch, NodeId, Offset
from odradek.metadata.raft import wire
from odradek.metadata.raft.control_records import leader_change, voters_record
from odradek.metadata.raft.election import Ballot
from odradek.metadata.raft.progress import Progress
from odradek.metadata.raft.quorum_state import QuorumState
from odradek.metadata.raft.snapshot import BOOTSTRAP_SNAPSHOT, SnapshotId
from odradek.metadata.raft.voters import Membership, ReplicaKey, Voter
from odradek.metadata.raft.wire import Address, LeaderNews, Standing
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from odradek.protocol.messages.control_records import KRaftVersionRecord
from odradek.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from odradek.protocol.messages.vote import VoteRequest, VoteResponse
from odradek.storage.config import LONG_MAX
from odradek.storage.leader_epochs import EpochEnd
from odradek.values import value

MAX_EPOCH_JUMP = 1 << 20
"""Epochs go up by one with every election. A request that is a million ahead is forged or damaged, and believing it
would use up the epochs there are."""


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

    state: QuorumState | None
    """To be on the device before anything else happens."""
    records: tuple[Message, ...]
    """To be appended, as one control batch of the current epoch."""
    sends: tuple[Send, ...]


@value
class FetchVerdict:
    """Whether a replica may read on from where it is; if not, where its log departs, or which snapshot to load."""

    error: ErrorCode = ErrorCode.NONE
    diverging: EpochEnd | None = None
    snapshot: SnapshotId | None = None


class Raft:
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
    ) -> None:
        """`state` is None where there is no such file; `draw(n)` gives a random number below n."""
        self.me = me
        self.membership = membership
        self.role = Role.UNATTACHED
        self._cluster_id = cluster_id
        self._listener_name = listener_name
        self._may_vote = may_vote
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
        """Known to be committed; -1 until a leader has said."""
        self.progress: Progress | None = None
        self._ballot: Ballot | None = None
        self._deadline_ms = 0
        self._tries = 0
        self._suspects = False
        self._has_fetched = False
        self._begin_due_ms: dict[NodeId, int] = {}
        self.closing = False
        self.amnesiac = state is None and log.log_end_offset == 0 and self._newest_snapshot() is None
        """Whether this voter may once have promised what it does not remember: see `_may_trust`."""
        self._unsaved = False
        self._records: list[Message] = []
        self._sends: list[Send] = []
        if log.last_epoch > self.epoch:
            self._move_to(LeaderEpoch(log.last_epoch))
        elif held.leader_id != NO_NODE and self.voted is None:
            self.voted = ReplicaKey(held.leader_id)  # Nobody else can lead this epoch.

    # What the shell looks at.

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def is_voter(self) -> bool:
        """Whether this very replica, with this directory, has a vote."""
        return self._may_vote and self.membership.is_voter(self.me.key)

    @property
    def is_lone_voter(self) -> bool:
        return self.is_voter and len(self.membership.voters) == 1

    @property
    def standing(self) -> Standing:
        return Standing(self.leader_id, self.epoch, self.leader_address)

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
        if not self.is_voter:
            return None
        again_ms = self._ballot.next_due_ms if self._ballot is not None else None
        return self._deadline_ms if again_ms is None else min(self._deadline_ms, again_ms)

    def take(self) -> Ready | None:
        """What came of the events since the last time; None if nothing is to be done."""
        if not (self._unsaved or self._records or self._sends):
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
        ready = Ready(state, tuple(self._records), tuple(self._sends))
        self._unsaved = False
        self._records = []
        self._sends = []
        return ready

    # Time.

    def begin(self, now_ms: int) -> None:
        """The log is loaded: lead alone, follow the leader there was, or look for one."""
        if self.is_lone_voter:
            self._stand(now_ms)
            return
        leader = self.membership.voter(self._last_leader)
        if leader is not None and leader.node_id != self.me.node_id:
            self._follow(self.epoch, leader.node_id, (leader.host, leader.port), now_ms)
            return
        self._deadline_ms = now_ms + self._patience_ms()

    def tick(self, now_ms: int) -> None:
        """Time has passed."""
        if self.closing:
            return
        if self.role is Role.LEADER:
            self._tick_leader(now_ms)
        elif self.is_voter:
            if self._ballot is not None:
                self._ask(self._ballot.due(now_ms))
            if now_ms >= self._deadline_ms:
                self._tick_voter(now_ms)

    def _tick_voter(self, now_ms: int) -> None:
        if self.role in (Role.UNATTACHED, Role.FOLLOWER):
            self._probe(now_ms)
        else:
            self._give_up(now_ms)

    def _tick_leader(self, now_ms: int) -> None:
        assert self.progress is not None
        if self.is_lone_voter:
            return
        if now_ms - self.progress.majority_heard_ms(now_ms) >= self._timing.check_quorum_ms:
            self.resign(now_ms)
            return
        for node_id, due_ms in list(self._begin_due_ms.items()):
            if due_ms <= now_ms:
                self._announce(node_id, now_ms)

    def _announce(self, node_id: NodeId, now_ms: int) -> None:
        """Tell a voter who leads, unless it knows, as it does while it fetches."""
        assert self.progress is not None
        voter = self.membership.voter(node_id)
        if voter is None or voter.node_id == self.me.node_id:
            self._begin_due_ms.pop(node_id, None)
            return
        self._begin_due_ms[node_id] = now_ms + self._timing.begin_epoch_ms
        replica = self.progress.find(voter.key)
        if replica is None or now_ms - replica.last_fetch_ms >= self._timing.begin_epoch_ms or not replica.acknowledged:
            request = wire.begin_request(
                self._cluster_id, me=self.me, to=voter, epoch=self.epoch, listener_name=self._listener_name
            )
            self._sends.append(Send(voter, request))

    def _patience_ms(self) -> int:
        """How long to wait before (again) asking for an election: by turns, and longer each time it came to nothing."""
        stagger_ms = self._timing.stagger_ms
        spread_ms = min(stagger_ms << min(self._tries, 10), self._timing.election_timeout_ms)
        return stagger_ms * (1 + self._turn()) + self._draw(max(spread_ms, 1))

    def _turn(self) -> int:
        """This voter's place among those that are left when the leader is gone."""
        others = [voter.node_id for voter in self.membership.voters if voter.node_id != self.leader_id]
        return sorted(others).index(self.me.node_id) if self.me.node_id in others else 0

    # Elections.

    def doubt_leader(self, now_ms: int) -> None:
        """The leader refuses connections, or has been silent for longer than it may be."""
        if self.role is Role.FOLLOWER and self.is_voter and not self._suspects:
            self._suspects = True
            self._deadline_ms = min(self._deadline_ms, now_ms + self._timing.stagger_ms * self._turn())

    def _probe(self, now_ms: int) -> None:
        """Ask whether an election would find a majority; the epoch stays as it is."""
        self._change_role(Role.PROSPECTIVE)
        self._suspects = True
        self._open_ballot(now_ms, pre_vote=True)
        if self._ballot is not None and self._ballot.won:
            self._stand(now_ms)

    def _stand(self, now_ms: int) -> None:
        """Stand for the next epoch."""
        if not self.is_lone_voter:
            self._change_role(Role.CANDIDATE)
        self._move_to(LeaderEpoch(self.epoch + 1))
        self.voted = self.me.key
        self._open_ballot(now_ms, pre_vote=False)
        if self._ballot is not None and self._ballot.won:
            self._lead(now_ms)

    def _open_ballot(self, now_ms: int, *, pre_vote: bool) -> None:
        self._ballot = Ballot(self.membership.voters, self.me.key, pre_vote=pre_vote)
        timeout_ms = self._timing.election_timeout_ms
        self._deadline_ms = now_ms + timeout_ms + self._draw(max(timeout_ms, 1))
        if not self._ballot.won:
            self._ask(self._ballot.others)

    def _ask(self, voters: Sequence[Voter]) -> None:
        assert self._ballot is not None
        for voter in voters:
            request = wire.vote_request(
                self._cluster_id,
                me=self.me.key,
                to=voter,
                epoch=self.epoch,
                last_epoch=self._log.last_epoch,
                end_offset=self._log.log_end_offset,
                pre_vote=self._ballot.pre_vote,
            )
            self._sends.append(Send(voter, request))

    def _give_up(self, now_ms: int) -> None:
        """No majority: back to the leader there still is in this epoch, if any, and try again a little later."""
        self._tries += 1
        if self.role is Role.PROSPECTIVE and self.leader_id != NO_NODE and self.leader_address is not None:
            self._change_role(Role.FOLLOWER)
        else:
            self._change_role(Role.UNATTACHED)
        self._ballot = None
        self._deadline_ms = now_ms + self._patience_ms()

    def _lead(self, now_ms: int) -> None:
        assert self._ballot is not None
        voters = self.membership.voters
        records: list[Message] = [
            leader_change(self.me.node_id, [voter.node_id for voter in voters], self._ballot.granting)
        ]
        if self.membership.is_dynamic:
            updated = tuple(self.me if voter.node_id == self.me.node_id else voter for voter in voters)
            if self.membership.voters_offset < 0:
                records.append(KRaftVersionRecord(version=0, kraft_version=self.membership.kraft_version))
                records.append(voters_record(updated, self._listener_name))
            elif updated != voters:
                records.append(voters_record(updated, self._listener_name))
        self._change_role(Role.LEADER)
        self._ballot = None
        self._tries = 0
        self._suspects = False
        self.leader_id = self.me.node_id
        self.leader_address = (self.me.host, self.me.port)
        self._unsaved = True
        self._records += records
        start_offset = self._log.log_end_offset
        self.progress = Progress(self.me.key, voters, epoch_start_offset=start_offset, now_ms=now_ms)
        for voter in voters:
            self._announce(voter.node_id, now_ms)

    def resign(self, now_ms: int) -> None:
        """Stop leading, and tell the voters who should follow."""
        assert self.progress is not None
        successors = self.progress.successors()
        for voter in self.membership.voters:
            if voter.node_id != self.me.node_id:
                request = wire.end_request(
                    self._cluster_id,
                    me=self.me,
                    epoch=self.epoch,
                    successors=successors,
                    listener_name=self._listener_name,
                )
                self._sends.append(Send(voter, request))
        self._detach(self.epoch, now_ms)
        self.voted = self.me.key  # It led this epoch, so nobody else may.

    # Changing what this replica is.

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

    # What others ask.

    def vote_asked(self, request: VoteRequest, now_ms: int) -> VoteResponse:
        """Vote, as Kafka answers it; a vote that is given is in the next `Ready`."""
        refused = self._refused(request)
        if refused is not None:
            return VoteResponse(error_code=refused)
        asked = wire.only_partition(request.topics)
        last_epoch_limit = asked.replica_epoch + 1 if asked.pre_vote else asked.replica_epoch
        if asked.last_offset < 0 or not 0 <= asked.last_offset_epoch < last_epoch_limit:
            return wire.vote_response(self.standing, ErrorCode.INVALID_REQUEST)
        error = self._voter_only(asked.replica_id, asked.replica_epoch)
        if error is ErrorCode.NONE and self._may_vote and not self.membership.is_dynamic:
            known = self.membership.voter(asked.replica_id) is not None
            error = ErrorCode.NONE if known else ErrorCode.INCONSISTENT_VOTER_SET
        if error is not ErrorCode.NONE:
            return wire.vote_response(self.standing, error)
        if asked.replica_epoch > self.epoch:
            self._detach(LeaderEpoch(asked.replica_epoch), now_ms)
        if not self._is_meant(request.voter_id, asked.voter_directory_id):
            return wire.vote_response(self.standing, ErrorCode.INVALID_VOTER_KEY)
        candidate = ReplicaKey(NodeId(asked.replica_id), asked.replica_directory_id)
        theirs = (asked.last_offset_epoch, asked.last_offset)
        up_to_date = theirs >= (self._log.last_epoch, self._log.log_end_offset) and self._may_trust(asked.last_offset)
        granted = self._grants(candidate, up_to_date=up_to_date, pre_vote=asked.pre_vote)
        if granted and not asked.pre_vote and self.voted is None:
            self.voted = candidate
            self._unsaved = True
            if self.role is not Role.UNATTACHED:
                self._change_role(Role.UNATTACHED)
                self._ballot = None
            self._deadline_ms = now_ms + self._timing.election_timeout_ms + self._patience_ms()
        return wire.vote_response(self.standing, ErrorCode.NONE, granted=granted)

    def _grants(self, candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        if self.role is Role.LEADER:
            return False
        if pre_vote:
            if self.role is Role.FOLLOWER and self._has_fetched and not self._suspects:
                return False  # The leader is there: nobody needs an election.
            return up_to_date
        if self.voted is not None:
            return self.voted.matches(candidate)
        if self.leader_id != NO_NODE or self.role in (Role.FOLLOWER, Role.CANDIDATE):
            return False
        return up_to_date

    def _may_trust(self, end_offset: int) -> bool:
        """Whether the candidate cannot lack what this voter once helped to commit and has forgotten.

        A voter of a static quorum that comes back with an empty disk is taken for what it was (KIP-853 is Kafka's
        answer). Until a leader has brought it up to date, it helps only to begin a new cluster, where nobody has
        anything yet.
        """
        return not self.amnesiac or end_offset == 0

    def epoch_begun(self, request: BeginQuorumEpochRequest, now_ms: int) -> BeginQuorumEpochResponse:
        """BeginQuorumEpoch: somebody leads."""
        refused = self._refused(request)
        if refused is not None:
            return BeginQuorumEpochResponse(error_code=refused)
        told = wire.only_partition(request.topics)
        error = self._voter_only(told.leader_id, told.leader_epoch)
        if error is ErrorCode.NONE:
            error = self._hear_of_leader(told, request.leader_endpoints, now_ms)
        if error is ErrorCode.NONE and not self._is_meant(request.voter_id, told.voter_directory_id):
            error = ErrorCode.INVALID_VOTER_KEY
        return wire.begin_response(self.standing, error)

    def epoch_ended(self, request: EndQuorumEpochRequest, now_ms: int) -> EndQuorumEpochResponse:
        """EndQuorumEpoch: the leader resigns; the first of its preferred successors stands at once."""
        refused = self._refused(request)
        if refused is not None:
            return EndQuorumEpochResponse(error_code=refused)
        told = wire.only_partition(request.topics)
        error = self._voter_only(told.leader_id, told.leader_epoch)
        if error is ErrorCode.NONE:
            error = self._hear_of_leader(told, request.leader_endpoints, now_ms)
        if error is ErrorCode.NONE and self.role is Role.FOLLOWER and self.leader_id == told.leader_id:
            self._suspects = True
            candidates = wire.preferred_candidates(told)
            self._deadline_ms = min(self._deadline_ms, now_ms + self._succession_ms(candidates))
        return wire.end_response(self.standing, error)

    def _succession_ms(self, candidates: Sequence[ReplicaKey]) -> int:
        longest_ms = self._timing.election_backoff_max_ms
        for place, candidate in enumerate(candidates):
            if candidate.matches(self.me.key):
                return 0 if place == 0 else min(longest_ms, (longest_ms >> (len(candidates) - 1)) << (place - 1))
        return longest_ms

    def _hear_of_leader(self, told: Any, endpoints: Sequence[Any], now_ms: int) -> ErrorCode:
        named = [each for each in endpoints if each.name == self._listener_name] or endpoints
        address = (named[0].host, named[0].port) if named else None
        news = LeaderNews(ErrorCode.NONE, NodeId(told.leader_id), LeaderEpoch(told.leader_epoch), address)
        if not self._is_consistent(news):
            return ErrorCode.INVALID_REQUEST
        self._maybe_move(news, now_ms)
        return ErrorCode.NONE

    def _refused(self, request: Any) -> ErrorCode | None:
        if request.cluster_id is not None and request.cluster_id != self._cluster_id:
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        return ErrorCode.INVALID_REQUEST if wire.only_partition(request.topics) is None else None

    def _voter_only(self, remote_id: int, epoch: int) -> ErrorCode:
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if remote_id < 0 or remote_id == self.me.node_id or epoch - self.epoch > MAX_EPOCH_JUMP:
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    def _is_meant(self, voter_id: int, directory_id: bytes) -> bool:
        """A request may say whom it is meant for; old versions do not."""
        if voter_id < 0:
            return True
        return voter_id == self.me.node_id and directory_id in (ZERO_UUID, self.me.directory_id)

    # Answers to what was asked.

    def answered(self, send: Send, response: Message, now_ms: int) -> None:
        """The answer to a `Send`."""
        match response:
            case VoteResponse():
                assert isinstance(send.request, VoteRequest)
                self._vote_answered(send.to, send.request, response, now_ms)
            case BeginQuorumEpochResponse() | EndQuorumEpochResponse():
                partition = wire.only_partition(response.topics)
                if response.error_code == ErrorCode.NONE and partition is not None:
                    news = wire.leader_news(partition, response.node_endpoints, partition.error_code)
                    settled = self.heard(news, now_ms)
                    if not settled and partition.error_code == ErrorCode.NONE and self.progress is not None:
                        replica = self.progress.find(send.to.key)
                        if replica is not None:
                            replica.acknowledged = True
            case _:
                raise AssertionError(f"nobody asked for a {type(response).__name__}")

    def unreachable(self, send: Send, now_ms: int) -> None:
        """A `Send` could not be delivered, or was not answered in time."""
        if isinstance(send.request, VoteRequest) and self._is_current(send.request):
            assert self._ballot is not None
            self._ballot.unreachable(send.to.node_id, now_ms)

    def _vote_answered(self, voter: Voter, request: VoteRequest, response: VoteResponse, now_ms: int) -> None:
        partition = wire.only_partition(response.topics)
        if response.error_code != ErrorCode.NONE or partition is None:
            if self._is_current(request):
                assert self._ballot is not None
                self._ballot.unreachable(voter.node_id, now_ms)
            return
        news = wire.leader_news(partition, response.node_endpoints, partition.error_code)
        if self.heard(news, now_ms) or not self._is_current(request):
            return
        assert self._ballot is not None
        self._ballot.record(voter.node_id, now_ms, granted=partition.vote_granted)
        if self._ballot.won:
            if self._ballot.pre_vote:
                self._stand(now_ms)
            else:
                self._lead(now_ms)
        elif self._ballot.lost:
            self._give_up(now_ms)
        elif not partition.vote_granted and not self._ballot.pre_vote:
            # Somebody else stands too, and those who say nothing may be gone: do not wait for them for long.
            self._deadline_ms = min(self._deadline_ms, now_ms + 2 * self._patience_ms())

    def _is_current(self, request: VoteRequest) -> bool:
        """Whether the election it was sent for is still going on."""
        asked = request.topics[0].partitions[0]
        return (
            self._ballot is not None
            and self._ballot.pre_vote == asked.pre_vote
            and asked.replica_epoch == self.epoch
            and self.role in (Role.PROSPECTIVE, Role.CANDIDATE)
        )

    def heard(self, news: LeaderNews, now_ms: int) -> bool:
        """Take in what an answer says of epoch and leader; whether that is all that can be made of the answer."""
        if news.epoch < self.epoch or news.error == ErrorCode.UNKNOWN_LEADER_EPOCH:
            return True
        if not self._is_consistent(news):
            return True
        if (
            news.epoch > self.epoch
            or news.error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            or (news.leader_id != NO_NODE and self.leader_id == NO_NODE)
        ):
            before = (self.epoch, self.leader_id)
            self._maybe_move(news, now_ms)
            moved_on = (self.epoch, self.leader_id) != before
            return news.error != ErrorCode.NONE or (moved_on and self.role is not Role.FOLLOWER)
        return news.error != ErrorCode.NONE

    def _is_consistent(self, news: LeaderNews) -> bool:
        """Two leaders in one epoch, or this node named the leader of an epoch it does not lead, cannot be."""
        if news.epoch - self.epoch > MAX_EPOCH_JUMP:
            return False
        if news.leader_id == self.me.node_id:
            return self.is_leader and news.epoch == self.epoch
        return (
            news.epoch != self.epoch or NO_NODE in (news.leader_id, self.leader_id) or news.leader_id == self.leader_id
        )

    def _maybe_move(self, news: LeaderNews, now_ms: int) -> None:
        address = news.address
        if address is None:
            voter = self.membership.voter(news.leader_id)
            address = None if voter is None else (voter.host, voter.port)
        if news.leader_id != NO_NODE and address is not None:
            if news.epoch > self.epoch or self.leader_id == NO_NODE:
                self._follow(news.epoch, news.leader_id, address, now_ms)
            elif news.address is not None and news.leader_id == self.leader_id and not self.is_leader:
                self.leader_address = news.address
        elif news.epoch > self.epoch:
            self._detach(news.epoch, now_ms)

    # Following.

    def fetch_accepted(self, high_watermark: int, now_ms: int) -> bool:
        """The leader has answered a fetch, and what it sent is on this device; whether more is known to be safe."""
        if self.role is Role.PROSPECTIVE and self.leader_id != NO_NODE:
            self._change_role(Role.FOLLOWER)
            self._ballot = None
        if self.role is not Role.FOLLOWER:
            return False
        self._has_fetched = True
        self._suspects = False
        self._tries = 0
        self._deadline_ms = now_ms + self._timing.fetch_timeout_ms
        end_offset = self._log.log_end_offset
        if 0 <= high_watermark <= end_offset:
            self.amnesiac = False
        return self._advance(min(high_watermark, end_offset))

    def truncation_point(self, diverging: EpochEnd) -> Offset:
        """Where this log has to be cut so that it can go on with the leader's."""
        mine = self._log.end_of_epoch(diverging.epoch)
        if mine.epoch == diverging.epoch:
            return Offset(min(mine.end_offset, diverging.end_offset))
        if mine.epoch == NO_EPOCH:
            return Offset(min(diverging.end_offset, self._log.log_end_offset))
        return Offset(mine.end_offset)

    # Leading.

    def fetched(
        self, key: ReplicaKey, *, epoch: int, fetch_offset: int, last_fetched_epoch: int, now_ms: int
    ) -> FetchVerdict:
        """A replica asks for what comes from `fetch_offset` on: it says that everything before is on its device."""
        error = self.leader_only(epoch)
        if error is ErrorCode.NONE and key.node_id == self.me.node_id:
            error = ErrorCode.UNKNOWN_SERVER_ERROR
        if error is not ErrorCode.NONE:
            return FetchVerdict(error=error)
        assert self.progress is not None
        verdict = self._compare(Offset(fetch_offset), LeaderEpoch(last_fetched_epoch))
        if verdict.diverging is None and verdict.snapshot is None and key.node_id >= 0:
            end_offset = self._log.log_end_offset
            self.progress.fetched(key, Offset(fetch_offset), leader_end_offset=end_offset, now_ms=now_ms)
            self._advance(self.progress.committed_end_offset())
        return verdict

    def snapshot_fetched(self, key: ReplicaKey, now_ms: int) -> None:
        """A replica loads a snapshot, so it is alive."""
        if self.progress is not None and key.node_id >= 0 and key.node_id != self.me.node_id:
            self.progress.heard_of(key, now_ms)

    def leader_only(self, epoch: int) -> ErrorCode:
        """What is wrong with a request that only the leader of that epoch may serve."""
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.BROKER_NOT_AVAILABLE if self.closing else ErrorCode.NONE

    def _compare(self, offset: Offset, epoch: LeaderEpoch) -> FetchVerdict:
        log, newest, oldest = self._log, self._newest_snapshot(), self._log.oldest_snapshot
        if offset == 0 and newest is not None:
            return FetchVerdict(snapshot=newest)
        if log.log_start_offset == 0 and offset == 0 and epoch == 0:
            return FetchVerdict()
        if oldest is not None and newest is not None:
            start = log.log_start_offset
            differs = offset == start == oldest.end_offset and epoch != oldest.epoch
            if offset < start or differs or epoch < oldest.epoch:
                return FetchVerdict(snapshot=newest)
        end = log.end_of_epoch(epoch)
        if end.epoch == NO_EPOCH:
            if oldest is not None and epoch == oldest.epoch:
                end = EpochEnd(oldest.epoch, oldest.end_offset)
            else:
                end = EpochEnd(log.last_epoch, log.log_end_offset)
        if end.epoch != epoch or end.end_offset < offset:
            return FetchVerdict(diverging=end)
        return FetchVerdict()

    def _newest_snapshot(self) -> SnapshotId | None:
        newest = self._log.newest_snapshot
        return None if newest == BOOTSTRAP_SNAPSHOT else newest

    def synced(self, end_offset: Offset) -> bool:
        """This node's log is on its device up to there; whether that made more of it committed."""
        if self.progress is None:
            return False
        self.progress.synced_end_offset = end_offset
        return self._advance(self.progress.committed_end_offset())

    def membership_changed(self) -> None:
        """The log names other voters now."""
        if self.progress is not None:
            self.progress.set_voters(self.membership.voters)
            for voter in self.membership.voters:
                if voter.node_id != self.me.node_id:
                    self._begin_due_ms.setdefault(voter.node_id, 0)

    def _advance(self, offset: int) -> bool:
        if offset <= self.high_watermark:
            return False
        self.high_watermark = Offset(offset)
        return True
