"""Controllers that answer by script, each on a port of its own, in a time that is made up."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tests.unit.client.scripted import ScriptedBroker, ScriptedWire

from odradek.ports import Wire, WireOwner, World
from odradek.protocol.api import ApiKey
from odradek.server.peers.controller_channel import ControllerChannel
from odradek.sim.clock import SimulatedClock
from odradek.sim.disk import Device
from odradek.sim.entropy import SimulatedEntropy
from odradek.sim.loop import Life, SimulatedLoop
from odradek.sim.trace import Trace
from odradek.sim.workers import SimulatedWorkers

ResultT = TypeVar("ResultT")
HOST = "controllers"


class Controllers:
    """By port; `leading` is the port of the one that the quorum says leads."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.by_port = {port: ScriptedBroker() for port in (1, 2)}
        self.leading: int | None = 1
        life = Life("test")
        self.world = World(
            clock=SimulatedClock(loop),
            entropy=SimulatedEntropy(random.Random(0)),
            disk=Device(random.Random(0), Trace(loop)).attach(life),
            network=self,
            workers=SimulatedWorkers(life, random.Random(0)),
        )
        self.channel = ControllerChannel(self.world, self.locate, client_id="test", answer_timeout_ms=30_000)

    def locate(self) -> tuple[str, int] | None:
        return None if self.leading is None else (HOST, self.leading)

    def lead(self, port: int | None) -> None:
        self.leading = port
        self.channel.leader_changed()

    def script(self, port: int, key: ApiKey, answer: Callable[[Any], Any]) -> None:
        self.by_port[port].answers[key] = answer

    async def connect(self, host: str, port: int, own: Callable[[Wire], WireOwner]) -> Wire:
        broker = self.by_port.get(port)
        if broker is None or not broker.is_up:
            raise ConnectionRefusedError(111, "Connection refused")
        return ScriptedWire(broker, own)

    async def listen(self, host: str, port: int, accept: Callable[[Wire], WireOwner]) -> Any:
        raise AssertionError("nobody listens here")


def play(test: Callable[[Controllers], Coroutine[Any, Any, ResultT]]) -> ResultT:
    """Run a test in made-up time; what no task caught fails it."""
    loop = SimulatedLoop()  # type: ignore[abstract]

    async def run() -> ResultT:
        controllers = Controllers(loop)
        result = await test(controllers)
        controllers.channel.close()
        return result

    played: ResultT = loop.run_until_complete(run())
    assert loop.failures == []
    return played


async def never(_request: Any) -> None:
    """As a process answers that is held."""
    await asyncio.get_running_loop().create_future()
