"""Offsets committed, read, deleted, and forgotten when nobody has used them for long enough."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from odradek.coordinator.group.classic import ClassicGroup, State
from odradek.coordinator.group.consumer import ConsumerGroup
from odradek.coordinator.group.group import Group
from odradek.coordinator.group.offsets import (
    BROKERS_RETENTION,
    NO_EXPIRY,
    CommittedOffset,
    CommittedOffsets,
    is_expired,
    offset_record,
    offset_tombstone,
)
from odradek.coordinator.group.rebalance import Rebalances
from odradek.coordinator.group.topic_commits import TopicCommit
from odradek.coordinator.record_format import java_length
from odradek.coordinator.shard import Moment, Outcome, ProducerKey
from odradek.metadata.image.topics import TopicsImage
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from odradek.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from odradek.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

OFFSETS = "offsets"
"""The key of the timer that looks for expired offsets."""

MAX_RECORDS_PER_CLEANUP = 1_000
"""Tombstones of one decision; what is left over comes with the next."""

CLEANUP_PAUSE_MS = 100
"""Before that next one, so that a log which refuses them is not asked without end."""

_GROUP_NOT_FOUND_SINCE = 9
"""From this version of OffsetCommit on a member of an unknown group is told so."""


class Commits:
    """What may be done with the offsets of a shard's groups, of whatever kind."""

    def __init__(self, groups: Mapping[str, Group], offsets: CommittedOffsets, rebalances: Rebalances) -> None:
        self._groups = groups
        self._offsets = offsets
        self._rebalances = rebalances
        self._settings = rebalances.settings
        self._timers = rebalances.timers

    def commit(self, request: OffsetCommitRequest, api_version: int, out: Outcome, now: Moment) -> OffsetCommitResponse:
        """Of topics that exist, by name; the handler has sorted out the others."""
        group = self._groups.get(request.group_id)
        generation_id = request.generation_id_or_member_epoch
        if group is not None:
            self._check(group, request.member_id, request.group_instance_id, generation_id, api_version, now)
            _check_partitions(group, request.member_id, generation_id, request.topics)
        elif generation_id >= 0:
            known = api_version >= _GROUP_NOT_FOUND_SINCE
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND if known else ErrorCode.ILLEGAL_GENERATION)
        topics = self._record(request.group_id, request.topics, request.retention_time_ms, out, now)
        return OffsetCommitResponse(topics=topics)

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, topics: Sequence[OffsetCommitRequestTopic], out: Outcome, now: Moment
    ) -> OffsetCommitResponse:
        """Of topics that exist, with their ids; they count once the producer's transaction is committed."""
        group_id, member_id, generation_id = request.group_id, request.member_id, request.generation_id
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        group = self._groups.get(group_id)
        if group is None and generation_id >= 0:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if group is not None:
            try:
                group.check_offset_commit(
                    member_id=member_id,
                    instance_id=request.group_instance_id,
                    generation_id=generation_id,
                    api_version=0,
                    transactional=True,
                )
                _check_partitions(group, member_id, generation_id, topics)
            except KafkaError as refused:
                # Producers know of generations alone.
                stale = refused.code is ErrorCode.STALE_MEMBER_EPOCH
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION) if stale else refused from None
        out.producer = ProducerKey(request.producer_id, request.producer_epoch)
        return OffsetCommitResponse(topics=self._record(group_id, topics, BROKERS_RETENTION, out, now))

    def _record(
        self,
        group_id: str,
        wanted: Iterable[OffsetCommitRequestTopic],
        retention_ms: int,
        out: Outcome,
        now: Moment,
    ) -> list[OffsetCommitResponseTopic]:
        topics = []
        for topic in wanted:
            parts = []
            for part in topic.partitions:
                code = ErrorCode.NONE
                if self._is_too_large(part.committed_metadata):
                    code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    out.records.append(
                        offset_record(group_id, topic, part, now_ms=now.wall_ms, retention_ms=retention_ms)
                    )
                parts.append(OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=code))
            topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=parts))
        return topics

    def may_commit(self, commit: TopicCommit, now: Moment) -> bool:
        """The checks of `commit` for one topic; False if the group is yet to be made, or an offset is refused."""
        group = self._groups.get(commit.group_id)
        if group is None:
            return False
        for part in commit.partitions:
            if part[3] and self._is_too_large(part[3]):
                return False
        self._check(group, commit.member_id, commit.instance_id, commit.generation_id, commit.api_version, now)
        if not isinstance(group, ClassicGroup) and isinstance(group, ConsumerGroup):
            partitions = [(commit.topic_id, part[0]) for part in commit.partitions]
            group.check_committed(commit.member_id, commit.generation_id, partitions)
        return True

    def replay_topic(self, commit: TopicCommit, now: Moment) -> None:
        """What it was encoded to is in the log."""
        held = self._offsets.of_topic(commit.group_id, commit.topic)
        for index, offset, leader_epoch, metadata in commit.partitions:
            held[index] = CommittedOffset(offset, leader_epoch, metadata, now.wall_ms, NO_EXPIRY, commit.topic_id)
            self._offsets.pending.written(commit.group_id, commit.topic, index)

    def _check(
        self,
        group: Group,
        member_id: str,
        instance_id: str | None,
        generation_id: int,
        api_version: int,
        now: Moment,
    ) -> None:
        """KafkaError unless the member may commit; if so, it has been heard of."""
        group.check_offset_commit(
            member_id=member_id,
            instance_id=instance_id,
            generation_id=generation_id,
            api_version=api_version,
            transactional=False,
        )
        if isinstance(group, ClassicGroup) and (
            group.state is State.STABLE or group.state is State.PREPARING_REBALANCE
        ):
            self._rebalances.extend_session(group, group.members[member_id], now)

    def _is_too_large(self, metadata: str | None) -> bool:
        return metadata is not None and java_length(metadata) > self._settings.offset_metadata_max_bytes

    def fetch(self, request: OffsetFetchRequestGroup, *, require_stable: bool) -> OffsetFetchResponseGroup:
        """Of the topics named, or (None) of all that the group has offsets of; an unknown group has none."""
        group_id, group = request.group_id, self._groups.get(request.group_id)
        if group is not None:
            group.check_offset_fetch(member_id=request.member_id, member_epoch=request.member_epoch)
        if request.topics is None:
            topics = self._offsets.fetched_all(group_id, require_stable=require_stable)
        else:
            topics = [self._offsets.fetched(group_id, each, require_stable=require_stable) for each in request.topics]
        return OffsetFetchResponseGroup(group_id=group_id, topics=topics)

    def delete(self, request: OffsetDeleteRequest, out: Outcome) -> OffsetDeleteResponse:
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        group = self._groups.get(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
        group.check_offset_delete()
        return OffsetDeleteResponse(topics=[self._delete_of_topic(group, topic, out) for topic in request.topics])

    def _delete_of_topic(
        self, group: Group, topic: OffsetDeleteRequestTopic, out: Outcome
    ) -> OffsetDeleteResponseTopic:
        in_use = group.is_subscribed_to(topic.name)
        held = self._offsets.of(group.group_id).get(topic.name, {})
        is_pending = self._offsets.pending.is_pending
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if in_use else ErrorCode.NONE
        parts = []
        for part in topic.partitions:
            index = part.partition_index
            if not in_use and (index in held or is_pending(group.group_id, topic.name, index)):
                out.records.append(offset_tombstone(group.group_id, topic.name, index))
            parts.append(OffsetDeleteResponsePartition(partition_index=part.partition_index, error_code=code))
        return OffsetDeleteResponseTopic(name=topic.name, partitions=parts)

    def forget_topics(self, topics: Iterable[str], exist: TopicsImage, out: Outcome) -> None:
        """Offsets of topics that were deleted; to be asked again until there are none.

        Under the same name there may be another topic already, and offsets of that one stay.
        """
        for topic in topics:
            successor = exist.by_name.get(topic)
            out.records += self._offsets.tombstones_of_topic(
                topic, but=None if successor is None else successor.topic_id
            )
            if len(out.records) >= MAX_RECORDS_PER_CLEANUP:
                del out.records[MAX_RECORDS_PER_CLEANUP:]
                return

    # Expiry.

    def expire_later(self, now: Moment) -> None:
        self._timers.set((OFFSETS,), now.monotonic_ms + self._settings.offsets_retention_check_interval_ms)

    def expire(self, out: Outcome, now: Moment) -> None:
        """Delete what nobody has used for long enough, and groups that are left with nothing."""
        for group in self._groups.values():
            all_expired = self._expire_of_group(group, out, now)
            if all_expired and group.is_empty and not group.awaits_members:
                out.records += group.tombstones()
            if len(out.records) >= MAX_RECORDS_PER_CLEANUP:
                self._timers.set((OFFSETS,), now.monotonic_ms + CLEANUP_PAUSE_MS)
                return
        self.expire_later(now)

    def _expire_of_group(self, group: Group, out: Outcome, now: Moment) -> bool:
        """Whether nothing is left, and no open transaction may bring something."""
        pending = self._offsets.pending
        all_expired = not pending.concerns(group.group_id)
        for topic, held in self._offsets.of(group.group_id).items():
            in_use = group.is_subscribed_to(topic)
            for index, committed in held.items():
                since_ms = group.offsets_unused_since_ms(committed.commit_timestamp_ms)
                if in_use or since_ms is None or pending.is_pending(group.group_id, topic, index):
                    all_expired = False
                elif is_expired(
                    committed,
                    unused_since_ms=since_ms,
                    now_ms=now.wall_ms,
                    retention_ms=self._settings.offsets_retention_ms,
                ):
                    out.records.append(offset_tombstone(group.group_id, topic, index))
                else:
                    all_expired = False
        return all_expired


def _check_partitions(
    group: Group, member_id: str, generation_id: int, topics: Iterable[OffsetCommitRequestTopic]
) -> None:
    """Whether a member that is behind may commit these all the same."""
    if isinstance(group, ConsumerGroup):
        partitions = [(topic.topic_id, part.partition_index) for topic in topics for part in topic.partitions]
        group.check_committed(member_id, generation_id, partitions)
