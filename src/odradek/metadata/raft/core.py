"""One replica of the quorum: what it believes, what it promises, and what it wants done.

Events go in (a request, an answer, the clock, a peer that cannot be reached); what follows from them is told by `take`:
a `Ready` whose state is synced first, whose records are appended next, and whose requests are sent last. Nothing here
reads a clock, draws at random or waits.

Kafka's rules throughout (KIP-595, KIP-853, KIP-996); only how soon a follower doubts its leader is our own. Doubting
early is safe: a pre-vote finds out whether the others doubt it too, and changes nothing where they do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from odradek.ids import NO_EPOCH, NO_NODE, NO_OFFSET, ZERO_UUID, LeaderEpoch, NodeId, Offset
from odradek.metadata.raft import wire
from odradek.metadata.raft.electing import MAX_EPOCH_JUMP, Electing
from odradek.metadata.raft.state import READ_ON, FetchVerdict, Role
from odradek.metadata.raft.voters import ReplicaKey
from odradek.metadata.raft.wire import LeaderNews
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from odradek.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from odradek.protocol.messages.vote import VoteRequest, VoteResponse
from odradek.storage.leader_epochs import EpochEnd
from odradek.values import replace


class Raft(Electing):
    """A whole replica: it also answers what others ask, follows a log and leads one."""

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
        if error is ErrorCode.NONE and self.may_vote and not self.membership.is_dynamic:
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
        trusted = self._may_trust(candidate.node_id, theirs, now_ms)
        up_to_date = theirs >= (self._log.last_epoch, self._log.log_end_offset) and trusted
        granted = self._grants(candidate, up_to_date=up_to_date, pre_vote=asked.pre_vote)
        if granted and not asked.pre_vote and self.voted is None:
            if self.amnesia is not None and asked.last_offset == 0:
                self._know_no_more(self.amnesia.helps(candidate.node_id, self.epoch))
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

    def _may_trust(self, candidate: NodeId, theirs: tuple[int, int], now_ms: int) -> bool:
        """Whether the candidate cannot lack what this voter once helped to commit and has forgotten.

        Until a leader has brought it up to date, such a voter helps only to begin a new quorum, where nobody has
        anything yet: somebody whose log is empty, and again when a leader comes of that whom others do not know yet.
        """
        if self.amnesia is None:
            return True
        last_epoch, end_offset = theirs
        if end_offset == 0:
            return self.amnesia.quorum_is_new
        helped = self.amnesia.has_helped(candidate)
        if helped is not None and helped <= last_epoch:
            return True
        self._quorum_is_old(now_ms)
        return False

    def _quorum_is_old(self, now_ms: int) -> None:
        """Somebody has something: whoever has nothing has lost it, or was never there, and does not begin anew."""
        if self.amnesia is not None and self.amnesia.quorum_is_new:
            self._know_no_more(replace(self.amnesia, quorum_is_new=False))
            if self._ballot is not None:
                self._give_up(now_ms)

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
        self.told_high_watermark = Offset(max(high_watermark, self.told_high_watermark))
        end_offset = self._log.log_end_offset
        if self.amnesia is not None and high_watermark > 0:
            # A leader may still tell what an older one told it, and have more of which this voter was promised.
            if high_watermark <= end_offset and self._log.last_epoch == self.epoch:
                self._remember()
            else:
                self._quorum_is_old(now_ms)
        return self._advance(min(high_watermark, end_offset))

    def snapshot_accepted(self, end_offset: int, now_ms: int) -> bool:
        """A whole snapshot from the leader stands for this log: committed, but the leader may have committed more."""
        accepted = self.fetch_accepted(NO_OFFSET, now_ms)
        return self._advance(end_offset) or accepted

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
        progress = self.progress
        assert progress is not None
        end_offset = self._log.log_end_offset
        if last_fetched_epoch == self.epoch and progress.epoch_start_offset < fetch_offset <= end_offset:
            verdict = READ_ON  # It has something of this epoch, so everything before is the same.
        else:
            verdict = self._compare(Offset(fetch_offset), LeaderEpoch(last_fetched_epoch))
            if not verdict.stays:
                return verdict
        if key.node_id >= 0 and progress.fetched(
            key, Offset(fetch_offset), leader_end_offset=end_offset, now_ms=now_ms
        ):
            self._advance(progress.committed_end_offset())
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
            return READ_ON
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
        return READ_ON

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
