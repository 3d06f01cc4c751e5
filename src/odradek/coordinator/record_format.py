"""What all coordinators have in common: where a key belongs, and how records look in the log."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import TypeAlias

from odradek.coordinator.last_values import LastValues
from odradek.coordinator.shard import CoordinatorRecord, ProducerKey, RecordKinds, Shard
from odradek.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from odradek.protocol.codec import Message, decode, encode
from odradek.protocol.errors import ErrorCode, MalformedFrame
from odradek.protocol.records.batch import (
    BATCH_HEADER,
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    TRANSACTIONAL_BIT,
    build_batch,
    decode_payload,
    iter_batches,
)
from odradek.protocol.records.compression import Compression, compression_of, decompress
from odradek.protocol.records.control import read_end_txn_marker
from odradek.protocol.records.native import Fields
from odradek.protocol.records.record import Record

_Pending: TypeAlias = tuple[int, ProducerKey | None, bytes, bytes | None]
"""Offset, producer, key and value."""

MAX_REPLAYED_BYTES = 16 * 1024
"""Of values in one step of a load: some 150 offsets."""
_SIZE_OF_ANY = 64
"""What the smallest record counts as."""

_VERSION = struct.Struct(">h")
_SIGN = 1 << 31

MAX_KEYS_KEPT = 10_000
"""Keys whose partition need not be computed again; every heartbeat and every commit asks for one."""


@lru_cache(maxsize=MAX_KEYS_KEPT)
def partition_for(key: str, partitions: int) -> int:
    """By the absolute value of Java's `String.hashCode`, as every broker counts: a directory may change hands."""
    encoded = key.encode("utf-16-be")
    code = 0
    for unit in struct.unpack(f">{len(encoded) // 2}H", encoded):
        code = (31 * code + unit) & 0xFFFFFFFF
    magnitude = code if code < _SIGN else (1 << 32) - code
    return magnitude % partitions if magnitude != _SIGN else 0  # Java has no absolute value of its least number.


def encode_batch(
    records: Sequence[CoordinatorRecord],
    *,
    timestamp_ms: int,
    compression: Compression = Compression.NONE,
    producer: ProducerKey | None = None,
) -> bytearray:
    """One batch: all of the records or none are ever seen."""
    return build_batch(
        [_encoded(record) for record in records],
        timestamp=timestamp_ms,
        compression=compression,
        producer_id=NO_PRODUCER_ID if producer is None else producer.producer_id,
        producer_epoch=NO_PRODUCER_EPOCH if producer is None else producer.producer_epoch,
        transactional=producer is not None,
    )


def _encoded(record: CoordinatorRecord) -> Record:
    content = None if record.value is None else encode_value(record.value, record.value_version)
    return Record(encode_key(record.key), content)


def encode_key(key: Message) -> bytes:
    """With its kind in front."""
    return _VERSION.pack(type(key).api_key) + encode(key, 0)


def encode_value(content: Message, version: int) -> bytes:
    """With its version in front."""
    return _VERSION.pack(version) + encode(content, version)


def decode_record(kinds: RecordKinds, key: bytes, content: bytes | None) -> CoordinatorRecord | None:
    """None for a kind that is not known, as a newer Kafka may have written; MalformedFrame for bytes that are none."""
    (kind,) = _unpack(key)
    if kind not in kinds:
        return None
    key_class, value_class = kinds[kind]
    decoded_key = decode(key_class, 0, key[2:])
    if content is None:
        return CoordinatorRecord(decoded_key, None)
    (version,) = _unpack(content)
    if version not in value_class.versions:
        raise MalformedFrame(f"{value_class.__name__} has no version {version}")
    return CoordinatorRecord(decoded_key, decode(value_class, version, content[2:]), version)


def _unpack(content: bytes) -> tuple[int]:
    if len(content) < 2:
        raise MalformedFrame("a coordinator's record is shorter than its version")
    version: tuple[int] = _VERSION.unpack_from(content)
    return version


class Newest:
    """The last value of every key of a log, and what transactions have written in it that are still open.

    A log that nobody has compacted yet holds each key many times; only what is left at the end is decoded. What was
    written in a transaction counts from its commit on, unless something newer has come into force meanwhile. All of it
    is done in steps of well below a millisecond, between which whoever loads a log may let others have their turn.
    """

    def __init__(self) -> None:
        self.end_offset: int | None = None
        """The offset behind the last batch."""
        self._last = LastValues()
        self._pending: dict[int, list[_Pending]] = {}
        """By producer id: what transactions have written that have not ended yet."""
        self._offsets: dict[bytes, int] = {}
        """Where the value in force of a key was written, of those that got one while transactions were open."""

    def __len__(self) -> int:
        return len(self._last)

    def add(self, batches: bytes) -> Iterator[None]:
        """Take whole batches in."""
        for batch in iter_batches(batches):
            fields = BATCH_HEADER.unpack_from(batch)
            base_offset, attributes, last_delta, producer_id, producer_epoch, count = (
                fields[0],
                fields[5],
                fields[6],
                fields[9],
                fields[10],
                fields[12],
            )
            if attributes & CONTROL_BIT:
                self._end_transaction(producer_id, batch)
                yield
            else:
                payload = bytes(batch[HEADER_SIZE:])
                if attributes & COMPRESSION_MASK:
                    payload = decompress(compression_of(attributes & COMPRESSION_MASK), payload)
                producer = ProducerKey(producer_id, producer_epoch) if attributes & TRANSACTIONAL_BIT else None
                for some in decode_payload(payload, count):
                    self._add(some, producer, base_offset)
                    yield
            self.end_offset = base_offset + last_delta + 1

    def _add(self, some: list[Fields], producer: ProducerKey | None, offset: int) -> None:
        """Records without a key are none of a coordinator's."""
        if producer is not None:
            written = self._pending.setdefault(producer.producer_id, [])
            written += [(offset, producer, key, content) for key, content, _, _, _ in some if key is not None]
            return
        set_last = self._last.set
        for key, content, _, _, _ in some:
            if key is not None:
                set_last(key, content)
        if self._pending:
            self._offsets.update((key, offset) for key, _, _, _, _ in some if key is not None)

    def _end_transaction(self, producer_id: int, batch: memoryview) -> None:
        marker = read_end_txn_marker(batch)
        written = self._pending.pop(producer_id, [])
        if marker is not None and marker.committed:
            for offset, _, key, content in written:
                if self._offsets.get(key, -1) <= offset:
                    self._last.set(key, content)
                    if self._pending:
                        self._offsets[key] = offset
        if not self._pending:
            self._offsets.clear()

    def replay_into(self, shard: Shard) -> Iterator[None]:
        """All that is left: what may come into force with a commit for whom it was written, and in the log's order."""
        contested = self._offsets
        written = list(chain.from_iterable(self._pending.values()))
        written += [(offset, None, key, self._last.get(key)) for key, offset in contested.items()]
        size = 0
        for entries in self._last.take_out():
            for key, content in entries:
                if key not in contested and not shard.replay_encoded(key, content):
                    _replay(shard, key, content, None)
                size += _SIZE_OF_ANY + len(content)
                if size > MAX_REPLAYED_BYTES:
                    size = 0
                    yield
            yield
        for _, producer, key, last in sorted(written, key=itemgetter(0)):
            _replay(shard, key, last, producer)
            yield


def _replay(shard: Shard, key: bytes, content: bytes | None, producer: ProducerKey | None) -> None:
    record = decode_record(shard.kinds, key, content)
    if record is not None:
        shard.replay(record, producer)


_TO_CLIENTS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def client_error(append_error: ErrorCode) -> ErrorCode:
    """What a client is told when its coordinator's log refuses a record: in terms of coordinators, not of logs."""
    return _TO_CLIENTS.get(append_error, append_error)


def java_length(text: str) -> int:
    """Characters as Java counts them, which limits on lengths are stated in."""
    return len(text) if text.isascii() else len(text.encode("utf-16-be")) // 2
