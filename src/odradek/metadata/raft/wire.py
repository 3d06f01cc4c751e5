"""The quorum's requests and answers: all of them speak of one partition, `__cluster_metadata-0`, and are made here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from odradek.ids import METADATA_TOPIC_ID, NO_NODE, ZERO_UUID, LeaderEpoch, NodeId, Offset
from odradek.metadata.raft.snapshot import SnapshotId
from odradek.metadata.raft.voters import ReplicaKey, Voter
from odradek.metadata.topic_names import METADATA_TOPIC
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages import begin_quorum_epoch as begin
from odradek.protocol.messages import end_quorum_epoch as end
from odradek.protocol.messages import fetch, fetch_snapshot, vote
from odradek.values import value

Address: TypeAlias = tuple[str, int]

PARTITION = 0


@value
class LeaderNews:
    """What an answer says of who leads, and whether it did what was asked."""

    error: int
    leader_id: NodeId
    epoch: LeaderEpoch
    address: Address | None


def only_partition(topics: Sequence[Any]) -> Any:
    """The one partition a request or answer may speak of; None if it speaks of anything else."""
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    partition = topics[0].partitions[0]
    if isinstance(partition, fetch.PartitionData):
        return partition if partition.partition_index == PARTITION else None
    index = getattr(partition, "partition_index", getattr(partition, "partition", getattr(partition, "index", None)))
    name = getattr(topics[0], "topic_name", getattr(topics[0], "name", METADATA_TOPIC))
    return partition if name == METADATA_TOPIC and index == PARTITION else None


def leader_news(partition: Any, endpoints: Sequence[Any], error: int) -> LeaderNews:
    """Of an answer to Vote, BeginQuorumEpoch or EndQuorumEpoch, or the `current_leader` of the other two."""
    leader_id = NodeId(partition.leader_id)
    return LeaderNews(error, leader_id, LeaderEpoch(partition.leader_epoch), address_of(leader_id, endpoints))


def address_of(node_id: NodeId, endpoints: Sequence[Any]) -> Address | None:
    for endpoint in endpoints:
        if endpoint.node_id == node_id:
            return endpoint.host, endpoint.port
    return None


# --- requests ---------------------------------------------------------------------------------------------------------


def vote_request(
    cluster_id: str,
    *,
    me: ReplicaKey,
    to: Voter,
    epoch: LeaderEpoch,
    last_epoch: LeaderEpoch,
    end_offset: Offset,
    pre_vote: bool,
) -> vote.VoteRequest:
    asked = vote.RequestedPartitionData(
        partition_index=PARTITION,
        replica_epoch=epoch,
        replica_id=me.node_id,
        replica_directory_id=me.directory_id,
        voter_directory_id=to.directory_id,
        last_offset_epoch=last_epoch,
        last_offset=end_offset,
        pre_vote=pre_vote,
    )
    topic = vote.RequestedTopicData(topic_name=METADATA_TOPIC, partitions=[asked])
    return vote.VoteRequest(cluster_id=cluster_id, voter_id=to.node_id, topics=[topic])


def begin_request(
    cluster_id: str, *, me: Voter, to: Voter, epoch: LeaderEpoch, listener_name: str
) -> begin.BeginQuorumEpochRequest:
    told = begin.RequestedPartitionData(
        partition_index=PARTITION, voter_directory_id=to.directory_id, leader_id=me.node_id, leader_epoch=epoch
    )
    return begin.BeginQuorumEpochRequest(
        cluster_id=cluster_id,
        voter_id=to.node_id,
        topics=[begin.RequestedTopicData(topic_name=METADATA_TOPIC, partitions=[told])],
        leader_endpoints=[begin.LeaderEndpoint(name=listener_name, host=me.host, port=me.port)],
    )


def end_request(
    cluster_id: str, *, me: Voter, epoch: LeaderEpoch, successors: Sequence[ReplicaKey], listener_name: str
) -> end.EndQuorumEpochRequest:
    told = end.RequestedPartitionData(
        partition_index=PARTITION,
        leader_id=me.node_id,
        leader_epoch=epoch,
        preferred_successors=[each.node_id for each in successors],
        preferred_candidates=[
            end.ReplicaInfo(candidate_id=each.node_id, candidate_directory_id=each.directory_id) for each in successors
        ],
    )
    return end.EndQuorumEpochRequest(
        cluster_id=cluster_id,
        topics=[end.RequestedTopicData(topic_name=METADATA_TOPIC, partitions=[told])],
        leader_endpoints=[end.LeaderEndpoint(name=listener_name, host=me.host, port=me.port)],
    )


def fetch_request(
    cluster_id: str,
    *,
    me: ReplicaKey,
    epoch: LeaderEpoch,
    end_offset: Offset,
    last_epoch: LeaderEpoch,
    high_watermark: Offset,
    max_wait_ms: int,
    max_bytes: int,
) -> fetch.FetchRequest:
    wanted = fetch.FetchPartition(
        partition=PARTITION,
        current_leader_epoch=epoch,
        fetch_offset=end_offset,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=0,
        replica_directory_id=me.directory_id,
        high_watermark=high_watermark,
    )
    return fetch.FetchRequest(
        cluster_id=cluster_id,
        replica_id=me.node_id,
        replica_state=fetch.ReplicaState(replica_id=me.node_id),
        max_wait_ms=max_wait_ms,
        min_bytes=0,
        max_bytes=max_bytes,
        topics=[fetch.FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[wanted])],
    )


def fetch_snapshot_request(
    cluster_id: str, *, me: ReplicaKey, epoch: LeaderEpoch, snapshot_id: SnapshotId, position: int, max_bytes: int
) -> fetch_snapshot.FetchSnapshotRequest:
    wanted = fetch_snapshot.RequestedPartitionSnapshot(
        partition=PARTITION,
        current_leader_epoch=epoch,
        snapshot_id=fetch_snapshot.SnapshotId(end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch),
        position=position,
        replica_directory_id=me.directory_id,
    )
    topic = fetch_snapshot.RequestedTopicSnapshot(name=METADATA_TOPIC, partitions=[wanted])
    return fetch_snapshot.FetchSnapshotRequest(
        cluster_id=cluster_id, replica_id=me.node_id, max_bytes=max_bytes, topics=[topic]
    )


# --- answers ----------------------------------------------------------------------------------------------------------


@value
class Standing:
    """Who leads in which epoch, as every answer tells it."""

    leader_id: NodeId
    epoch: LeaderEpoch
    address: Address | None

    def endpoints(self, kind: Any) -> list[Any]:
        if self.leader_id == NO_NODE or self.address is None:
            return []
        host, port = self.address
        return [kind(node_id=self.leader_id, host=host, port=port)]


def vote_response(standing: Standing, error: ErrorCode, *, granted: bool = False) -> vote.VoteResponse:
    answer = vote.PartitionData(
        partition_index=PARTITION,
        error_code=error,
        leader_id=standing.leader_id,
        leader_epoch=standing.epoch,
        vote_granted=granted,
    )
    return vote.VoteResponse(
        topics=[vote.TopicData(topic_name=METADATA_TOPIC, partitions=[answer])],
        node_endpoints=standing.endpoints(vote.NodeEndpoint),
    )


def begin_response(standing: Standing, error: ErrorCode) -> begin.BeginQuorumEpochResponse:
    answer = begin.PartitionData(
        partition_index=PARTITION, error_code=error, leader_id=standing.leader_id, leader_epoch=standing.epoch
    )
    return begin.BeginQuorumEpochResponse(
        topics=[begin.TopicData(topic_name=METADATA_TOPIC, partitions=[answer])],
        node_endpoints=standing.endpoints(begin.NodeEndpoint),
    )


def end_response(standing: Standing, error: ErrorCode) -> end.EndQuorumEpochResponse:
    answer = end.PartitionData(
        partition_index=PARTITION, error_code=error, leader_id=standing.leader_id, leader_epoch=standing.epoch
    )
    return end.EndQuorumEpochResponse(
        topics=[end.TopicData(topic_name=METADATA_TOPIC, partitions=[answer])],
        node_endpoints=standing.endpoints(end.NodeEndpoint),
    )


def preferred_candidates(partition: end.RequestedPartitionData) -> list[ReplicaKey]:
    """Either version's way to say it."""
    if partition.preferred_candidates:
        return [
            ReplicaKey(NodeId(each.candidate_id), each.candidate_directory_id)
            for each in partition.preferred_candidates
        ]
    return [ReplicaKey(NodeId(each), ZERO_UUID) for each in partition.preferred_successors]
