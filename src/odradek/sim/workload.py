"""What the clients of a run share: the topics they use, and how they keep trying."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from odradek.ids import Uuid
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from odradek.sim.client import ClientConnection, Disconnected
from odradek.sim.cluster import Cluster
from odradek.sim.history import Partition
from odradek.sim.loop import Life
from odradek.values import value

ResponseT = TypeVar("ResponseT", bound=Message)

REQUEST_PATIENCE_S = 20.0
BY_TOPIC_ID = 13
"""Produce and Fetch name topics by id from this version on."""


@value
class TopicPlan:
    """A topic of the run."""

    name: str
    partitions: int
    configs: tuple[tuple[str, str], ...]


PLANS = (
    # As by default, and unlike the others: what is written waits for no flush, and takes the fastest path.
    TopicPlan("plain", 2, (("flush.ms", str((1 << 63) - 1)),)),
    TopicPlan("durable", 2, (("flush.messages", "1"),)),
    TopicPlan(
        "rolling",
        1,
        (
            ("segment.ms", "1500"),
            ("segment.index.bytes", "64"),
            ("index.interval.bytes", "1"),
            ("retention.ms", "5000"),
        ),
    ),
    TopicPlan("durable-rolling", 1, (("flush.messages", "1"), ("segment.ms", "1200"))),
)
TOPICS = tuple(plan.name for plan in PLANS)
DURABLE_TOPICS = tuple(plan.name for plan in PLANS if ("flush.messages", "1") in plan.configs)
PARTITIONS = tuple(Partition(plan.name, index) for plan in PLANS for index in range(plan.partitions))


class TryAgain(Exception):
    """The broker could not do it now."""


class Client:
    """A connection that is made again when it is lost."""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        life: Life | None = None,
        *,
        partitions: Sequence[Partition] = PARTITIONS,
    ) -> None:
        self.cluster = cluster
        self.name = name
        self.partitions = partitions
        self.leader_epoch = -1
        """The newest that this client knows of; it asks nobody of an older one."""
        self.draw: random.Random = cluster.draw(name)
        self.topic_ids: dict[str, Uuid] = {}
        self._network = cluster.client_network(name, life)
        self._connection: ClientConnection | None = None

    async def ask(self, request: Message, response: type[ResponseT], version: int) -> ResponseT:
        return await self.wait(self.ask_soon(request, response, version))

    def ask_soon(self, request: Message, response: type[ResponseT], version: int) -> asyncio.Future[ResponseT]:
        if self._connection is None:
            raise Disconnected
        return self._connection.ask(request, response, version)

    async def wait(self, answer: asyncio.Future[ResponseT]) -> ResponseT:
        async with asyncio.timeout(REQUEST_PATIENCE_S):
            return await answer

    async def persist(self, attempt: Callable[[], Awaitable[None]]) -> None:
        """Try until it works, on a new connection each time; the run's own deadline ends what never does."""
        while True:
            try:
                self._connection = await self.connect(*await self.place())
                await attempt()
                return
            except (Disconnected, OSError, TimeoutError, TryAgain):
                pass
            finally:
                if self._connection is not None:
                    self._connection.close()
                    self._connection = None
            await asyncio.sleep(0.01 + self.draw.random() * 0.2)

    async def place(self) -> tuple[str, int]:
        """Whom to connect to."""
        return self.cluster.brokers[0]

    async def connect(self, host: str, port: int) -> ClientConnection:
        return await ClientConnection.open(self._network, host=host, port=port, client_id=self.name)

    async def learn_topic_ids(self, names: Iterable[str] | None = None) -> None:
        if names is None:
            names = dict.fromkeys(partition.topic for partition in self.partitions)
        topics = [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        response = await self.ask(request, MetadataResponse, 12)
        for topic in response.topics:
            if topic.error_code or topic.name is None:
                raise TryAgain
            self.topic_ids[topic.name] = topic.topic_id


async def create_topics(cluster: Cluster) -> None:
    """Create what the run needs; an answer that was lost may have been a success."""
    client = Client(cluster, "admin")
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=plan.name,
                num_partitions=plan.partitions,
                replication_factor=1,
                assignments=[],
                configs=[CreatableTopicConfig(name=key, value=setting) for key, setting in plan.configs],
            )
            for plan in PLANS
        ]
    )

    async def attempt() -> None:
        response = await client.ask(request, CreateTopicsResponse, 7)
        for topic in response.topics:
            if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise TryAgain
        await client.learn_topic_ids()

    await client.persist(attempt)
