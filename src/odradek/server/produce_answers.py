"""What a Produce is answered, partition by partition: shared by the declared way and the quick ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from odradek.ids import NO_OFFSET, NO_TIMESTAMP, ZERO_UUID, Uuid
from odradek.protocol.codec import encode
from odradek.protocol.errors import KafkaError
from odradek.protocol.frame import response_frame
from odradek.protocol.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from odradek.protocol.records.batch import ATTRIBUTES_POSITION, TRANSACTIONAL_BIT
from odradek.storage.log import AppendInfo

Outcome: TypeAlias = AppendInfo | KafkaError

_LOW_ATTRIBUTES = ATTRIBUTES_POSITION + 1
_NOBODY: Mapping[int, LeaderIdAndEpoch] = MappingProxyType({})


def is_transactional(batch: memoryview) -> bool:
    """Whether a batch says that it belongs to a transaction."""
    return len(batch) > _LOW_ATTRIBUTES and batch[_LOW_ATTRIBUTES] & TRANSACTIONAL_BIT != 0


def refused(index: int, error: KafkaError) -> PartitionProduceResponse:
    """What a partition answers that took nothing."""
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=NO_OFFSET,
        log_append_time_ms=NO_TIMESTAMP,
        log_start_offset=NO_OFFSET,
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


def declared_answer(
    version: int,
    correlation_id: int,
    outcomes: Iterable[tuple[int, Outcome]],
    *,
    topic: str = "",
    topic_id: Uuid = ZERO_UUID,
    leaders: Mapping[int, LeaderIdAndEpoch] = _NOBODY,
) -> bytes:
    """Errors are rare enough for the declared messages; the outcomes come with their partitions' indexes, as do leaders
    where others lead."""
    answers = [
        refused(index, outcome) if isinstance(outcome, KafkaError) else accepted(index, outcome)
        for index, outcome in outcomes
    ]
    for answer in answers:
        if answer.index in leaders:
            answer.current_leader = leaders[answer.index]
    response = ProduceResponse(
        responses=[TopicProduceResponse(name=topic, topic_id=topic_id, partition_responses=answers)]
    )
    frame = response_frame(correlation_id, [encode(response, version)], header_version=1 if version >= 9 else 0)
    return b"".join(part for part in frame if isinstance(part, bytes))
