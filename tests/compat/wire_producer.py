"""A producer whose every request is the test's own choice, on a connection that is written down."""

from __future__ import annotations

import time
from typing import Any

from tests.compat.conversation import Conversation

from odradek.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.messages.end_txn import EndTxnRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.records.batch import build_batch
from odradek.protocol.records.record import Record

NOT_YET = (14, 15, 16)
TRANSACTION_KEY = 1
STRANGER = 987_654
BEFORE_ADDING, ADDING = 11, 12
"""Versions of Produce: with the later one the broker itself makes a partition part of the transaction."""


class Producer:
    """Who has a transactional id; it counts its batches per partition."""

    def __init__(self, talking: Conversation, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        answer = talking.settle(f"init {transactional_id}", init(transactional_id), 5)
        self.id, self.epoch = answer.producer_id, answer.producer_epoch

    def who(self, **other: Any) -> dict[str, Any]:
        known = {"transactional_id": self.transactional_id, "producer_id": self.id, "producer_epoch": self.epoch}
        return known | other

    def end(self, *, commit: bool = True, **other: Any) -> EndTxnRequest:
        return EndTxnRequest(**self.who(**other), committed=commit)

    def add(self, topics: dict[str, list[int]], **other: Any) -> AddPartitionsToTxnRequest:
        who = {f"v3_and_below_{name}": each for name, each in self.who(**other).items()}
        return AddPartitionsToTxnRequest(**who, v3_and_below_topics=_topics(topics))

    def add_as_broker(self, topics: dict[str, list[int]], *, verify: bool, **other: Any) -> AddPartitionsToTxnRequest:
        asked = AddPartitionsToTxnTransaction(**self.who(**other), verify_only=verify, topics=_topics(topics))
        return AddPartitionsToTxnRequest(transactions=[asked])

    def produce(
        self,
        sequence: int,
        *,
        topic: str = "t",
        partition: int = 0,
        records: int = 1,
        value: bytes = b"v",
        plain: bool = False,
        **other: Any,
    ) -> ProduceRequest:
        who = self.who(**other)
        batch = build_batch(
            [Record(value=value)] * records,
            timestamp=int(time.time() * 1000),
            producer_id=who["producer_id"],
            producer_epoch=who["producer_epoch"],
            base_sequence=sequence,
            transactional=not plain,
        )
        return produce(who["transactional_id"], {topic: {partition: bytes(batch)}})

    def add_offsets(self, group: str, **other: Any) -> AddOffsetsToTxnRequest:
        return AddOffsetsToTxnRequest(**self.who(**other), group_id=group)

    def commit_offsets(
        self, group: str, offset: int = 5, *, topic: str = "t", member: tuple[str, int] = ("", -1), **other: Any
    ) -> TxnOffsetCommitRequest:
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="m")
        return TxnOffsetCommitRequest(
            **self.who(**other),
            group_id=group,
            member_id=member[0],
            generation_id=member[1],
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )


def _topics(topics: dict[str, list[int]]) -> list[AddPartitionsToTxnTopic]:
    return [AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()]


def init(
    transactional_id: str | None, timeout_ms: int = 60_000, *, producer_id: int = -1, producer_epoch: int = -1
) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def produce(transactional_id: str | None, batches: dict[str, dict[int, bytes]]) -> ProduceRequest:
    topics = [
        TopicProduceData(
            name=name, partition_data=[PartitionProduceData(index=index, records=each) for index, each in parts.items()]
        )
        for name, parts in batches.items()
    ]
    return ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=10_000, topic_data=topics)


def finish(talking: Conversation, producer: Producer, version: int, *, commit: bool = True) -> None:
    """The second answer comes once all partitions know."""
    for what in ("commit" if commit else "abort", "the same again"):
        talking.settle(what, producer.end(commit=commit), version)


def wait_for_coordinators(talking: Conversation) -> None:
    """By questions that leave nothing behind."""
    probes = (
        (FindCoordinatorRequest(key="g"), 2),
        (FindCoordinatorRequest(key="x", key_type=TRANSACTION_KEY), 2),
        (EndTxnRequest(transactional_id="x", producer_id=STRANGER, producer_epoch=0, committed=True), 2),
        (init(None), 5),
    )
    for probe, version in probes:
        deadline = time.monotonic() + 60
        while talking.ask("probe", probe, version).error_code in NOT_YET:
            assert time.monotonic() < deadline, talking.lines[-1]
            time.sleep(0.2)
