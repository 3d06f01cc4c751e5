"""Which replica a consumer should read from (KIP-392)."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.ids import NodeId, Offset
from odradek.replication.leader import Leadership


def nearest_replica(
    leadership: Leadership, racks: Mapping[NodeId, str | None], *, client_rack: str, fetch_offset: Offset
) -> NodeId | None:
    """An in-sync follower in the client's rack that holds the offset; None if the leader is as good as any.

    `racks` names the brokers that the client can reach. Of several the one that is furthest counts.
    """
    if not client_rack or racks.get(leadership.node_id) == client_rack:
        return None
    best: NodeId | None = None
    for replica in leadership.in_sync.committed:
        progress = leadership.followers.get(replica)
        if (
            progress is None
            or racks.get(replica) != client_rack
            or not progress.log_start_offset <= fetch_offset <= progress.log_end_offset
        ):
            continue
        if best is None or progress.log_end_offset > leadership.followers[best].log_end_offset:
            best = replica
    return best
