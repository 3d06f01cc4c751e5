"""What a log remembers of its producers: epochs, the last five batches, and open transactions.

With it a batch that arrives twice is answered with its first offset, one that arrives too early is refused, an older
instance of a producer is fenced, and the last stable offset is known. Snapshots (`.snapshot` files) spare a restart the
whole log.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator

from odradek.ids import NO_OFFSET, NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records.batch import BatchHeader
from odradek.protocol.records.control import read_end_txn_marker
from odradek.protocol.records.crc import crc32c
from odradek.storage.txn_index import AbortedTxn
from odradek.values import value

BATCHES_KEPT = 5
"""As many requests as an idempotent producer may have in flight."""

DEFAULT_EXPIRATION_MS = 86_400_000

EPOCH_RISES_AT_END = 2
"""The `transaction.version` from which every end of a transaction raises its producer's epoch."""

_SEQUENCES = 1 << 31
"""Sequence numbers are counted from 0 again after 2^31 - 1."""

_SNAPSHOT_VERSION = 1
_SNAPSHOT_HEADER = struct.Struct(">hIi")
_SNAPSHOT_CRC_COVERS_FROM = 6
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
"""producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp, coordinator_epoch, txn_first_offset"""


@value
class KeptBatch:
    """One of the last batches of a producer."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


@value
class CompletedTxn:
    """What a marker ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class Producer:
    """One producer id in one partition."""

    __slots__ = ("coordinator_epoch", "epoch", "kept", "last_sequence", "last_timestamp", "txn_first_offset")

    def __init__(self) -> None:
        self.epoch: int = NO_PRODUCER_EPOCH
        self.coordinator_epoch = -1
        self.last_timestamp: int = NO_TIMESTAMP
        self.txn_first_offset: int = NO_OFFSET
        """Where its open transaction began; -1 if none is open."""
        self.last_sequence = NO_SEQUENCE
        """Of its last batch; -1 if none is known."""
        self.kept: list[tuple[int, int, int, int, int]] = []
        """Its last batches, oldest first: the fields of a `KeptBatch`, which only a duplicate needs as a value."""

    @property
    def batches(self) -> list[KeptBatch]:
        """Oldest first."""
        return [KeptBatch(*fields) for fields in self.kept]

    def begin_epoch(self, epoch: int) -> None:
        """What it wrote in an earlier one cannot come again."""
        self.epoch = epoch
        self.last_sequence = NO_SEQUENCE
        self.kept.clear()


class Verification:
    """A transaction's first batch for this log, while its coordinator is asked whether the log is part of it (KIP-890).

    The object is the proof: an append brings the one that it got before the coordinator was asked. The log has dropped
    it if a marker was written meanwhile, and the answer counts for nothing then: such a batch would stay open forever.
    """

    __slots__ = ("_epoch", "began_ms", "lowest_sequence", "supports_epoch_bump")

    def __init__(self, epoch: int, sequence: int, *, supports_epoch_bump: bool, began_ms: int) -> None:
        self._epoch = epoch
        self.lowest_sequence = sequence
        """Of those that were asked for: one behind it comes too early, however its own question was answered."""
        self.supports_epoch_bump = supports_epoch_bump
        self.began_ms = began_ms

    def ask(self, epoch: int, sequence: int) -> None:
        if epoch > self._epoch:
            self._epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self._epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


@value
class ProducerSettings:
    """What a broker wants of all its logs."""

    expiration_ms: int = DEFAULT_EXPIRATION_MS
    """After how long without a batch a producer is forgotten."""
    verifies: bool = False
    """Whether a transaction begins only with proof that its coordinator knows."""


class Producers:
    """All producers of one log, by id."""

    __slots__ = (
        "_by_id",
        "_ongoing",
        "_unreplicated",
        "_verifications",
        "first_unstable_offset",
        "settings",
    )

    def __init__(self, settings: ProducerSettings | None = None) -> None:
        self.settings = settings or ProducerSettings()
        self._by_id: dict[int, Producer] = {}
        self._verifications: dict[int, Verification] = {}
        self._ongoing: dict[
            int, int
        ] = {}  # First offset to producer id; in the order of the log, so the first is lowest.
        self._unreplicated: dict[
            int, int
        ] = {}  # First offset to marker's offset, of ended ones above the high watermark.
        self.first_unstable_offset: int | None = None
        """The first record whose transaction is undecided, or decided by a marker that may yet be lost."""

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[tuple[int, Producer]]:
        return iter(self._by_id.items())

    def get(self, producer_id: int) -> Producer | None:
        return self._by_id.get(producer_id)

    def check(
        self, producer_id: int, epoch: int, first_sequence: int, last_delta: int, transactional: bool
    ) -> KeptBatch | None:
        """Whether a client's batch may be appended: raises if not; returns the earlier batch if it is a duplicate.

        (Hot, and `appended` with it: no keywords, which cost more than the comparisons.)
        """
        producer = self._by_id.get(producer_id)
        if producer is None:
            return None  # An unknown producer may start with any sequence: its records may be gone by retention.
        if epoch == producer.epoch:
            if first_sequence != (producer.last_sequence + 1) % _SEQUENCES:
                return _duplicate_or_gap(producer_id, producer, first_sequence, last_delta)
        elif epoch < producer.epoch:
            raise _old_epoch(producer_id, epoch, producer)
        elif first_sequence != 0 and producer.epoch != NO_PRODUCER_EPOCH:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} starts its epoch {epoch} with sequence {first_sequence} instead of 0",
            )
        if producer.txn_first_offset >= 0 and not transactional:
            raise _outside_of_its_transaction(producer_id)
        return None

    def check_epoch(self, producer_id: int, epoch: int, *, transactional: bool) -> None:
        """Whether a coordinator's batch, which has no sequence of its own, may be appended."""
        producer = self._by_id.get(producer_id)
        if producer is None:
            return
        if epoch < producer.epoch:
            raise _old_epoch(producer_id, epoch, producer)
        if producer.txn_first_offset >= 0 and not transactional:
            raise _outside_of_its_transaction(producer_id)

    def check_transactional(
        self, producer_id: int, epoch: int, first_sequence: int, last_delta: int, proof: object
    ) -> KeptBatch | None:
        """The same as `check`, for a batch that may begin a transaction here."""
        producer = self._by_id.get(producer_id)
        if producer is not None and epoch == producer.epoch:
            earlier = _duplicate(producer, first_sequence, last_delta)
            if earlier is not None:
                return earlier
        self.check_verified(producer_id, epoch, proof)
        asked = self._verifications.get(producer_id)
        if asked is not None:
            is_gap = first_sequence > asked.lowest_sequence
            if asked.supports_epoch_bump and first_sequence != 0:
                # Every transaction has an epoch of its own, and so begins with 0: what came before it is missing.
                is_gap |= producer is None or not producer.kept
            if is_gap:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {producer_id} would begin its transaction with sequence {first_sequence}",
                )
        return self.check(producer_id, epoch, first_sequence, last_delta, True)

    def check_verified(self, producer_id: int, epoch: int, proof: object) -> None:
        """Whether a transaction is open, or may begin with this proof: else nobody might ever end it."""
        if self.is_open(producer_id, epoch):
            return
        producer = self._by_id.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            raise _old_epoch(producer_id, epoch, producer)
        if self.settings.verifies and (proof is None or self._verifications.get(producer_id) is not proof):
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer_id} has no open transaction here, and nothing shows that it has begun one",
            )

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has a transaction open under this very epoch."""
        producer = self._by_id.get(producer_id)
        return producer is not None and producer.epoch == epoch and producer.txn_first_offset != NO_OFFSET

    def verify(
        self, producer_id: int, epoch: int, first_sequence: int, *, supports_epoch_bump: bool, now_ms: int
    ) -> Verification | None:
        """What an append has to bring once the coordinator has been asked; None where the transaction is open."""
        if self.is_open(producer_id, epoch):
            return None
        producer = self._by_id.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            raise _old_epoch(producer_id, epoch, producer)
        asked = self._verifications.get(producer_id)
        if asked is None:
            asked = Verification(epoch, first_sequence, supports_epoch_bump=supports_epoch_bump, began_ms=now_ms)
            self._verifications[producer_id] = asked
        asked.ask(epoch, first_sequence)
        return asked

    def check_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, *, transaction_version: int = 0
    ) -> None:
        """Whether a transaction coordinator may still end transactions of this producer.

        From version 2 on a marker's epoch is above that of the transaction it ends. One of the same epoch is a late one
        of the transaction before, or, where nothing is open, the one that ended it once more.
        """
        producer = self._by_id.get(producer_id)
        if producer is not None:
            is_late = transaction_version >= EPOCH_RISES_AT_END and self.is_open(producer_id, epoch)
            if epoch < producer.epoch or is_late:
                raise _old_epoch(producer_id, epoch, producer)
        if producer is not None and coordinator_epoch < producer.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a marker for producer {producer_id} has coordinator epoch {coordinator_epoch}, "
                f"but {producer.coordinator_epoch} was seen before",
            )

    def appended(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        base_offset: int,
        last_delta: int,
        timestamp: int,
        transactional: bool,
    ) -> None:
        """A batch with records was appended."""
        producer = self._by_id.get(producer_id)
        if producer is None:
            producer = self._by_id[producer_id] = Producer()
        kept = producer.kept
        if epoch != producer.epoch:
            producer.begin_epoch(epoch)
        elif len(kept) == BATCHES_KEPT:
            del kept[0]
        last_sequence = base_sequence if base_sequence < 0 else (base_sequence + last_delta) % _SEQUENCES
        kept.append((base_sequence, last_sequence, base_offset, base_offset + last_delta, timestamp))
        producer.last_sequence = last_sequence
        producer.last_timestamp = timestamp
        if transactional:
            self._verifications.pop(producer_id, None)
            if producer.txn_first_offset == NO_OFFSET:
                producer.txn_first_offset = base_offset
                self._ongoing[base_offset] = producer_id
                self._find_first_unstable()

    def replay(self, header: BatchHeader, read_batch: Callable[[], bytes | memoryview]) -> CompletedTxn | None:
        """Take over a batch that is in the log already, whatever it says; the transaction it ends, as `ended` does."""
        if header.is_control:
            marker = read_end_txn_marker(read_batch())
            if marker is None:
                return None
            return self.ended(
                header.producer_id,
                header.producer_epoch,
                coordinator_epoch=marker.coordinator_epoch,
                aborted=not marker.committed,
                offset=header.base_offset,
                timestamp=header.max_timestamp,
            )
        self.appended(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.base_offset,
            header.last_offset_delta,
            header.max_timestamp,
            header.is_transactional,
        )
        return None

    def recall(self, headers: Iterable[BatchHeader]) -> None:
        """Remember batches from before those that are known; in the order of the log."""
        found: dict[int, list[tuple[int, int, int, int, int]]] = {}
        for header in headers:
            producer = self._by_id.get(header.producer_id)
            if producer is None or header.is_control or header.producer_epoch != producer.epoch:
                continue
            if producer.kept and header.last_offset < producer.batches[0].first_offset:
                found.setdefault(header.producer_id, []).append(_kept(header))
        for producer_id, batches in found.items():
            known = self._by_id[producer_id].kept
            known[:0] = batches[max(len(batches) + len(known) - BATCHES_KEPT, 0) :]

    def any_since(self, timestamp: int) -> bool:
        """Whether a producer has written at or after this time."""
        return any(producer.last_timestamp >= timestamp for producer in self._by_id.values())

    def ended(
        self, producer_id: int, epoch: int, *, coordinator_epoch: int, aborted: bool, offset: int, timestamp: int
    ) -> CompletedTxn | None:
        """A marker was appended; the transaction it ends, unless it was empty.

        The transaction stays open until `complete`, so that its entry in the transaction index can be written first.
        """
        producer = self._by_id.get(producer_id)
        if producer is None:
            producer = self._by_id[producer_id] = Producer()
        self._verifications.pop(producer_id, None)
        if epoch != producer.epoch:
            producer.begin_epoch(epoch)
        producer.coordinator_epoch = coordinator_epoch
        producer.last_timestamp = timestamp
        first_offset = producer.txn_first_offset
        producer.txn_first_offset = NO_OFFSET
        if first_offset == NO_OFFSET:
            return None
        return CompletedTxn(producer_id, first_offset, offset, aborted)

    def aborted_entry(self, completed: CompletedTxn) -> AbortedTxn:
        """The entry for the transaction index."""
        others = (first for first, owner in self._ongoing.items() if owner != completed.producer_id)
        stable = next(others, completed.last_offset + 1)
        return AbortedTxn(completed.producer_id, completed.first_offset, completed.last_offset, stable)

    def complete(self, completed: CompletedTxn) -> None:
        """The transaction is decided; it is stable once the high watermark has passed its marker."""
        self._ongoing.pop(completed.first_offset, None)
        self._unreplicated[completed.first_offset] = completed.last_offset
        self._find_first_unstable()

    def unreplicated(self, end_offset: int) -> dict[int, int]:
        """Where transactions began whose markers, each with its offset, stay when the log is cut to that end."""
        return {first: marker for first, marker in self._unreplicated.items() if marker < end_offset}

    def stay_unreplicated(self, ended: dict[int, int]) -> None:
        """After a reload: snapshots know of open transactions only, and these markers may still be lost."""
        self._unreplicated.update(ended)
        self._find_first_unstable()

    def high_watermark_advanced(self, high_watermark: int) -> None:
        """Markers below it cannot be lost any more."""
        if self._unreplicated:
            self._unreplicated = {
                first: marker for first, marker in self._unreplicated.items() if marker >= high_watermark
            }
            self._find_first_unstable()

    def expire(self, now_ms: int) -> int:
        """Forget producers that were idle for too long and have no open transaction; how many."""
        gone = [producer_id for producer_id, producer in self._by_id.items() if self._is_expired(producer, now_ms)]
        for producer_id in gone:
            del self._by_id[producer_id]
        for producer_id, asked in list(self._verifications.items()):
            if now_ms - asked.began_ms >= self.settings.expiration_ms:
                del self._verifications[producer_id]
        return len(gone)

    def has_late_transaction(self, now_ms: int, late_ms: int) -> bool:
        """Whether the oldest transaction that is open has not been written to for that long."""
        oldest = next(iter(self._ongoing.values()), None)
        producer = None if oldest is None else self._by_id.get(oldest)
        return producer is not None and now_ms - producer.last_timestamp > late_ms

    def clear(self) -> None:
        self._by_id.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        self.first_unstable_offset = None

    def snapshot(self) -> bytes:
        """The content of a `.snapshot` file."""
        entries = bytearray()
        for producer_id, producer in self._by_id.items():
            last = KeptBatch(*producer.kept[-1]) if producer.kept else None
            entries += _SNAPSHOT_ENTRY.pack(
                producer_id,
                producer.epoch,
                NO_SEQUENCE if last is None else last.last_sequence,
                NO_OFFSET if last is None else last.last_offset,
                0 if last is None else last.last_offset - last.first_offset,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.txn_first_offset,
            )
        data = bytearray(_SNAPSHOT_HEADER.pack(_SNAPSHOT_VERSION, 0, len(self._by_id)) + entries)
        _SNAPSHOT_HEADER.pack_into(
            data, 0, _SNAPSHOT_VERSION, crc32c(memoryview(data)[_SNAPSHOT_CRC_COVERS_FROM:]), len(self._by_id)
        )
        return bytes(data)

    def load(self, snapshot: bytes, now_ms: int) -> None:
        """Take over what `snapshot` wrote; raises ValueError if it is damaged."""
        if len(snapshot) < _SNAPSHOT_HEADER.size:
            raise ValueError(f"{len(snapshot)} bytes are too few for a producer snapshot")
        version, crc, count = _SNAPSHOT_HEADER.unpack_from(snapshot)
        if version != _SNAPSHOT_VERSION:
            raise ValueError(f"unknown producer snapshot version {version}")
        if crc32c(memoryview(snapshot)[_SNAPSHOT_CRC_COVERS_FROM:]) != crc:
            raise ValueError("a producer snapshot's checksum does not match its content")
        entries = snapshot[_SNAPSHOT_HEADER.size :]
        if len(entries) != count * _SNAPSHOT_ENTRY.size:
            raise ValueError(f"a producer snapshot declares {count} entries in {len(entries)} bytes")
        self.clear()
        for fields in _SNAPSHOT_ENTRY.iter_unpack(entries):
            producer_id, producer = fields[0], _loaded(*fields[1:])
            if not self._is_expired(producer, now_ms):
                self._by_id[producer_id] = producer
        opened = sorted((p.txn_first_offset, i) for i, p in self._by_id.items() if p.txn_first_offset != NO_OFFSET)
        self._ongoing = dict(opened)
        self._find_first_unstable()

    def _is_expired(self, producer: Producer, now_ms: int) -> bool:
        return (
            producer.txn_first_offset == NO_OFFSET and now_ms - producer.last_timestamp >= self.settings.expiration_ms
        )

    def _find_first_unstable(self) -> None:
        ongoing = next(iter(self._ongoing), None)
        unreplicated = min(self._unreplicated, default=None)
        if ongoing is None or (unreplicated is not None and unreplicated < ongoing):
            self.first_unstable_offset = unreplicated
        else:
            self.first_unstable_offset = ongoing


def _duplicate(producer: Producer, first_sequence: int, last_delta: int) -> KeptBatch | None:
    last_sequence = (first_sequence + last_delta) % _SEQUENCES
    for batch in producer.batches:
        if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
            return batch
    return None


def _duplicate_or_gap(producer_id: int, producer: Producer, first_sequence: int, last_delta: int) -> KeptBatch:
    earlier = _duplicate(producer, first_sequence, last_delta)
    if earlier is not None:
        return earlier
    raise KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {producer_id} came with sequence {first_sequence} after {producer.last_sequence}",
    )


def _old_epoch(producer_id: int, epoch: int, producer: Producer) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {producer_id} came with epoch {epoch}, but epoch {producer.epoch} was seen before",
    )


def _outside_of_its_transaction(producer_id: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_TXN_STATE,
        f"producer {producer_id} has an open transaction and wrote outside of it",
    )


def _kept(header: BatchHeader) -> tuple[int, int, int, int, int]:
    first = header.base_sequence
    last = first if first < 0 else (first + header.last_offset_delta) % _SEQUENCES
    return first, last, header.base_offset, header.last_offset, header.max_timestamp


def _loaded(
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    txn_first_offset: int,
) -> Producer:
    producer = Producer()
    producer.epoch = epoch
    producer.coordinator_epoch = coordinator_epoch
    producer.last_timestamp = timestamp
    producer.txn_first_offset = txn_first_offset
    if last_offset >= 0:
        first_sequence = last_sequence if last_sequence < 0 else (last_sequence - offset_delta) % _SEQUENCES
        producer.last_sequence = last_sequence
        producer.kept.append((first_sequence, last_sequence, last_offset - offset_delta, last_offset, timestamp))
    return producer
