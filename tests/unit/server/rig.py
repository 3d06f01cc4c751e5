"""A whole node in a made-up world, and wires of which the test holds the other end.

Time passes only when nothing else is left to do, so no test sleeps; the disk is in memory and can be filled or broken.
"""

from __future__ import annotations

import asyncio
import errno
import random
import struct
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from odradek.ids import Uuid
from odradek.ports import FileSlice, Part, Wire, WireOwner, World
from odradek.protocol.api import ApiKey, request_header_version, response_class, response_header_version
from odradek.protocol.codec import Message, decode, encode
from odradek.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.server.configs.node_config import load
from odradek.server.node import Node
from odradek.server.partitions.replicas import HostedPartition
from odradek.sim.clock import SimulatedClock
from odradek.sim.disk import Device
from odradek.sim.entropy import SimulatedEntropy
from odradek.sim.loop import Life, SimulatedLoop
from odradek.sim.trace import Trace
from odradek.sim.workers import SimulatedWorkers

ResultT = TypeVar("ResultT")
MessageT = TypeVar("MessageT", bound=Message)

PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://node:9092,CONTROLLER://node:9093",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/data",
    "broker.heartbeat.interval.ms": "86400000",
    "broker.session.timeout.ms": "864000000",
}
"""Heartbeats are rare: virtual days go by in some tests."""


class FakeWire:
    """The node's end of a connection: what is fed arrives, what is sent piles up where the test can see it."""

    def __init__(self) -> None:
        self.owner: WireOwner
        self.peer_host = "tester"
        self.sent = bytearray()
        self.stalled = False
        """Whether the far side has stopped reading."""
        self.paused = False
        self.widened = False
        self.closed = False
        self.on_change: Callable[[], None] = lambda: None
        self._unsent: list[Part] = []
        self._inbox = bytearray()

    @property
    def unsent_bytes(self) -> int:
        return sum(map(len, self._unsent))

    def send(self, parts: Sequence[Part]) -> None:
        if self.closed:
            return
        self._unsent.extend(parts)
        if not self.stalled:
            self._leave()

    def widen(self) -> None:
        self.widened = True

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        if self._inbox:
            asyncio.get_running_loop().call_soon(self._deliver)

    def close(self) -> None:
        self.lose(None)

    def finish(self) -> None:
        self._leave()
        self.lose(None)

    # What the test does.

    def feed(self, data: bytes | bytearray) -> None:
        self._inbox += data
        self._deliver()

    def lose(self, why: Exception | None) -> None:
        if not self.closed:
            self.closed = True
            self._unsent.clear()
            self.owner.lost(why)
            self.on_change()

    def drain(self) -> None:
        """The far side reads again, all there is."""
        self.stalled = False
        self._leave()
        self.owner.drained()

    def _deliver(self) -> None:
        while self._inbox and not self.paused and not self.closed:
            room = self.owner.buffer()
            assert len(room), "a connection offered no room to receive into"
            count = min(len(room), len(self._inbox))
            room[:count] = self._inbox[:count]
            del self._inbox[:count]
            self.owner.received(count)

    def _leave(self) -> None:
        for part in self._unsent:
            data = part.read() if isinstance(part, FileSlice) else part
            assert len(data) == len(part), "a file is shorter than the answer that points into it"
            self.sent += data
        self._unsent.clear()
        self.on_change()


class FakeNetwork:
    """Ports by number; nobody is on this network but the node, which can connect to itself."""

    def __init__(self) -> None:
        self.accept: dict[int, Callable[[Wire], WireOwner]] = {}

    async def listen(self, host: str, port: int, accept: Callable[[Wire], WireOwner]) -> FakeListening:
        self.accept[port] = accept
        return FakeListening(self, port)

    async def connect(self, host: str, port: int, own: Callable[[Wire], WireOwner]) -> Wire:
        accept = self.accept.get(port)
        if accept is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        near, far = FakeWire(), FakeWire()
        far.peer_host = near.peer_host = "node"
        far.owner, near.owner = accept(far), own(near)
        near.on_change, far.on_change = _hand_over(near, far), _hand_over(far, near)
        return near


def _hand_over(here: FakeWire, there: FakeWire) -> Callable[[], None]:
    """What one end sends the other hears, in the next turn of the loop."""

    def changed() -> None:
        loop = asyncio.get_running_loop()
        if here.sent:
            loop.call_soon(there.feed, bytes(here.sent))
            here.sent.clear()
        if here.closed and not there.closed:
            loop.call_soon(there.lose, None)

    return changed


class FakeListening:
    def __init__(self, network: FakeNetwork, port: int) -> None:
        self._network = network
        self.port = port

    def close(self) -> None:
        self._network.accept.pop(self.port, None)


class Client:
    """A client's end: sends requests, finds the answers."""

    def __init__(self, wire: FakeWire) -> None:
        self.wire = wire
        self.answered: list[tuple[int, bytes]] = []
        """Correlation id and what follows it, of every answer so far."""
        self._asked = 0
        self._changed = asyncio.Event()
        wire.on_change = self._take_answers

    def send(self, request: Message, version: int, *, client_id: str | None = "tester") -> int:
        """Without waiting; the correlation id of the answer to come."""
        self._asked += 1
        self.wire.feed(framed(request_body(request, version, self._asked, client_id=client_id)))
        return self._asked

    async def ask(self, request: Message, version: int) -> Any:
        return await self.answer(self.send(request, version), request, version)

    async def answer(self, correlation_id: int, request: Message, version: int) -> Any:
        """Wait for the answer to what was sent; ConnectionError if the connection is closed instead."""
        while True:
            for answered_id, body in self.answered:
                if answered_id == correlation_id:
                    return decode_response(ApiKey(request.api_key), version, body)
            if self.wire.closed:
                raise ConnectionError("the node has closed the connection")
            self._changed.clear()
            await self._changed.wait()

    def has_answer(self, correlation_id: int) -> bool:
        return any(answered_id == correlation_id for answered_id, _ in self.answered)

    def _take_answers(self) -> None:
        sent = self.wire.sent
        while len(sent) >= 4 and len(sent) >= 4 + (size := int.from_bytes(sent[:4])):
            self.answered.append((int.from_bytes(sent[4:8], signed=True), bytes(sent[8 : 4 + size])))
            del sent[: 4 + size]
        self._changed.set()


class Rig:
    """One node and everything it touches."""

    def __init__(self, *, seed: int = 0, properties: Mapping[str, str] | None = None, max_steps: int = 50_000_000):
        self.loop = SimulatedLoop(max_steps=max_steps)  # type: ignore[abstract]
        self.trace = Trace(self.loop)
        self.clock = SimulatedClock(self.loop)
        self.device = Device(random.Random(f"{seed}/disk"), self.trace)
        self.properties = PROPERTIES | dict(properties or {})
        self._seed = seed
        self._lives = 0
        self.life: Life
        self.network: FakeNetwork
        self.world: World
        self.node: Node

    def run(self, test: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
        """Start the node, run the test, stop the node; whatever went wrong unseen fails here."""
        result: ResultT = self.loop.run_until_complete(self._run(test))
        assert self.loop.failures == []
        return result

    async def _run(self, test: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
        await self.start()
        result = await test()
        assert self.node.failed is None
        await self.node.stop()
        return result

    async def start(self) -> None:
        """A new life on what the disk holds."""
        self._lives += 1
        draw = f"{self._seed}/{self._lives}"
        self.life = Life(f"life {self._lives}")
        self.network = FakeNetwork()
        self.world = World(
            clock=self.clock,
            entropy=SimulatedEntropy(random.Random(f"{draw}/entropy")),
            disk=self.device.attach(self.life),
            network=self.network,
            workers=SimulatedWorkers(self.life, random.Random(f"{draw}/workers")),
        )
        self.node = Node(load(self.properties, host_name="node"), self.world, poison_buffers=True)
        await asyncio.create_task(self.node.start(), context=self.life.context)

    async def restart(self) -> None:
        """Stop it the orderly way and start it again."""
        await self.node.stop()
        self.life.end()
        self.device.locks.clear()
        await self.start()

    def crash(self) -> None:
        """End the node between two of its steps; its disk keeps what was written."""
        self.life.end()
        self.device.crash("process")

    def connect(self, port: int = 9092) -> Client:
        wire = FakeWire()
        wire.owner = self.network.accept[port](wire)
        return Client(wire)

    async def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> list[HostedPartition]:
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            assignments=[],
            configs=[CreatableTopicConfig(name=key, value=text) for key, text in (configs or {}).items()],
        )
        response = await self.node.rooms.controller.create_topics(CreateTopicsRequest(topics=[topic]))
        assert response.topics[0].error_code == 0, response
        return [self.node.rooms.replicas.require(name, index) for index in range(partitions)]

    def topic_id(self, name: str) -> Uuid:
        return self.node.rooms.image.topics.by_name[name].topic_id


def request_body(request: Message, version: int, correlation_id: int, *, client_id: str | None = "tester") -> bytes:
    """Header and request, without the length in front."""
    key = ApiKey(request.api_key)
    name = None if client_id is None else client_id.encode()
    header = struct.pack(">hhih", key, version, correlation_id, -1 if name is None else len(name)) + (name or b"")
    if request_header_version(key, version) >= 2:
        header += b"\0"
    return header + encode(request, version)


def framed(body: bytes | bytearray) -> bytes:
    return len(body).to_bytes(4, signed=True) + body


def decode_response(key: ApiKey, version: int, body: bytes) -> Message:
    """The answer's body, which must hold exactly one such message."""
    if response_header_version(key, version) >= 1:
        assert body[0] == 0
        body = body[1:]
    return decode(response_class(key), version, body)


class Idle:
    """Takes connections and nothing else."""

    def __init__(self, wire: Wire) -> None:
        self._room = memoryview(bytearray(16))

    def buffer(self) -> memoryview:
        return self._room

    def received(self, count: int) -> None: ...

    def drained(self) -> None: ...

    def lost(self, why: Exception | None) -> None: ...
