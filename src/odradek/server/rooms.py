"""The rooms of a node, by the names under which handlers know them.

`node.py` makes them and puts them here as it starts; whoever answers a request is handed all of them and uses what it
needs. Nothing here does anything of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from odradek.ids import NodeId
from odradek.metadata.features import SUPPORTED_FEATURES

if TYPE_CHECKING:
    from odradek.metadata.image import Image
    from odradek.metadata.image.topics import TopicImage
    from odradek.ports import World
    from odradek.protocol.messages.metadata import MetadataResponseTopic
    from odradek.server.access.authorizer import Authorizer
    from odradek.server.access.quotas import Quotas
    from odradek.server.configs.node_config import NodeConfig
    from odradek.server.containment import Containment
    from odradek.server.controller.controller import Controller
    from odradek.server.coordinators.groups import GroupCoordinator
    from odradek.server.coordinators.markers import MarkerWriter
    from odradek.server.coordinators.producer_ids import ProducerIds
    from odradek.server.coordinators.transactions import TransactionCoordinator
    from odradek.server.coordinators.verification import TransactionVerifier
    from odradek.server.following.fetchers import Fetchers
    from odradek.server.membership.lifecycle import BrokerLifecycle
    from odradek.server.net.listeners import Listeners
    from odradek.server.partitions.cleaner import LogCleaner
    from odradek.server.partitions.fetch_sessions import FetchSessions
    from odradek.server.partitions.fetch_wakeups import FetchWakeups
    from odradek.server.partitions.isr_changes import IsrChanges
    from odradek.server.partitions.replicas import Replicas
    from odradek.server.peers.controller_channel import ControllerChannel
    from odradek.server.quorum.quorum import Quorum
    from odradek.server.waiting.purgatory import Purgatory


class EncodedMetadata(Protocol):
    """Topics as Metadata describes them, which are kept encoded."""

    async def all_topics(self, image: Image, *, listener_name: str, version: int) -> list[MetadataResponseTopic]: ...

    async def some_topics(
        self, image: Image, entries: Sequence[TopicImage | MetadataResponseTopic], *, listener_name: str, version: int
    ) -> list[MetadataResponseTopic]: ...


class Rooms:
    """All that a handler may ask; those below `guarded` are there once the node has come so far."""

    def __init__(self, config: NodeConfig, world: World, *, cluster_id: str = "") -> None:
        self.config = config
        self.world = world
        self.node_id = NodeId(config.node_id)
        self.cluster_id = cluster_id
        self.supported_features = SUPPORTED_FEATURES
        self.authorizer: Authorizer | None = None
        self.guarded = False
        """Whether requests are metered or authorized: then none takes the fast path."""
        self.containment: Containment
        self.quotas: Quotas
        self.purgatory: Purgatory
        self.listeners: Listeners
        self.fetch_sessions: FetchSessions
        self.fetch_wakeups: FetchWakeups
        self.metadata_cache: EncodedMetadata
        self.quorum: Quorum
        self.controller: Controller
        """Of a node with the controller's role only."""
        self.channel: ControllerChannel
        self.forwarding: ControllerChannel
        self.lifecycle: BrokerLifecycle
        self.producer_ids: ProducerIds
        self.replicas: Replicas
        self.cleaner: LogCleaner
        self.fetchers: Fetchers
        self.isr_changes: IsrChanges
        self.groups: GroupCoordinator
        self.transactions: TransactionCoordinator
        self.markers: MarkerWriter
        self.verifier: TransactionVerifier
        self._next_image: asyncio.Future[None] | None = None

    @property
    def image(self) -> Image:
        """Everything the cluster agreed on, as far as this node knows."""
        return self.quorum.image

    async def next_image(self, *, timeout_ms: int) -> None:
        """Come back when another image has been carried out here, or when the time is up."""
        if self._next_image is None or self._next_image.done():
            self._next_image = asyncio.get_running_loop().create_future()
        await asyncio.wait([self._next_image], timeout=timeout_ms / 1000)

    def image_carried_out(self) -> None:
        """Whoever waits for another image comes back."""
        if self._next_image is not None and not self._next_image.done():
            self._next_image.set_result(None)
