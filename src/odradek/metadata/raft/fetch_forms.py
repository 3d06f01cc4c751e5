"""Fetches of the metadata log, and their answers, as bytes that hardly change from one to the next.

A follower asks the same thing several times a second for as long as it lives, and is mostly answered the same. Between
two such requests an epoch, two offsets and a high watermark differ, and in the answers two offsets and the records.
What does not differ is written or understood once, by the codecs, and packed or compared as it stands from then on.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import TypeAlias

from odradek.ids import METADATA_TOPIC_ID, LeaderEpoch, NodeId
from odradek.metadata.raft.wire import PARTITION, Standing
from odradek.protocol.codec import encode
from odradek.protocol.frame import RequestHead
from odradek.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from odradek.protocol.primitives import decode_uvarint, encode_uvarint

VERSION = 18
"""The one these forms know: the first with a high watermark in requests, and the newest."""

Shape: TypeAlias = tuple[bytes, bytes, bytes]
"""What does not change of a request: before its first number, between them, and behind the last."""

_FRONT_BYTES = 43
"""Up to the partition's number: waits, sizes, no session, one topic with one partition."""
_MIDDLE_BYTES = 33
"""From the log's start to the mark of the high watermark, with the directory id."""
_REQUEST = Struct(f">{_FRONT_BYTES}siqi{_MIDDLE_BYTES}sq")
_ONE_PARTITION = b"\2" + METADATA_TOPIC_ID + b"\2" + PARTITION.to_bytes(4)
_TAGS_AT = 8 + 4
_DIRECTORY_NEXT = b"\2\0\x10"
"""Two tagged fields, the first of which has 16 bytes,"""
_MARK = b"\1\x08"
"""and the second 8."""
_NUMBERED = 8
"""Where a frame has its correlation id: behind the size, the API and its version."""

_ANSWER_FRONT = b"".join(
    (b"\0", bytes(4 + 2 + 4), b"\2", METADATA_TOPIC_ID, b"\2", PARTITION.to_bytes(4), bytes(2))
)  # An empty header, no throttling, no error, no session; one topic with one partition, and nothing wrong with it.
_ANSWER_MIDDLE = b"\0" + b"\xff" * 4
"""No aborted transactions, no other replica to read from."""
_ANSWER = Struct(f">ii{len(_ANSWER_FRONT)}sqqq{len(_ANSWER_MIDDLE)}s")
_HEARD = Struct(f">i{len(_ANSWER_FRONT)}sqqq{len(_ANSWER_MIDDLE)}s")
_ANSWER_BODY_BYTES = _HEARD.size - 5
"""Before the size of the records: without the correlation id, and the header's tagged fields."""
_NO_STABLE_OFFSET = -1


class RequestForm:
    """How one follower asks over one connection."""

    __slots__ = ("_before", "_front", "_middle", "_pack", "_tail")

    def __init__(self, before: bytes, behind: bytes, shape: Shape) -> None:
        """`before` and `behind` are what the header has around the correlation id."""
        front, self._middle, self._tail = shape
        self._before = before
        self._front = behind + front
        self._pack = Struct(f">{len(before)}si{len(self._front)}siqi{_MIDDLE_BYTES}sq{len(self._tail)}s").pack

    @classmethod
    def of(cls, request: FetchRequest, version: int, client_id: str) -> RequestForm | None:
        """The form of requests like this one; None if they have another layout."""
        if version != VERSION:
            return None
        body = encode(request, version)
        asked = read_request(body, 0)
        if asked is None or not is_plain(asked[0]):
            return None
        head = RequestHead(FetchRequest.api_key, version, client_id).before(len(body), 0)
        return cls(head[:_NUMBERED], head[_NUMBERED + 4 :], asked[0])

    def frame(self, correlation_id: int, epoch: int, fetch_offset: int, last_epoch: int, high_watermark: int) -> bytes:
        """A whole request."""
        return self._pack(
            self._before,
            correlation_id,
            self._front,
            epoch,
            fetch_offset,
            last_epoch,
            self._middle,
            high_watermark,
            self._tail,
        )


def read_request(body: bytes | memoryview, position: int) -> tuple[Shape, int, int, int, int] | None:
    """The shape of a request, and the epoch, fetch offset, last fetched epoch and high watermark in it.

    These are what they seem if the shape `is_plain`; what else it says has to be decoded when it is first seen.
    """
    try:
        front, epoch, fetch_offset, last_epoch, middle, high_watermark = _REQUEST.unpack_from(body, position)
    except StructError:
        return None
    return (front, middle, bytes(body[position + _REQUEST.size :])), epoch, fetch_offset, last_epoch, high_watermark


def is_plain(shape: Shape) -> bool:
    """Whether it is that of a request for one partition that tells a directory and a high watermark."""
    front, middle, _ = shape
    return front.endswith(_ONE_PARTITION) and middle[_TAGS_AT:].startswith(_DIRECTORY_NEXT) and middle.endswith(_MARK)


class AnswerForm:
    """How one leader answers fetches in one epoch."""

    __slots__ = ("_tail", "standing")

    def __init__(self, standing: Standing) -> None:
        self.standing = standing
        leader = LeaderIdAndEpoch(leader_id=standing.leader_id, leader_epoch=standing.epoch)
        empty = PartitionData(
            partition_index=PARTITION, high_watermark=0, current_leader=leader, aborted_transactions=None, records=b""
        )
        topic = FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=[empty])
        example = FetchResponse(responses=[topic], node_endpoints=standing.endpoints(NodeEndpoint))
        self._tail = encode(example, VERSION)[_ANSWER_BODY_BYTES + 1 :]

    def frame(self, correlation_id: int, high_watermark: int, log_start_offset: int, records: bytes) -> bytes:
        """A whole answer."""
        size = encode_uvarint(len(records) + 1)
        tail = self._tail
        front = _ANSWER.pack(
            _ANSWER.size - 4 + len(size) + len(records) + len(tail),
            correlation_id,
            _ANSWER_FRONT,
            high_watermark,
            _NO_STABLE_OFFSET,
            log_start_offset,
            _ANSWER_MIDDLE,
        )
        return b"".join((front, size, records, tail))


def read_answer(frame: memoryview) -> tuple[int, memoryview, bytes] | None:
    """High watermark, records, and what is said of the leader behind them; None if the answer is no plain one.

    The frame begins with the correlation id. What stands behind the records has to be understood when it is first seen.
    """
    try:
        _, front, high_watermark, _, _, middle = _HEARD.unpack_from(frame)
        size, start = decode_uvarint(frame, _HEARD.size)
    except (StructError, IndexError):
        return None
    end = start + size - 1
    if front != _ANSWER_FRONT or middle != _ANSWER_MIDDLE or not start <= end < len(frame):
        return None
    return high_watermark, frame[start:end], bytes(frame[end:])


def leader_of(response: FetchResponse) -> tuple[NodeId, LeaderEpoch] | None:
    """Whom an answer without any error names; None if it sends the follower elsewhere."""
    if response.error_code or len(response.responses) != 1 or len(response.responses[0].partitions) != 1:
        return None
    partition = response.responses[0].partitions[0]
    if partition.error_code or partition.diverging_epoch.epoch >= 0 or partition.snapshot_id.epoch >= 0:
        return None
    return NodeId(partition.current_leader.leader_id), LeaderEpoch(partition.current_leader.leader_epoch)
