"""One machine: its disk and its clock, which outlive the node that runs on it, and that node's lives."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeAlias

from odradek.ports import World
from odradek.server.configs.node_config import NodeConfig, load
from odradek.server.node import Node
from odradek.sim.clock import SimulatedClock
from odradek.sim.disk import Device, Keep
from odradek.sim.entropy import SimulatedEntropy
from odradek.sim.history import History, PowerLost, ProcessCrashed, Restarted
from odradek.sim.loop import Life, SimulatedLoop
from odradek.sim.network import Internet
from odradek.sim.trace import Trace
from odradek.sim.workers import SimulatedWorkers

STEPS_TO_NOTE = 10
"""More turns than any client needs from an answer's arrival to its note in the history."""

MakeNode: TypeAlias = Callable[[NodeConfig, World], Node]


def make_node(config: NodeConfig, world: World) -> Node:
    """A node as it is, but for buffers that are overwritten once they are free, so that stale views show."""
    return Node(config, world, poison_buffers=True)


class Gone(Exception):
    """The node crashed while somebody waited for something it did."""


class SimulatedWorld:
    """What all machines and clients of a run share: time, the network, the trace, and one seed."""

    def __init__(self, seed: int, history: History) -> None:
        self.seed = seed
        self.history = history
        self.loop = SimulatedLoop()  # type: ignore[abstract]  # Sockets and signals are not of this world.
        self.trace = Trace(self.loop)
        self.internet = Internet(self.loop, self.draw("network"), self.trace)
        self.everybody: list[Machine] = []
        """All machines on which nodes run, also those that stand in for others."""

    def draw(self, purpose: str) -> random.Random:
        """A source of its own for every purpose, so that one more draw here does not change all that is drawn there."""
        return random.Random(f"{self.seed}/{purpose}")


class Machine:
    """A place where a node can run, and what happens to it there."""

    def __init__(
        self, around: SimulatedWorld, name: str, properties: Mapping[str, str], make_node: MakeNode = make_node
    ) -> None:
        self.name = name
        self.properties = dict(properties)
        self.trace = around.trace
        self.history = around.history
        self.internet = around.internet
        self.clock = SimulatedClock(around.loop)
        self.device = Device(around.draw(f"{name} disk"), around.trace, name=name)
        self.device.provide("/data")
        self.may_give_up: tuple[type[BaseException], ...] = ()
        """Why the node would be right to end itself now, as where the disk is full and it cannot write its log."""
        self.gave_up = False
        self.power_is_silent = False
        """Whether a loss of power is not heard by others until the machine is back."""
        self.life: Life | None = None
        self.node: Node | None = None
        self.lives = 0
        self.is_up = False
        self.everybody = around.everybody
        self.everybody.append(self)
        self._around = around
        self._loop = around.loop
        self.make_node = make_node
        self._ended = asyncio.Event()

    @property
    def is_held(self) -> bool:
        return self.life is not None and self.life.held is not None

    async def start(self) -> None:
        """Start the node on what its disk holds; raises what the start raises, or Gone if a crash cuts it short."""
        assert self.life is None or not self.life.alive
        self.lives += 1
        self.gave_up = False
        self._ended = asyncio.Event()
        self.internet.regain_power(self.name)
        life = self.life = Life(f"{self.name} life {self.lives}", self.name)
        world = World(
            clock=self.clock,
            entropy=SimulatedEntropy(self._around.draw(f"{self.name} entropy {self.lives}")),
            disk=self.device.attach(life),
            network=self.internet.attach(self.name, life),
            workers=SimulatedWorkers(life, self._around.draw(f"{self.name} workers {self.lives}")),
        )
        self.trace.note(self.name, f"starts, life {self.lives}")
        node = self.node = self.make_node(load(self.properties, host_name=self.name), world)
        node.on_failure = lambda failure: self._note_failure(life, failure)
        node.rooms.containment.on_contained = node.on_failure  # What a node survives is wrong all the same.
        try:
            await self.in_life(node.start())
        except Exception:
            if life.alive:  # The process ends with what it said.
                self._end_life(life)
                self.device.locks.clear()
            raise
        self.trace.note(self.name, "is up")
        self.is_up = True

    async def stop(self) -> None:
        """Stop the node the orderly way."""
        assert self.life is not None
        assert self.node is not None
        self.trace.note(self.name, "is asked to stop")
        await self.in_life(self.node.stop())
        self.trace.note(self.name, "has stopped")
        self._end_life(self.life)
        self.device.locks.clear()
        self.history.add(Restarted(self.name))
        self.trace.mark("clean restart")

    async def crash(self, keep: Keep) -> None:
        """Take the node away between two of its steps, or after a call struck it down.

        Clients first note what they had heard by then: a promise that is noted after the crash was made after it.
        """
        assert self.life is not None
        self.trace.note(self.name, "is killed" if keep == "process" else "loses power")
        self._end_life(self.life, keep)
        for _ in range(STEPS_TO_NOTE):
            await asyncio.sleep(0)
        self.device.crash(keep)
        self.history.add(ProcessCrashed(self.name) if keep == "process" else PowerLost(self.name))
        self.trace.mark("process crash" if keep == "process" else "power loss")

    def hold(self) -> None:
        """Stop the process where it is, as SIGSTOP does; its sockets and files stay open."""
        assert self.life is not None
        self.life.held = []
        self.trace.note(self.name, "is held")

    def go_on(self) -> None:
        """Let a held process run again; nothing happens to one that is not held or gone."""
        if self.life is not None and self.life.held is not None:
            self.trace.note(self.name, f"goes on, with {len(self.life.held)} things to do")
            self._loop.go_on(self.life)

    def abandon(self) -> None:
        """The run is over, however it ended: whatever still runs of the node is closed in order."""
        if self.life is not None and self.life.alive:
            self._end_life(self.life)

    async def in_life(self, step: Coroutine[Any, Any, None]) -> None:
        """Wait for something the node does; giving up waiting does not reach into the node."""
        assert self.life is not None
        task = self._loop.create_task(step, context=self.life.context)
        ending = asyncio.create_task(self._ended.wait())
        try:
            await asyncio.wait([task, ending], return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending.cancel()
        if not task.done():
            raise Gone(self.name)
        task.result()

    def _note_failure(self, life: Life, failure: BaseException) -> None:
        """A node that gives up has found itself wrong; one that is being unwound has not."""
        if life.alive and isinstance(failure, self.may_give_up):
            self.trace.note(self.name, f"gives up: {failure}")
            self.trace.mark("node gave up on a full disk" if isinstance(failure, OSError) else "node gave up its place")
            self.gave_up = True
        elif life.alive:
            self._loop.failures.append(f"{self.name} gave up: {failure!r}")

    def _end_life(self, life: Life, keep: Keep = "process") -> None:
        life.end()
        if self.node is not None:
            _close_handlers(self.node, life)
        if keep == "power" and self.power_is_silent:
            self.internet.lose_power(self.name, life)
        else:
            self.internet.crash(life, last_words=keep == "process")
        self.node = None
        self.is_up = False
        self._ended.set()


def _close_handlers(node: Node, life: Life) -> None:
    """As tasks are closed when a life ends: requests that wait have none."""
    for listener in node.rooms.listeners.by_name.values():
        for connection in listener.scope.connections.values():
            for handler in connection.stepped():
                life.unwind(handler.close)
