"""Requests as clients put them together, in one line each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from odradek.ids import ZERO_UUID, Uuid
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from odradek.protocol.messages.fetch import PartitionData as FetchedPartition
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.protocol.records.batch import build_batch, decode_records, iter_batches
from odradek.protocol.records.record import Record


def produce(
    topic: str, *values: bytes, partition: int = 0, acks: int = -1, topic_id: Uuid = ZERO_UUID, **batch: Any
) -> ProduceRequest:
    """One batch for one partition."""
    return produce_bytes(
        topic,
        build_batch([Record(value=value) for value in values], **batch),
        partition=partition,
        acks=acks,
        topic_id=topic_id,
    )


def produce_bytes(
    topic: str,
    records: bytes | bytearray | None,
    *,
    partition: int = 0,
    acks: int = -1,
    topic_id: Uuid = ZERO_UUID,
    transactional_id: str | None = None,
) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=records)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, topic_id=topic_id, partition_data=[data])],
    )


def produced(response: ProduceResponse) -> PartitionProduceResponse:
    """The only partition of the answer."""
    (topic,) = response.responses
    (partition,) = topic.partition_responses
    return partition


def wanted(partition: int = 0, offset: int = 0, *, max_bytes: int = 1 << 20, **more: Any) -> FetchPartition:
    return FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes, **more)


def fetch(
    topic: str = "",
    *partitions: FetchPartition,
    topic_id: Uuid = ZERO_UUID,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    session: tuple[int, int] = (0, -1),
    forgotten: Sequence[int] = (),
    **more: Any,
) -> FetchRequest:
    """Of partitions of one topic; `session` is its id and epoch."""
    gone = [ForgottenTopic(topic=topic, topic_id=topic_id, partitions=list(forgotten))] if forgotten else []
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=list(partitions))] if partitions else [],
        forgotten_topics_data=gone,
        **more,
    )


def fetched(response: FetchResponse) -> dict[int, FetchedPartition]:
    """By partition index, of one topic or none."""
    return {each.partition_index: each for topic in response.responses for each in topic.partitions}


def values(partition: FetchedPartition) -> list[bytes | None]:
    """Of all records that came."""
    records = partition.records
    assert isinstance(records, bytes | memoryview)
    return [record.value for batch in iter_batches(records) for record in decode_records(batch)]


def deletion(name: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID)], timeout_ms=1000)
