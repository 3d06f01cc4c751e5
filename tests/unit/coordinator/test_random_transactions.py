"""A transaction shard under random producers, clocks, refused appends and takeovers: what must hold whatever happens.

A model of a few lines says how each transaction has ended: what clients were told, what markers said and what the log
says must be the same, and no (producer id, epoch) may ever be given to two producers.
"""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from tests.unit.coordinator.transactions import Transactions

from odradek.coordinator.transaction.settings import TransactionSettings
from odradek.coordinator.transaction.shard import WriteMarkers
from odradek.coordinator.transaction.state import LAST_USABLE_EPOCH, State
from odradek.ids import ProducerEpoch
from odradek.protocol.errors import ErrorCode
from odradek.values import replace

STEPS = 300
IDS = ("a", "b")
PARTITIONS = tuple(("t", number) for number in range(4))
SETTINGS = TransactionSettings(id_expiration_ms=60_000, expiration_interval_ms=20_000)


class Producer:
    """A client of one transactional id; a zombie goes on with what it knew."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.identity: tuple[int, int] | None = None
        self.added: dict[tuple[str, int], None] = {}
        self.asked_to: bool | None = None
        """How it wants its transaction to end; it asks until it is told."""


class World:
    """Producers, the coordinator, partitions that count markers, and a die."""

    def __init__(self, seed: int, version: int) -> None:
        self.draw = random.Random(seed)
        self.tried = Transactions(version, SETTINGS)
        self.version = version
        self.producers = [Producer(IDS[number % 2]) for number in range(4)]
        self.given: dict[tuple[int, int], Producer] = {}
        self.marked: dict[tuple[str, int, tuple[str, int]], bool] = {}
        """How a partition was told that a transaction of an id has ended; transactions have numbers."""
        self.writing: list[WriteMarkers] = []
        self.ended = {True: 0, False: 0}

    def prepares(self, transactional_id: str) -> list[bool]:
        """How the transactions of an id ended, in their order, as the log says."""
        return [
            record.value.transaction_status == State.PREPARE_COMMIT
            for record in self.tried.log
            if record.key.transactional_id == transactional_id
            and record.value is not None
            and record.value.transaction_status in (State.PREPARE_COMMIT, State.PREPARE_ABORT)
        ]

    def step(self) -> None:
        tried, draw = self.tried, self.draw
        tried.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE if draw.random() < 0.1 else None
        tried.ms += draw.choice((1, 100, 5_000, 30_000 if draw.random() < 0.1 else 1))
        producer = draw.choice(self.producers)
        happens = (self.init, self.add, self.end, self.mark, self.expire, self.take_over, self.wear_out)
        with suppress(ConnectionError):
            draw.choices(happens, weights=(2, 8, 6, 6, 3, 1, 0.3))[0](producer)
        self.look()

    # What happens.

    def init(self, producer: Producer) -> None:
        expected = (-1, -1)
        goes_on = producer.identity is not None and self.draw.random() < 0.4
        if goes_on:
            assert producer.identity is not None
            expected = producer.identity
        code, *identity = self.tried.init(producer.transactional_id, expected)
        if code is ErrorCode.NONE:
            new = (identity[0], identity[1])
            assert self.given.get(new, producer) is producer, "two producers have one identity"
            if not goes_on:
                assert new not in self.given, "an identity was given twice"
            self._identify(producer, new)
        else:
            assert code in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.PRODUCER_FENCED), code

    def _identify(self, producer: Producer, identity: tuple[int, int]) -> None:
        self.given[identity] = producer
        producer.identity = identity
        producer.added, producer.asked_to = {}, None

    def is_current(self, producer: Producer) -> bool:
        known = self.tried.shard.transactions.get(producer.transactional_id)
        return known is not None and producer.identity == (known.producer_id, known.producer_epoch)

    def add(self, producer: Producer) -> None:
        if producer.identity is None or producer.asked_to is not None:
            return
        wanted = self.draw.sample(PARTITIONS, self.draw.randint(1, 2))
        was_current = self.is_current(producer)
        code = self.tried.add(producer.identity, *wanted, transactional_id=producer.transactional_id)
        if code is ErrorCode.NONE:
            assert was_current, "a zombie has added partitions"
            producer.added.update(dict.fromkeys(wanted))

    def end(self, producer: Producer) -> None:
        if producer.identity is None:
            return
        if producer.asked_to is None:
            producer.asked_to = self.draw.random() < 0.6
        commit = producer.asked_to
        before = self.tried.known(producer.transactional_id) if self.knows(producer) else None
        was_current = self.is_current(producer)
        code, *identity = self.tried.end(producer.identity, commit=commit, transactional_id=producer.transactional_id)
        if code is ErrorCode.CONCURRENT_TRANSACTIONS:
            return
        if code is ErrorCode.NONE:
            assert self.prepares(producer.transactional_id)[-1] is commit, "a client was told the contrary"
            if before is not None and before.state is State.ONGOING:
                assert was_current, "a zombie has ended a transaction"
                assert set(before.partitions) == set(producer.added)
            if self.version == 2:
                assert identity[1] == producer.identity[1] + 1 or identity[1] == 0
                self._identify(producer, (identity[0], identity[1]))
                return
        producer.added, producer.asked_to = {}, None

    def knows(self, producer: Producer) -> bool:
        return producer.transactional_id in self.tried.shard.transactions

    def mark(self, producer: Producer) -> None:
        """Partitions are told one by one; the coordinator hears of it when all have been, or never."""
        self.writing += self.tried.markers
        self.tried.markers = []
        if not self.writing:
            return
        wanted = self.writing[self.draw.randrange(len(self.writing))]
        ended = wanted.transaction
        number = len(self.prepares(ended.transactional_id))
        for partition in ended.partitions:
            if self.draw.random() < 0.2:
                return
            key = (ended.transactional_id, number, partition)
            assert self.marked.setdefault(key, wanted.transaction.is_committing) is wanted.transaction.is_committing, (
                "one transaction, two ends"
            )
        self.writing.remove(wanted)
        self.tried.carry_out(self.tried.shard.marked(ended, self.tried.now))
        self.ended[wanted.transaction.is_committing] += 1

    def expire(self, producer: Producer) -> None:
        self.tried.expire()

    def take_over(self, producer: Producer) -> None:
        refuses, self.tried.refuses = self.tried.refuses, None
        before = dict(self.tried.shard.transactions)
        self.tried.reload()
        self.writing = []
        after = self.tried.shard.transactions
        if self.version > 0:
            logged = {name: replace(known, last_producer_epoch=ProducerEpoch(-1)) for name, known in before.items()}
            assert after == logged, "the log says something else"
        self.tried.refuses = refuses

    def wear_out(self, producer: Producer) -> None:
        """Thirty thousand epochs later."""
        known = self.tried.shard.transactions.get(producer.transactional_id)
        if known is None or known.state in (State.PREPARE_COMMIT, State.PREPARE_ABORT) or known.is_exhausted:
            return
        worn = replace(known, producer_epoch=ProducerEpoch(LAST_USABLE_EPOCH - 1))
        self.tried.shard.transactions[producer.transactional_id] = worn
        self.tried.log.append(worn.record(self.version))

    # What must hold.

    def look(self) -> None:
        for transactional_id, known in self.tried.shard.transactions.items():
            if known.state in (State.ONGOING, State.PREPARE_COMMIT):
                assert known.partitions
            elif known.state is not State.PREPARE_ABORT:
                assert not known.partitions
            wanted = [each for each in (*self.tried.markers, *self.writing) if each.transaction == known]
            if known.state in (State.PREPARE_COMMIT, State.PREPARE_ABORT):
                is_put_off = self.tried.shard.timers.deadline_ms(("complete", transactional_id)) is not None
                assert len(wanted) == 1 or is_put_off, "nobody tells the partitions"
            if known.state is State.ONGOING:
                assert self.tried.shard.timers.deadline_ms("abort") is not None, "nobody looks at the time"

    def settle(self) -> None:
        """Nothing is in the way any more: whatever was begun ends."""
        self.tried.refuses = None
        for _ in range(5):
            self.tried.pass_time(100_000)
            self.writing, wanted = [], [*self.writing, *self.tried.markers]
            self.tried.markers = []
            for each in wanted:
                self.tried.carry_out(self.tried.shard.marked(each.transaction, self.tried.now))
        assert not [known for known in self.tried.shard.transactions.values() if known.partitions]


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("seed", range(12))
def test_transactions_end_one_way_whatever_happens(seed: int, version: int) -> None:
    world = World(seed, version)
    for _ in range(STEPS):
        world.step()
    world.settle()


def test_the_die_reaches_what_matters() -> None:
    ended = {True: 0, False: 0}
    fenced = rotated = forgotten = 0
    for seed in range(12):
        world = World(seed, 2)
        for _ in range(STEPS):
            world.step()
        for commit, times in world.ended.items():
            ended[commit] += times
        fenced += any(not commit for name in IDS for commit in world.prepares(name))
        rotated += any(identity[0] > 1_003 for identity in world.given)
        forgotten += any(record.value is None for record in world.tried.log)
    assert min(ended.values()) > 20
    assert min(fenced, rotated, forgotten) > 2
