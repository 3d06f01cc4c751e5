"""A process of clients: it lives until it is killed, told to end, or cannot go on."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod

from odradek.ports import Clock, Entropy, Network
from odradek.sim.cluster import Cluster
from odradek.sim.entropy import SimulatedEntropy
from odradek.sim.loop import Life
from odradek.values import value


@value
class Ports:
    """What a client of the library is handed."""

    network: Network
    clock: Clock
    entropy: Entropy


class ClientProcess(ABC):
    """One life; who comes back is another one, with another name."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.stall_s = 0.0
        """How long to do nothing, from the next occasion on."""
        self.is_leaving = False
        self.over = asyncio.Event()
        self.life = Life(name)
        self.draw: random.Random = cluster.draw(name)

    def start(self) -> None:
        self.cluster.client_lives.append(self.life)
        task = self.cluster.loop.create_task(self._live(), context=self.life.context)
        task.add_done_callback(self._ended)

    def crash(self) -> None:
        self.cluster.trace.note(self.name, "is killed")
        self.cluster.kill_client(self.life)
        self.gone(orderly=False)

    @abstractmethod
    async def work(self) -> bool:
        """Go on until told to leave; whether whom it concerns was told."""

    def gone(self, *, orderly: bool) -> None:
        """It is over, one way or the other."""
        self.over.set()
        self.cluster.trace.note(self.name, "has left" if orderly else "is gone")

    def ports(self) -> Ports:
        return Ports(
            self.cluster.client_network(self.name, self.life),
            self.cluster.clock,
            SimulatedEntropy(self.cluster.draw(f"{self.name} entropy")),
        )

    async def _live(self) -> None:
        self.gone(orderly=await self.work())

    def _ended(self, task: asyncio.Task[None]) -> None:
        failure = None if task.cancelled() else task.exception()
        if failure is not None and self.life.alive:
            self.cluster.loop.failures.append(f"{self.name} could not go on: {failure!r}")
