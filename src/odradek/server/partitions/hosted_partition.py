"""One partition on this node, and everybody who waits for something to happen to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from odradek.ids import NO_OFFSET, Offset
from odradek.metadata.image.topics import TopicImage
from odradek.ports import Loan
from odradek.protocol.errors import ErrorCode
from odradek.replication.partition import Partition
from odradek.replication.throttle import ReplicationQuota
from odradek.server.partitions.acks import AckWait, PendingDeletion
from odradek.server.partitions.fetch_sessions import ALL_BYTES, MANY_BYTES, WatchedPartition
from odradek.server.partitions.visible import HIGH_WATERMARK, LAST_STABLE, LOG_END, Visible
from odradek.storage.directories import LogDirectory
from odradek.values import value


@value
class Traffic:
    """What went in and out since the node started."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    produce_requests: int = 0
    failed_produce_requests: int = 0
    fetch_requests: int = 0
    replication_bytes_in: int = 0
    replication_bytes_out: int = 0

    def plus(self, other: Traffic) -> Traffic:
        return Traffic(
            self.messages_in + other.messages_in,
            self.bytes_in + other.bytes_in,
            self.bytes_out + other.bytes_out,
            self.produce_requests + other.produce_requests,
            self.failed_produce_requests + other.failed_produce_requests,
            self.fetch_requests + other.fetch_requests,
            self.replication_bytes_in + other.replication_bytes_in,
            self.replication_bytes_out + other.replication_bytes_out,
        )


NO_TRAFFIC = Traffic()


class HostedPartition:
    """One partition on this node."""

    __slots__ = (
        "_told_stable",
        "_told_watermark",
        "appends",
        "at_hand",
        "bytes_in",
        "bytes_out",
        "deletions",
        "directory",
        "failed_appends",
        "first_offset",
        "follower_throttle",
        "held_bytes",
        "index",
        "is_internal",
        "is_read",
        "leader_throttle",
        "listeners",
        "partition",
        "reads",
        "replication_bytes_in",
        "replication_bytes_out",
        "topic",
        "topic_id",
        "unacknowledged",
        "watchers",
    )

    def __init__(self, topic: TopicImage, index: int, partition: Partition, directory: LogDirectory) -> None:
        self.topic = topic.name
        self.topic_id = topic.topic_id
        self.index = index
        self.is_internal = topic.name.startswith("__")
        """Perhaps one of the cluster's own topics: a glance that is good enough to look closer."""
        self.partition = partition
        self.directory = directory
        self.at_hand: tuple[int, Loan] | None = None
        """The batch at this offset, for followers that are answered while it is being appended."""
        self.held_bytes = 0
        """What was appended and is shown once it is synced and replicated; consumers were not told of it yet."""
        self.watchers: tuple[dict[WatchedPartition, None], ...] = tuple({} for _ in Visible)
        """The fetch sessions that want it, by what they may see."""
        self.is_read = False
        """Whether any of them is a consumer's."""
        self._told_stable = self._told_watermark = NO_OFFSET
        """What there was when those at read_committed were told last."""
        self.unacknowledged: deque[tuple[int, AckWait[Any], int]] = deque()
        """Appends that wait for their replicas, by where they end: who waits, and the append's number there."""
        self.deletions: dict[PendingDeletion, None] = {}
        """Requests that wait until all replicas have deleted what they were told to."""
        self.listeners: dict[Callable[[], None], None] = {}
        """Called when the high watermark has moved, and when this node does not lead any more."""
        self.leader_throttle: ReplicationQuota | None = None
        """What bounds the sending of this partition to followers that are not in sync (KIP-73);"""
        self.follower_throttle: ReplicationQuota | None = None
        """and what bounds the fetching of it, while this replica is not in sync."""
        self.first_offset = partition.log.log_end_offset
        """Where this life of the node began to append: with the end of the log it counts records."""
        self.appends = self.failed_appends = self.reads = 0
        self.bytes_in = self.bytes_out = 0
        self.replication_bytes_in = self.replication_bytes_out = 0

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def traffic(self) -> Traffic:
        return Traffic(
            messages_in=max(self.partition.log.log_end_offset - self.first_offset, 0),
            bytes_in=self.bytes_in,
            bytes_out=self.bytes_out,
            produce_requests=self.appends + self.failed_appends,
            failed_produce_requests=self.failed_appends,
            fetch_requests=self.reads,
            replication_bytes_in=self.replication_bytes_in,
            replication_bytes_out=self.replication_bytes_out,
        )

    def readable_end(self, visible: Visible) -> Offset:
        """Where the log ends for who may see so much of it: what Fetch and ListOffsets answer by."""
        log = self.partition.log
        if visible is HIGH_WATERMARK:
            return log.high_watermark
        return log.log_end_offset if visible is LOG_END else log.last_stable_offset

    # Who reads it.

    def watch(self, watcher: WatchedPartition, visible: Visible) -> None:
        """Let it hear of what it may see."""
        if visible is LAST_STABLE and not self.watchers[LAST_STABLE]:
            self._note_told()
        self.watchers[visible][watcher] = None
        self.is_read = self.is_read or visible is not LOG_END

    def unwatch(self, watcher: WatchedPartition, visible: Visible) -> None:
        self.watchers[visible].pop(watcher, None)
        self.is_read = bool(self.watchers[HIGH_WATERMARK] or self.watchers[LAST_STABLE])

    def on_appended(self, added_bytes: int) -> None:
        """Its end has moved, and the high watermark not yet: followers see it, and nobody else does."""
        self.held_bytes += added_bytes
        for follower in self.watchers[LOG_END]:
            follower.changed(added_bytes)

    def on_committed(self, added_bytes: int) -> None:
        """The high watermark has moved by so much: consumers see it, unless it is of a transaction that is open."""
        for watcher in self.watchers[HIGH_WATERMARK]:
            watcher.changed(added_bytes)
        stable = self.watchers[LAST_STABLE]
        if stable:
            told, was_all = self._told_stable, self._told_stable == self._told_watermark
            self._note_told()
            if self._told_stable > told:
                # What is stable now was partly held back before, and nobody has counted that.
                for watcher in stable:
                    watcher.changed(added_bytes if was_all else MANY_BYTES)
            else:
                for watcher in stable:  # The watermark is worth no answer of its own, but the next one says it.
                    watcher.session.dirty[watcher] = None

    def tell_all(self, added_bytes: int) -> None:
        """It has something else to tell than records: with `ALL_BYTES` something that cannot wait."""
        self._note_told()
        for watchers in self.watchers:
            for watcher in watchers:
                watcher.changed(added_bytes)

    def on_records_deleted(self) -> None:
        """It starts later by somebody's wish, who waits until its followers have done the same."""
        self.tell_all(0)
        for follower in self.watchers[LOG_END]:
            follower.changed(ALL_BYTES)

    def let_followers_look(self) -> None:
        """What was held back may not be any more."""
        for follower in self.watchers[LOG_END]:
            follower.held_back = False
            follower.changed(ALL_BYTES)

    def _note_told(self) -> None:
        self._told_stable = self.readable_end(LAST_STABLE)
        self._told_watermark = self.readable_end(HIGH_WATERMARK)

    # Who waits for it.

    def line_up(self, wait: AckWait[Any], number: int, end_offset: int) -> None:
        """Tell it once the watermark is there: of what was sent again, and ends earlier, before what came meanwhile."""
        waiting = self.unacknowledged
        if waiting and waiting[-1][0] > end_offset:
            waiting.insert(sum(each[0] <= end_offset for each in waiting), (end_offset, wait, number))
        else:
            waiting.append((end_offset, wait, number))

    def on_high_watermark_advanced(self) -> None:
        """The high watermark has moved: readers see more, and producers hear that their replicas have it."""
        if self.is_read:
            self.on_committed(self.held_bytes)
        self.held_bytes = 0
        for follower in self.watchers[LOG_END]:
            follower.session.dirty[follower] = None  # Nothing worth an answer of its own, but the next one says it.
        waiting = self.unacknowledged
        if waiting:
            high_watermark = self.partition.log.high_watermark
            outcome = self.partition.outcome(high_watermark)
            assert outcome is not None, "what the watermark has reached is decided"
            while waiting and waiting[0][0] <= high_watermark:
                _, wait, number = waiting.popleft()
                wait.acked(number, outcome)
        if self.listeners:
            for listener in list(self.listeners):
                listener()

    def on_start_advanced(self) -> None:
        """Replicas may start later than before."""
        for pending in list(self.deletions):
            if self.partition.low_watermark >= pending.offset:
                del self.deletions[pending]
                pending.acked(ErrorCode.NONE)

    def on_leadership_lost(self) -> None:
        """This node does not lead it any more: whoever waits here has to look elsewhere."""
        self.held_bytes = 0
        for pending in self.deletions:
            pending.acked(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.deletions.clear()
        while self.unacknowledged:
            _, wait, number = self.unacknowledged.popleft()
            wait.acked(number, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for listener in list(self.listeners):
            listener()

    def close(self) -> None:
        """Nothing will change here any more: readers look for the partition anew, and find out why."""
        self.on_leadership_lost()
        for watchers in self.watchers:
            for watcher in watchers:
                watcher.hosted = None
                watcher.changed(ALL_BYTES)
            watchers.clear()
        self.is_read = False
