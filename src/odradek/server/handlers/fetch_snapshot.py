"""FetchSnapshot, versions 0 and 1: a piece of a snapshot of the metadata log, for a replica that is too far behind."""

from __future__ import annotations

from odradek.ids import LeaderEpoch, NodeId, Offset
from odradek.metadata.raft import snapshot as snapshots
from odradek.metadata.raft import wire
from odradek.metadata.raft.voters import ReplicaKey
from odradek.metadata.topic_names import METADATA_TOPIC
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionSnapshot,
    RequestedPartitionSnapshot,
    SnapshotId,
    TopicSnapshot,
)
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves
from odradek.server.quorum.quorum import Quorum

MAX_BYTES = 4 << 20
"""Of one piece, whatever is asked for."""


@serves(ApiKey.FETCH_SNAPSHOT, on=Role.CONTROLLER)
async def handle(ctx: Context, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
    require(ctx.caller, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    quorum = ctx.rooms.quorum
    if request.cluster_id is not None and request.cluster_id != quorum.cluster_id:
        return FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    wanted = wire.only_partition(request.topics)
    if wanted is None:
        return _unknown(request)
    error = quorum.raft.leader_only(wanted.current_leader_epoch)
    if error is not ErrorCode.NONE:
        return _answer(quorum, error)
    snapshot_id = snapshots.SnapshotId(Offset(wanted.snapshot_id.end_offset), LeaderEpoch(wanted.snapshot_id.epoch))
    size = quorum.log.snapshots.size_of(snapshot_id)
    if size is None or snapshot_id == snapshots.BOOTSTRAP_SNAPSHOT:
        return _answer(quorum, ErrorCode.SNAPSHOT_NOT_FOUND)
    if not 0 <= wanted.position < size:
        return _answer(quorum, ErrorCode.POSITION_OUT_OF_RANGE)
    piece = await quorum.log.snapshots.read(snapshot_id, wanted.position, max(min(request.max_bytes, MAX_BYTES), 1))
    key = ReplicaKey(NodeId(request.replica_id), wanted.replica_directory_id)
    quorum.raft.snapshot_fetched(key, ctx.rooms.world.clock.monotonic_ms())
    return _answer(quorum, ErrorCode.NONE, wanted=wanted, size=size, piece=piece)


def _answer(
    quorum: Quorum,
    error: ErrorCode,
    *,
    wanted: RequestedPartitionSnapshot | None = None,
    size: int = 0,
    piece: bytes = b"",
) -> FetchSnapshotResponse:
    standing = quorum.raft.standing
    nothing = SnapshotId(end_offset=0, epoch=0)
    partition = PartitionSnapshot(
        index=wire.PARTITION,
        error_code=error,
        snapshot_id=nothing if wanted is None else wanted.snapshot_id,
        current_leader=LeaderIdAndEpoch(leader_id=standing.leader_id, leader_epoch=standing.epoch),
        size=size,
        position=0 if wanted is None else wanted.position,
        unaligned_records=piece,
    )
    return FetchSnapshotResponse(
        topics=[TopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=standing.endpoints(NodeEndpoint),
    )


def _unknown(request: FetchSnapshotRequest) -> FetchSnapshotResponse:
    topics = []
    for topic in request.topics:
        partitions = [
            PartitionSnapshot(
                index=each.partition,
                error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                snapshot_id=SnapshotId(end_offset=0, epoch=0),
                size=0,
                position=0,
                unaligned_records=b"",
            )
            for each in topic.partitions
        ]
        topics.append(TopicSnapshot(name=topic.name, partitions=partitions))
    return FetchSnapshotResponse(topics=topics)
