"""All fetchers of a node: one for each broker that leads partitions which this node follows."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from odradek.ids import NodeId
from odradek.ports import World
from odradek.server.configs.node_config import NodeConfig
from odradek.server.following.fetch_requests import Key
from odradek.server.following.fetcher import Fetcher
from odradek.server.partitions.hosted_partition import HostedPartition
from odradek.server.partitions.replicas import Replicas

DOUBT_MS = 300
"""So long a leader that has hung up and not come back is taken to be gone, if nobody says otherwise."""


class Fetchers:
    """Gives every followed partition to the fetcher of its leader."""

    def __init__(self, config: NodeConfig, world: World, replicas: Replicas) -> None:
        self.config = config
        self.world = world
        self.replicas = replicas
        self.node_id = NodeId(config.node_id)
        self.client_id = f"broker-{config.node_id}-fetcher-0"
        self._by_leader: dict[NodeId, Fetcher] = {}
        self._leader_of: dict[Key, NodeId] = {}
        self._started = False
        self._doubts: dict[NodeId, int] = {}
        """Leaders to whom the connection was lost, and until when it is likely that they are gone."""
        replicas.on_role = self.assign_fetcher
        replicas.on_cluster = self._cluster_changed
        replicas.on_throttles = self._throttles_changed

    def start(self) -> None:
        """Begin to fetch: this node is registered, so leaders know it."""
        self._started = True
        for fetcher in self._by_leader.values():
            fetcher.start()

    def close(self) -> None:
        for fetcher in self._by_leader.values():
            fetcher.close()
        self._by_leader.clear()
        self._leader_of.clear()
        self._started = False

    def assign_fetcher(self, hosted: HostedPartition) -> None:
        """Let the right fetcher pull a partition, or none: it is led here, by nobody, or is gone."""
        key = (hosted.topic_id, hosted.index)
        state = hosted.partition.state
        leader = state.leader if state.leader != self.node_id and self.replicas.hosts(hosted) else NodeId(-1)
        before = self._leader_of.pop(key, None)
        if before is not None and before != leader:
            fetcher = self._by_leader[before]
            fetcher.forget(key)
            if not len(fetcher):
                fetcher.close()
                del self._by_leader[before]
        if leader >= 0:
            self._leader_of[key] = leader
            if leader not in self._by_leader:
                self._by_leader[leader] = Fetcher(self, leader)
                if self._started:
                    self._by_leader[leader].start()
            self._by_leader[leader].follow(hosted)

    def max_lag(self) -> int:
        return max((fetcher.max_lag() for fetcher in self._by_leader.values()), default=0)

    def doubt(self, leader_id: NodeId) -> None:
        self._doubts[leader_id] = self.world.clock.monotonic_ms() + DOUBT_MS

    def trust(self, leader_id: NodeId) -> None:
        self._doubts.pop(leader_id, None)

    def doubt_left_ms(self) -> int:
        """How long it is worth waiting for the word of who leads instead; 0 if there is no doubt about who does.

        A client that loses a leader asks at once who leads now, and if it is told the dead one, it does not ask again
        for a second. The controller needs some milliseconds to know better.
        """
        if not self._doubts:
            return 0
        now_ms = self.world.clock.monotonic_ms()
        self._doubts = {
            leader: end for leader, end in self._doubts.items() if end > now_ms and leader in self._by_leader
        }
        return max((end - now_ms for end in self._doubts.values()), default=0)

    def address_of(self, broker_id: NodeId) -> tuple[str, int] | None:
        broker = self.replicas.image.cluster.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoint(self.config.inter_broker_listener_name)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(work)

    def _throttles_changed(self) -> None:
        for fetcher in self._by_leader.values():
            fetcher.throttles_changed()

    def _cluster_changed(self) -> None:
        for fetcher in self._by_leader.values():
            fetcher.leader_moved()
