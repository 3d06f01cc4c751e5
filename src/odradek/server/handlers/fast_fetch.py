"""Fetch of a follower by the fast path: it is in step with this leader, in a session, and asks for what comes next.

Every batch of a replicated partition is fetched by every follower, so on a busy cluster this is what leaders do most.
Such a request is neither decoded nor handled by a coroutine, and its answer is packed as it stands. Whatever is out of
step (another epoch, another incarnation, a throttle, a follower that is not in sync) takes the generic path, also if it
gets there while the request waits; a test holds the two equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from odradek.ids import NodeId, Uuid
from odradek.ports import FileSlice, Loan, Part
from odradek.protocol.codec import parts_encoder
from odradek.protocol.errors import KafkaError
from odradek.protocol.frame import response_frame
from odradek.protocol.messages.fetch import FetchResponse
from odradek.protocol.primitives import encode_uvarint
from odradek.replication.fetch_forms import VERSION, answer_head, answered, read_front, read_partitions
from odradek.server.handlers.leader_hints import name_fetch_leaders
from odradek.server.partitions.fetch_sessions import FetchSession, WatchedPartition
from odradek.server.partitions.reads import Collector, Reader
from odradek.server.partitions.visible import LOG_END
from odradek.server.waiting.deferred import Deferred

if TYPE_CHECKING:
    from odradek.server.net.routes import FastAnswer, FastPath
    from odradek.server.partitions.hosted_partition import HostedPartition
    from odradek.server.rooms import Rooms

_Seen: TypeAlias = "tuple[WatchedPartition, HostedPartition, FileSlice | bytes, int]"
"""A partition, what there is of it, and how many bytes that is."""

_NO_TAGGED_FIELDS = b"\0"


def fast_fetch(version: int, _: str) -> FastPath | None:
    """For the one version whose bytes are known."""
    return _fast if version == VERSION else None


def _fast(rooms: Rooms, frame: memoryview, position: int, correlation_id: int) -> FastAnswer:
    front = read_front(frame, position)
    if front is None:
        return None
    max_wait_ms, min_bytes, max_bytes, _, session_id, session_epoch = front
    sessions = rooms.fetch_sessions
    session = sessions.find(session_id)
    if session is None or session.ending is None or session.epoch != session_epoch:
        return None
    asked = read_partitions(frame, position, session.ending)
    if asked is None:
        return None
    partitions, dirty = session.partitions, session.dirty
    for each in asked:
        entry = partitions.get(each[:2])
        if entry is None:
            return None
        # Should the generic path have to take over, it finds no more than it would write there itself.
        (
            _,
            _,
            entry.current_leader_epoch,
            entry.fetch_offset,
            entry.last_fetched_epoch,
            entry.log_start_offset,
            entry.max_bytes,
        ) = each
        dirty[entry] = None
    fetch = FollowerFetch(rooms, session, min(max_bytes, rooms.config.fetch_max_bytes))
    now_ms = rooms.world.clock.monotonic_ms()
    if not fetch.look(now_ms):
        return None
    sessions.go_on(session, now_ms)
    missing_bytes = min(min_bytes, fetch.max_bytes) - fetch.size
    if missing_bytes <= 0 or max_wait_ms <= 0 or not partitions:
        return fetch.parts(correlation_id)
    session.park(fetch, missing_bytes)
    rooms.purgatory.watch(fetch, timeout_ms=max_wait_ms)
    return fetch


class FollowerFetch(Deferred[None]):
    """One request; while it waits it is told that there is more or that its time is up."""

    __slots__ = ("_is_in_step", "_is_woken", "_rooms", "_seen", "_session", "max_bytes", "size")

    def __init__(self, rooms: Rooms, session: FetchSession, max_bytes: int) -> None:
        Deferred.__init__(self)
        self.frame = _frame
        self.max_bytes = max_bytes
        self.size = 0
        """Of the records seen."""
        self._rooms = rooms
        self._session = session
        self._seen: list[_Seen] = []
        """What may have news, and its records."""
        self._is_in_step = True
        self._is_woken = False

    def look(self, came_ms: int | None) -> bool:
        """Find what there is, and say whether leader and follower are in step in all of it: this node leads, the
        follower is in sync and has the same history, nothing is throttled, and the disk is well.

        `came_ms` is when, for a request that has just come: the follower has all that is before what it asks for.
        """
        session, replicas = self._session, self._rooms.replicas
        replica_id, broker_epoch = NodeId(session.replica_id), session.broker_epoch
        if not replicas.liveness.knows(replica_id, broker_epoch):
            return False
        max_bytes = self.max_bytes
        size = 0
        self._seen = seen = []
        for entry in list(session.dirty):
            hosted = entry.hosted
            if hosted is None or hosted.leader_throttle is not None:
                return False
            leadership, log = hosted.partition.leadership, hosted.partition.log
            fetch_offset = entry.fetch_offset
            if (
                leadership is None
                or replica_id not in leadership.in_sync.committed
                or entry.current_leader_epoch != leadership.leader_epoch
                or entry.last_fetched_epoch != log.leader_epochs.latest
                or not log.log_start_offset <= fetch_offset <= log.log_end_offset
            ):
                return False
            if came_ms is not None:
                replicas.update_follower_fetch_state_at(
                    came_ms, hosted, replica_id, fetch_offset, entry.log_start_offset, broker_epoch
                )
            records: FileSlice | bytes = b""
            found_bytes = 0
            if fetch_offset < log.log_end_offset and (not size or size < max_bytes):
                room = max_bytes - size if max_bytes > size else 0
                try:
                    records = log.read_to_end(fetch_offset, min(entry.max_bytes, room), not size)
                except (OSError, KafkaError):
                    return False
                found_bytes = len(records)
                size += found_bytes
                if hosted.at_hand is not None:
                    records = _lent(records, hosted.at_hand, fetch_offset)
            seen.append((entry, hosted, records, found_bytes))
        self.size = size
        return True

    def parts(self, correlation_id: int) -> list[Part]:
        """The answer."""
        if not self._is_in_step:
            return self._generic_parts(correlation_id)
        parts: list[Part] = []
        size = 0
        text = b""
        topics = self._news()
        for topic_id, told in topics:
            text += topic_id + encode_uvarint(len(told) + 1)
            for entry, hosted, records, found_bytes in told:
                log = hosted.partition.log
                entry.sent_high_watermark = high_watermark = log.high_watermark
                entry.sent_log_start_offset = log_start_offset = log.log_start_offset
                text += answered(entry.index, high_watermark, log.last_stable_offset, log_start_offset, found_bytes)
                if found_bytes:
                    hosted.replication_bytes_out += found_bytes
                    size += len(text) + found_bytes
                    parts += (text, records)
                    text = _NO_TAGGED_FIELDS
                else:
                    text += _NO_TAGGED_FIELDS
            text += _NO_TAGGED_FIELDS
        text += _NO_TAGGED_FIELDS
        parts.append(text)
        first = parts[0]
        assert isinstance(first, bytes)
        parts[0] = answer_head(correlation_id, self._session.id, len(topics), size + len(text)) + first
        return parts

    def _news(self) -> list[tuple[Uuid, list[_Seen]]]:
        """What there is to tell, by topic as long as they follow on each other.

        Who gets all there is need not be looked at again before there is more.
        """
        dirty = self._session.dirty
        topics: list[tuple[Uuid, list[_Seen]]] = []
        last = None
        for seen in self._seen:
            entry, hosted, _, found_bytes = seen
            log = hosted.partition.log
            if entry.fetch_offset >= log.log_end_offset:
                del dirty[entry]
            elif found_bytes:
                # To the end of the line after its turn, or those behind it would never get theirs.
                del dirty[entry]
                dirty[entry] = None
            if (
                found_bytes
                or entry.sent_high_watermark != log.high_watermark
                or entry.sent_log_start_offset != log.log_start_offset
            ):
                if entry.topic_id != last:
                    last = entry.topic_id
                    topics.append((last, []))
                topics[-1][1].append(seen)
        return topics

    def _generic_parts(self, correlation_id: int) -> list[Part]:
        session = self._session
        follower = Reader(
            replica_id=NodeId(session.replica_id),
            broker_epoch=session.broker_epoch,
            may_read_followers=True,
            rack="",
            listener_name="",
        )
        collector = Collector(session, self._rooms.replicas, follower, max_bytes=self.max_bytes, visible=LOG_END)
        collector.collect(has_waited=True)
        response = FetchResponse(session_id=session.id, responses=collector.answer(incremental=True))
        if collector.failed:
            name_fetch_leaders(response, self._rooms.image, self._rooms.config.inter_broker_listener_name)
        return response_frame(correlation_id, parts_encoder(FetchResponse, VERSION)(response), header_version=1)

    def wake(self) -> None:
        """Answer soon, not now: one request of a producer appends to several partitions."""
        if self._is_woken:
            return
        self._is_woken = True
        if self._session.waiter is self:
            self._session.waiter = None
        self._rooms.fetch_wakeups.add(self)

    expire = wake

    def answer(self) -> None:
        """Look again, and answer with what there is."""
        if self.on_done is None:
            self.is_done = True  # Its connection is gone, and asks no more.
            return
        self._is_in_step = self.look(None)
        self.complete(None)


def _lent(records: FileSlice | bytes, at_hand: tuple[int, Loan], fetch_offset: int) -> FileSlice | bytes:
    """The same slice, with what is at hand if that is just it: one batch, which has the same beginning and length."""
    base_offset, loan = at_hand
    if isinstance(records, bytes) or base_offset != fetch_offset or loan.view is None or len(loan.view) != len(records):
        return records
    return FileSlice(records.file, records.position, records.length, loan)


def _frame(deferred: Deferred[Any], correlation_id: int) -> list[Part]:
    assert isinstance(deferred, FollowerFetch)
    return deferred.parts(correlation_id)
