"""How a replica comes to lead or to follow: its timeouts, the elections it calls, and what others' answers teach it."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.ids import NO_NODE, LeaderEpoch, NodeId
from odradek.metadata.raft import wire
from odradek.metadata.raft.control_records import leader_change, voters_record
from odradek.metadata.raft.election import Ballot
from odradek.metadata.raft.progress import Progress
from odradek.metadata.raft.state import Role, Send, State
from odradek.metadata.raft.voters import Voter
from odradek.metadata.raft.wire import LeaderNews
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.begin_quorum_epoch import BeginQuorumEpochResponse
from odradek.protocol.messages.control_records import KRaftVersionRecord
from odradek.protocol.messages.end_quorum_epoch import EndQuorumEpochResponse
from odradek.protocol.messages.vote import VoteRequest, VoteResponse

MAX_EPOCH_JUMP = 1 << 20
"""Epochs go up by one with every election. A request that is a million ahead is forged or damaged, and believing it
would use up the epochs there are."""


class Electing(State):
    """A replica that votes, and may be voted for."""

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
        elif self.may_stand:
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

    # Elections.

    def doubt_leader(self, now_ms: int) -> None:
        """The leader refuses connections, or has been silent for longer than it may be.

        An observer has to know as well: others may have made it a voter that they cannot do without, and the leader be
        gone before it could tell.
        """
        if self.role is Role.FOLLOWER and not self._suspects:
            self._suspects = True
            if self.may_stand:
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
        self._remember()  # It had a majority whose logs are empty, or has promised nothing that it does not know.
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
        if news.leader_id == self.me.node_id and news.epoch == self.epoch and not self.is_leader:
            # Somebody has not heard yet that this node has resigned.
            news = LeaderNews(news.error, NO_NODE, news.epoch, None)
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
