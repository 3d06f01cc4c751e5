"""What a coordinator knows of a transactional id, and what each request makes of it.

Nothing here changes: a request gives another `Transaction`, or the error that answers it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import TypeAlias

from odradek.coordinator.shard import CoordinatorRecord
from odradek.coordinator.transaction.records import PartitionsSchema, TransactionLogKey, TransactionLogValue
from odradek.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, ProducerEpoch, ProducerId
from odradek.protocol.errors import ErrorCode
from odradek.values import replace, value

TopicPartition: TypeAlias = tuple[str, int]

IdSource: TypeAlias = Callable[[], ProducerId]
"""A producer id that nobody had before; KafkaError if none is at hand."""

MAX_EPOCH = (1 << 15) - 1
LAST_USABLE_EPOCH = MAX_EPOCH - 1
"""No client is given the highest epoch, so that there is always one left to fence it with."""

FLEXIBLE_RECORDS = 1
"""The transaction.version from which on records can hold more than at the beginning."""
EPOCH_RISES = 2
"""The transaction.version from which on the epoch rises at every end (KIP-890)."""


class State(IntEnum):
    """By Kafka's numbers, which the log holds."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """As Kafka's tools show it."""
        return "".join(map(str.capitalize, self.name.split("_")))


STATES_BY_TITLE = {state.title: state for state in State}


class Event(IntEnum):
    """What moves a transactional id from one state to another."""

    INIT_PRODUCER_ID = 0
    ADD_PARTITIONS = 1
    COMMIT = 2
    ABORT = 3
    MARKED = 4
    """Every partition has its marker."""


_BETWEEN_TRANSACTIONS = {
    Event.INIT_PRODUCER_ID: State.EMPTY,
    Event.ADD_PARTITIONS: State.ONGOING,
    Event.ABORT: State.PREPARE_ABORT,
}

TRANSITIONS: dict[State, dict[Event, State]] = {
    State.EMPTY: _BETWEEN_TRANSACTIONS,
    State.ONGOING: {
        Event.ADD_PARTITIONS: State.ONGOING,
        Event.COMMIT: State.PREPARE_COMMIT,
        Event.ABORT: State.PREPARE_ABORT,
    },
    State.PREPARE_COMMIT: {Event.MARKED: State.COMPLETE_COMMIT},
    State.PREPARE_ABORT: {Event.MARKED: State.COMPLETE_ABORT},
    State.COMPLETE_COMMIT: _BETWEEN_TRANSACTIONS,
    State.COMPLETE_ABORT: _BETWEEN_TRANSACTIONS,
}
"""Kafka's two other states are never written: `Dead` is the tombstone, `PrepareEpochFence` the moment of deciding.

Between two transactions only a client of transaction.version 2 may abort: that ends what it never began, and raises
its epoch, so that what it may have on its way is refused (KIP-890).
"""

PREPARED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
COMPLETE = (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)


@value
class Transaction:
    """A transactional id with its producer, and its transaction if there is one."""

    transactional_id: str
    state: State
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    timeout_ms: int
    last_update_ms: int
    start_ms: int = NO_TIMESTAMP
    partitions: tuple[TopicPartition, ...] = ()
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    next_producer_id: ProducerId = NO_PRODUCER_ID
    """The id that the producer has been given to go on with, if its epochs end with this transaction."""
    last_producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    """The epoch before, if whoever had it may ask again for what it was answered. The log does not hold it."""
    client_version: int = 0
    """The transaction.version of the client that made the last change."""

    @property
    def is_exhausted(self) -> bool:
        """Whether its producer has had all the epochs that a client may have."""
        return self.producer_epoch >= LAST_USABLE_EPOCH

    @property
    def is_committing(self) -> bool:
        """Of one that has ended, though not every partition knows yet."""
        return self.state is State.PREPARE_COMMIT

    def is_timed_out(self, now_ms: int) -> bool:
        return self.state is State.ONGOING and self.start_ms + self.timeout_ms < now_ms

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Whether nobody has used it for so long that it shall be forgotten."""
        in_between = self.state is State.EMPTY or self.state in COMPLETE
        return in_between and self.last_update_ms <= now_ms - expiration_ms

    # Requests.

    def with_next_epoch(
        self, *, timeout_ms: int, expected_epoch: ProducerEpoch | None, new_id: IdSource, now_ms: int
    ) -> Transaction | ErrorCode:
        """What InitProducerId makes of one that is between two transactions."""
        if self.is_exhausted and expected_epoch in (None, self.producer_epoch):
            producer_id, epoch = new_id(), ProducerEpoch(0)
            last_epoch = NO_PRODUCER_EPOCH if expected_epoch is None else self.producer_epoch
        elif expected_epoch is not None and self.producer_epoch not in (expected_epoch, NO_PRODUCER_EPOCH):
            if expected_epoch != self.last_producer_epoch:
                return ErrorCode.PRODUCER_FENCED
            # Asked again: nobody else can have begun since, for that would have left it no last epoch.
            producer_id, epoch, last_epoch = self.producer_id, self.producer_epoch, self.last_producer_epoch
        else:
            producer_id, epoch = self.producer_id, ProducerEpoch(self.producer_epoch + 1)
            last_epoch = NO_PRODUCER_EPOCH if expected_epoch is None else self.producer_epoch
        return replace(
            self._moved(Event.INIT_PRODUCER_ID, now_ms),
            producer_id=producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            start_ms=NO_TIMESTAMP,
            partitions=(),
        )

    def with_partitions(self, added: Iterable[TopicPartition], *, client_version: int, now_ms: int) -> Transaction:
        """A transaction that writes to these as well; with the first of them it begins."""
        return replace(
            self._moved(Event.ADD_PARTITIONS, now_ms),
            partitions=tuple(dict.fromkeys((*self.partitions, *added))),
            start_ms=self.start_ms if self.state is State.ONGOING else now_ms,
            client_version=client_version,
        )

    def ended(self, *, commit: bool, client_version: int, new_id: IdSource, now_ms: int) -> Transaction:
        """Decided, though no partition knows yet."""
        begun = self.state is State.ONGOING
        changed = replace(
            self._moved(Event.COMMIT if commit else Event.ABORT, now_ms),
            start_ms=self.start_ms if begun else now_ms,
            next_producer_id=NO_PRODUCER_ID,
            client_version=client_version,
        )
        if client_version < EPOCH_RISES:
            return changed
        return replace(
            changed,
            next_producer_id=new_id() if self.is_exhausted else NO_PRODUCER_ID,
            producer_epoch=ProducerEpoch(min(self.producer_epoch + 1, MAX_EPOCH)),
            last_producer_epoch=self.producer_epoch,
        )

    def fenced(self, *, version: int, new_id: IdSource, now_ms: int) -> Transaction:
        """Aborted by the coordinator, with an epoch that the producer does not have."""
        if version >= EPOCH_RISES:
            return self.ended(commit=False, client_version=version, new_id=new_id, now_ms=now_ms)
        return replace(
            self.ended(commit=False, client_version=0, new_id=new_id, now_ms=now_ms),
            producer_epoch=ProducerEpoch(min(self.producer_epoch + 1, MAX_EPOCH)),
            last_producer_epoch=NO_PRODUCER_EPOCH,
        )

    def completed(self, now_ms: int) -> Transaction:
        """Every partition knows how it has ended."""
        changed = replace(self._moved(Event.MARKED, now_ms), partitions=(), next_producer_id=NO_PRODUCER_ID)
        if self.client_version < EPOCH_RISES or self.next_producer_id == NO_PRODUCER_ID:
            return changed
        return replace(changed, producer_id=self.next_producer_id, producer_epoch=ProducerEpoch(0))

    def _moved(self, event: Event, now_ms: int) -> Transaction:
        state = TRANSITIONS[self.state][event]
        return replace(self, state=state, last_update_ms=now_ms, previous_producer_id=self.producer_id)

    # The log.

    def record(self, transaction_version: int) -> CoordinatorRecord:
        flexible = transaction_version >= FLEXIBLE_RECORDS
        by_topic: dict[str, list[int]] = {}
        for topic, index in self.partitions:
            by_topic.setdefault(topic, []).append(index)
        content = TransactionLogValue(
            producer_id=self.producer_id,
            previous_producer_id=self.previous_producer_id if flexible else NO_PRODUCER_ID,
            next_producer_id=self.next_producer_id if flexible else NO_PRODUCER_ID,
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.state,
            transaction_partitions=None
            if self.state is State.EMPTY
            else [PartitionsSchema(topic=topic, partition_ids=indexes) for topic, indexes in by_topic.items()],
            transaction_last_update_timestamp_ms=self.last_update_ms,
            transaction_start_timestamp_ms=self.start_ms,
            client_transaction_version=self.client_version if flexible else 0,
        )
        return CoordinatorRecord(TransactionLogKey(transactional_id=self.transactional_id), content, int(flexible))


def new_transaction(transactional_id: str, *, producer_id: ProducerId, timeout_ms: int, now_ms: int) -> Transaction:
    """Before its first epoch: it is not in the log yet."""
    return Transaction(transactional_id, State.EMPTY, producer_id, NO_PRODUCER_EPOCH, timeout_ms, now_ms)


def transaction_of(transactional_id: str, content: TransactionLogValue) -> Transaction:
    """What the log says; ValueError for a state that there is not."""
    return Transaction(
        transactional_id,
        State(content.transaction_status),
        ProducerId(content.producer_id),
        ProducerEpoch(content.producer_epoch),
        content.transaction_timeout_ms,
        content.transaction_last_update_timestamp_ms,
        content.transaction_start_timestamp_ms,
        tuple(
            (listed.topic, index) for listed in content.transaction_partitions or () for index in listed.partition_ids
        ),
        ProducerId(content.previous_producer_id),
        ProducerId(content.next_producer_id),
        NO_PRODUCER_EPOCH,
        content.client_transaction_version,
    )
