"""An operator beside transactions: old output is deleted, a topic made anew, leadership passed on, a version raised."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from odradek.client import Client as LibraryClient
from odradek.client import TopicPartition
from odradek.client.admin import Admin
from odradek.client.errors import ClientError
from odradek.metadata.features import TRANSACTION_VERSION
from odradek.protocol.errors import KafkaError
from odradek.sim.history import GROUPS
from odradek.sim.operators import SETTINGS, pass_on
from odradek.sim.replication_cluster import MIN, REPLICAS
from odradek.sim.transaction_cluster import ECHOES, FLEETING, STATE_LOGS, TransactionCluster

FLEETING_PARTITIONS = 2
LONGEST_PAUSE_S = 6.0


class TransactionOperator:
    """Takes a step now and then."""

    def __init__(self, cluster: TransactionCluster, client: LibraryClient) -> None:
        self._cluster = cluster
        self._client = client
        self._draw = cluster.draw("transaction operator")
        self._trace = cluster.trace
        self._kinds: list[tuple[int, Callable[[Admin], Awaitable[None]]]] = [
            (3, self._trim),
            (4, self._recreate),
            (4, self._pass_on),
        ]
        if cluster.begins_old:
            self._kinds.append((2, self._raise_version))

    async def run(self) -> None:
        """Until cancelled."""
        weights = [weight for weight, _ in self._kinds]
        async with self._client.admin(SETTINGS) as admin:
            while True:
                ((_, step),) = self._draw.choices(self._kinds, weights)
                try:
                    await step(admin)
                except (ClientError, KafkaError) as failure:
                    self._trace.note("operator", f"gives up: {failure!r}")
                await asyncio.sleep(self._draw.random() * LONGEST_PAUSE_S)

    async def _trim(self, admin: Admin) -> None:
        """Also what belongs to a transaction that is open."""
        index = self._draw.randrange(ECHOES.partitions)
        partition = next(each for each in self._cluster.output if (each.topic, each.index) == (ECHOES.name, index))
        led = self._cluster.led(partition)
        if led is None:
            return
        log = led[1].partition.log
        before = self._draw.randrange(log.log_start_offset, log.high_watermark + 1)
        self._trace.note("operator", f"deletes what {partition} has before {before}")
        answer = (await admin.delete_records({TopicPartition(partition.topic, index): before})).popitem()[1]
        if not isinstance(answer, KafkaError):
            self._trace.mark("output trimmed")

    async def _recreate(self, admin: Admin) -> None:
        """A topic that transactions write to."""
        if self._cluster.fleeting():
            self._trace.note("operator", f"deletes {FLEETING}")
            await admin.delete_topics([FLEETING])
            self._trace.mark("topic deleted under transactions")
            await asyncio.sleep(self._draw.random() ** 2 * 3)
        await admin.create_topic(
            FLEETING, partitions=FLEETING_PARTITIONS, replication_factor=REPLICAS, configs=dict((MIN,))
        )

    async def _pass_on(self, admin: Admin) -> None:
        await pass_on(self._cluster, admin, self._draw.choice((GROUPS, *STATE_LOGS, *self._cluster.output)), self._draw)

    async def _raise_version(self, admin: Admin) -> None:
        level = self._draw.choice((1, 2))
        self._trace.note("operator", f"raises {TRANSACTION_VERSION} to {level}")
        if not any((await admin.update_features({TRANSACTION_VERSION: level})).values()):
            self._trace.mark(f"transaction.version raised to {level}")
