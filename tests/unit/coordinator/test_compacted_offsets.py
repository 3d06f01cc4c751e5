"""Weeks of commits: a log of offsets that is compacted stays as large as its keys, and so does what a restart reads."""

from __future__ import annotations

import pytest
from tests.unit.coordinator.logs import load
from tests.unit.storage.compaction.worlds import clean, settle
from tests.unit.storage.worlds import DIRECTORY, NOW_MS, Machine, open_log, read_all

from odradek.coordinator.group.offsets import VALUE_VERSION, PartitionOffsets, offset_value
from odradek.coordinator.group.records import OffsetCommitKey
from odradek.coordinator.group.settings import GroupSettings
from odradek.coordinator.group.shard import GroupShard
from odradek.coordinator.group.topic_commits import TopicCommit
from odradek.coordinator.shard import CoordinatorRecord, Moment
from odradek.ids import Uuid
from odradek.protocol.records.batch import frame_batch, read_header
from odradek.storage.compaction.choice import cleanable
from odradek.storage.config import LogConfig
from odradek.storage.validation import Origin

MONTH_MS = 30 * 86_400_000
KEYS = 1_000
GROUPS = [f"group-{number}" for number in range(10)]
PARTITIONS = 10
"""That a consumer commits at once; ten consumers a group."""
TOPIC_ID = Uuid(b"t" * 16)
RESTARTS = 10
MIB = 1 << 20
MOST_CLEAN_BYTES = KEYS * 200
"""What is left of a clean log: a record of each key, and batches of some."""


class Coordinator:
    """A shard, its log and its cleaner, and nothing of a node."""

    def __init__(self, segment_bytes: int) -> None:
        self.machine = Machine()
        # As the topic is made, and with the broker's defaults for the rest.
        self.config = LogConfig(cleanup_policy=("compact",), segment_bytes=segment_bytes)
        self.log = open_log(self.machine.disk, self.config)
        self.shard = GroupShard(GroupSettings())
        for group in GROUPS:  # As a first commit makes them.
            key = OffsetCommitKey(group=group, topic="t", partition=0)
            content = offset_value(0, 0, "", TOPIC_ID, now_ms=NOW_MS)
            self.shard.replay(CoordinatorRecord(key, content, VALUE_VERSION))

    def commit(self, number: int, now: Moment) -> int:
        """One consumer commits all that it has; the bytes that this is in the log."""
        first = number // len(GROUPS) % (KEYS // len(GROUPS) // PARTITIONS) * PARTITIONS
        parts = [(index, number, 0, "") for index in range(first, first + PARTITIONS)]
        request = TopicCommit(GROUPS[number % len(GROUPS)], "", None, -1, 9, "t", TOPIC_ID, parts)
        assert request.check(self.shard, now)
        at_ms = now.wall_ms
        batch = frame_batch(
            request.encode(0, at_ms), attributes=0, records_count=PARTITIONS, base_timestamp=at_ms, max_timestamp=at_ms
        )
        self.log.append_as_leader(memoryview(batch), leader_epoch=0, now_ms=at_ms, origin=Origin.COORDINATOR)
        self.log.advance_high_watermark(self.log.log_end_offset)
        request.replay(self.shard, now)
        return len(batch)

    def look(self, now_ms: int) -> None:
        """What a node does from time to time: it rolls, syncs what is sealed, and cleans if that is due."""
        self.log.maybe_roll(now_ms)
        if self.log.needs_flush(now_ms):
            settle(self.log)
        if cleanable(self.log, now_ms).is_due(self.config.min_cleanable_dirty_ratio):
            clean(self.log, self.machine.disk, now_ms=now_ms, dedupe_bytes=16 * MIB, slice_bytes=MIB // 2)
        self.log.purge_deleted(now_ms)

    def disk_bytes(self) -> int:
        disk = self.machine.disk
        return sum(disk.file_size(f"{DIRECTORY}/{name}") for name in disk.list(DIRECTORY))

    def restart(self) -> int:
        """Go on as after a kill, with what was read from the log; how many records those were."""
        cleaned_offset, offsets = self.log.cleaned_offset, self.offsets()
        self.log = open_log(self.machine.disk, self.config, recovery_point=self.log.recovery_point)
        self.log.cleaned_offset = cleaned_offset
        self.log.advance_high_watermark(self.log.log_end_offset)
        batches = read_all(self.log, max_bytes=5 * MIB)
        self.shard = GroupShard(GroupSettings())
        load(self.shard, batches)
        assert self.offsets() == offsets
        return sum(read_header(batch).records_count for batch in batches)

    def offsets(self) -> dict[str, dict[str, PartitionOffsets]]:
        return {group: self.shard.offsets.of(group) for group in GROUPS}


@pytest.mark.parametrize(
    ("commits", "segment_bytes"),
    [(600_000, MIB), pytest.param(10_000_000, 100 * MIB, marks=pytest.mark.slow)],
)
def test_a_month_of_commits_leaves_the_log_as_large_as_its_keys(commits: int, segment_bytes: int) -> None:
    coordinator = Coordinator(segment_bytes)
    written = largest_log = largest_disk = most_replayed = 0
    batches = commits // PARTITIONS
    for number in range(batches):
        now_ms = NOW_MS + MONTH_MS * number // batches
        written += coordinator.commit(number, Moment(now_ms, now_ms))
        if number % 100 == 99:
            largest_log = max(largest_log, coordinator.log.size_bytes)
            coordinator.look(now_ms)
            largest_disk = max(largest_disk, coordinator.disk_bytes())
        if number % (batches // RESTARTS) == batches // RESTARTS - 1:
            most_replayed = max(most_replayed, coordinator.restart())
    assert coordinator.log.log_end_offset == commits
    # Without the cleaner it would be as large as all that was written.
    assert written > 6 * segment_bytes
    # A segment that is sealed waits for the next look, and the active one fills up.
    assert largest_log <= 1.5 * segment_bytes + MOST_CLEAN_BYTES
    # Indexes as well, and for another minute what was replaced.
    assert largest_disk <= 2.5 * segment_bytes + 2 * MOST_CLEAN_BYTES
    assert most_replayed <= (1.5 * segment_bytes + MOST_CLEAN_BYTES) * commits / written
