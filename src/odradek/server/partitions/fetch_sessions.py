"""Fetch sessions (KIP-227): what a consumer wants, remembered between its requests.

Work follows change, not partition count: an append marks its partition dirty in the sessions that watch it, and an
incremental Fetch looks at dirty partitions only. A Fetch without a session gets one that lives as long as the request,
so that there is one way to collect records and one way to wait for them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from odradek.ids import ZERO_UUID, LeaderEpoch, Offset, Uuid
from odradek.ports import Clock, Entropy
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.replication.broker_liveness import NO_BROKER_EPOCH
from odradek.server.partitions.visible import Visible, visible_to

if TYPE_CHECKING:
    from odradek.protocol.messages.fetch import FetchPartition, FetchRequest
    from odradek.server.partitions.hosted_partition import HostedPartition
    from odradek.server.partitions.replicas import Replicas
    from odradek.server.waiting.deferred import Wakeable

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
NO_SESSION = 0
LARGEST_EPOCH = (1 << 31) - 1
CONSUMER = -1
ALL_BYTES = 1 << 62
"""More than there is: who is told of so many is to answer with whatever is found."""
MANY_BYTES = 1 << 40
"""More than anybody waits for: who is told of so many looks at once, and may find too little."""

Rank: TypeAlias = tuple[bool, int, int]
"""Whether a session is a replica's, how many partitions it has, and its id: what it is worth in Kafka's eyes."""

UNSENT = -2
"""Differs from every offset that can be sent, so that the first answer always counts as a change."""


class WatchedPartition:
    """One partition of a session: where its reader stands, and what it was told last."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "held_back",
        "hosted",
        "index",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "sent_high_watermark",
        "sent_log_start_offset",
        "session",
        "topic",
        "topic_id",
    )

    def __init__(self, session: FetchSession, topic: str, topic_id: Uuid, index: int) -> None:
        self.session = session
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.hosted: HostedPartition | None = None
        self.sent_high_watermark = UNSENT
        self.sent_log_start_offset = UNSENT
        self.held_back = False
        """By a replication throttle, when it was last looked at: what is appended to it is worth no answer then."""

    def update(self, wanted: FetchPartition) -> None:
        self.fetch_offset = Offset(wanted.fetch_offset)
        self.max_bytes = wanted.partition_max_bytes
        self.current_leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = LeaderEpoch(wanted.last_fetched_epoch)
        self.log_start_offset = Offset(wanted.log_start_offset)

    def changed(self, added_bytes: int) -> None:
        """The partition has more, or something else to tell."""
        session = self.session
        session.dirty[self] = None
        waiter = session.waiter
        if waiter is not None and (not self.held_back or added_bytes >= ALL_BYTES):
            session.missing_bytes -= added_bytes
            session.must_answer = session.must_answer or added_bytes >= ALL_BYTES
            if session.missing_bytes <= 0 and not waiter.is_done:
                waiter.wake()


class FetchSession:
    """The partitions of one reader, and which of them may have something new."""

    __slots__ = (
        "broker_epoch",
        "created_ms",
        "dirty",
        "ending",
        "epoch",
        "id",
        "last_used_ms",
        "missing_bytes",
        "must_answer",
        "partitions",
        "rank",
        "replica_id",
        "uses_topic_ids",
        "visible",
        "waiter",
        "watching",
    )

    def __init__(self, *, replica_id: int, visible: Visible, uses_topic_ids: bool, now_ms: int) -> None:
        self.id = NO_SESSION
        self.visible = visible
        """How far its reader sees, which is up to each of its requests;"""
        self.replica_id = replica_id
        """Whose it is; below 0 if it is a consumer's."""
        self.broker_epoch = NO_BROKER_EPOCH
        """And in which incarnation, as of its last request by the generic path;"""
        self.ending: bytes | None = None
        """its further requests end like that, if they can be read by the fast path."""
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = self.last_used_ms = now_ms
        self.rank: Rank = (replica_id >= 0, 0, NO_SESSION)
        """As it is counted among the others."""
        self.partitions: dict[tuple[str | Uuid, int], WatchedPartition] = {}
        self.dirty: dict[WatchedPartition, None] = {}
        self.watching = False
        self.waiter: Wakeable | None = None
        """The request that is not answered yet, as there was too little to tell."""
        self.missing_bytes = 0
        self.must_answer = False
        """Whether that is to be answered whatever it finds: a partition has something else to tell than records."""

    def park(self, waiter: Wakeable, missing_bytes: int) -> None:
        """Let it be told once there are so many bytes more. With two connections on one session, the older request is
        let go with what there is."""
        self.watch()
        self._let_go()
        self.missing_bytes = missing_bytes
        self.must_answer = False
        self.waiter = waiter

    def look_as_far_as(self, visible: Visible) -> None:
        """The reader may see so much from now on."""
        if visible is not self.visible:
            was_watching = self.watching
            self._unwatch()
            self.visible = visible
            self.dirty.update(dict.fromkeys(self.partitions.values()))
            if was_watching:
                self.watch()

    def want(self, request: FetchRequest, replicas: Replicas) -> None:
        """Take over what a request adds, moves and forgets."""
        for topic in request.topics:
            key: str | Uuid = topic.topic_id if self.uses_topic_ids else topic.topic
            for wanted in topic.partitions:
                entry = self.partitions.get((key, wanted.partition))
                if entry is None:
                    entry = WatchedPartition(self, topic.topic, topic.topic_id, wanted.partition)
                    self.partitions[key, wanted.partition] = entry
                entry.update(wanted)
                if entry.hosted is None:
                    self._resolve(entry, replicas)
                self.dirty[entry] = None
        for gone in request.forgotten_topics_data:
            key = gone.topic_id if self.uses_topic_ids else gone.topic
            for index in gone.partitions:
                entry = self.partitions.pop((key, index), None)
                if entry is not None:
                    self.dirty.pop(entry, None)
                    if entry.hosted is not None:
                        entry.hosted.unwatch(entry, self.visible)

    def resolve_missing(self, replicas: Replicas) -> None:
        """Look again for partitions that were not there: an entry without one stays dirty until it is found."""
        for entry in self.dirty:
            if entry.hosted is None:
                self._resolve(entry, replicas)

    def _resolve(self, entry: WatchedPartition, replicas: Replicas) -> None:
        if self.uses_topic_ids:
            hosted = replicas.find_by_id(entry.topic_id, entry.index)
            if hosted is not None:
                entry.topic = hosted.topic
        else:
            hosted = replicas.find(entry.topic, entry.index)
        entry.hosted = hosted
        if hosted is not None and self.watching:
            hosted.watch(entry, self.visible)

    def watch(self) -> None:
        """Hear of changes from now on."""
        if not self.watching:
            self.watching = True
            for entry in self.partitions.values():
                if entry.hosted is not None:
                    entry.hosted.watch(entry, self.visible)

    def close(self) -> None:
        """Hear of nothing any more; a request that still waits is answered, or it would wait until its time is up."""
        self._unwatch()
        self.must_answer = True
        self._let_go()

    def _unwatch(self) -> None:
        if self.watching:
            self.watching = False
            for entry in self.partitions.values():
                if entry.hosted is not None:
                    entry.hosted.unwatch(entry, self.visible)

    def _let_go(self) -> None:
        if self.waiter is not None and not self.waiter.is_done:
            self.waiter.wake()


class FetchSessions:
    """All sessions of a broker, at most `slots` of them."""

    def __init__(self, *, slots: int, eviction_ms: int, clock: Clock, entropy: Entropy) -> None:
        self._slots = slots
        self._eviction_ms = eviction_ms
        self._clock = clock
        self._entropy = entropy
        self._sessions: dict[int, FetchSession] = {}
        """In the order of their last use, oldest first."""
        self._ranks: list[Rank] = []
        """Of all sessions, the least first. They change with the partitions only, so that going on costs nothing."""

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(self._sessions.values())

    def open(
        self, request: FetchRequest, version: int, replicas: Replicas, *, replica_id: int = CONSUMER
    ) -> tuple[FetchSession, bool]:
        """The session that a request means, and whether its answer shall hold changes only."""
        uses_topic_ids = version >= 13
        visible = visible_to(replica_id, request.isolation_level)
        if request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
            session = self._continue(request, uses_topic_ids, replicas, replica_id)
            session.look_as_far_as(visible)
            if not session.partitions:
                self._drop(session.id)
                session.id = NO_SESSION
            return session, True
        if request.session_id != NO_SESSION:
            self._drop(request.session_id)
        now_ms = self._clock.monotonic_ms()
        session = FetchSession(replica_id=replica_id, visible=visible, uses_topic_ids=uses_topic_ids, now_ms=now_ms)
        session.want(request, replicas)
        if request.session_epoch == INITIAL_EPOCH and self._make_room(session, now_ms):
            session.id = self._new_id()
            self._sessions[session.id] = session
            self._rank(session)
            session.watch()
        return session, False

    def find(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def go_on(self, session: FetchSession, now_ms: int) -> None:
        """Its next request has come."""
        session.epoch = 1 if session.epoch == LARGEST_EPOCH else session.epoch + 1
        session.last_used_ms = now_ms
        del self._sessions[session.id]
        self._sessions[session.id] = session

    def done(self, session: FetchSession) -> None:
        """Its answer is made: a session of one request ends."""
        if session.id == NO_SESSION:
            session.close()

    def _continue(
        self, request: FetchRequest, uses_topic_ids: bool, replicas: Replicas, replica_id: int
    ) -> FetchSession:
        session = self._sessions.get(request.session_id)
        if session is None or session.replica_id != replica_id:  # Nobody else's fetch speaks for a replica.
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self.go_on(session, self._clock.monotonic_ms())
        session.resolve_missing(replicas)
        session.want(request, replicas)
        if len(session.partitions) != session.rank[1]:
            self._unrank(session)
            self._rank(session)
        return session

    def _make_room(self, newcomer: FetchSession, now_ms: int) -> bool:
        if len(self._sessions) < self._slots:
            return True
        evicted = self._evictable(newcomer, now_ms)
        if evicted is None:
            return False
        self._drop(evicted.id)
        return True

    def _evictable(self, newcomer: FetchSession, now_ms: int) -> FetchSession | None:
        """Whose place it may take, by Kafka's rules: of one that was silent for long, else of one that is worth less.

        Of those, a consumer's gives way to a replica's at once, or followers could be shut out for ever; any other has
        its time first, lest they take it from each other in turns.
        """
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return None
        if now_ms - oldest.last_used_ms > self._eviction_ms and oldest.waiter is None:
            return oldest
        worth = _rank_of(newcomer)
        for rank in self._ranks:
            if rank > worth:
                break
            session = self._sessions[rank[2]]
            if worth[0] > rank[0] or session.last_used_ms - session.created_ms > self._eviction_ms:
                return session
        return None

    def _rank(self, session: FetchSession) -> None:
        session.rank = _rank_of(session)
        insort(self._ranks, session.rank)

    def _unrank(self, session: FetchSession) -> None:
        del self._ranks[bisect_left(self._ranks, session.rank)]

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._unrank(session)
            session.close()

    def _new_id(self) -> int:
        while True:
            session_id = 1 + self._entropy.below(LARGEST_EPOCH)
            if session_id not in self._sessions:
                return session_id


def _rank_of(session: FetchSession) -> Rank:
    return session.replica_id >= 0, len(session.partitions), session.id


def topic_key(entry: WatchedPartition) -> tuple[str, Uuid]:
    """What an answer names the entry's topic by."""
    return entry.topic, entry.topic_id if entry.session.uses_topic_ids else ZERO_UUID
