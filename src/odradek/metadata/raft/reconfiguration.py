"""Changing the voters (KIP-853): what has to be so before another voter set may go into the log.

One voter at a time, and the next only when the last change is committed: so any majority of the old set and any of the
new one have a voter in common, and no two leaders can be elected by different ideas of who votes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from odradek.ids import ZERO_UUID, NodeId, Uuid
from odradek.metadata.raft.core import Raft
from odradek.metadata.raft.voters import ReplicaKey, Voter
from odradek.protocol.errors import ErrorCode, KafkaError

REPLICA_IS_RECENT_MS = 3_600_000
"""A replica that was caught up and has fetched within the last hour may become a voter: Kafka's rule."""


def check_leads(raft: Raft, cluster_id: str | None, own_cluster_id: str, *, epoch: int | None = None) -> None:
    """Only the leader changes voters, and only of its own cluster."""
    if cluster_id is not None and cluster_id != own_cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f'The given id "{cluster_id}" doesn\'t match the cluster id "{own_cluster_id}"',
        )
    error = raft.leader_only(raft.epoch if epoch is None else epoch)
    if error is not ErrorCode.NONE:
        raise KafkaError(error)


def check_may_change(raft: Raft) -> None:
    """Nothing of an earlier change is still under way, and kraft.version allows changes at all."""
    if raft.high_watermark < 0 or raft.progress is None or raft.progress.committed_end_offset() < 0:
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            "Request timed out waiting for leader to establish HWM and fence previous voter changes",
        )
    membership = raft.membership
    if not membership.is_dynamic:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Cluster doesn't support changing voters because the kraft.version feature is {membership.kraft_version}",
        )
    if membership.voters_offset >= raft.high_watermark:
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"Request timed out waiting for voters to commit the latest voter change at {membership.voters_offset} "
            f"with HWM {raft.high_watermark}",
        )


def requested_voter(
    voter_id: int, directory_id: Uuid, listeners: Sequence[Any], *, listener_name: str, action: str
) -> Voter:
    """The voter that a request describes, reached at the listener that all controllers have."""
    if voter_id < 0 or directory_id == ZERO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{action} voter request didn't include a valid voter")
    named = [each for each in listeners if each.name == listener_name]
    if not named:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{action} voter request didn't include the endpoint for the default listener {listener_name}",
        )
    endpoints = tuple((each.name, each.host, each.port) for each in listeners)
    return Voter(
        NodeId(voter_id),
        named[0].host,
        named[0].port,
        directory_id,
        endpoints if len(endpoints) > 1 else (),
    )


def check_is_new(raft: Raft, new: Voter) -> None:
    if raft.membership.voter(new.node_id) is not None:
        raise KafkaError(
            ErrorCode.DUPLICATE_VOTER,
            f"The voter id for {new.key} is already part of the set of voters {_shown(raft)}.",
        )


def check_can_join(raft: Raft, new: Voter, kraft_versions: tuple[int, int] | None, now_ms: int) -> None:
    """It works with this kraft.version, and has nearly all of the log: else it would hold up every commit."""
    level = raft.membership.kraft_version
    lowest, highest = kraft_versions or (0, 0)
    if not lowest <= level <= highest:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Aborted add voter operation for {new.key} since the kraft.version range (min: {lowest}, max: {highest}) "
            f"doesn't support the finalized version {level}",
        )
    replica = None if raft.progress is None else raft.progress.find(new.key)
    if replica is None or replica.last_caught_up_ms < 0 or now_ms - replica.last_fetch_ms > REPLICA_IS_RECENT_MS:
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT, f"Aborted add voter operation for {new.key} since it is lagging behind"
        )


def voters_with(raft: Raft, new: Voter) -> tuple[Voter, ...]:
    return tuple(sorted((*raft.membership.voters, new), key=lambda voter: voter.node_id))


def voters_without(raft: Raft, key: ReplicaKey) -> tuple[Voter, ...]:
    """KafkaError unless it is a voter, and not the only one."""
    voters = raft.membership.voters
    left = tuple(voter for voter in voters if voter.key != key)
    if len(left) == len(voters):
        raise KafkaError(ErrorCode.VOTER_NOT_FOUND, f"Cannot remove voter {key} from the set of voters {_shown(raft)}")
    if not left:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Cannot remove {key}: it is the only voter")
    return left


def voters_updated(raft: Raft, changed: Voter) -> tuple[Voter, ...]:
    """KafkaError unless that very replica is a voter, and can work with this kraft.version."""
    lowest, highest = changed.kraft_versions
    if not lowest <= raft.membership.kraft_version <= highest:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if not any(voter.key == changed.key for voter in raft.membership.voters):
        raise KafkaError(ErrorCode.VOTER_NOT_FOUND)
    return tuple(changed if voter.key == changed.key else voter for voter in raft.membership.voters)


def voters_in_log(raft: Raft, announced: Mapping[NodeId, Voter], level: int) -> tuple[Voter, ...]:
    """The static voters with what they told of themselves; KafkaError unless all can work with that kraft.version."""
    voters = tuple(
        raft.me if voter.node_id == raft.me.node_id else announced.get(voter.node_id, voter)
        for voter in raft.membership.voters
    )
    for voter in voters:
        lowest, highest = voter.kraft_versions
        if voter.directory_id == ZERO_UUID:
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Update to kraft.version {level} needs the directory of every voter, and voter {voter.node_id} has "
                "not told its own yet.",
            )
        if not lowest <= level <= highest:
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Voter {voter.node_id} supports kraft.version {lowest} to {highest} only.",
            )
    return voters


def _shown(raft: Raft) -> str:
    return f"[{', '.join(str(voter.key) for voter in raft.membership.voters)}]"
