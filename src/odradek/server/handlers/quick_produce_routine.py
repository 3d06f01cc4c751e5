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
from typing import TYPE_CHECKING

from odradek.ids import NO_TIMESTAMP, Uuid
from odradek.protocol.errors import KafkaError
from odradek.server.handlers.quick_produce_one import refusal
from odradek.server.routes import RoutineMaker
from odradek.storage.log import NOT_PLAIN

if TYPE_CHECKING:
    from odradek.server.dispatch import Endpoint
    from odradek.server.hosted import Hosted
    from odradek.server.node import Node

MAX_SHAPES = 64
"""How many partitions a connection is remembered to write to; all others are served as if it were their first time."""

_FIRST_VERSION = 9
_FIRST_VERSION_BY_ID = 13
_ID_BYTES = 16
_NO_ANSWER = b""
_REQUEST = Struct(">BhxxxxB")
_PARTITION = Struct(">Bi")
_unpack_four_bytes = Struct(">I").unpack_from
_THREE_BYTES = 0xFFFFFF
_ANSWER_END = b"\1\0\0" + bytes(6)
"""No record errors, no message, no tagged fields of the partition or its topic, no throttling, none of the answer."""


class _Known:
    """One partition as a connection writes to it."""

    __slots__ = ("acks", "answer_bytes", "front", "hosted", "pack", "partition")

    def __init__(self, hosted: Hosted, acks: int, topic: bytes) -> None:
        self.hosted = hosted
        self.partition = hosted.partition
        self.acks = acks
        # An empty header, then one topic with one partition that has no error.
        self.front = b"\0\2" + topic + _PARTITION.pack(2, hosted.index) + b"\0\0"
        answer = Struct(f">ii{len(self.front)}sqqq{len(_ANSWER_END)}s")
        self.pack = answer.pack
        self.answer_bytes = answer.size - 4


class ProduceRoutine:
    """What one connection writes to."""

    __slots__ = (
        "_known",
        "_node",
        "_now_ms",
        "_refused",
        "_shape_end",
        "_topic_bytes",
        "_unpack",
        "_version",
        "endpoint",
        "start",
    )

    def __init__(self, node: Node, endpoint: Endpoint, start: int, version: int, topic_bytes: int) -> None:
        self.endpoint = endpoint
        self.start = start
        self._node = node
        self._now_ms = node.world.clock.now_ms
        self._version = version
        self._topic_bytes = topic_bytes
        """Of a topic's id, or of its name with the size in front; other names are not remembered here."""
        self._shape_end = start + _REQUEST.size + topic_bytes + _PARTITION.size
        # The size, API and version, the correlation id, all that does not change, and how large the batch is.
        self._unpack: Callable[[memoryview], tuple[int, int, int, bytes, int, int]] = Struct(
            f">iIi{self._shape_end - 12}sBB"
        ).unpack_from
        self._known: dict[bytes, _Known] = {}
        self._refused = node.replicas.refused_batches.first
        """Not empty while somebody's batches have to wait for an earlier one."""

    def learn(self, frame: memoryview) -> None:
        known = self._known
        position = self.start + _REQUEST.size
        topic_end = position + self._topic_bytes
        try:
            transaction, acks, topics = _REQUEST.unpack_from(frame, self.start)
            topic = bytes(frame[position:topic_end])
            partitions, index = _PARTITION.unpack_from(frame, topic_end)
        except StructError:
            return
        if transaction or topics != 2 or partitions != 2 or not -1 <= acks <= 1 or len(known) >= MAX_SHAPES:
            return
        replicas = self._node.replicas
        if self._version >= _FIRST_VERSION_BY_ID:
            hosted = replicas.find_by_id(Uuid(topic), index)
        elif topic[0] == len(topic):
            hosted = replicas.find(topic[1:].decode(), index)
        else:
            return
        if hosted is not None and not hosted.is_internal and hosted.partition.least_instant_acks < 0:
            known[bytes(frame[12 : self._shape_end])] = _Known(hosted, acks, topic)

    def answer(self, view: memoryview, end: int) -> bytes | None:
        size, api, correlation_id, shape, batch_bytes, high = self._unpack(view)
        known = self._known.get(shape)
        if known is None or api != self._version or size != end - 4 or self._refused:  # Produce is API 0.
            return None
        position = self._shape_end + 1
        if batch_bytes > 127:  # A number of variable length, of two bytes at most: larger batches can wait.
            if high > 127:
                return None
            batch_bytes += (high << 7) - 128
            position += 1
        batch_end = position + batch_bytes - 1
        (last_four,) = _unpack_four_bytes(view, batch_end - 1)
        partition = known.partition
        if batch_end + 3 != end or last_four & _THREE_BYTES or partition.least_instant_acks >= 0:
            return None  # Something is tagged, or the partition has followers now, or is not here any more.
        hosted = known.hosted
        log = partition.log
        try:
            base_offset = log.append_alone(view[position:batch_end], partition.state.leader_epoch, self._now_ms())
        except KafkaError:
            return None  # It will be found once more, by who counts and answers it.
        except OSError as failure:
            error = self._node.replicas.failed_append(hosted, view[position:batch_end], failure)
            return refusal(self._version, correlation_id, hosted, error, known.acks)
        if base_offset == NOT_PLAIN:
            return None
        hosted.appends += 1
        hosted.bytes_in += batch_bytes - 1
        if hosted.watchers:
            hosted.tell_watchers(batch_bytes - 1)
        if not known.acks:
            return _NO_ANSWER
        return known.pack(
            known.answer_bytes,
            correlation_id,
            known.front,
            base_offset,
            NO_TIMESTAMP,
            log.log_start_offset,
            _ANSWER_END,
        )


def produce_routine(version: int) -> RoutineMaker | None:
    """A maker of routines for one version; None for old ones, which few clients send."""
    if version < _FIRST_VERSION:
        return None

    def make(node: Node, endpoint: Endpoint, start: int, frame: memoryview) -> ProduceRoutine:
        by_id = version >= _FIRST_VERSION_BY_ID
        return ProduceRoutine(node, endpoint, start, version, _ID_BYTES if by_id else frame[start + _REQUEST.size])

    return make
