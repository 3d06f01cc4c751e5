"""Consume, transform, produce: a process that copies a partition of the input, in transactions with its offsets.

Either a partition belongs to a transactional id, so that whoever comes next fences who was there before. Or copiers are
members of a group that share the partitions, each under an id of its own, and the group's generations fence (KIP-447).

Each record that is written begins with the name of its transaction. A copy says which record of the input it is of;
echoes go to further partitions, so that there is more that has to come about together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from odradek.client import Consumer, Producer, TopicPartition
from odradek.client.consumer.records import ConsumerRecord
from odradek.client.errors import ClientError, ProducerFailed, RequestTimedOut
from odradek.client.offsets import GroupMetadata
from odradek.client.producer import RecordMetadata
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.sim.client_process import ClientProcess
from odradek.sim.group_member import HEARTBEAT_INTERVAL_MS, REBALANCE_TIMEOUT_MS, SESSION_TIMEOUT_MS
from odradek.sim.history import Partition, TransactionEnded, TransactionEnding, TransactionSent
from odradek.sim.trace import OPERATION
from odradek.sim.transaction_cluster import COPIES, ECHOES, FLEETING, INPUT, TransactionCluster

GROUP = "copiers"
COMMITS = 0.8
STALLS = 0.06
SHORTEST_TIMEOUT_MS = 4_000
LONGEST_TIMEOUT_MS = 9_000
COMMON: Mapping[str, str | int | bool] = {
    "request.timeout.ms": 4_000,
    "socket.connection.setup.timeout.ms": 2_000,
    "reconnect.backoff.max.ms": 500,
}


_FORMER_MEMBER = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)


class Job:
    """What is copied under which name; one copier after the other does it."""

    def __init__(
        self, cluster: TransactionCluster, index: int, positions: dict[Partition, int], *, is_grouped: bool
    ) -> None:
        draw = cluster.draw(f"job {index}")
        self.name = f"copier-{index}"
        self.is_grouped = is_grouped
        self.sources = list(positions) if is_grouped else [Partition(INPUT.name, index)]
        self.is_classic = draw.random() < 0.4
        """Whether its producers are of before KIP-890, whatever the cluster offers."""
        self.timeout_ms = draw.randrange(SHORTEST_TIMEOUT_MS, LONGEST_TIMEOUT_MS)
        self.is_draining = False
        """Whether nothing new comes: what is left is copied in larger pieces."""
        self.positions = positions
        """Behind what is known to be copied, by whomever."""
        self.identities: list[tuple[int, int]] = []
        """Producer id and epoch, one after the other, as its producers were told."""
        self.fenced = 0
        """How many of them are surely not in force any more."""


class Copier(ClientProcess):
    """One life of one of them."""

    cluster: TransactionCluster

    def __init__(self, cluster: TransactionCluster, job: Job, name: str) -> None:
        super().__init__(cluster, name)
        self.job = job
        self._sources = [TopicPartition(each.topic, each.index) for each in job.sources]
        self._count = 0
        self._identity: tuple[int, int] | None = None

    async def work(self) -> bool:
        ports = self.ports()
        producer = Producer(ports, self._producer_settings())
        consumer = Consumer(ports, self._consumer_settings())
        if self.job.is_classic:
            producer.cluster.feature_level = lambda name: 0  # type: ignore[method-assign]
        is_orderly = True
        try:
            await self._serve(producer, consumer)
        except (ClientError, KafkaError) as failure:
            is_orderly = False
            self.cluster.trace.note(self.name, f"has to end: {failure!r}")
            if isinstance(failure, ProducerFailed):
                self.cluster.trace.mark("producer fenced")
        await consumer.close()
        try:
            await producer.close(5_000)
        except ClientError as failure:
            self.cluster.trace.note(self.name, f"closes badly: {failure!r}")
        return is_orderly

    async def _serve(self, producer: Producer, consumer: Consumer) -> None:
        """Until told to leave; raises why it cannot go on."""
        await self._insist(producer.init_transactions)
        self._identify(producer, fences=True)
        if self.job.is_grouped:
            consumer.subscribe([INPUT.name])
        else:
            consumer.assign(self._sources)
            await self._find_place(consumer)
        while not self.is_leaving:
            records = await consumer.poll(300, max_records=30 if self.job.is_draining else self.draw.choice((1, 2, 5)))
            if records:
                await self._copy(producer, consumer, records)
            elif self.job.is_draining:
                await self._look(consumer)
            await asyncio.sleep(self.draw.random() * 0.3)

    def _producer_settings(self) -> dict[str, str | int | bool]:
        return {
            **COMMON,
            "bootstrap.servers": self.cluster.bootstrap_servers,
            "client.id": self.name,
            "transactional.id": self.name if self.job.is_grouped else self.job.name,
            "transaction.timeout.ms": self.job.timeout_ms,
            "delivery.timeout.ms": 8_000,
            "max.block.ms": 8_000,
            "linger.ms": self.draw.choice((0, 5, 50)),
        }

    def _consumer_settings(self) -> dict[str, str | int | bool]:
        return {
            **COMMON,
            "bootstrap.servers": self.cluster.bootstrap_servers,
            "client.id": self.name,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
            "max.poll.interval.ms": REBALANCE_TIMEOUT_MS,
        }

    async def _find_place(self, consumer: Consumer) -> None:
        """Whoever was here before may have got further than he was told.

        A coordinator that was replaced and does not know it tells old offsets, as Kafka's does, to whoever is no member
        of the group. It cannot commit any more, though: who can do that first knows all that came before.
        """
        await consumer.commit({TopicPartition(COPIES.name, each.partition): 0 for each in self._sources})
        await self._look(consumer)

    async def _look(self, consumer: Consumer) -> None:
        """How far others have got, who may not have been told."""
        for partition, held in (await consumer.committed(self._sources)).items():
            if held is not None:
                self._note_copied(partition, held.offset)

    def _note_copied(self, partition: TopicPartition, offset: int) -> None:
        source, positions = Partition(partition.topic, partition.partition), self.job.positions
        positions[source] = max(positions[source], offset)

    async def _copy(self, producer: Producer, consumer: Consumer, records: Sequence[ConsumerRecord]) -> None:
        """In one transaction; what is not committed is read again."""
        self._count += 1
        name = f"{self.name}/{self._count}"
        receipts: list[asyncio.Future[RecordMetadata]] = []
        begins: dict[TopicPartition, int] = {}
        ends: dict[TopicPartition, int] = {}
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            begins.setdefault(partition, record.offset)
            ends[partition] = record.offset + 1
        group = consumer.group_metadata() if self.job.is_grouped else GroupMetadata(GROUP)
        try:
            producer.begin_transaction()
            await self._fill(
                producer, name, records, lambda: producer.send_offsets_to_transaction(ends, group), receipts
            )
            if self.draw.random() < COMMITS:
                await self._end(producer, name, committed=True)
                for partition, end in ends.items():
                    self._note_copied(partition, end)
                return
        except ProducerFailed:
            raise
        except (ClientError, KafkaError) as failure:
            self.cluster.trace.note(self.name, f"{name} failed: {failure!r}")
            self.cluster.trace.mark("transaction failed")
            cause = failure.__cause__ or failure
            if isinstance(cause, KafkaError) and cause.code in _FORMER_MEMBER:
                self.cluster.trace.mark("offsets of a former member refused")
        finally:
            for receipt in receipts:
                if receipt.done():
                    _hear(receipt)
        await self._end(producer, name, committed=False)
        for partition, begin in begins.items():
            if partition in consumer.assignment:
                consumer.seek(partition, begin)

    async def _fill(
        self,
        producer: Producer,
        name: str,
        records: Sequence[ConsumerRecord],
        commit_offsets: Callable[[], Awaitable[None]],
        receipts: list[asyncio.Future[RecordMetadata]],
    ) -> None:
        """Copies, echoes, and offsets at some place between them."""
        steps: list[Callable[[], Awaitable[None]]] = []

        def write(topic: str, index: int, what: str) -> None:
            async def step() -> None:
                record = f"{name}|{what}".encode()
                if topic != FLEETING:
                    self.cluster.history.add(TransactionSent(name, Partition(topic, index), record))
                receipts.append(await producer.submit(topic, record, partition=index))
                receipts[-1].add_done_callback(_hear)

            steps.append(step)

        for record in records:
            write(COPIES.name, self.draw.randrange(COPIES.partitions), f"copy {record.partition} {record.offset}")
        for number in range(self.draw.choice((0, 1, 3))):
            write(ECHOES.name, self.draw.randrange(ECHOES.partitions), f"echo {number}")
        fleeting = self.cluster.fleeting()
        if fleeting and self.draw.random() < 0.2:
            write(FLEETING, self.draw.choice(fleeting).index, "fleeting")

        steps.insert(self.draw.randrange(len(steps) + 1), commit_offsets)
        stalls = not self.job.is_draining and self.draw.random() < STALLS
        stall_at = self.draw.randrange(len(steps)) if stalls else -1
        for number, step in enumerate(steps):
            await step()
            if not self.job.is_draining and self.draw.random() < 0.4:
                await asyncio.sleep(self.draw.random() ** 3)
            if number == stall_at:
                self.cluster.trace.mark("copier stalled")
                await asyncio.sleep(self.draw.uniform(0.7, 1.3) * self.job.timeout_ms / 1000)

    async def _end(self, producer: Producer, name: str, *, committed: bool) -> None:
        history, trace = self.cluster.history, self.cluster.trace
        history.add(TransactionEnding(name, committed))
        await self._insist(producer.commit_transaction if committed else producer.abort_transaction)
        history.add(TransactionEnded(name, committed))
        trace.note(self.name, f"{name} is {'committed' if committed else 'aborted'}")
        trace.mark("transaction committed" if committed else "transaction aborted")
        trace.mark(OPERATION)
        self._identify(producer)

    def _identify(self, producer: Producer, *, fences: bool = False) -> None:
        """Note as whom it goes on.

        An end is told before all partitions know, so what it was before may still write to one of them for a moment;
        what it was before that may not, and a producer that begins is told only when no partition waits.
        """
        if self.job.is_grouped:
            return  # Nobody else has its name, so nobody fences it by that.
        transactions = producer._transactions
        assert transactions is not None
        identity = transactions._producer
        known = self.job.identities
        if identity == self._identity or (known and identity in known):
            self._identity = identity
            return
        self._identity = identity
        self.cluster.trace.note(self.name, f"is producer {identity[0]} with epoch {identity[1]}")
        if known and (identity[0], identity[1]) < known[-1] and identity[0] == known[-1][0]:
            return  # Its successor has been told already.
        known.append(identity)
        self.job.fenced = len(known) - 1 if fences else max(self.job.fenced, len(known) - 2)

    async def _insist(self, call: Callable[[], Awaitable[None]]) -> None:
        """What takes longer than it may goes on all the same."""
        while True:
            try:
                await call()
                return
            except RequestTimedOut:
                await asyncio.sleep(0.1)


def _hear(receipt: asyncio.Future[RecordMetadata]) -> None:
    """What became of it is known from the transaction."""
    if not receipt.cancelled():
        receipt.exception()
