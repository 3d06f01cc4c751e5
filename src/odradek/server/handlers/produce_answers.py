"""What a Produce is answered, partition by partition: shared by the generic path and the fast ones."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import TypeAlias

from odradek.ids import NO_OFFSET, NO_TIMESTAMP, ZERO_UUID, Uuid
from odradek.protocol.codec import encode
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.frame import response_frame
from odradek.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from odradek.protocol.records.batch import (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    LENGTH_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
)
from odradek.protocol.records.compression import Compression
from odradek.server.handlers.leader_hints import LeaderHints
from odradek.storage.log import AppendInfo
from odradek.storage.validation import AT_ONCE_BYTES

Outcome: TypeAlias = AppendInfo | KafkaError

_LOW_ATTRIBUTES = ATTRIBUTES_POSITION + 1
_MAGIC_POSITION = 16
_PRODUCER = Struct(">qhi")
_PRODUCER_POSITION = 43
ZSTD_VERSION = 7
_LEADER_VERSION = 10
_TOPIC_ID_VERSION = 13


class Unacknowledged(KafkaError):
    """A batch was appended, and not in time by all the replicas that should have it, or by too few."""

    def __init__(self, code: ErrorCode, appended: AppendInfo) -> None:
        super().__init__(code)
        self.appended = appended


def is_transactional(batch: memoryview) -> bool:
    """Whether a batch says that it belongs to a transaction."""
    return len(batch) > _LOW_ATTRIBUTES and batch[_LOW_ATTRIBUTES] & TRANSACTIONAL_BIT != 0


def producer_of(batch: memoryview | bytes) -> tuple[int, int, int]:
    """Its id, its epoch and the batch's first sequence, of a batch that has a header."""
    producer_id, producer_epoch, first_sequence = _PRODUCER.unpack_from(batch, _PRODUCER_POSITION)
    return producer_id, producer_epoch, first_sequence


def takes_unpacking(batch: memoryview) -> bool:
    """Whether more may come out of a batch than it has bytes, or there are many of them."""
    is_compressed = len(batch) > _LOW_ATTRIBUTES and batch[_LOW_ATTRIBUTES] & COMPRESSION_MASK != 0
    return is_compressed or len(batch) > AT_ONCE_BYTES


def is_too_new(batch: memoryview, version: int) -> bool:
    """Whether a batch is compressed in a way that its version of Produce does not know yet (KIP-110)."""
    return (
        version < ZSTD_VERSION
        and len(batch) > _LOW_ATTRIBUTES
        and batch[_LOW_ATTRIBUTES] & COMPRESSION_MASK == Compression.ZSTD
        and batch[_MAGIC_POSITION] == MAGIC
        and int.from_bytes(batch[8:LENGTH_OVERHEAD]) + LENGTH_OVERHEAD <= len(batch)
    )


def refused(index: int, error: KafkaError) -> PartitionProduceResponse:
    """What a partition answers that took nothing; one that did, as with Kafka, all it would have and another code."""
    if isinstance(error, Unacknowledged):
        answer = accepted(index, error.appended)
        answer.error_code = error.code
        return answer
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=NO_OFFSET,
        log_append_time_ms=NO_TIMESTAMP,
        log_start_offset=NO_OFFSET,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=what)
            for number, what in error.record_errors
        ],
        error_message=error.message,
    )


def accepted(index: int, info: AppendInfo) -> PartitionProduceResponse:
    """What a partition answers that has appended a batch."""
    return PartitionProduceResponse(
        index=index,
        error_code=0,
        base_offset=info.base_offset,
        log_append_time_ms=info.log_append_time_ms,
        log_start_offset=info.log_start_offset,
    )


def name_leaders(response: ProduceResponse, version: int, leaders: LeaderHints) -> None:
    """Say who leads instead, and where to reach them (KIP-951), to clients that know what to do with it."""
    if version < _LEADER_VERSION:
        return
    for topic in response.responses:
        for part in topic.partition_responses:
            if part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                key = topic.topic_id if version >= _TOPIC_ID_VERSION else topic.name
                leader, epoch = leaders.leader_of(key, part.index)
                part.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
    response.node_endpoints = [
        NodeEndpoint(node_id=node_id, host=endpoint.host, port=endpoint.port, rack=rack)
        for node_id, endpoint, rack in leaders.endpoints()
    ]


def generic_answer(
    version: int,
    correlation_id: int,
    outcomes: Iterable[tuple[int, Outcome]],
    leaders: LeaderHints,
    *,
    topic: str = "",
    topic_id: Uuid = ZERO_UUID,
) -> bytes:
    """Errors are rare enough for the compiled encoder; the outcomes come with their partitions' indexes."""
    answers = [
        refused(index, outcome) if isinstance(outcome, KafkaError) else accepted(index, outcome)
        for index, outcome in outcomes
    ]
    response = ProduceResponse(
        responses=[TopicProduceResponse(name=topic, topic_id=topic_id, partition_responses=answers)]
    )
    name_leaders(response, version, leaders)
    frame = response_frame(correlation_id, [encode(response, version)], header_version=1 if version >= 9 else 0)
    return b"".join(part for part in frame if isinstance(part, bytes))
