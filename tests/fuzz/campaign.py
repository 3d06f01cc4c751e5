"""One round of the fuzzer: a node, thousands of spoilt requests, and what must hold all the while.

A round is one seed: the same requests, the same answers, on every machine.
"""

from __future__ import annotations

import asyncio
import logging
import random
import tracemalloc
from collections import Counter
from typing import Any

from tests.fuzz.mutations import spoil_body, spoil_framing, spoil_header
from tests.fuzz.requests import PARTITIONS, TOPICS, RequestMaker
from tests.unit.server.rig import Client, Rig, decode_response, framed, request_body

from odradek.protocol.api import ApiKey, request_header_version
from odradek.protocol.codec import Message
from odradek.protocol.fast.produce import ProducePlan
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.records.batch import build_batch, decode_records, iter_batches
from odradek.protocol.records.record import Record
from odradek.server.access.caller import Caller
from odradek.server.net.connection import Connection
from odradek.server.net.listener import ListenerScope
from odradek.server.net.routes import FastPath, Reader
from odradek.server.node import Node
from odradek.server.rooms import Rooms
from odradek.sim.loop import Crashed

HEALTHY_TOPIC = "nobody-touches-the-healthy-one"
PATIENCE_S = 0.6
"""Longer than the longest wait that an unspoilt Fetch asks for; whoever waits longer is hung up on."""

CLIENT_ID = "fuzz"

EndpointName = tuple[str, ApiKey, int]


class Tally:
    """What was sent and how far it came."""

    def __init__(self) -> None:
        self.requests = 0
        self.decoded: Counter[EndpointName] = Counter()
        self.answered = 0
        self.closed = 0
        self.abandoned = 0

    def add(self, other: Tally) -> None:
        self.requests += other.requests
        self.decoded += other.decoded
        self.answered += other.answered
        self.closed += other.closed
        self.abandoned += other.abandoned

    def __str__(self) -> str:
        return (
            f"{self.requests} requests, {self.decoded.total()} decoded, {self.answered} answered, "
            f"{self.closed} connections closed, {self.abandoned} given up waiting for"
        )


class Sent:
    """One spoilt request on its way."""

    def __init__(self, listener: str, body: bytes, how: str) -> None:
        self.listener = listener
        self.body = body
        self.how = how

    @property
    def correlation_id(self) -> int:
        return int.from_bytes(self.body[4:8], signed=True)

    def __repr__(self) -> str:
        return f"{self.how} on {self.listener}: {self.body[:2000].hex()}"


class Lines(logging.Handler):
    """What the server warns of; anything worse, wherever it comes from, fails the round."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.warnings: list[str] = []
        self.failures: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and isinstance(record.exc_info[1], Crashed):
            return  # The last words of a node that was ended on purpose, in the middle of a write.
        if record.levelno > logging.WARNING or record.exc_info:
            self.failures.append(self.format(record))
        elif record.name.startswith("odradek.server."):  # Storage tells of bad batches whenever a search meets one.
            self.warnings.append(self.format(record))


class Round:
    """One node under fire."""

    def __init__(self, seed: int, requests: int, *, check_every: int = 500) -> None:
        self.draw = random.Random(f"fuzz {seed}")
        self.rig = Rig(seed=seed, max_steps=1_000_000_000)
        self.tally = Tally()
        self.lines = Lines()
        self._requests = requests
        self._check_every = check_every
        self._silent = 0
        """Requests that were decoded and want no answer: Produce with acks=0."""
        self._clients: dict[str, tuple[Client, Connection]] = {}
        self._correlation_id = 0
        self._healthy_values: list[bytes] = []
        self._latest: list[Sent] = []

    def run(self) -> Tally:
        """Raises AssertionError that tells the latest requests if anything does not hold."""
        logger = logging.getLogger("odradek")
        logger.addHandler(self.lines)
        propagate, logger.propagate = logger.propagate, False
        try:
            self.rig.loop.run_until_complete(self._run())
        except Exception as wrong:
            sent = "\n".join(map(repr, self._latest[-3:]))
            raise AssertionError(f"after {self.tally.requests} requests, the last of them\n{sent}") from wrong
        finally:
            logger.removeHandler(self.lines)
            logger.propagate = propagate
        return self.tally

    async def _run(self) -> None:
        rig = self.rig
        await rig.start()
        self._listen_in()
        endpoints = self._endpoints()
        await rig.create_topic(HEALTHY_TOPIC)
        await self._restore_topics()
        maker = RequestMaker(self.draw, rig.node, rig.clock.now_ms())
        last_check = 0
        while self.tally.requests < self._requests:
            await self._exchange(maker, endpoints)
            if self.tally.requests - last_check >= self._check_every:
                last_check = self.tally.requests
                await self._check_health()
                await self._restore_topics()
        await self._check_health()
        await self._check_restart()

    # Sending.

    async def _exchange(self, maker: RequestMaker, endpoints: list[EndpointName]) -> None:
        """Send one to four requests at once and see what becomes of them."""
        draw = self.draw
        name, key, version = draw.choice(endpoints)
        client, connection = self._client(name)
        sent: list[Sent] = []
        stream = bytearray()
        framing_is_sound = True
        for _ in range(draw.choice((1, 1, 1, 2, 4))):
            if name != "CONTROLLER" and draw.random() < 0.3:
                key = draw.choice((ApiKey.PRODUCE, ApiKey.FETCH))
                version = draw.choice([each for _, served, each in endpoints if served == key])
            body, how = self._spoilt(maker.make(key, version), version)
            if framing_is_sound and draw.random() < 0.02:
                framing_is_sound = False
                framing, frame = spoil_framing(draw, body, self.rig.node.config.socket_request_max_bytes)
                how = f"{how}, {framing}"
            else:
                frame = framed(body)
            stream += frame
            sent.append(Sent(name, bytes(body), f"{key.name} v{version}, {how}"))
            _, key, version = draw.choice([each for each in endpoints if each[0] == name])
        self.tally.requests += len(sent)
        self._latest = sent
        before = len(client.answered)
        silent_before = self._silent
        warnings_before = len(self.lines.warnings)
        self._feed(client, stream)
        await self._settle(client, connection, framing_is_sound=framing_is_sound)
        answers = client.answered[before:]
        self._check_answers(sent, answers)
        self.tally.answered += len(answers)
        assert self.rig.node.failed is None
        assert self.lines.failures == [], "\n".join(self.lines.failures)
        assert self.rig.loop.failures == [], self.rig.loop.failures
        said = len(self.lines.warnings) - warnings_before
        if client.wire.closed:
            del self._clients[name]
            assert said <= 1, f"one line a closed connection, not {self.lines.warnings[-said:]}"
            assert connection.id not in self._scope(name).connections
        else:
            assert said == 0, self.lines.warnings[-said:]
            silent = self._silent - silent_before
            assert len(answers) + silent == len(sent), f"{len(answers)} answers, {silent} wanted none, of {len(sent)}"
        client.answered.clear()

    def _spoilt(self, request: Message, version: int) -> tuple[bytearray, str]:
        draw = self.draw
        self._correlation_id += 1
        body = bytearray(request_body(request, version, self._correlation_id, client_id=CLIENT_ID))
        chance = draw.random()
        if chance < 0.4:
            return body, "as drawn"
        if chance < 0.46:
            return body, spoil_header(draw, body)
        start = 10 + len(CLIENT_ID) + (request_header_version(ApiKey(request.api_key), version) >= 2)
        return body, spoil_body(draw, body, start)

    def _feed(self, client: Client, stream: bytearray) -> None:
        draw = self.draw
        if draw.random() < 0.1:
            piece = draw.choice((1, 3, 64)) if len(stream) < 1000 else 700
            for start in range(0, len(stream), piece):
                if client.wire.closed:
                    break
                client.wire.feed(stream[start : start + piece])
        else:
            client.wire.feed(stream)

    async def _settle(self, client: Client, connection: Connection, *, framing_is_sound: bool) -> None:
        """Let the node work; hang up if a request waits for long, or for bytes that will not come."""
        deadline = self.rig.loop.time() + PATIENCE_S
        while (connection.busy or client.wire.paused) and not client.wire.closed:
            if self.rig.loop.time() > deadline:
                self.tally.abandoned += 1
                client.wire.lose(None)
                break
            await asyncio.sleep(0.005)
        if client.wire.closed:
            self.tally.closed += 1
        elif not framing_is_sound:
            client.wire.lose(None)

    # What must hold.

    def _check_answers(self, sent: list[Sent], answers: list[tuple[int, bytes]]) -> None:
        """Each answers a request, in the order of the requests, and is a message of the request's API and version."""
        waiting = iter(sent)
        for correlation_id, content in answers:
            for request in waiting:
                if request.correlation_id == correlation_id:
                    self._decode_answer(request, content)
                    break
            else:
                raise AssertionError(f"an answer to {correlation_id}, which was not asked, or not then")

    def _decode_answer(self, request: Sent, content: bytes) -> None:
        key, version = (int.from_bytes(request.body[start : start + 2], signed=True) for start in (0, 2))
        route = self._scope(request.listener).endpoints.routes[ApiKey(key)]
        if key == ApiKey.API_VERSIONS and not route.min_version <= version <= route.max_version:
            version = 0
        decode_response(ApiKey(key), version, content)

    async def _check_health(self) -> None:
        """A client who has done nothing wrong is served, and finds what it wrote."""
        value = f"healthy {len(self._healthy_values)}".encode()
        client = self.rig.connect()
        request = ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData(
                    name=HEALTHY_TOPIC,
                    partition_data=[PartitionProduceData(index=0, records=build_batch([Record(value=value)]))],
                )
            ],
        )
        response = await client.ask(request, 11)
        (partition,) = response.responses[0].partition_responses
        assert partition.error_code == 0, response
        self._healthy_values.append(value)
        assert partition.base_offset == len(self._healthy_values) - 1
        await self._check_healthy_values(client)
        client.wire.lose(None)

    async def _check_healthy_values(self, client: Client) -> None:
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            topics=[
                FetchTopic(
                    topic=HEALTHY_TOPIC,
                    partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 30)],
                )
            ],
        )
        response = await client.ask(request, 12)
        (partition,) = response.responses[0].partitions
        assert partition.error_code == 0, response
        found = [record.value for batch in iter_batches(partition.records) for record in decode_records(batch)]
        assert found == self._healthy_values

    async def _check_restart(self) -> None:
        """Whatever was let in does not keep the node from starting again, after a stop or a crash."""
        rig = self.rig
        for client, _ in self._clients.values():
            client.wire.lose(None)
        if self.draw.random() < 0.5:
            await rig.node.stop()
            rig.device.locks.clear()
        else:
            rig.crash()
        await rig.start()
        await self._check_healthy_values(rig.connect())
        await rig.node.stop()
        assert self.lines.failures == []
        assert rig.loop.failures == []

    # Surroundings.

    def _client(self, name: str) -> tuple[Client, Connection]:
        """The connection in use, or now and then a new one."""
        known = self._clients.get(name)
        if known is not None and self.draw.random() < 0.95:
            return known
        if known is not None:
            known[0].wire.lose(None)
        client = self.rig.connect(self.rig.node.rooms.listeners.ports[name])
        owner = client.wire.owner
        assert isinstance(owner, Connection)
        self._clients[name] = client, owner
        return client, owner

    async def _restore_topics(self) -> None:
        for name, configs in TOPICS.items():
            if name not in self.rig.node.rooms.image.topics.by_name:
                await self.rig.create_topic(name, PARTITIONS, configs)

    def _scope(self, name: str) -> ListenerScope:
        return self.rig.node.rooms.listeners.by_name[name].scope

    def _endpoints(self) -> list[EndpointName]:
        return [
            (name, key, version)
            for name in self.rig.node.rooms.listeners.by_name
            for key, route in self._scope(name).endpoints.routes.items()
            for version in range(route.min_version, route.max_version + 1)
        ]

    def _listen_in(self) -> None:
        """Count what reaches each decoder, and which Produce requests want no answer."""
        for name, key, version in self._endpoints():
            endpoint = self._scope(name).endpoints.compile(key, version)
            endpoint.decode = self._counted(endpoint.decode, (name, key, version))
            if key == ApiKey.PRODUCE:
                endpoint.handle = self._silence_noted(endpoint.handle)
            if endpoint.read is not None:
                endpoint.read = self._read_counted(endpoint.read, (name, key, version))
            if endpoint.fast_path is not None:
                endpoint.fast_path = self._fast_counted(endpoint.fast_path, (name, key, version))

    def _counted(self, decode: Any, name: EndpointName) -> Any:
        decoded = self.tally.decoded

        def counted(buffer: memoryview, position: int) -> tuple[Message, int]:
            decoded[name] += 1
            result: tuple[Message, int] = decode(buffer, position)
            return result

        return counted

    def _silence_noted(self, handle: Any) -> Any:
        def noted(rooms: Rooms, caller: Caller, plan: ProducePlan) -> Any:
            if plan.acks == 0:
                self._silent += 1
            return handle(rooms, caller, plan)

        return noted

    def _read_counted(self, read: Reader, name: EndpointName) -> Reader:
        def counted(frame: memoryview, position: int) -> Any:
            plan = read(frame, position)
            self.tally.decoded[name] += plan is not None
            return plan

        return counted

    def _fast_counted(self, fast: FastPath, name: EndpointName) -> FastPath:
        def counted(node: Node, frame: memoryview, position: int, correlation_id: int) -> bytes | None:
            answer = fast(node, frame, position, correlation_id)
            if answer is not None:
                self.tally.decoded[name] += 1
                self._silent += not answer
            return answer

        return counted


class WatchedRound(Round):
    """Also measures what each exchange made the process hold at its worst."""

    def __init__(self, seed: int, requests: int) -> None:
        super().__init__(seed, requests)
        self.largest_bytes = 0
        self.largest: list[Sent] = []
        self.largest_without_bombs_bytes = 0
        self.largest_without_bombs: list[Sent] = []

    async def _exchange(self, maker: RequestMaker, endpoints: list[EndpointName]) -> None:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        await super()._exchange(maker, endpoints)
        _, peak = tracemalloc.get_traced_memory()
        if peak - before > self.largest_bytes:
            self.largest_bytes, self.largest = peak - before, self._latest
        produced = any(sent.body[:2] == b"\0\0" for sent in self._latest)
        if not produced and peak - before > self.largest_without_bombs_bytes:
            self.largest_without_bombs_bytes, self.largest_without_bombs = peak - before, self._latest
