"""Which listeners of brokers a controller has reached itself, in which life of a broker.

That a listener refuses says something only where it has not always done so: addresses may be meant for others, behind a
translation or a filter that turns this controller away and nobody else. So every controller, whether it is active or
not, connects once to each listener of each broker that is unfenced, and closes at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from odradek.ids import NO_NODE, NodeId
from odradek.metadata.image import Image
from odradek.metadata.image.cluster import BrokerRegistration, ClusterImage, Endpoint
from odradek.ports import World
from odradek.server.containment import Containment, Cost

TIMEOUT_MS = 1_000
FIRST_PAUSE_MS = 1_000
LONGEST_PAUSE_MS = 60_000
"""Between two tries to reach a listener that was not reached yet, doubled each time."""


class ReachedListeners:
    """Follows the image, and connects where it has to; `wanted` says whether anybody asks for what comes of it."""

    def __init__(
        self, world: World, containment: Containment, *, wanted: Callable[[], bool], myself: NodeId = NO_NODE
    ) -> None:
        """`myself` is the broker of this very process: nobody waits for it."""
        self._network = world.network
        self._containment = containment
        self._wanted = wanted
        self._myself = myself
        self._was_wanted = False
        self._cluster: ClusterImage | None = None
        self._reached: dict[NodeId, tuple[int, list[Endpoint]]] = {}
        """By broker: its epoch, and what was reached since it has that."""
        self._tasks: dict[NodeId, asyncio.Task[None]] = {}

    def learn(self, image: Image) -> None:
        """Look for brokers that were not looked for yet; forget those that are gone, or are others now."""
        wanted = self._wanted()
        if image.cluster is self._cluster and wanted == self._was_wanted:
            return
        self._cluster, self._was_wanted = image.cluster, wanted
        for broker_id, (broker_epoch, _) in list(self._reached.items()):
            broker = image.cluster.brokers.get(broker_id)
            if not wanted or broker is None or broker.broker_epoch != broker_epoch:
                self._forget(broker_id)
        for broker in image.cluster.brokers.values() if wanted else ():
            if not broker.fenced and broker.broker_id != self._myself:
                self._look_for(broker)

    def of(self, broker: BrokerRegistration) -> tuple[Endpoint, ...]:
        """The broker's listeners that took a connection from here in this life of it."""
        broker_epoch, reached = self._reached.get(broker.broker_id, (-1, []))
        return tuple(reached) if broker_epoch == broker.broker_epoch else ()

    def close(self) -> None:
        for broker_id in list(self._reached):
            self._forget(broker_id)

    async def refuses(self, endpoint: Endpoint) -> bool:
        """Whether somebody says that nobody listens there: silence may be the network's."""
        try:
            await self._touch(endpoint)
        except ConnectionRefusedError:
            return True
        except (OSError, TimeoutError):
            pass
        return False

    def _look_for(self, broker: BrokerRegistration) -> None:
        task = self._tasks.get(broker.broker_id)
        if task is not None and not task.done():
            return
        _, reached = self._reached.setdefault(broker.broker_id, (broker.broker_epoch, []))
        if len(reached) < len(broker.endpoints):
            self._tasks[broker.broker_id] = asyncio.create_task(self._reach(broker, reached))

    def _forget(self, broker_id: NodeId) -> None:
        del self._reached[broker_id]
        task = self._tasks.pop(broker_id, None)
        if task is not None:
            task.cancel()

    async def _reach(self, broker: BrokerRegistration, reached: list[Endpoint]) -> None:
        with self._containment.at_most(Cost.TASK, "reaching the listeners of brokers"):
            pause_ms = FIRST_PAUSE_MS
            while self._is_there(broker):
                for endpoint in broker.endpoints:
                    if endpoint not in reached and await self._accepts(endpoint):
                        reached.append(endpoint)
                if len(reached) == len(broker.endpoints):
                    return
                await asyncio.sleep(pause_ms / 1000)
                pause_ms = min(2 * pause_ms, LONGEST_PAUSE_MS)

    def _is_there(self, broker: BrokerRegistration) -> bool:
        known = None if self._cluster is None else self._cluster.brokers.get(broker.broker_id)
        return known is not None and known.broker_epoch == broker.broker_epoch and not known.fenced

    async def _accepts(self, endpoint: Endpoint) -> bool:
        try:
            await self._touch(endpoint)
        except (OSError, TimeoutError):
            return False
        return True

    async def _touch(self, endpoint: Endpoint) -> None:
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            wire = await self._network.connect(endpoint.host, endpoint.port, lambda _wire: _Touch())
        wire.close()


class _Touch:
    """The owner of a connection that was only made to see whether it can be."""

    def __init__(self) -> None:
        self._room = memoryview(bytearray(64))

    def buffer(self) -> memoryview:
        return self._room

    def received(self, count: int) -> None:
        """Nothing was asked for."""

    def drained(self) -> None:
        """Nothing is sent."""

    def lost(self, why: Exception | None) -> None:
        """It is closed at once anyway."""
