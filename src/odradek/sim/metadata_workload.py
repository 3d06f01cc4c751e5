"""Clients that change metadata, each its own part of it, through any broker, and note what they were told."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

from odradek.client import Client
from odradek.client.admin import Admin
from odradek.client.admin.cluster import ConfigChange, ConfigResource, ResourceType
from odradek.client.errors import ClientError, check
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.sim import facts
from odradek.sim.client_process import Ports
from odradek.sim.cluster import Cluster
from odradek.sim.entropy import SimulatedEntropy
from odradek.sim.history import ChangeAnswered, ChangeSent, Fact, ProducerIdGiven

CHANGES_PER_CONNECTION = 6
"""After so many the client comes to another broker."""

LONGEST_PAUSES_S = (0.2, 1.0, 4.0)
"""Between two changes over one connection: some come in bursts, and some find the cluster with nothing else to do."""

PATIENCE_MS = 30_000
"""How long a change may take when nothing goes wrong any more; requests may still wait for somebody who is gone."""

MOST_TOPICS = 5
USERS = 3
SETTINGS = {
    "default.api.timeout.ms": 8_000,
    "request.timeout.ms": 4_000,
    "socket.connection.setup.timeout.ms": 2_000,
    "reconnect.backoff.max.ms": 500,
}


class MetadataClient:
    """One client. It knows what it was told, and never touches what another one made."""

    def __init__(self, cluster: Cluster, name: str, brokers: Sequence[str]) -> None:
        self.name = name
        self.changes = 0
        self._cluster = cluster
        self._brokers = list(brokers)
        self._draw: random.Random = cluster.draw(name)
        self._ports = Ports(
            cluster.client_network(name), cluster.clock, SimulatedEntropy(cluster.draw(f"{name} entropy"))
        )
        self._number = 0
        self._topics: dict[str, list[Fact]] = {}
        """Topics that are there, each with the facts it has."""
        self._kinds: tuple[tuple[int, Callable[[Admin], Awaitable[None]]], ...] = (
            (4, self._create_topic),
            (2, self._delete_topic),
            (2, self._add_partitions),
            (4, self._set_config),
            (4, self._set_quota),
            (2, self._take_producer_id),
        )

    async def run(self) -> None:
        """Change something now and then, until cancelled."""
        while True:
            self._draw.shuffle(self._brokers)
            client = Client(self._ports, {"bootstrap.servers": ",".join(self._brokers), "client.id": self.name})
            longest_pause_s = self._draw.choice(LONGEST_PAUSES_S)
            async with client.admin(SETTINGS) as admin:
                for _ in range(CHANGES_PER_CONNECTION):
                    await asyncio.sleep(self._draw.random() * longest_pause_s)
                    ((_, change),) = self._draw.choices(self._kinds, [weight for weight, _ in self._kinds])
                    await change(admin)

    async def change_once(self) -> bool:
        """One change, through whichever broker answers; whether it was answered with success."""
        client = Client(self._ports, {"bootstrap.servers": ",".join(self._brokers), "client.id": self.name})
        async with client.admin(SETTINGS | {"default.api.timeout.ms": PATIENCE_MS}) as admin:
            changes = self.changes
            await self._set_quota(admin)
            return self.changes > changes

    async def _create_topic(self, admin: Admin) -> None:
        if len(self._topics) >= MOST_TOPICS:
            return
        name = f"{self.name}-{self._number}"
        partitions, replicas = self._draw.randrange(1, 4), self._draw.randrange(1, min(3, len(self._brokers)) + 1)
        made = [(Fact(facts.TOPIC, name), "there"), (Fact(facts.PARTITIONS, name), str(partitions))]

        async def create() -> None:
            await admin.create_topic(name, partitions=partitions, replication_factor=replicas)

        if await self._change(made, create):
            self._topics[name] = [fact for fact, _ in made]

    async def _delete_topic(self, admin: Admin) -> None:
        if not self._topics:
            return
        name = self._draw.choice(list(self._topics))

        async def delete() -> None:
            _raise(await admin.delete_topics([name]))

        await self._change([(fact, None) for fact in self._topics.pop(name)], delete)

    async def _add_partitions(self, admin: Admin) -> None:
        if not self._topics:
            return
        name = self._draw.choice(list(self._topics))
        count = self._draw.randrange(2, 7)

        async def add() -> None:
            _raise(await admin.create_partitions({name: count}))

        await self._change([(Fact(facts.PARTITIONS, name), str(count))], add)

    async def _set_config(self, admin: Admin) -> None:
        if not self._topics:
            return
        name = self._draw.choice(list(self._topics))
        fact = Fact(facts.TOPIC_CONFIG, name, self._draw.choice(("retention.ms", "segment.ms", "flush.ms")))
        wanted = str(1_000_000 + self._number)
        if fact not in self._topics[name]:
            self._topics[name].append(fact)

        async def alter() -> None:
            resource = ConfigResource(ResourceType.TOPIC, name)
            _raise(await admin.alter_configs({resource: [ConfigChange(fact.key, wanted)]}))

        await self._change([(fact, wanted)], alter)

    async def _set_quota(self, admin: Admin) -> None:
        user = f"{self.name}-user-{self._draw.randrange(USERS)}"
        fact = Fact(facts.QUOTA, user, self._draw.choice(("producer_byte_rate", "consumer_byte_rate")))
        limit = None if self._draw.random() < 0.3 else 1_000_000.0 + self._number

        async def alter() -> None:
            await admin.alter_client_quotas({"user": user}, {fact.key: limit})

        await self._change([(fact, None if limit is None else f"{limit:.0f}")], alter)

    async def _take_producer_id(self, admin: Admin) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        try:
            response = await admin.cluster.ask(request, InitProducerIdResponse)
            check(response.error_code)
        except (ClientError, KafkaError) as failure:
            self._note(f"got no producer id: {failure}")
            return
        self._note(f"was given producer id {response.producer_id}")
        self._cluster.history.add(ProducerIdGiven(self.name, response.producer_id))

    async def _change(self, wanted: Sequence[tuple[Fact, str | None]], change: Callable[[], Awaitable[None]]) -> bool:
        """Ask for a change and note how that went; whether it was answered with success."""
        numbers = []
        for fact, value in wanted:
            self._number += 1
            numbers.append(self._number)
            self._note(f"wants {fact} to be {value}")
            self._cluster.history.add(ChangeSent(self.name, self._number, fact, value))
        try:
            await change()
        except (ClientError, KafkaError) as failure:
            code = failure.code.name if isinstance(failure, KafkaError) else type(failure).__name__
            self._note(f"gives up on {wanted[0][0]}: {code}")
            return False
        self._note(f"is told that {wanted[0][0]} is {wanted[0][1]}")
        for number in numbers:
            self._cluster.history.add(ChangeAnswered(self.name, number))
        self.changes += 1
        return True

    def _note(self, what: str) -> None:
        self._cluster.trace.note(self.name, what)


def _raise(outcomes: dict[str, KafkaError | None] | dict[ConfigResource, KafkaError | None]) -> None:
    for failure in outcomes.values():
        if failure is not None:
            raise failure
