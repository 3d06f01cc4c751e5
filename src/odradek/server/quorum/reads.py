"""What a replica that fetches the metadata log is sent: shared by the generic path and the fast one."""

from __future__ import annotations

from odradek.ids import METADATA_TOPIC_ID, Offset
from odradek.metadata.raft import wire
from odradek.metadata.raft.state import READ_ON, FetchVerdict
from odradek.metadata.raft.voters import ReplicaKey
from odradek.metadata.topic_names import METADATA_TOPIC
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)
from odradek.server.quorum.quorum import Quorum
from odradek.values import value

MAX_BYTES = 1 << 20
"""Read into memory for one answer; a replica that has more to catch up with asks again."""

MAX_WAIT_MS = 60_000


@value
class KnownFollower:
    """What the bytes of a replica's fetches say that never change."""

    key: ReplicaKey
    max_wait_ms: int
    max_bytes: int


def read_for(
    quorum: Quorum,
    key: ReplicaKey,
    *,
    epoch: int,
    fetch_offset: int,
    last_fetched_epoch: int,
    max_bytes: int,
    now_ms: int,
) -> tuple[FetchVerdict, bytes]:
    """Whether a replica may read on, and what it is sent then; that it asks tells how far it is."""
    verdict = quorum.raft.fetched(
        key, epoch=epoch, fetch_offset=fetch_offset, last_fetched_epoch=last_fetched_epoch, now_ms=now_ms
    )
    if verdict is not READ_ON:
        return verdict, b""
    quorum.note_fetch()
    return verdict, quorum.log.read(Offset(fetch_offset), max_bytes=max_bytes)


def answer(quorum: Quorum, verdict: FetchVerdict, records: bytes) -> FetchResponse:
    """As a replica is told it, with who leads."""
    standing = quorum.raft.standing
    partition = PartitionData(
        partition_index=wire.PARTITION,
        error_code=verdict.error,
        high_watermark=quorum.raft.high_watermark if verdict.error is ErrorCode.NONE else -1,
        log_start_offset=quorum.log.log_start_offset,
        current_leader=LeaderIdAndEpoch(leader_id=standing.leader_id, leader_epoch=standing.epoch),
        aborted_transactions=None,
        records=records,
    )
    if verdict.diverging is not None:
        end = verdict.diverging
        partition.diverging_epoch = EpochEndOffset(epoch=end.epoch, end_offset=end.end_offset)
    if verdict.snapshot is not None:
        snapshot = verdict.snapshot
        partition.snapshot_id = SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch)
    topic = FetchableTopicResponse(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
    return FetchResponse(responses=[topic], node_endpoints=standing.endpoints(NodeEndpoint))
