"""Who leads the partitions that a client asked the wrong node for: the answer says so itself (KIP-951)."""

from __future__ import annotations

from collections.abc import Iterator

from odradek.ids import NO_NODE, NodeId, Uuid
from odradek.metadata.image import Image
from odradek.metadata.image.cluster import Endpoint
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchResponse, LeaderIdAndEpoch, NodeEndpoint

_NAMES_A_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class LeaderHints:
    """The leaders that one answer names, and where clients of its listener reach them."""

    __slots__ = ("_image", "_listener_name", "_named")

    def __init__(self, image: Image, listener_name: str) -> None:
        self._image = image
        self._listener_name = listener_name
        self._named: dict[NodeId, None] = {}

    def leader_of(self, topic: str | Uuid, index: int) -> tuple[NodeId, int]:
        """Node and epoch, -1 and -1 if the partition is not known; the node's address will be told, too."""
        topics = self._image.topics
        known = topics.by_id.get(Uuid(topic)) if isinstance(topic, bytes) else topics.by_name.get(topic)
        if known is None or not 0 <= index < len(known.partitions):
            return NO_NODE, -1
        partition = known.partitions[index]
        self._named[partition.leader] = None
        return partition.leader, partition.leader_epoch

    def endpoints(self) -> Iterator[tuple[NodeId, Endpoint, str | None]]:
        """Node, address and rack of each leader that is alive and listens there."""
        for node_id in self._named:
            broker = self._image.cluster.brokers.get(node_id)
            if broker is not None and not broker.fenced:
                endpoint = broker.endpoint(self._listener_name)
                if endpoint is not None:
                    yield node_id, endpoint, broker.rack


def name_fetch_leaders(response: FetchResponse, image: Image, listener_name: str) -> None:
    """Say who leads instead, and where that listener's clients reach them (KIP-951)."""
    leaders = LeaderHints(image, listener_name)
    for topic in response.responses:
        for data in topic.partitions:
            if data.error_code in _NAMES_A_LEADER:
                leader, epoch = leaders.leader_of(topic.topic_id, data.partition_index)
                data.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
    response.node_endpoints = [
        NodeEndpoint(node_id=node_id, host=endpoint.host, port=endpoint.port, rack=rack)
        for node_id, endpoint, rack in leaders.endpoints()
    ]
