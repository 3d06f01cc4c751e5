"""ListOffsets of a consumer for the first or the last offset of one partition, from the frame's bytes to the answer's.

Spark asks for both after every poll of every task, one after the other, and its task stands still meanwhile. Anything
else (several partitions, points in time, tagged fields, an error) returns None, and the generic path takes
over; a test holds the two equal. Versions before 6, which have no compact sizes, always take the generic
path.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING

from odradek.ids import NO_EPOCH, NO_OFFSET, NO_TIMESTAMP, Offset
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.list_offsets import EARLIEST, LATEST
from odradek.server.net.routes import FastAnswer, FastPath
from odradek.server.partitions.visible import visible_to
from odradek.storage.log import Log

if TYPE_CHECKING:
    from odradek.server.rooms import Rooms

_OLDEST = 6
_TIMEOUT_SINCE = 10
_BEGINNING = Struct(">iBBB")
"""Replica id, isolation level, how many topics, and the size of the first one's name."""
_CONSUMER_AND_ONE_TOPIC = (-1, 2)
_PARTITION = Struct(">BiiqBB")
"""How many partitions, the first one's index, leader epoch and timestamp, and no tagged fields of it and of its topic.
"""
_ONE = 2
"""As a compact array counts."""
_TWO_BYTES = 0x80
"""From here on a compact size is longer than a byte, and this way too narrow for it."""
_ANSWER_HEAD = Struct(">iiBiB")
"""Size, correlation id, no tagged fields, throttle time, one topic."""
_ANSWER = Struct(">BihqqiBBB")
"""One partition: its index, no error, timestamp, offset, leader epoch; no tagged fields of it, its topic, the answer.
"""
_FIXED_ANSWER_SIZE = _ANSWER_HEAD.size - 4 + _ANSWER.size


def epoch_of(log: Log, offset: Offset, *, latest: bool) -> int:
    """The leader epoch that is told with an offset."""
    if offset == NO_OFFSET:
        return NO_EPOCH
    return log.leader_epochs.latest if latest else log.leader_epochs.epoch_for_offset(offset)


def fast_list_offsets(version: int, _: str) -> FastPath | None:
    """The handler for one version."""
    if version < _OLDEST:
        return None
    # The timeout of newer versions is for what is looked up in tiered storage; then come no tagged fields.
    size_behind_partition = 5 if version >= _TIMEOUT_SINCE else 1

    def handle(rooms: Rooms, frame: memoryview, position: int, correlation_id: int) -> FastAnswer:
        try:
            replica_id, isolation_level, topics, name_size = _BEGINNING.unpack_from(frame, position)
            name_at = position + 6
            name_end = name_at + name_size
            partitions, index, epoch, timestamp, *tagged = _PARTITION.unpack_from(frame, name_end)
            if (
                (replica_id, topics) != _CONSUMER_AND_ONE_TOPIC
                or not 1 < name_size < _TWO_BYTES
                or partitions != _ONE
                or (timestamp != LATEST and timestamp != EARLIEST)
                or tagged != [0, 0]
                or len(frame) != name_end + _PARTITION.size + size_behind_partition
                or frame[-1]
            ):
                return None
            name = bytes(frame[name_at:name_end])
            hosted = rooms.replicas.find(name[1:].decode(), index)
            if hosted is None:
                return None
            partition = hosted.partition
            partition.require_leader(epoch)
        except (StructError, UnicodeDecodeError, KafkaError):
            return None
        log = partition.log
        if timestamp == LATEST:
            if not partition.knows_its_end:
                return None
            offset = hosted.readable_end(visible_to(replica_id, isolation_level))
        else:
            offset = log.log_start_offset
        leader_epoch = epoch_of(log, offset, latest=timestamp == LATEST)
        head = _ANSWER_HEAD.pack(_FIXED_ANSWER_SIZE + name_size, correlation_id, 0, 0, _ONE)
        return head + name + _ANSWER.pack(_ONE, index, 0, NO_TIMESTAMP, offset, leader_epoch, 0, 0, 0)

    return handle
