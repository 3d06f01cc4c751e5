"""A transaction shard over a log, with clients that ask in few words."""

from __future__ import annotations

from itertools import count

from tests.unit.coordinator.logs import load

from odradek.coordinator.record_format import encode_batch
from odradek.coordinator.shard import CoordinatorDecision, CoordinatorRecord, Moment
from odradek.coordinator.transaction.settings import TransactionSettings
from odradek.coordinator.transaction.shard import TransactionShard, WriteMarkers
from odradek.coordinator.transaction.state import Transaction
from odradek.decisions import Ticket
from odradek.ids import ProducerId
from odradek.metadata.features import LATEST_METADATA_VERSION, TRANSACTION_VERSION
from odradek.metadata.image import EMPTY_IMAGE
from odradek.metadata.image.features import FeaturesImage
from odradek.protocol.codec import Struct
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.values import replace

ID = "pay"
TIMEOUT_MS = 60_000
FIRST_PRODUCER_ID = 1_000


class Transactions:
    """A shard, its log and the markers that it wants written."""

    def __init__(self, version: int = 2, settings: TransactionSettings | None = None) -> None:
        self.version = version
        self.settings = settings or TransactionSettings()
        self.ids = count(FIRST_PRODUCER_ID)
        self.ms = 0
        self.log: list[CoordinatorRecord] = []
        self.markers: list[WriteMarkers] = []
        self.refuses: ErrorCode | None = None
        self.shard = self._new_shard()
        self.carry_out(self.shard.loaded(self.now))

    def _new_shard(self) -> TransactionShard:
        shard = TransactionShard(self.settings, lambda: ProducerId(next(self.ids)))
        finalized = {TRANSACTION_VERSION: self.version} if self.version else {}
        shard.learn(replace(EMPTY_IMAGE, features=FeaturesImage(LATEST_METADATA_VERSION, finalized)), None)
        return shard

    @property
    def now(self) -> Moment:
        return Moment(self.ms, self.ms)

    def raise_version(self, version: int) -> None:
        self.version = version
        features = FeaturesImage(LATEST_METADATA_VERSION, {TRANSACTION_VERSION: version})
        self.shard.learn(replace(EMPTY_IMAGE, features=features), None)

    def reload(self) -> None:
        """Another node takes over: all it knows is the log, as bytes."""
        self.shard = self._new_shard()
        self.markers = []
        load(self.shard, (bytes(encode_batch([record], timestamp_ms=self.ms)) for record in self.log))
        self.carry_out(self.shard.loaded(self.now))

    def carry_out(self, decision: CoordinatorDecision, asker: Ticket | None = None) -> bool:
        """As the shell does; whether the log took it."""
        if decision.records and self.refuses is not None:
            told = self.shard.refused(decision, self.refuses, asker, self.now)
            assert not told.records
            return False
        for record in decision.records:
            self.log.append(record)
            self.shard.replay(record, None)
        for effect in decision.effects:
            assert isinstance(effect, WriteMarkers)
            self.markers.append(effect)
        return True

    def expire(self) -> None:
        """What the shell's timer does, over and over until nothing is written any more."""
        while True:
            decision = self.shard.expire(self.now)
            if not self.carry_out(decision) or not decision.records:
                return

    def pass_time(self, ms: int) -> None:
        """With the timer going off whenever the shard wants it to."""
        until = self.ms + ms
        while (deadline_ms := self.shard.next_deadline_ms) is not None and deadline_ms <= until:
            self.ms = max(self.ms, deadline_ms)
            self.expire()
        self.ms = until

    def known(self, transactional_id: str = ID) -> Transaction:
        return self.shard.transactions[transactional_id]

    def state(self, transactional_id: str = ID) -> str:
        return self.known(transactional_id).state.title

    # Clients.

    def _answer(self, decision: CoordinatorDecision) -> Struct:
        ((ticket, answer),) = decision.answers
        assert ticket == 1
        if not self.carry_out(decision, asker=ticket):
            raise ConnectionError
        return answer

    def init(
        self,
        transactional_id: str | None = ID,
        expected: tuple[int, int] = (-1, -1),
        *,
        timeout_ms: int = TIMEOUT_MS,
    ) -> tuple[ErrorCode, int, int]:
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=expected[0],
            producer_epoch=expected[1],
        )
        answer = self._answer(self.shard.init_producer_id(Ticket(1), request, self.now))
        assert isinstance(answer, InitProducerIdResponse)
        return ErrorCode(answer.error_code), answer.producer_id, answer.producer_epoch

    def producer(self, transactional_id: str = ID) -> tuple[int, int]:
        code, producer_id, epoch = self.init(transactional_id)
        assert code is ErrorCode.NONE
        return producer_id, epoch

    def add(
        self,
        producer: tuple[int, int],
        *partitions: tuple[str, int],
        transactional_id: str = ID,
        client_version: int | None = None,
    ) -> ErrorCode:
        request = _asked(transactional_id, producer, partitions)
        version = self.version if client_version is None else client_version
        answer = self._answer(self.shard.add_partitions(Ticket(1), request, version, self.now))
        (code,) = set(_codes(answer).values())
        return code

    def verify(
        self, producer: tuple[int, int], *partitions: tuple[str, int], transactional_id: str = ID
    ) -> dict[tuple[str, int], ErrorCode]:
        decision = self.shard.verify_partitions(Ticket(1), _asked(transactional_id, producer, partitions))
        assert not decision.records
        return _codes(self._answer(decision))

    def end(
        self,
        producer: tuple[int, int],
        *,
        commit: bool,
        transactional_id: str = ID,
        client_version: int | None = None,
    ) -> tuple[ErrorCode, int, int]:
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=commit,
        )
        version = self.version if client_version is None else client_version
        answer = self._answer(self.shard.end(Ticket(1), request, version, self.now))
        assert isinstance(answer, EndTxnResponse)
        return ErrorCode(answer.error_code), answer.producer_id, answer.producer_epoch

    def mark(self) -> None:
        """All markers that are wanted are written."""
        markers, self.markers = self.markers, []
        for wanted in markers:
            self.carry_out(self.shard.marked(wanted.transaction, self.now))


def _asked(
    transactional_id: str, producer: tuple[int, int], partitions: tuple[tuple[str, int], ...]
) -> AddPartitionsToTxnTransaction:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        topics=[AddPartitionsToTxnTopic(name=topic, partitions=indexes) for topic, indexes in topics.items()],
    )


def _codes(answer: Struct) -> dict[tuple[str, int], ErrorCode]:
    assert isinstance(answer, AddPartitionsToTxnResult)
    return {
        (topic.name, partition.partition_index): ErrorCode(partition.partition_error_code)
        for topic in answer.topic_results
        for partition in topic.results_by_partition
    }
