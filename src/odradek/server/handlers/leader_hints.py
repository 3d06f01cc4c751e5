"""Who leads the partitions that a client asked the wrong node for: the answer says so itself (KIP-951)."""

from __future__ import annotations

from collections.abc import Iterator

from odradek.ids import NO_NODE, NodeId, Uuid
from odradek.metadata.image import Image
from odradek.metadata.image.cluster import Endpoint


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
