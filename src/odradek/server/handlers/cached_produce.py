"""Produce of one batch to a partition that the same connection has written to before.

A producer says the same things again and again: who it is, which acks it wants, which topic, which partition. All of
that lies in one stretch of bytes between the correlation id and the batch, and is compared at once with what was
understood before. What is new is the batch. A client that waits for each answer finds the processor cold, so that what
a request costs is how much code it runs: this is the least that will do, for partitions without other replicas.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any

from odradek.ids import NO_TIMESTAMP, Uuid
from odradek.protocol.errors import KafkaError
from odradek.protocol.records.check import TakesLong
from odradek.replication.partition import SOLE_REPLICA
from odradek.server.handlers.fast_produce_one import refusal
from odradek.server.handlers.produce_answers import ZSTD_VERSION, is_too_new
from odradek.server.net.routes import CachedRequest, CachedRequestMaker
from odradek.storage.log import NOT_PLAIN

if TYPE_CHECKING:
    from odradek.server.net.dispatch import Endpoint
    from odradek.server.partitions.hosted_partition import HostedPartition
    from odradek.server.rooms import Rooms

MAX_SHAPES = 64
"""How many partitions a connection is remembered to write to; all others are served as if it were their first time."""

_FIRST_VERSION = 5
_FIRST_FLEXIBLE_VERSION = 9
_FIRST_VERSION_BY_ID = 13
_SHAPE_START = 12
"""Behind size, API, version and correlation id."""

_ID_BYTES = 16
_NO_ANSWER = b""
_REQUEST = Struct(">BhxxxxB")
_PARTITION = Struct(">Bi")
_unpack_four_bytes = Struct(">I").unpack_from
_THREE_BYTES = 0xFFFFFF
_ANSWER_END = b"\1\0\0" + bytes(6)
"""No record errors, no message, no tagged fields of the partition or its topic, no throttling, none of the answer."""

_REQUEST_BEFORE_9 = Struct(">hhxxxxih")
_PARTITION_BEFORE_9 = Struct(">ii")
_NO_ERROR = b"\0\0"
_ANSWER_END_BEFORE_9 = {5: bytes(4), 6: bytes(4), 7: bytes(4), 8: b"\0\0\0\0\xff\xff\0\0\0\0"}
"""No record errors and no message from version 8 on, and no throttling."""


class _Known:
    """One partition as a connection writes to it."""

    __slots__ = ("acks", "answer_bytes", "end", "front", "hosted", "pack", "partition")

    def __init__(self, hosted: HostedPartition, acks: int, front: bytes, end: bytes) -> None:
        """`front` and `end` are what an answer has around the three offsets that it tells."""
        self.hosted = hosted
        self.partition = hosted.partition
        self.acks = acks
        self.front = front
        self.end = end
        answer = Struct(f">ii{len(front)}sqqq{len(end)}s")
        self.pack = answer.pack
        self.answer_bytes = answer.size - 4


class _Writing:
    """What one connection writes to."""

    __slots__ = ("_clock", "_known", "_refused", "_rooms", "_shape_end", "_unpack", "_version", "endpoint", "start")

    def __init__(self, rooms: Rooms, endpoint: Endpoint, start: int, version: int, shape_end: int, sizes: str) -> None:
        self.endpoint = endpoint
        self.start = start
        self._rooms = rooms
        self._clock = rooms.world.clock
        self._version = version
        self._shape_end = shape_end
        # The size, API and version, the correlation id, all that does not change, and how large the batch is.
        self._unpack: Callable[[memoryview], tuple[Any, ...]] = Struct(
            f">iIi{shape_end - _SHAPE_START}s{sizes}"
        ).unpack_from
        self._known: dict[bytes, _Known] = {}
        self._refused = rooms.replicas.refused_batches.first
        """Not empty while somebody's batches have to wait for an earlier one."""

    def _remember(self, frame: memoryview, hosted: HostedPartition | None, acks: int, front: bytes, end: bytes) -> None:
        if (
            hosted is not None
            and not hosted.is_internal
            and hosted.partition.role is SOLE_REPLICA
            and -1 <= acks <= 1
            and len(self._known) < MAX_SHAPES
        ):
            self._known[bytes(frame[_SHAPE_START : self._shape_end])] = _Known(hosted, acks, front, end)

    def _append(self, known: _Known, batch: memoryview, batch_bytes: int, correlation_id: int) -> bytes | None:
        partition = known.partition
        if partition.role is not SOLE_REPLICA:
            return None  # It has followers now, or is not here any more.
        if self._version < ZSTD_VERSION and is_too_new(batch, self._version):
            return None
        hosted = known.hosted
        log = partition.log
        try:
            base_offset = log.append_sole_replica(batch, partition.state.leader_epoch, self._clock.now_ms())
        except (KafkaError, TakesLong):
            return None  # It will be found once more, by who counts and answers it, or has time for it.
        except OSError as failure:
            error = self._rooms.replicas.failed_append(hosted, batch, failure)
            listener_name = self.endpoint.listener_name
            return refusal(self._rooms, listener_name, self._version, correlation_id, hosted, error, known.acks)
        if base_offset == NOT_PLAIN:
            return None
        hosted.appends += 1
        hosted.bytes_in += batch_bytes
        if hosted.is_read:
            hosted.on_committed(batch_bytes)
        if not known.acks:
            return _NO_ANSWER
        pack = known.pack
        return pack(
            known.answer_bytes, correlation_id, known.front, base_offset, NO_TIMESTAMP, log.log_start_offset, known.end
        )


class CachedProduce(_Writing):
    """In versions 9 and above."""

    __slots__ = ("_topic_bytes",)

    def __init__(self, rooms: Rooms, endpoint: Endpoint, start: int, version: int, topic_bytes: int) -> None:
        shape_end = start + _REQUEST.size + topic_bytes + _PARTITION.size
        super().__init__(rooms, endpoint, start, version, shape_end, "BB")
        self._topic_bytes = topic_bytes
        """Of a topic's id, or of its name with the size in front; other names are not remembered here."""

    def learn(self, frame: memoryview) -> None:
        position = self.start + _REQUEST.size
        topic_end = position + self._topic_bytes
        try:
            transaction, acks, topics = _REQUEST.unpack_from(frame, self.start)
            topic = bytes(frame[position:topic_end])
            partitions, index = _PARTITION.unpack_from(frame, topic_end)
        except StructError:
            return
        if transaction or topics != 2 or partitions != 2:
            return
        replicas = self._rooms.replicas
        if self._version >= _FIRST_VERSION_BY_ID:
            hosted = replicas.find_by_id(Uuid(topic), index)
        elif topic[0] == len(topic):
            hosted = replicas.find(topic[1:].decode(), index)
        else:
            return
        # An empty header, then one topic with one partition.
        front = b"\0\2" + topic + _PARTITION.pack(2, index) + _NO_ERROR
        self._remember(frame, hosted, acks, front, _ANSWER_END)

    def answer(self, view: memoryview, end: int) -> bytes | None:
        unpack = self._unpack
        size, api, correlation_id, shape, batch_bytes, high = unpack(view)
        known = self._known.get(shape)
        if known is None or api != self._version or size != end - 4 or self._refused:  # Produce is API 0.
            return None
        position = self._shape_end + 1
        if batch_bytes > 127:  # A number of variable length, of two bytes at most: larger batches can wait.
            if high > 127:
                return None
            batch_bytes += (high << 7) - 128
            position += 1
        batch_bytes -= 1
        batch_end = position + batch_bytes
        (last_four,) = _unpack_four_bytes(view, batch_end - 1)
        if batch_end + 3 != end or last_four & _THREE_BYTES:
            return None  # Something is tagged.
        return self._append(known, view[position:batch_end], batch_bytes, correlation_id)


class CachedProduceBefore9(_Writing):
    """In versions 5 to 8."""

    __slots__ = ("_name_bytes",)

    def __init__(self, rooms: Rooms, endpoint: Endpoint, start: int, version: int, name_bytes: int) -> None:
        shape_end = start + _REQUEST_BEFORE_9.size + name_bytes + _PARTITION_BEFORE_9.size
        super().__init__(rooms, endpoint, start, version, shape_end, "i")
        self._name_bytes = name_bytes

    def learn(self, frame: memoryview) -> None:
        position = self.start + _REQUEST_BEFORE_9.size
        name_end = position + self._name_bytes
        try:
            transaction, acks, topics, name_bytes = _REQUEST_BEFORE_9.unpack_from(frame, self.start)
            name = bytes(frame[position:name_end])
            partitions, index = _PARTITION_BEFORE_9.unpack_from(frame, name_end)
        except StructError:
            return
        if transaction != -1 or topics != 1 or partitions != 1 or name_bytes != self._name_bytes:
            return
        hosted = self._rooms.replicas.find(name.decode(), index)
        front = b"\0\0\0\1" + bytes(frame[position - 2 : name_end]) + _PARTITION_BEFORE_9.pack(1, index) + _NO_ERROR
        self._remember(frame, hosted, acks, front, _ANSWER_END_BEFORE_9[self._version])

    def answer(self, view: memoryview, end: int) -> bytes | None:
        unpack = self._unpack
        size, api, correlation_id, shape, batch_bytes = unpack(view)
        known = self._known.get(shape)
        position = self._shape_end + 4
        if (
            known is None
            or api != self._version  # Produce is API 0.
            or size != end - 4
            or batch_bytes != end - position
            or self._refused
        ):
            return None
        return self._append(known, view[position:end], batch_bytes, correlation_id)


def cached_produce(version: int) -> CachedRequestMaker | None:
    """A maker of cached requests for one version; None for old ones, which few clients send."""
    if version < _FIRST_VERSION:
        return None

    def make(rooms: Rooms, endpoint: Endpoint, start: int, frame: memoryview) -> CachedRequest:
        if version >= _FIRST_VERSION_BY_ID:
            return CachedProduce(rooms, endpoint, start, version, _ID_BYTES)
        if version >= _FIRST_FLEXIBLE_VERSION:
            return CachedProduce(rooms, endpoint, start, version, frame[start + _REQUEST.size])
        *_, name_bytes = _REQUEST_BEFORE_9.unpack_from(frame, start)
        return CachedProduceBefore9(rooms, endpoint, start, version, max(name_bytes, 0))

    return make
