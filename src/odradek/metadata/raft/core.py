"""The quorum of one: what this node must write down to become the leader, and in which order."""

from __future__ import annotations

from odradek.ids import LeaderEpoch
from odradek.metadata.raft.control_records import leader_change, voters_record
from odradek.metadata.raft.quorum_state import QuorumState
from odradek.metadata.raft.voters import BadVoters, Voter
from odradek.protocol.codec import Message
from odradek.protocol.messages.control_records import KRaftVersionRecord
from odradek.values import value


@value
class Ready:
    """Persist `state` first, then append `control_records` as one control batch in its epoch."""

    state: QuorumState
    control_records: tuple[Message, ...]


@value
class LoggedQuorum:
    """What the log and its snapshot say: the voters of a dynamic quorum, none of a static one."""

    kraft_version: int
    voters: tuple[Voter, ...]


def elect_itself(
    me: Voter,
    *,
    listener_name: str,
    state: QuorumState,
    last_epoch: LeaderEpoch,
    logged: LoggedQuorum,
    log_is_empty: bool,
) -> Ready:
    """Become the leader of an epoch that neither the state file nor the log has seen; nobody else has a vote.

    In a dynamic quorum the voters go into the log with the first leader, and again when this node's address changed.
    """
    check_lone_voter(me, logged)
    epoch = LeaderEpoch(max(state.leader_epoch, last_epoch) + 1)
    records: list[Message] = [leader_change(me.node_id, [me.node_id])]
    if logged.kraft_version > 0:
        if log_is_empty:
            records.append(KRaftVersionRecord(version=0, kraft_version=logged.kraft_version))
        if log_is_empty or logged.voters != (me,):
            records.append(voters_record((me,), listener_name))
    return Ready(QuorumState(leader_id=me.node_id, leader_epoch=epoch), tuple(records))


def check_lone_voter(me: Voter, logged: LoggedQuorum) -> None:
    """Elections among several nodes are not served yet, and pretending would lose data: say so and stop."""
    if logged.kraft_version == 0:
        return
    if [voter.node_id for voter in logged.voters] != [me.node_id]:
        named = ", ".join(str(voter.node_id) for voter in logged.voters) or "nobody"
        raise BadVoters(
            f"The metadata quorum must be this node alone ({me.node_id}) in this version, but its voters are: {named}."
        )
    if logged.voters[0].directory_id != me.directory_id:
        raise BadVoters(
            f"Voter {me.node_id} of the metadata quorum is another directory than this one: "
            "the log was formatted elsewhere."
        )
