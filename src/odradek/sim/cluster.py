"""One node in a made-up world, with all that outlives it: its disk, the network, the clock."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeAlias

from odradek.ports import World
from odradek.server.config import NodeConfig, load
from odradek.server.node import Node
from odradek.sim.clock import SimulatedClock
from odradek.sim.disk import Device, Keep
from odradek.sim.entropy import SimulatedEntropy
from odradek.sim.history import History, PowerLost, ProcessCrashed, Restarted
from odradek.sim.loop import Life, SimulatedLoop
from odradek.sim.network import Internet, SimulatedNetwork
from odradek.sim.trace import Trace
from odradek.sim.workers import SimulatedWorkers

BROKER = "broker-1"
PORT = 9092
PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": f"PLAINTEXT://{BROKER}:{PORT},CONTROLLER://{BROKER}:{PORT + 1}",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": f"1@{BROKER}:{PORT + 1}",
    "log.dirs": "/data",
    "auto.create.topics.enable": "false",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.flush.scheduler.interval.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "log.flush.start.offset.checkpoint.interval.ms": "2000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "log.segment.delete.delay.ms": "700",
}
"""What takes minutes or days in a real node takes seconds here, so that every run meets it."""

STEPS_TO_NOTE = 10
"""More turns than any client needs from an answer's arrival to its note in the history."""


MakeNode: TypeAlias = Callable[[NodeConfig, World], Node]


def make_node(config: NodeConfig, world: World) -> Node:
    """A node as it is, but for buffers that are overwritten once they are free, so that stale views show."""
    return Node(config, world, poison_buffers=True)


class Cluster:
    """Everything of one run that is not a client."""

    def __init__(
        self,
        seed: int,
        history: History,
        make_node: MakeNode = make_node,
        *,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """The node has `PROPERTIES`, and `properties` where those say something else or more."""
        self.seed = seed
        self.history = history
        self.properties = PROPERTIES | dict(properties or {})
        self.loop = SimulatedLoop()  # type: ignore[abstract]  # Sockets and signals are not of this world.
        self.trace = Trace(self.loop)
        self.clock = SimulatedClock(self.loop)
        self.internet = Internet(self.loop, self.draw("network"), self.trace)
        self.device = Device(self.draw("disk"), self.trace)
        self.device.provide("/data")
        self.may_give_up = False
        """Set while the disk is full: a node that cannot write its metadata log is right to end itself."""
        self.gave_up = False
        self._make_node = make_node
        self._lives = 0
        self._life: Life | None = None
        self._node: Node | None = None

    def draw(self, purpose: str) -> random.Random:
        """A source of its own for every purpose, so that one more draw here does not change all that is drawn there."""
        return random.Random(f"{self.seed}/{purpose}")

    def client_network(self, name: str, life: Life | None = None) -> SimulatedNetwork:
        return self.internet.attach(name, life or Life(name))

    def kill_client(self, life: Life) -> None:
        """Take a client away between two of its steps; its machine closes its connections."""
        life.end()
        self.internet.crash(life)

    async def start(self) -> None:
        """Start the node on what its disk holds; raises what the start raises."""
        self._lives += 1
        self.gave_up = False
        life = self._life = Life(f"{BROKER} life {self._lives}")
        world = World(
            clock=self.clock,
            entropy=SimulatedEntropy(self.draw(f"entropy {self._lives}")),
            disk=self.device.attach(life),
            network=self.internet.attach(BROKER, life),
            workers=SimulatedWorkers(life, self.draw(f"workers {self._lives}")),
        )
        self.trace.note(BROKER, f"starts, life {self._lives}")
        self._node = self._make_node(load(self.properties, host_name=BROKER), world)
        self._node.on_failure = lambda failure: self._note_failure(life, failure)
        await self._in_life(life, self._node.start())
        self.trace.note(BROKER, "is up")

    async def stop(self) -> None:
        """Stop the node the orderly way."""
        assert self._life is not None
        assert self._node is not None
        self.trace.note(BROKER, "is asked to stop")
        await self._in_life(self._life, self._node.stop())
        self.trace.note(BROKER, "has stopped")
        self._end_life(self._life)
        self.device.locks.clear()
        self.history.add(Restarted())
        self.trace.mark("clean restart")

    async def crash(self, keep: Keep) -> None:
        """Take the node away between two of its steps, or after a call struck it down.

        Clients first note what they had heard by then: a promise that is noted after the crash was made after it.
        """
        assert self._life is not None
        self.trace.note(BROKER, "is killed" if keep == "process" else "loses power")
        self._end_life(self._life, last_words=keep == "process")
        for _ in range(STEPS_TO_NOTE):
            await asyncio.sleep(0)
        self.device.crash(keep)
        self.history.add(ProcessCrashed() if keep == "process" else PowerLost())
        self.trace.mark("process crash" if keep == "process" else "power loss")

    def abandon(self) -> None:
        """The run is over, however it ended: whatever still runs of the node is closed in order."""
        if self._life is not None and self._life.alive:
            self._end_life(self._life)

    def _note_failure(self, life: Life, failure: BaseException) -> None:
        """A node that gives up has found itself wrong; one that is being unwound has not."""
        if life.alive and self.may_give_up and isinstance(failure, OSError):
            self.trace.note(BROKER, f"gives up: {failure}")
            self.trace.mark("node gave up on a full disk")
            self.gave_up = True
        elif life.alive:
            self.loop.failures.append(f"the node gave up: {failure!r}")

    async def _in_life(self, life: Life, step: Coroutine[Any, Any, None]) -> None:
        """Wait for something the node does; giving up waiting does not reach into the node."""
        task = self.loop.create_task(step, context=life.context)
        await asyncio.wait([task])
        task.result()

    def _end_life(self, life: Life, *, last_words: bool = True) -> None:
        life.end()
        self.internet.crash(life, last_words=last_words)
        self._node = None


class TraceLog(logging.Handler):
    """Log lines of the node become lines of the trace."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        self._trace.note("log", f"{record.levelname} {record.getMessage()}")
