"""What goes wrong among those who coordinate transactions: all that does among replicas, and deaths between two steps.

From a decision in the log of a coordinator to the last marker there are a dozen steps, each of which may be the last
of whoever makes it.
"""

from __future__ import annotations

import asyncio

from odradek.metadata.topic_names import TRANSACTION_TOPIC
from odradek.sim.machine import Machine
from odradek.sim.replication_faults import ReplicationFaults
from odradek.sim.transaction_cluster import STATE_LOGS, TransactionCluster

STEP_PATIENCE_S = 6.0
MOST_STEPS = 25


class TransactionFaults(ReplicationFaults):
    """Coordinators are struck more often than chance would have it."""

    def __init__(self, cluster: TransactionCluster, *, power: bool) -> None:
        super().__init__(cluster, power=power)
        self._transactional = cluster
        self.kinds += [
            (10, self.strike_between_steps),
            (5, self.strike_coordinator),
            (3, self.strike_in_its_log),
            (4, self.strike_decided),
        ]

    async def strike_between_steps(self) -> None:
        """Whoever makes a certain step of an end that is yet to come dies there, and perhaps its successor soon."""
        if self._transactional.on_step is not None:
            return
        left = [self._draw.randrange(1, MOST_STEPS)]
        struck: asyncio.Future[Machine] = asyncio.get_running_loop().create_future()

        def on_step(machine: Machine, what: str) -> bool:
            left[0] -= 1
            if left[0] > 0 or machine in self._struck or struck.done():
                return False
            self._transactional.on_step = None
            self._struck.append(machine)
            struck.set_result(machine)
            return True

        self._transactional.on_step = on_step
        try:
            async with asyncio.timeout(STEP_PATIENCE_S):
                machine = await struck
        except TimeoutError:
            self._transactional.on_step = None
            return
        self._trace.mark("struck between two steps")
        await machine.crash(self._keep(machine))
        await self._bring_back(machine)

    async def strike_coordinator(self) -> None:
        """A coordinator is killed, held, or loses sight of the others, so that another takes its place."""
        led = self._transactional.led(self._draw.choice(STATE_LOGS))
        if led is None or led[0] in self._struck:
            return
        machine = led[0]
        self._struck.append(machine)
        self._trace.mark("coordinator struck")
        if self._draw.random() < 0.5:
            await machine.crash(self._keep(machine))
            await self._bring_back(machine)
            return
        machine.hold()
        await asyncio.sleep(self._draw.uniform(1, 10))
        machine.go_on()
        self._release(machine)

    async def strike_decided(self) -> None:
        """A coordinator decides something while none of its followers runs, and dies; they go on when it is gone."""
        partition = self._draw.choice(STATE_LOGS)
        led = self._transactional.led(partition)
        agreed = self._transactional.registration(partition)
        if led is None or agreed is None:
            return
        machines = [led[0], *(self._machine_of(each) for each in agreed.replicas if each != agreed.leader)]
        if any(machine in self._struck or not machine.is_up for machine in machines):
            return
        self._struck += machines
        coordinator, *followers = machines
        self._trace.mark("coordinator struck with what it had decided")
        for follower in followers:
            follower.hold()
        await asyncio.sleep(self._draw.uniform(0.3, 2.5))
        await coordinator.crash("process")
        for follower in followers:
            follower.go_on()
            self._release(follower)
        await self._bring_back(coordinator)

    async def strike_in_its_log(self) -> None:
        """A coordinator dies in some change of its log that is yet to come."""
        led = self._transactional.led(self._draw.choice(STATE_LOGS))
        if led is None or led[0] in self._struck:
            return
        self._struck.append(led[0])
        left = [self._draw.randrange(1, 8)]

        def strikes(path: str) -> bool:
            left[0] -= TRANSACTION_TOPIC in path
            return left[0] <= 0

        await self._strike(led[0], strikes, STEP_PATIENCE_S)
