"""Who leads the partitions that a client asked the wrong node for: the answer says so itself (KIP-951)."""

from __future__ import annotations

from odradek.ids import Uuid
from odradek.metadata.image import Image
from odradek.protocol.errors import ErrorCode
from odradek.protocol.fast.produce import LeaderHint
from odradek.protocol.messages.fetch import FetchResponse, LeaderIdAndEpoch, NodeEndpoint

_NAMES_A_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def leader_hint(image: Image, listener_name: str, topic: str | Uuid, index: int) -> LeaderHint | None:
    """A partition's leader, and where clients of that listener reach it; None if the partition is not known."""
    topics = image.topics
    known = topics.by_id.get(Uuid(topic)) if isinstance(topic, bytes) else topics.by_name.get(topic)
    if known is None or not 0 <= index < len(known.partitions):
        return None
    partition = known.partitions[index]
    broker = image.cluster.brokers.get(partition.leader)
    endpoint = None if broker is None or broker.fenced else broker.endpoint(listener_name)
    if broker is None or endpoint is None:
        return LeaderHint(partition.leader, partition.leader_epoch, None, -1, None)
    return LeaderHint(partition.leader, partition.leader_epoch, endpoint.host, endpoint.port, broker.rack)


def name_fetch_leaders(response: FetchResponse, image: Image, listener_name: str) -> None:
    """Say who leads instead, and where that listener's clients reach them."""
    reachable: dict[int, NodeEndpoint] = {}
    for topic in response.responses:
        for data in topic.partitions:
            if data.error_code not in _NAMES_A_LEADER:
                continue
            hint = leader_hint(image, listener_name, topic.topic_id, data.partition_index)
            if hint is None:
                continue
            data.current_leader = LeaderIdAndEpoch(leader_id=hint.node_id, leader_epoch=hint.leader_epoch)
            if hint.host is not None:
                reachable[hint.node_id] = NodeEndpoint(
                    node_id=hint.node_id, host=hint.host, port=hint.port, rack=hint.rack
                )
    response.node_endpoints = list(reachable.values())
