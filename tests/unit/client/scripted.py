"""A broker that answers by script, on a network and in a time that are made up.

Every API has a function from request to response; a test replaces those it is about. Answering None drops the
connection instead, and an awaitable lets the answer wait.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from odradek.client.settings import Given
from odradek.ports import Clock, Entropy, FileSlice, Network, Part, Wire, WireOwner
from odradek.protocol.api import ApiKey, request_class, response_header_version
from odradek.protocol.codec import Message, decoder, parts_encoder
from odradek.protocol.frame import decode_request_header, response_frame
from odradek.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.sim.clock import SimulatedClock
from odradek.sim.entropy import SimulatedEntropy
from odradek.sim.loop import SimulatedLoop
from odradek.values import value

ResultT = TypeVar("ResultT")
Answer = Callable[[Any], Message | Awaitable[Message | None] | None]

HOST, PORT = "broker", 9092
SETTINGS: dict[str, Any] = {"bootstrap.servers": f"{HOST}:{PORT}"}
UNKNOWN_TOPIC = 3


@value
class Ports:
    network: Network
    clock: Clock
    entropy: Entropy


class ScriptedWire:
    """The client's end; what it sends the broker answers, in order."""

    def __init__(self, broker: ScriptedBroker, own: Callable[[Wire], WireOwner]) -> None:
        self.peer_host = HOST
        self.unsent_bytes = 0
        self.closed = False
        self._broker = broker
        self._heard = bytearray()
        self._requests: asyncio.Queue[bytes] = asyncio.Queue()
        self._owner = own(self)
        self._serving = asyncio.ensure_future(self._serve())

    def send(self, parts: Sequence[Part]) -> None:
        for part in parts:
            assert not isinstance(part, FileSlice)
            self._heard += part
        while len(self._heard) >= 4 and len(self._heard) >= (end := 4 + int.from_bytes(self._heard[:4])):
            self._requests.put_nowait(bytes(self._heard[4:end]))
            del self._heard[:end]

    def widen(self) -> None:
        raise AssertionError("clients do not answer")

    def pause(self) -> None:
        raise AssertionError("clients do not pause")

    def resume(self) -> None:
        raise AssertionError("clients do not pause")

    def finish(self) -> None:
        self.close()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._serving.cancel()
            self._owner.lost(None)

    def receive(self, data: bytes) -> None:
        while data and not self.closed:
            room = self._owner.buffer()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            self._owner.received(count)

    async def _serve(self) -> None:
        while True:
            request = await self._requests.get()
            answer = await self._broker.answer(request)
            if answer is None:
                self.close()
                return
            self.receive(answer)


class ScriptedBroker:
    """One broker that leads every partition of its topics."""

    def __init__(self) -> None:
        self.topics: dict[str, int] = {}
        self.leader_epoch = 0
        self.is_up = True
        self.seen: list[tuple[ApiKey, int, Message]] = []
        self.answers: dict[ApiKey, Answer] = {
            ApiKey.API_VERSIONS: self._api_versions,
            ApiKey.METADATA: self._metadata,
            ApiKey.INIT_PRODUCER_ID: self._init_producer_id,
        }

    def count(self, key: ApiKey) -> int:
        return sum(seen == key for seen, _, _ in self.seen)

    async def connect(self, host: str, port: int, own: Callable[[Wire], WireOwner]) -> Wire:
        if not self.is_up or (host, port) != (HOST, PORT):
            raise ConnectionRefusedError(111, "Connection refused")
        return ScriptedWire(self, own)

    async def listen(self, host: str, port: int, accept: Callable[[Wire], WireOwner]) -> Any:
        raise AssertionError("clients do not listen")

    async def answer(self, frame: bytes) -> bytes | None:
        header, position = decode_request_header(frame, 0)
        key, version = ApiKey(header.request_api_key), header.request_api_version
        request, _ = decoder(request_class(key), version)(memoryview(frame), position)
        self.seen.append((key, version, request))
        response = self.answers[key](request)
        if inspect.isawaitable(response):
            response = await response
        if response is None:
            return None
        parts = parts_encoder(type(response), version)(response)
        framed = response_frame(header.correlation_id, parts, header_version=response_header_version(key, version))
        return b"".join(bytes(part) for part in framed if not isinstance(part, FileSlice))

    def _api_versions(self, request: ApiVersionsRequest) -> ApiVersionsResponse:
        served = [(key, request_class(key)) for key in self.answers]
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=cls.min_version, max_version=cls.max_stable_version)
                for key, cls in served
            ]
        )

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        wanted = list(self.topics) if request.topics is None else [topic.name or "" for topic in request.topics]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host=HOST, port=PORT)],
            cluster_id="scripted",
            controller_id=1,
            topics=[self._topic(name) for name in wanted],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        topic_id = name.encode().ljust(16, b"\0")[:16]
        if name not in self.topics:
            return MetadataResponseTopic(error_code=UNKNOWN_TOPIC, name=name, topic_id=topic_id, partitions=[])  # type: ignore[arg-type]
        return MetadataResponseTopic(
            name=name,
            topic_id=topic_id,  # type: ignore[arg-type]
            partitions=[
                MetadataResponsePartition(
                    partition_index=index,
                    leader_id=1,
                    leader_epoch=self.leader_epoch,
                    replica_nodes=[1],
                    isr_nodes=[1],
                )
                for index in range(self.topics[name])
            ],
        )

    def _init_producer_id(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        return InitProducerIdResponse(producer_id=7, producer_epoch=0)


def play(
    test: Callable[[ScriptedBroker, Ports], Coroutine[Any, Any, ResultT]], *, max_steps: int = 2_000_000
) -> ResultT:
    """Run a test in made-up time; what no task caught fails it."""
    loop = SimulatedLoop(max_steps=max_steps)  # type: ignore[abstract]
    broker = ScriptedBroker()
    ports = Ports(broker, SimulatedClock(loop), SimulatedEntropy(random.Random(0)))
    result: ResultT = loop.run_until_complete(test(broker, ports))
    assert loop.failures == []
    return result


def settings(**more: Any) -> Given:
    """The broker's address, and settings with underscores for dots."""
    return SETTINGS | {name.replace("_", "."): setting for name, setting in more.items()}
