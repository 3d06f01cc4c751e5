"""Other brokers that answer by script, for what one broker asks of another; broker N is at `host-N`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from tests.unit.client.scripted import ScriptedBroker, ScriptedWire
from tests.unit.metadata.building import broker, cluster, led_by, uuid, with_topic

from odradek.ids import NodeId
from odradek.metadata.image import Image
from odradek.metadata.topic_names import TRANSACTION_TOPIC
from odradek.ports import Wire, WireOwner, World
from odradek.protocol.api import ApiKey
from odradek.server.peers.broker_channels import BrokerChannels
from odradek.sim.clock import SimulatedClock
from odradek.sim.loop import SimulatedLoop

HERE = NodeId(1)
OTHERS = (2, 3)


class Brokers:
    """This one and the others, and what they have agreed on: broker N leads partition N - 1 of `t`."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.scripted = {f"host-{number}": ScriptedBroker() for number in OTHERS}
        self.clock = SimulatedClock(loop)
        self.image: Image = with_topic(
            cluster(*(broker(number) for number in (HERE, *OTHERS))),
            *(led_by(number, [number]) for number in (1, 2, 3)),
        )
        world: Any = World(
            clock=self.clock,
            entropy=None,  # type: ignore[arg-type]
            disk=None,  # type: ignore[arg-type]
            network=self,
            workers=None,  # type: ignore[arg-type]
        )
        self.channels = BrokerChannels(
            world, lambda: self.image, client_id="test", listener_name="PLAINTEXT", timeout_ms=1_000
        )

    def coordinated_by(self, number: int) -> None:
        """All transactional ids; by nobody, if it is -1."""
        self.image = with_topic(self.image, led_by(number, [2]), name=TRANSACTION_TOPIC, topic_id=uuid(300))

    def script(self, number: int, key: ApiKey, answer: Callable[[Any], Any]) -> None:
        self.scripted[f"host-{number}"].answers[key] = answer

    async def connect(self, host: str, port: int, own: Callable[[Wire], WireOwner]) -> Wire:
        scripted = self.scripted.get(host)
        if scripted is None or not scripted.is_up:
            raise ConnectionRefusedError(111, "Connection refused")
        return ScriptedWire(scripted, own)

    async def listen(self, host: str, port: int, accept: Callable[[Wire], WireOwner]) -> Any:
        raise AssertionError("nobody listens here")


def among_brokers(test: Callable[[Brokers], Coroutine[Any, Any, None]]) -> None:
    """Run a test in made-up time; what no task caught fails it."""
    loop = SimulatedLoop()  # type: ignore[abstract]

    async def run() -> None:
        brokers = Brokers(loop)
        await test(brokers)
        brokers.channels.close()

    loop.run_until_complete(run())
    assert loop.failures == []
