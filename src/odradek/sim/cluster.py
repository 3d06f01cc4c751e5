"""The machines of a run: one, or as many as a cluster has."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from odradek.sim.clock import SimulatedClock
from odradek.sim.disk import Keep
from odradek.sim.history import History
from odradek.sim.loop import Life, whose_turn
from odradek.sim.machine import Machine, MakeNode, SimulatedWorld, make_node
from odradek.sim.network import SimulatedNetwork
from odradek.sim.trace import Trace

BROKER = "broker-1"
PORT = 9092
HASTE = {
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

PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": f"PLAINTEXT://{BROKER}:{PORT},CONTROLLER://{BROKER}:{PORT + 1}",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": f"1@{BROKER}:{PORT + 1}",
    "log.dirs": "/data",
    **HASTE,
}
"""A node that is a cluster by itself."""


TELLING = {
    "Fetching the metadata snapshot ": "snapshot fetched",
    "Truncating the metadata log to offset ": "truncation after divergence",
    "Cut ": "follower cut its log",
    "More are in sync for ": "ISR grew",
    "Fewer are in sync for ": "ISR shrank",
}
"""What log lines begin with that tell of a state, and which."""


class Cluster(SimulatedWorld):
    """Everything of one run that is not a client."""

    def __init__(
        self,
        seed: int,
        history: History,
        make_node: MakeNode = make_node,
        *,
        properties: Mapping[str, str] | None = None,
        machines: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """A lone node with `PROPERTIES`, and `properties` where those say something else or more; or `machines`, each
        with the properties of its node."""
        super().__init__(seed, history)
        self.clock = SimulatedClock(self.loop)
        """The clients' clock."""
        self.client_lives: list[Life] = []
        """Of processes of clients."""
        if machines is None:
            machines = {BROKER: PROPERTIES | dict(properties or {})}
        self.machines = {name: Machine(self, name, settings, make_node) for name, settings in machines.items()}

    @property
    def brokers(self) -> list[tuple[str, int]]:
        """Where clients may begin."""
        return [(BROKER, PORT)]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.brokers)

    @property
    def machine(self) -> Machine:
        """The one machine of a run that has no more."""
        (machine,) = self.machines.values()
        return machine

    def has_deposed_coordinator(self) -> bool:
        """Whether some node takes itself for the groups' coordinator and the cluster has agreed on another."""
        return False

    def client_network(self, name: str, life: Life | None = None) -> SimulatedNetwork:
        return self.internet.attach(name, life or Life(name))

    def kill_client(self, life: Life) -> None:
        """Take a client away between two of its steps; its machine closes its connections."""
        life.end()
        self.internet.crash(life)

    async def start(self) -> None:
        """Start all nodes; raises what a start raises."""
        await asyncio.gather(*(machine.start() for machine in self.machines.values()))

    async def stop(self) -> None:
        """Stop all nodes in order, all at once."""
        await asyncio.gather(*(machine.stop() for machine in self.machines.values()))

    async def crash(self, keep: Keep) -> None:
        """Take all nodes away."""
        for machine in self.machines.values():
            await machine.crash(keep)

    def abandon(self) -> None:
        """The run is over, however it ended."""
        for machine in self.machines.values():
            machine.abandon()
        for life in self.client_lives:
            if life.alive:
                life.end()


class TraceLog(logging.Handler):
    """Log lines of the nodes become lines of the trace, and some of them tell of a state that was reached."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        state = TELLING.get(record.msg.partition("%")[0])
        if state is not None:
            self._trace.mark(state)
        life = whose_turn()
        who = "log" if life is None else life.machine
        self._trace.note(who, f"{record.levelname} {record.getMessage()}")
