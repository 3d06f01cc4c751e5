"""Committed offsets: by group, topic and partition, as the log has them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from struct import Struct
from typing import TypeAlias

from odradek.coordinator.group.records import OffsetCommitKey, OffsetCommitValue
from odradek.coordinator.shard import CoordinatorRecord, ProducerKey
from odradek.ids import ZERO_UUID, Uuid
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequestTopics,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from odradek.values import value

NO_OFFSET = -1
NO_EXPIRY = -1
BROKERS_RETENTION = -1
"""What a client says that leaves it to `offsets.retention.minutes`."""

VALUE_VERSION = 4
"""The version Kafka 4.3 writes: with the id of the topic."""
PLAIN_VALUE = Struct(">hqiBqBBB16s")
"""A value as nearly all are: version, offset, leader epoch, 1 (no metadata), time, 1 tagged field with the tag 0 and 16
bytes: the topic's id."""
_VALUE_VERSION_WITH_EXPIRY = 1
_LAST_MS = (1 << 63) - 1
_KIND = OffsetCommitKey.api_key.to_bytes(2)
_SMALLEST_KEY = 2 + 2 + 2 + 4
"""Its kind, the lengths of group and topic, and the partition."""


@value
class CommittedOffset:
    """How far a group has come in a partition."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_EXPIRY
    """Set where an old client asked for a retention of its own."""
    topic_id: Uuid = ZERO_UUID
    """Not known of commits by older coordinators."""


PartitionOffsets = dict[int, CommittedOffset]
TopicPartition: TypeAlias = tuple[str, int]


class PendingOffsets:
    """What open transactions have committed, which counts once they are committed themselves.

    Everything has a number that says in which order it was written.
    """

    def __init__(self) -> None:
        self._open: dict[int, dict[str, dict[TopicPartition, tuple[int, CommittedOffset]]]] = {}
        """By producer id and group, also where a tombstone has left none of them."""
        self._in_force: dict[tuple[str, TopicPartition], int] = {}
        """Offsets that came into force while transactions were open: older ones do not replace them."""
        self._number = 0

    def __bool__(self) -> bool:
        """Whether transactions are open."""
        return bool(self._open)

    def add(self, producer_id: int, group_id: str, topic: str, index: int, offset: CommittedOffset) -> None:
        """A transaction has committed it."""
        self._number += 1
        offsets = self._open.setdefault(producer_id, {}).setdefault(group_id, {})
        offsets[topic, index] = self._number, offset

    def written(self, group_id: str, topic: str, index: int) -> None:
        """An offset was committed outside of transactions."""
        if self._open:
            self._number += 1
            self._in_force[group_id, (topic, index)] = self._number

    def remove(self, group_id: str, topic: str, index: int) -> None:
        """A tombstone was written."""
        for groups in self._open.values():
            if group_id in groups:
                groups[group_id].pop((topic, index), None)

    def end(self, producer_id: int, committed: bool) -> list[tuple[str, TopicPartition, CommittedOffset]]:
        """The transaction is over; what comes into force by that."""
        groups = self._open.pop(producer_id, {})
        effective: list[tuple[str, TopicPartition, CommittedOffset]] = []
        if committed:
            for group_id, offsets in groups.items():
                for key, (number, offset) in offsets.items():
                    if self._in_force.get((group_id, key), 0) < number:
                        self._in_force[group_id, key] = number
                        effective.append((group_id, key, offset))
        if not self._open:
            self._in_force.clear()
        return effective

    def is_pending(self, group_id: str, topic: str, index: int) -> bool:
        """Whether an open transaction may set that offset."""
        return any((topic, index) in groups.get(group_id, ()) for groups in self._open.values())

    def concerns(self, group_id: str) -> bool:
        """Whether an open transaction has committed offsets of the group, whatever became of them."""
        return any(group_id in groups for groups in self._open.values())

    def of(self, group_id: str) -> Iterator[TopicPartition]:
        """Where they are pending; several times where several transactions have done so."""
        for groups in self._open.values():
            yield from groups.get(group_id, ())

    def of_topic(self, topic: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """Group, partition and offset."""
        for groups in self._open.values():
            for group_id, offsets in groups.items():
                for (name, index), (_, offset) in offsets.items():
                    if name == topic:
                        yield group_id, index, offset


class CommittedOffsets:
    """All offsets of one shard."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, PartitionOffsets]] = {}
        self.pending = PendingOffsets()

    def __len__(self) -> int:
        return sum(len(partitions) for topics in self._by_group.values() for partitions in topics.values())

    def of(self, group_id: str) -> dict[str, PartitionOffsets]:
        """By topic and partition; the caller only reads."""
        return self._by_group.get(group_id, {})

    def replay(self, key: OffsetCommitKey, content: OffsetCommitValue | None, producer: ProducerKey | None) -> None:
        """A tombstone takes with it what transactions have pending for the partition, whoever wrote it."""
        if content is None:
            self._remove(key)
            self.pending.remove(key.group, key.topic, key.partition)
            return
        committed = CommittedOffset(
            content.offset,
            content.leader_epoch,
            content.metadata,
            content.commit_timestamp,
            content.expire_timestamp,
            content.topic_id,
        )
        if producer is not None:
            self.pending.add(producer.producer_id, key.group, key.topic, key.partition, committed)
        else:
            self.set(key.group, key.topic, key.partition, committed)

    def set(self, group_id: str, topic: str, index: int, committed: CommittedOffset) -> None:
        """It was committed outside of transactions."""
        self.of_topic(group_id, topic)[index] = committed
        self.pending.written(group_id, topic, index)

    def replay_marker(self, producer: ProducerKey, committed: bool) -> None:
        """What the transaction has pending is an offset as any other from now on, or is gone."""
        for group_id, (topic, index), offset in self.pending.end(producer.producer_id, committed):
            self.of_topic(group_id, topic)[index] = offset

    def of_topic(self, group_id: str, topic: str) -> PartitionOffsets:
        """To replay into."""
        topics = self._by_group.get(group_id)
        if topics is None:
            topics = self._by_group[group_id] = {}
        held = topics.get(topic)
        if held is None:
            held = topics[topic] = {}
        return held

    def _remove(self, key: OffsetCommitKey) -> None:
        topics = self._by_group.get(key.group, {})
        partitions = topics.get(key.topic, {})
        if partitions.pop(key.partition, None) is None:
            return
        if not partitions:
            del topics[key.topic]
        if not topics:
            del self._by_group[key.group]

    def fetched(
        self, group_id: str, wanted: OffsetFetchRequestTopics, *, require_stable: bool
    ) -> OffsetFetchResponseTopics:
        """What a consumer is told of these partitions; one without a committed offset has -1 and no error.

        One that asks by id is not told the offsets of an earlier topic of that name. One that requires them to be
        stable has to ask again where a transaction that is open may set another one.
        """
        held = self.of(group_id).get(wanted.name, {})
        partitions = []
        for index in wanted.partition_indexes:
            if require_stable and self.pending.is_pending(group_id, wanted.name, index):
                partitions.append(_unstable(index))
                continue
            committed = held.get(index)
            if committed is not None and ZERO_UUID not in (wanted.topic_id, committed.topic_id):
                committed = committed if committed.topic_id == wanted.topic_id else None
            partitions.append(_fetched(index, committed))
        return OffsetFetchResponseTopics(name=wanted.name, partitions=partitions)

    def fetched_all(self, group_id: str, *, require_stable: bool) -> list[OffsetFetchResponseTopics]:
        is_pending = self.pending.is_pending
        return [
            OffsetFetchResponseTopics(
                name=topic,
                partitions=[
                    _unstable(index)
                    if require_stable and is_pending(group_id, topic, index)
                    else _fetched(index, committed)
                    for index, committed in held.items()
                ],
            )
            for topic, held in self.of(group_id).items()
        ]

    def partitions_of(self, group_id: str) -> Collection[TopicPartition]:
        """Where it has an offset, or will have one if a transaction is committed."""
        partitions = dict.fromkeys((topic, index) for topic, held in self.of(group_id).items() for index in held)
        return partitions | dict.fromkeys(self.pending.of(group_id))

    def tombstones_of_topic(self, topic: str, *, but: Uuid | None) -> Iterator[CoordinatorRecord]:
        """Of all topics that had this name, but of the one with that id."""
        gone = {
            (group_id, index): None
            for group_id, topics in self._by_group.items()
            for index, committed in topics.get(topic, {}).items()
            if committed.topic_id != but
        }
        for group_id, index, offset in self.pending.of_topic(topic):
            if offset.topic_id != but:
                gone[group_id, index] = None
        for group_id, index in gone:
            yield offset_tombstone(group_id, topic, index)


def read_plain(key: bytes, content: bytes) -> tuple[str, str, int, CommittedOffset] | None:
    """Group, topic, partition and offset of an encoded record as nearly all are; None if it is another one."""
    if len(content) != PLAIN_VALUE.size or len(key) < _SMALLEST_KEY:
        return None
    version, offset, leader_epoch, metadata, time_ms, tags, tag, size, topic_id = PLAIN_VALUE.unpack(content)
    if version != VALUE_VERSION or metadata != 1 or (tags, tag, size) != (1, 0, 16):
        return None
    group_end = 4 + (key[2] << 8 | key[3])
    topic_end = len(key) - 4
    kind, between = key[:2], key[group_end : group_end + 2]
    if kind != _KIND or len(between) < 2 or group_end + 2 + (between[0] << 8 | between[1]) != topic_end:
        return None
    try:
        group_id, topic = key[4:group_end].decode(), key[group_end + 2 : topic_end].decode()
    except UnicodeDecodeError:
        return None
    committed = CommittedOffset(offset, leader_epoch, "", time_ms, NO_EXPIRY, topic_id)
    return group_id, topic, int.from_bytes(key[topic_end:], signed=True), committed


def _unstable(index: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT
    )


def _fetched(index: int, committed: CommittedOffset | None) -> OffsetFetchResponsePartitions:
    if committed is None:
        return OffsetFetchResponsePartitions(partition_index=index, committed_offset=NO_OFFSET, metadata="")
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def offset_record(
    group_id: str,
    topic: OffsetCommitRequestTopic,
    part: OffsetCommitRequestPartition,
    *,
    now_ms: int,
    retention_ms: int,
) -> CoordinatorRecord:
    """A commit as it goes into the log."""
    expires = retention_ms != BROKERS_RETENTION
    content = offset_value(
        part.committed_offset,
        part.committed_leader_epoch,
        part.committed_metadata or "",
        topic.topic_id,
        now_ms=now_ms,
        expire_ms=min(max(now_ms + retention_ms, 0), _LAST_MS) if expires else NO_EXPIRY,
    )
    return CoordinatorRecord(
        OffsetCommitKey(group=group_id, topic=topic.name, partition=part.partition_index),
        content,
        _VALUE_VERSION_WITH_EXPIRY if expires else VALUE_VERSION,
    )


def offset_value(
    offset: int, leader_epoch: int, metadata: str, topic_id: Uuid, *, now_ms: int, expire_ms: int = NO_EXPIRY
) -> OffsetCommitValue:
    return OffsetCommitValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp=now_ms,
        expire_timestamp=expire_ms,
        topic_id=topic_id,
    )


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    return CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


def is_expired(committed: CommittedOffset, *, unused_since_ms: int, now_ms: int, retention_ms: int) -> bool:
    """A retention that a client asked for counts instead of the broker's."""
    if committed.expire_timestamp_ms != NO_EXPIRY:
        return now_ms >= committed.expire_timestamp_ms
    return now_ms - unused_since_ms >= retention_ms
