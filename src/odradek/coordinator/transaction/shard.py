"""All transactional ids of one partition of `__transaction_state`.

A transaction ends in two steps. `Prepare` in the log decides how; once that is committed, markers tell every
partition; when all have theirs, `Complete` frees the id for the next one. Who takes over goes on where the log ends.

Whatever is answered, errors too, is an answer and no exception, so that it rests on what is committed: nobody is told
that he is fenced by what may yet be lost. (Kafka answers CONCURRENT_TRANSACTIONS while something is on its way to the
log; here the request goes on from there, and its answer waits.)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import ClassVar

from odradek.coordinator.shard import (
    CoordinatorDecision,
    CoordinatorRecord,
    Effect,
    Moment,
    Outcome,
    ProducerKey,
    RecordKinds,
    Timers,
)
from odradek.coordinator.transaction.kinds import TRANSACTION_RECORDS
from odradek.coordinator.transaction.records import TransactionLogKey, TransactionLogValue
from odradek.coordinator.transaction.settings import TransactionSettings
from odradek.coordinator.transaction.state import (
    COMPLETE,
    EPOCH_RISES,
    LAST_USABLE_EPOCH,
    PREPARED,
    STATES_BY_TITLE,
    IdSource,
    State,
    TopicPartition,
    Transaction,
    new_transaction,
    transaction_of,
)
from odradek.decisions import Ticket
from odradek.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch
from odradek.metadata.features import TRANSACTION_VERSION
from odradek.metadata.image import Changes, Image
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.messages.describe_transactions import TopicData, TransactionState
from odradek.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from odradek.protocol.messages.list_transactions import TransactionState as ListedTransaction

RETRY_MS = 500
"""How long whatever the log refused waits."""

MAX_ID_BYTES = (1 << 15) - 1
"""What a key in the log holds."""

MAX_RECORDS_PER_SWEEP = 500
MAX_SWEEP_CHARACTERS = 500_000
"""Of names in the records of one batch, which has to stay below `max.message.bytes`."""

ABORT, EXPIRE, COMPLETE_LATER = "abort", "expire", "complete"
"""Timers: the look for transactions that take too long, for unused ids, and, with its id, an end the log refused."""


class WriteMarkers(Effect):
    """Tell partition leaders how a transaction has ended, and the shard, by `marked`, once all of them know."""

    __slots__ = ("transaction",)

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction


class TransactionShard:
    """The coordinator's state behind one partition."""

    kinds: ClassVar[RecordKinds] = TRANSACTION_RECORDS

    def __init__(self, settings: TransactionSettings, new_id: IdSource) -> None:
        self.settings = settings
        self.transactions: dict[str, Transaction] = {}
        self.timers = Timers()
        self._new_id = new_id
        self._version = 0
        """The cluster's transaction.version."""
        self._ongoing: dict[str, None] = {}
        self._decided: dict[str, Transaction] = {}
        """What is on its way to the log, with what the log does not hold."""

    # The log.

    def replay_encoded(self, key: bytes, content: bytes) -> bool:
        return False

    def replay(self, record: CoordinatorRecord, producer: ProducerKey | None) -> None:
        assert isinstance(record.key, TransactionLogKey)
        transactional_id = record.key.transactional_id
        decided = self._decided.pop(transactional_id, None)
        self._ongoing.pop(transactional_id, None)
        if record.value is None:
            self.transactions.pop(transactional_id, None)
            return
        assert isinstance(record.value, TransactionLogValue)
        now_is = transaction_of(transactional_id, record.value) if decided is None else decided
        self.transactions[transactional_id] = now_is
        if now_is.state is State.ONGOING:
            self._ongoing[transactional_id] = None

    def replay_marker(self, producer: ProducerKey, committed: bool) -> None:
        """Nothing in this log is written in a transaction."""

    def loaded(self, now: Moment) -> CoordinatorDecision:
        """Ends that were decided are carried out: who led before may have told some partitions, or none."""
        self._look_again(now)
        return self._decision(
            Outcome(),
            *(WriteMarkers(known) for known in self.transactions.values() if known.state in PREPARED),
        )

    def learn(self, image: Image, changes: Changes | None) -> None:
        self._version = image.features.level(TRANSACTION_VERSION)

    # Time.

    @property
    def next_deadline_ms(self) -> int | None:
        return self.timers.next_deadline_ms

    def expire(self, now: Moment) -> CoordinatorDecision:
        for key in self.timers.due(now.monotonic_ms):
            decision = self._expire(key, now)
            if decision is not None:
                return decision
        return self._decision(Outcome())

    def _expire(self, key: Hashable, now: Moment) -> CoordinatorDecision | None:
        if key == ABORT:
            return self._abort_timed_out(now)
        if key == EXPIRE:
            return self._forget_unused(now)
        assert isinstance(key, tuple), key
        return self._completed(key[1], now)

    def _look_again(self, now: Moment) -> None:
        """Have timers that are needed, and only those: a coordinator of nothing sleeps."""
        if self._ongoing:
            self._arm(ABORT, now.monotonic_ms + self.settings.abort_interval_ms)
        if self.transactions:
            self._arm(EXPIRE, now.monotonic_ms + self.settings.expiration_interval_ms)

    def _arm(self, key: Hashable, deadline_ms: int) -> None:
        if self.timers.deadline_ms(key) is None:
            self.timers.set(key, deadline_ms)

    def _abort_timed_out(self, now: Moment) -> CoordinatorDecision | None:
        known = (self.transactions[transactional_id] for transactional_id in self._ongoing)
        aborted: list[Transaction] = []
        try:
            for late in _of_one_batch(each for each in known if each.is_timed_out(now.wall_ms)):
                aborted.append(late.fenced(version=self._version, new_id=self._new_id, now_ms=now.wall_ms))
        except KafkaError:
            pass  # No producer id is at hand for one whose epochs are used up: at the next look.
        if not aborted:
            self._look_again(now)
            return None
        self.timers.set(ABORT, now.monotonic_ms)  # There may be more of them.
        return self._write(Outcome(), *aborted, now=now)

    def _forget_unused(self, now: Moment) -> CoordinatorDecision | None:
        unused = (
            known
            for known in self.transactions.values()
            if known.is_expired(now.wall_ms, self.settings.id_expiration_ms)
        )
        out = Outcome()
        for known in _of_one_batch(unused):
            out.records.append(CoordinatorRecord(TransactionLogKey(transactional_id=known.transactional_id), None))
        if not out.records:
            self._look_again(now)
            return None
        self.timers.set(EXPIRE, now.monotonic_ms)
        return self._decision(out)

    # What the shell tells.

    def marked(self, ended: Transaction, now: Moment) -> CoordinatorDecision:
        """All partitions of a transaction know how it ended, as `WriteMarkers` wanted."""
        if self.transactions.get(ended.transactional_id) != ended:
            return self._decision(Outcome())
        return self._completed(ended.transactional_id, now)

    def _completed(self, transactional_id: str, now: Moment) -> CoordinatorDecision:
        return self._write(Outcome(), self.transactions[transactional_id].completed(now.wall_ms), now=now)

    def refused(
        self, decision: CoordinatorDecision, code: ErrorCode, asker: Ticket | None, now: Moment
    ) -> CoordinatorDecision:
        """What clients asked for they ask for again; what is due by itself is due a little later."""
        self._decided.clear()
        if asker is None:
            for record in decision.records:
                assert isinstance(record.key, TransactionLogKey)
                self.timers.set(self._cause(record, record.key.transactional_id), now.monotonic_ms + RETRY_MS)
        return self._decision(Outcome())

    @property
    def refused_ends(self) -> int:
        """How many `Complete` are to be written again."""
        return sum(
            self.timers.deadline_ms((COMPLETE_LATER, known.transactional_id)) is not None
            for known in self.transactions.values()
            if known.state in PREPARED
        )

    @staticmethod
    def _cause(record: CoordinatorRecord, transactional_id: str) -> Hashable:
        if record.value is None:
            return EXPIRE
        assert isinstance(record.value, TransactionLogValue)
        return (COMPLETE_LATER, transactional_id) if record.value.transaction_status in COMPLETE else ABORT

    def resign(self) -> CoordinatorDecision:
        return CoordinatorDecision(())

    def holds(self, ticket: Ticket) -> bool:
        """Everything is answered by the decision that it leads to."""
        return False

    # Producers.

    def init_producer_id(self, ticket: Ticket, request: InitProducerIdRequest, now: Moment) -> CoordinatorDecision:
        out = Outcome()
        outcome = self._next_producer(request, now)
        if isinstance(outcome, ErrorCode):
            out.answer(ticket, _no_producer(outcome))
            return self._decision(out)
        if outcome.state is State.PREPARE_ABORT:
            # The producer asks again until that is over, and then gets an epoch that nobody has had.
            out.answer(ticket, _no_producer(ErrorCode.CONCURRENT_TRANSACTIONS))
        else:
            out.answer(
                ticket, InitProducerIdResponse(producer_id=outcome.producer_id, producer_epoch=outcome.producer_epoch)
            )
        return self._write(out, outcome, now=now)

    def _next_producer(self, request: InitProducerIdRequest, now: Moment) -> Transaction | ErrorCode:
        transactional_id, timeout_ms = request.transactional_id, request.transaction_timeout_ms
        if not transactional_id or len(transactional_id.encode()) > MAX_ID_BYTES:
            return ErrorCode.INVALID_REQUEST
        if not 0 < timeout_ms <= self.settings.max_timeout_ms:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        known = self.transactions.get(transactional_id) or new_transaction(
            transactional_id, producer_id=self._new_id(), timeout_ms=timeout_ms, now_ms=now.wall_ms
        )
        expected_epoch: ProducerEpoch | None = None
        if request.producer_id != NO_PRODUCER_ID:
            expected_epoch = ProducerEpoch(request.producer_epoch)
            if not _may_go_on(known, request.producer_id, expected_epoch):
                return ErrorCode.PRODUCER_FENCED
        if known.state in PREPARED:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if known.state is State.ONGOING:
            return known.fenced(version=self._version, new_id=self._new_id, now_ms=now.wall_ms)
        return known.with_next_epoch(
            timeout_ms=timeout_ms, expected_epoch=expected_epoch, new_id=self._new_id, now_ms=now.wall_ms
        )

    # Partitions of a transaction.

    def add_partitions(
        self, ticket: Ticket, request: AddPartitionsToTxnTransaction, client_version: int, now: Moment
    ) -> CoordinatorDecision:
        """Before a producer writes to them; with the first of them its transaction begins."""
        out = Outcome()
        asked = list(partitions_of(request))
        known = self._of_producer(request.transactional_id, request.producer_id, request.producer_epoch)
        if isinstance(known, ErrorCode):
            out.answer(ticket, partition_results(request, known))
            return self._decision(out)
        if known.state in PREPARED:
            out.answer(ticket, partition_results(request, ErrorCode.CONCURRENT_TRANSACTIONS))
            return self._decision(out)
        out.answer(ticket, partition_results(request, ErrorCode.NONE))
        if known.state is State.ONGOING and set(known.partitions).issuperset(asked):
            return self._decision(out)
        return self._write(
            out, known.with_partitions(asked, client_version=client_version, now_ms=now.wall_ms), now=now
        )

    def verify_partitions(self, ticket: Ticket, request: AddPartitionsToTxnTransaction) -> CoordinatorDecision:
        """Whether they are part of the producer's transaction, as their leaders ask before the first append."""
        out = Outcome()
        known = self._of_producer(request.transactional_id, request.producer_id, request.producer_epoch)
        if isinstance(known, ErrorCode):
            out.answer(ticket, partition_results(request, known))
        elif known.state in PREPARED:
            out.answer(ticket, partition_results(request, ErrorCode.CONCURRENT_TRANSACTIONS))
        else:
            held = set(known.partitions)
            out.answer(
                ticket,
                partition_results(
                    request, lambda each: ErrorCode.NONE if each in held else ErrorCode.TRANSACTION_ABORTABLE
                ),
            )
        return self._decision(out)

    def _of_producer(self, transactional_id: str, producer_id: int, producer_epoch: int) -> Transaction | ErrorCode:
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        known = self.transactions.get(transactional_id)
        if known is None or known.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return known if known.producer_epoch == producer_epoch else ErrorCode.PRODUCER_FENCED

    # The end.

    def end(self, ticket: Ticket, request: EndTxnRequest, client_version: int, now: Moment) -> CoordinatorDecision:
        out = Outcome()
        rises = client_version >= EPOCH_RISES
        known = self.transactions.get(request.transactional_id)
        if not request.transactional_id:
            code = ErrorCode.INVALID_REQUEST
        elif known is None:
            code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        else:
            verdict = _end_since_epochs_rise(known, request) if rises else _end(known, request)
            if verdict is None:
                ended = known.ended(
                    commit=request.committed,
                    client_version=client_version if rises else 0,
                    new_id=self._new_id,
                    now_ms=now.wall_ms,
                )
                after = ended.completed(now.wall_ms)
                out.answer(ticket, _ended(after) if rises else EndTxnResponse())
                return self._write(out, ended, now=now)
            code = verdict
        out.answer(
            ticket,
            _ended(known)
            if known is not None and rises and code is ErrorCode.NONE
            else EndTxnResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH),
        )
        return self._decision(out)

    # Administration.

    def describe(self, ticket: Ticket, transactional_id: str) -> CoordinatorDecision:
        out = Outcome()
        known = self.transactions.get(transactional_id)
        if known is None:
            out.answer(ticket, description(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND))
            return self._decision(out)
        by_topic: dict[str, list[int]] = {}
        for topic, index in known.partitions:
            by_topic.setdefault(topic, []).append(index)
        out.answer(
            ticket,
            TransactionState(
                transactional_id=transactional_id,
                transaction_state=known.state.title,
                transaction_timeout_ms=known.timeout_ms,
                transaction_start_time_ms=known.start_ms,
                producer_id=known.producer_id,
                producer_epoch=known.producer_epoch,
                topics=[TopicData(topic=topic, partitions=indexes) for topic, indexes in by_topic.items()],
            ),
        )
        return self._decision(out)

    def list_transactions(
        self, ticket: Ticket, request: ListTransactionsRequest, matches: Callable[[str], object] | None, now: Moment
    ) -> CoordinatorDecision:
        """Those that the filters leave; `matches` says whether a transactional id is what is looked for."""
        states = {STATES_BY_TITLE.get(title) for title in request.state_filters}
        listed = [
            ListedTransaction(
                transactional_id=known.transactional_id,
                producer_id=known.producer_id,
                transaction_state=known.state.title,
            )
            for known in self.transactions.values()
            if (not request.producer_id_filters or known.producer_id in request.producer_id_filters)
            and (not request.state_filters or known.state in states)
            and (request.duration_filter < 0 or now.wall_ms - known.start_ms > request.duration_filter)
            and (matches is None or matches(known.transactional_id))
        ]
        out = Outcome()
        out.answer(ticket, ListTransactionsResponse(transaction_states=listed))
        return self._decision(out)

    # Decisions.

    def _write(self, out: Outcome, *changed: Transaction, now: Moment) -> CoordinatorDecision:
        for each in changed:
            out.records.append(each.record(self._version))
            self._decided[each.transactional_id] = each
            if each.state is State.ONGOING:
                self._arm(ABORT, now.monotonic_ms + self.settings.abort_interval_ms)
        self._arm(EXPIRE, now.monotonic_ms + self.settings.expiration_interval_ms)
        return self._decision(out, *(WriteMarkers(each) for each in changed if each.state in PREPARED))

    def _decision(self, out: Outcome, *effects: Effect) -> CoordinatorDecision:
        return CoordinatorDecision(
            tuple(out.records), tuple(out.answers), self.timers.next_deadline_ms, effects=effects
        )


def partitions_of(request: AddPartitionsToTxnTransaction) -> Iterator[TopicPartition]:
    for topic in request.topics:
        for index in topic.partitions:
            yield topic.name, index


def partition_results(
    request: AddPartitionsToTxnTransaction, code: ErrorCode | Callable[[TopicPartition], ErrorCode]
) -> AddPartitionsToTxnResult:
    """One answer to all of them, or each its own."""
    return AddPartitionsToTxnResult(
        transactional_id=request.transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index,
                        partition_error_code=code if isinstance(code, ErrorCode) else code((topic.name, index)),
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def description(transactional_id: str, code: ErrorCode) -> TransactionState:
    """Of one that nothing can be said about."""
    return TransactionState(
        error_code=code,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )


def _may_go_on(known: Transaction, producer_id: int, epoch: int) -> bool:
    """Whether a producer that wants to go on may be the one that is known (KIP-360); its epoch is looked at later.

    Where its epochs were used up, it may have missed the answer that gave it another id.
    """
    return (
        known.producer_epoch == NO_PRODUCER_EPOCH
        or known.producer_id == producer_id
        or (known.previous_producer_id == producer_id and epoch >= LAST_USABLE_EPOCH)
    )


def _end(known: Transaction, request: EndTxnRequest) -> ErrorCode | None:
    """What a client is told whose epoch stays as it is; None if the transaction is to end now.

    That it asks again shows in the state alone, so what comes late may end the next transaction: the flaw that KIP-890
    mends, for clients that know of it.
    """
    if known.producer_id != request.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if known.producer_epoch != request.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if known.state is State.ONGOING:
        return None
    return _of_state(known, committed=request.committed)


def _end_since_epochs_rise(known: Transaction, request: EndTxnRequest) -> ErrorCode | None:
    """The same for a client whose epoch rises at every end: one that asks again has the epoch before."""
    epoch = request.producer_epoch
    has_old_id = (
        known.previous_producer_id == request.producer_id and epoch == LAST_USABLE_EPOCH and known.producer_epoch == 0
    )
    if known.producer_id != request.producer_id and not has_old_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    asks_again = known.producer_epoch == epoch + 1
    is_current = known.producer_epoch == epoch
    if known.state in PREPARED:
        return _of_state(known, committed=request.committed) if asks_again else ErrorCode.PRODUCER_FENCED
    if known.state in COMPLETE and (asks_again or has_old_id):
        return _of_state(known, committed=request.committed)
    if not is_current:
        return ErrorCode.PRODUCER_FENCED
    if known.state is State.ONGOING or not request.committed:
        return None
    return ErrorCode.INVALID_TXN_STATE


def _of_state(known: Transaction, *, committed: bool) -> ErrorCode:
    """That it was to end this way already, or cannot any more."""
    if known.state is (State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT):
        return ErrorCode.NONE
    if known.state is (State.PREPARE_COMMIT if committed else State.PREPARE_ABORT):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.INVALID_TXN_STATE


def _no_producer(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)


def _ended(known: Transaction) -> EndTxnResponse:
    """With what the producer goes on with."""
    return EndTxnResponse(producer_id=known.producer_id, producer_epoch=known.producer_epoch)


def _of_one_batch(known: Iterable[Transaction]) -> Iterator[Transaction]:
    """As many as one batch holds; the first in any case."""
    room = MAX_SWEEP_CHARACTERS
    for number, each in enumerate(known):
        room -= len(each.transactional_id) + sum(len(topic) for topic, _ in each.partitions)
        if number and (room < 0 or number == MAX_RECORDS_PER_SWEEP):
            return
        yield each
