"""The cluster's brokers as a client on one listener sees them."""

from __future__ import annotations

from odradek.ids import NodeId, Uuid
from odradek.metadata.image.cluster import ClusterImage
from odradek.metadata.image.topics import PartitionRegistration


class ListenerView:
    """Which brokers can be reached and which replicas are offline; looked up once per broker, not per partition."""

    def __init__(self, cluster: ClusterImage, listener_name: str) -> None:
        self._brokers = cluster.brokers
        self._offline: dict[tuple[tuple[NodeId, ...], tuple[Uuid, ...]], list[int]] = {}
        self._reachable = {
            broker_id: broker for broker_id, broker in cluster.brokers.items() if broker.endpoint(listener_name)
        }

    def is_registered(self, broker_id: NodeId) -> bool:
        return broker_id in self._brokers

    def is_reachable(self, broker_id: NodeId) -> bool:
        """Whether it has the listener; a fenced broker may have it, too."""
        return broker_id in self._reachable

    def alive(self, replicas: tuple[NodeId, ...]) -> list[int]:
        return [replica for replica in replicas if replica in self._reachable and not self._reachable[replica].fenced]

    def offline(self, partition: PartitionRegistration) -> list[int]:
        """Replicas that serve nobody here: broker gone or fenced, listener missing, or directory lost."""
        placement = (partition.replicas, partition.directories)
        known = self._offline.get(placement)  # A topic has far fewer placements than partitions.
        if known is not None:
            return known
        offline: list[int] = []
        for replica, directory in zip(partition.replicas, partition.directories, strict=True):
            broker = self._reachable.get(replica)
            if broker is None or broker.fenced or not broker.has_online_directory(directory):
                offline.append(replica)
        self._offline[placement] = offline
        return offline
