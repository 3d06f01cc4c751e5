"""Ends of transactions, written to partitions that this node leads: as its own coordinator or another wants.

A partition with a shard behind it takes them through the shard's runner, so that what the transaction wrote counts
there in the order of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from odradek.coordinator.shard import ProducerKey
from odradek.ports import World
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
)
from odradek.protocol.records.control import EndTxnMarker, end_txn_batch
from odradek.server.partitions.acks import AckWait
from odradek.storage.validation import Origin

if TYPE_CHECKING:
    from odradek.server.coordinators.shard_runner import ShardRunner
    from odradek.server.partitions.hosted_partition import HostedPartition
    from odradek.server.partitions.replicas import Replicas
    from odradek.server.waiting.deferred import Deferred
    from odradek.server.waiting.purgatory import Purgatory

_NOT_READY = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
"""What a group's coordinator says of itself; who sends markers asks again whatever leads the partition then."""


class MarkerWriter:
    """Writes them, and comes back when they are replicated."""

    def __init__(
        self,
        world: World,
        replicas: Replicas,
        purgatory: Purgatory,
        runner_behind: Callable[[HostedPartition], ShardRunner[Any] | None],
        *,
        timeout_ms: int,
    ) -> None:
        """`runner_behind` raises where a shard belongs to the partition and is not there."""
        self._clock = world.clock
        self._replicas = replicas
        self._purgatory = purgatory
        self._runner_behind = runner_behind
        self._timeout_ms = timeout_ms

    async def write(self, markers: Sequence[WritableTxnMarker]) -> list[WritableTxnMarkerResult]:
        """What became of each, in the same order."""
        replicated = _Replicated([])
        handed_on: list[tuple[Deferred[None], WritableTxnMarkerPartitionResult]] = []
        answers: list[WritableTxnMarkerResult] = []
        for marker in markers:
            topics: list[WritableTxnMarkerTopicResult] = []
            for topic in marker.topics:
                results = []
                for index in topic.partition_indexes:
                    result = WritableTxnMarkerPartitionResult(partition_index=index)
                    results.append(result)
                    try:
                        hosted = self._replicas.require(topic.name, index)
                        runner = self._runner_behind(hosted)
                        if runner is not None:
                            handed_on.append((_through_shard(runner, marker), result))
                        else:
                            await self._append(hosted, marker, replicated, result)
                    except KafkaError as refused:
                        result.error_code = _told(refused.code)
                topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=results))
            answers.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
        for written, result in handed_on:
            try:
                await written
            except KafkaError as refused:
                result.error_code = _told(refused.code)
        if replicated.is_pending:
            replicated.begin(self._purgatory, timeout_ms=self._timeout_ms)
            await replicated
        return answers

    async def _append(
        self,
        hosted: HostedPartition,
        marker: WritableTxnMarker,
        replicated: _Replicated,
        result: WritableTxnMarkerPartitionResult,
    ) -> None:
        now_ms = self._clock.now_ms()
        batch = end_txn_batch(
            EndTxnMarker(marker.transaction_result, marker.coordinator_epoch),
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp=now_ms,
        )
        info = self._replicas.append(
            hosted,
            memoryview(batch),
            now_ms=now_ms,
            origin=Origin.COORDINATOR,
            acks_all=True,
            transaction=marker.transaction_version,
        )
        is_due = hosted.partition.log.flush_due(now_ms)
        replicated.outcomes.append(result)
        replicated.expect(hosted, len(replicated.outcomes) - 1, info.last_offset + 1)
        if is_due:
            await self._replicas.flush([hosted])


class _Replicated(AckWait[WritableTxnMarkerPartitionResult]):
    """Markers that wait for their replicas."""

    __slots__ = ()

    def unacknowledged(self, number: int, code: ErrorCode) -> None:
        self.outcomes[number].error_code = code


def _through_shard(runner: ShardRunner[Any], marker: WritableTxnMarker) -> Deferred[None]:
    return runner.write_marker(
        ProducerKey(marker.producer_id, marker.producer_epoch),
        committed=marker.transaction_result,
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )


def _told(code: ErrorCode) -> ErrorCode:
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _NOT_READY else code
