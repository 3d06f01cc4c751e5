"""Fetches of followers within a session, and their answers, from numbers to bytes and back.

A follower under load asks hundreds of times a second, and each time a few offsets differ from the last. What these
forms do not know (errors, histories that differ, partitions to forget, fields added since) the codecs do: a reader
here then answers None, and its caller takes the generic path.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import TypeAlias

from odradek.ids import NO_NODE, ZERO_UUID, LeaderEpoch, NodeId, Offset, Uuid
from odradek.protocol.codec import encode
from odradek.protocol.errors import MalformedFrame
from odradek.protocol.frame import RequestHead
from odradek.protocol.messages.fetch import FetchRequest, ReplicaState
from odradek.protocol.primitives import decode_uvarint, encode_uvarint

VERSION = 18
"""The one these forms know: the newest, which brokers speak among themselves."""

Asked: TypeAlias = tuple[Uuid, int, LeaderEpoch, Offset, LeaderEpoch, Offset, int]
"""Topic id, partition, leader epoch, fetch offset, last fetched epoch, start of the log, most bytes."""

Answered: TypeAlias = tuple[Uuid, int, int, int, memoryview]
"""Topic id, partition, high watermark, start of the log, records."""

Front: TypeAlias = tuple[int, int, int, int, int, int]
"""Longest wait, least and most bytes, isolation level, session id and epoch: what a request begins with."""

_FRONT = Struct(">iiibii")
_SESSION_BYTES = 8
_NUMBERED = 8
"""Where a frame has its correlation id: behind the size, the API and its version."""
_ID_BYTES = 16
_ASKED = Struct(">iiqiqi")
written = _ASKED.pack
"""One partition of a request: index, leader epoch, fetch offset, last fetched epoch, start of the log, most bytes."""
_DIRECTORY = b"\1\0\x10"
"""One tagged field, the first one, of 16 bytes."""
_DIRECTORY_BYTES = len(_DIRECTORY)
_TWO_BYTES = 0x80
"""From here on a compact size is longer than a byte, and these forms too narrow for it."""

_ANSWER = Struct(">iiBihi")
"""Size, correlation id, no tagged fields, throttle time, error, session id."""
_HEARD = Struct(">iBihiB")
_TOPIC = Struct(">16sB")
"""Its id, and how many partitions follow."""
_PARTITION = Struct(">ihqqqBi")
"""Its index, error, high watermark, last stable offset, start of the log, aborted transactions, preferred replica."""
_NONE_ABORTED = 0
_EMPTY = 1
"""An array without elements, as a compact array counts."""


class RequestForm:
    """How one follower asks over one connection, in one incarnation."""

    __slots__ = ("_before", "_behind", "_ending", "_pack", "_pack_one", "_size", "broker_epoch")

    def __init__(self, client_id: str, example: FetchRequest) -> None:
        """What the example says of waits, sizes and the follower holds for all."""
        follower = example.replica_state
        self.broker_epoch = follower.replica_epoch
        head = RequestHead(FetchRequest.api_key, VERSION, client_id).before(0, 0)
        self._before = head[4:_NUMBERED]
        self._behind = head[_NUMBERED + 4 :] + encode(example, VERSION)[: _FRONT.size - _SESSION_BYTES]
        self._ending = ending_of(NodeId(follower.replica_id), follower.replica_epoch)
        self._pack = Struct(f">i{len(self._before)}si{len(self._behind)}sii").pack
        self._pack_one = Struct(f">i{len(self._before)}si{len(self._behind)}siiB16sB").pack
        self._size = len(self._before) + 4 + len(self._behind) + _SESSION_BYTES

    def frame(self, correlation_id: int, session_id: int, session_epoch: int, topics: dict[Uuid, list[bytes]]) -> bytes:
        """A whole request; each partition is what `written` says of it, and its directory behind that."""
        before, behind, ending = self._before, self._behind, self._ending
        if len(topics) == 1:  # As it mostly is: one step for all that is before the partitions.
            ((topic_id, partitions),) = topics.items()
            count = len(partitions) + 1
            if count < _TWO_BYTES:
                rest = b"".join(partitions) + b"\0" + ending
                size = self._size + 1 + _TOPIC.size + len(rest)
                pack = self._pack_one
                return pack(size, before, correlation_id, behind, session_id, session_epoch, 2, topic_id, count) + rest
        parts = [encode_uvarint(len(topics) + 1)]
        for topic_id, partitions in topics.items():
            parts += (topic_id, encode_uvarint(len(partitions) + 1), *partitions, b"\0")
        rest = b"".join((*parts, ending))
        return self._pack(self._size + len(rest), before, correlation_id, behind, session_id, session_epoch) + rest


def ending_of(replica_id: NodeId, broker_epoch: int) -> bytes:
    """What a follower's requests have behind the partitions if none is to be forgotten: who asks, and nothing else."""
    state = ReplicaState(replica_id=replica_id, replica_epoch=broker_epoch)
    example = FetchRequest(replica_state=state, max_wait_ms=0, min_bytes=0, topics=[])
    return encode(example, VERSION)[_FRONT.size + 1 :]


def written_directory(directory_id: Uuid) -> bytes:
    return b"\0" if directory_id == ZERO_UUID else _DIRECTORY + directory_id


def read_front(frame: memoryview, position: int) -> Front | None:
    try:
        return _FRONT.unpack_from(frame, position)
    except StructError:
        return None


def read_partitions(frame: memoryview, position: int, ending: bytes) -> list[Asked] | None:
    """What a request that begins at `position` asks for, if it ends like that."""
    position += _FRONT.size
    found: list[Asked] = []
    try:
        topics = frame[position]
        position += 1
        if not 0 < topics < _TWO_BYTES:
            return None
        for _ in range(topics - 1):
            topic_id = Uuid(bytes(frame[position : position + _ID_BYTES]))
            partitions = frame[position + _ID_BYTES]
            position += _ID_BYTES + 1
            if not 0 < partitions < _TWO_BYTES:
                return None
            for _ in range(partitions - 1):
                found.append((topic_id, *_ASKED.unpack_from(frame, position)))
                position += _ASKED.size
                if frame[position]:
                    if frame[position : position + _DIRECTORY_BYTES] != _DIRECTORY:
                        return None
                    position += _DIRECTORY_BYTES + _ID_BYTES
                else:
                    position += 1
            if frame[position]:
                return None
            position += 1
    except (StructError, IndexError):
        return None
    return found if frame[position:] == ending else None


def answer_head(correlation_id: int, session_id: int, topics: int, body_bytes: int) -> bytes:
    """Before so many topics of an answer, with all that is behind them so many bytes."""
    count = encode_uvarint(topics + 1)
    return _ANSWER.pack(_ANSWER.size - 4 + len(count) + body_bytes, correlation_id, 0, 0, 0, session_id) + count


def answered(index: int, high_watermark: int, last_stable_offset: int, log_start_offset: int, size: int) -> bytes:
    """One partition of an answer, up to its records, of which there are so many bytes."""
    return _PARTITION.pack(
        index, 0, high_watermark, last_stable_offset, log_start_offset, _NONE_ABORTED, NO_NODE
    ) + encode_uvarint(size + 1)


def read_answer(frame: memoryview) -> list[Answered] | None:
    """What an answer without any error says; the frame begins with the correlation id."""
    found: list[Answered] = []
    try:
        _, tagged, _, error, _, topics = _HEARD.unpack_from(frame)
        position = _HEARD.size
        if tagged or error or not 0 < topics < _TWO_BYTES:
            return None
        while topics > 1:
            topics -= 1
            topic_id, partitions = _TOPIC.unpack_from(frame, position)
            position += _TOPIC.size
            if not 0 < partitions < _TWO_BYTES:
                return None
            while partitions > 1:
                partitions -= 1
                index, error, high_watermark, _, log_start_offset, aborted, preferred = _PARTITION.unpack_from(
                    frame, position
                )
                size, start = decode_uvarint(frame, position + _PARTITION.size)
                position = start + size - 1 if size else start
                if error or aborted > _EMPTY or preferred != NO_NODE or frame[position]:
                    return None
                found.append((topic_id, index, high_watermark, log_start_offset, frame[start:position]))
                position += 1
            if frame[position]:
                return None
            position += 1
        if frame[position] or position + 1 != len(frame):
            return None
    except (StructError, IndexError, MalformedFrame):
        return None
    return found
