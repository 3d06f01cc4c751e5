"""Fetch on a controller's listener, versions 4 to 18: the metadata log, for voters and observers.

Replicas get what is in the leader's log, committed or not; the high watermark tells them how much of it is. The offset
a replica fetches from says that it has everything before on its device, and so moves the high watermark.
"""

from __future__ import annotations

from odradek.ids import METADATA_TOPIC_ID, NodeId
from odradek.metadata.raft import wire
from odradek.metadata.raft.state import FetchVerdict
from odradek.metadata.raft.voters import ReplicaKey
from odradek.metadata.topic_names import METADATA_TOPIC
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.handlers.fast_fetch_metadata import fast_fetch
from odradek.server.net.routes import Role, serves
from odradek.server.quorum.reads import MAX_BYTES, MAX_WAIT_MS, answer, read_for
from odradek.storage.config import LONG_MAX

_TOPIC_ID_VERSION = 13
_REPLICA_STATE_VERSION = 15


@serves(ApiKey.FETCH, on=Role.CONTROLLER, fast_path=fast_fetch, unmetered=True)
async def handle(ctx: Context, request: FetchRequest) -> FetchResponse:
    require(ctx.caller, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    quorum = ctx.rooms.quorum
    if request.cluster_id is not None and request.cluster_id != quorum.cluster_id:
        return FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    wanted = _only_partition(ctx, request)
    if wanted is None:
        return FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
    if (
        request.max_wait_ms < 0
        or wanted.fetch_offset < 0
        or not 0 <= wanted.last_fetched_epoch <= wanted.current_leader_epoch
    ):
        return answer(quorum, FetchVerdict(error=ErrorCode.INVALID_REQUEST), b"")
    replica_id = request.replica_state.replica_id if ctx.api_version >= _REPLICA_STATE_VERSION else request.replica_id
    key = ReplicaKey(NodeId(replica_id), wanted.replica_directory_id)
    monotonic_ms = ctx.rooms.world.clock.monotonic_ms
    now_ms = monotonic_ms()
    deadline_ms = now_ms + min(request.max_wait_ms, MAX_WAIT_MS)
    max_bytes = min(request.max_bytes, MAX_BYTES)
    while True:
        verdict, records = read_for(
            quorum,
            key,
            epoch=wanted.current_leader_epoch,
            fetch_offset=wanted.fetch_offset,
            last_fetched_epoch=wanted.last_fetched_epoch,
            max_bytes=max_bytes,
            now_ms=now_ms,
        )
        news = wanted.high_watermark != LONG_MAX and quorum.high_watermark > wanted.high_watermark
        if records or news or not verdict.stays or now_ms >= deadline_ms:
            return answer(quorum, verdict, records)
        waiter = ctx.rooms.purgatory.park(timeout_ms=deadline_ms - now_ms)
        quorum.commits.park(waiter)
        await waiter
        now_ms = monotonic_ms()


def _only_partition(ctx: Context, request: FetchRequest) -> FetchPartition | None:
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return None
    topic = request.topics[0]
    by_id = ctx.api_version >= _TOPIC_ID_VERSION
    named = topic.topic_id == METADATA_TOPIC_ID if by_id else topic.topic == METADATA_TOPIC
    return topic.partitions[0] if named and topic.partitions[0].partition == wire.PARTITION else None
