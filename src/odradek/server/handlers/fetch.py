"""Fetch, versions 4 to 18: long poll and fetch sessions (KIP-227), for consumers.

Records leave as slices of log files. A request that finds too little waits until enough was committed or its time is
up; one that meets an error is answered at once. What is not in memory is read by a worker, never by the loop.
Not done yet: replica fetches and preferred read replicas.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.ids import NO_OFFSET, LeaderEpoch, Offset
from odradek.ports import FileSlice
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from odradek.security.acl import Operation
from odradek.server.authorizer import topic_check
from odradek.server.context import Context
from odradek.server.fetch_sessions import FetchSession, WatchedPartition, topic_key
from odradek.server.replicas import Replicas
from odradek.server.routes import Role, serves

READ_COMMITTED = 1
CONSUMER = -1
_REPLICA_STATE_VERSION = 15


@serves(ApiKey.FETCH, on=Role.BROKER)
async def handle(ctx: Context, request: FetchRequest) -> FetchResponse:
    node = ctx.node
    sessions = node.fetch_sessions
    try:
        session, incremental = sessions.open(request, ctx.api_version, node.replicas)
    except KafkaError as error:
        return FetchResponse(error_code=error.code, session_id=0)
    replica_id = request.replica_state.replica_id if ctx.api_version >= _REPLICA_STATE_VERSION else request.replica_id
    collector = Collector(
        session,
        node.replicas,
        max_bytes=min(request.max_bytes, node.config.fetch_max_bytes),
        committed_only=request.isolation_level == READ_COMMITTED,
        by_replica=replica_id > CONSUMER,
        may_read=topic_check(ctx, Operation.READ),
    )
    try:
        collector.collect()
        min_bytes = min(request.min_bytes, collector.max_bytes)
        # A Fetch that wants nothing has nothing to wait for: consumers end a session with one, and wait for the answer.
        waits = request.max_wait_ms > 0 and bool(session.partitions) and not collector.failed
        if waits and collector.size < min_bytes:
            await _wait(ctx, session, min_bytes - collector.size, request.max_wait_ms)
            collector.collect()
        if collector.has_cold_slices():
            await collector.warm(ctx)
    finally:
        sessions.done(session)
    return FetchResponse(session_id=session.id, responses=collector.answer(incremental=incremental))


async def _wait(ctx: Context, session: FetchSession, missing_bytes: int, max_wait_ms: int) -> None:
    session.watch()
    if session.waiter is not None and not session.waiter.done():
        # Two connections on one session: the older one is let go with what there is.
        session.waiter.set_result(True)
    session.missing_bytes = missing_bytes
    session.waiter = waiter = ctx.node.purgatory.park(timeout_ms=max_wait_ms)
    try:
        await waiter
    finally:
        if session.waiter is waiter:
            session.waiter = None
        if not waiter.done():
            # A client that is gone by the next turn of the loop would else be remembered until its time is up.
            waiter.cancel()


class Collector:
    """Reads what a session's dirty partitions have, up to the request's size."""

    __slots__ = (
        "_by_replica",
        "_committed_only",
        "_found",
        "_may_read",
        "_replicas",
        "_session",
        "failed",
        "max_bytes",
        "size",
    )

    def __init__(
        self,
        session: FetchSession,
        replicas: Replicas,
        *,
        max_bytes: int,
        committed_only: bool,
        by_replica: bool,
        may_read: Callable[[str], bool] | None = None,
    ) -> None:
        self._session = session
        self._replicas = replicas
        self._committed_only = committed_only
        self._by_replica = by_replica
        self._may_read = may_read
        self._found: dict[WatchedPartition, PartitionData] = {}
        self.max_bytes = max_bytes
        self.size = 0
        self.failed = False

    def collect(self) -> None:
        dirty = self._session.dirty
        self.size = 0
        for entry in list(dirty):
            try:
                data = self._read(entry)
            except OSError as failure:
                self.failed = True
                assert entry.hosted is not None
                data = _error_data(entry, self._replicas.storage_error(entry.hosted, failure).code)
            except KafkaError as error:
                self.failed = True
                data = _error_data(entry, error.code)
            else:
                size = len(data.records or b"")
                self.size += size
                readable_end = data.last_stable_offset if self._committed_only else data.high_watermark
                if entry.fetch_offset >= readable_end and data.diverging_epoch.epoch < 0:
                    del dirty[entry]
                elif size:
                    # To the end of the line after its turn, or those behind it would never get theirs.
                    del dirty[entry]
                    dirty[entry] = None
            self._found[entry] = data

    def _read(self, entry: WatchedPartition) -> PartitionData:
        hosted = entry.hosted
        if self._may_read is not None:
            self._check_permission(entry)
        if hosted is None:
            topic = entry.topic_id if self._session.uses_topic_ids else entry.topic
            raise KafkaError(self._replicas.why_missing(topic, entry.index))
        partition = hosted.partition
        if self._by_replica:
            # Nobody but this node is a replica of anything here.
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        partition.require_leader(entry.current_leader_epoch)
        log = partition.log
        data = PartitionData(
            partition_index=entry.index,
            error_code=0,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=None,
            records=b"",
        )
        if entry.last_fetched_epoch >= 0:
            end = log.end_offset_for_epoch(LeaderEpoch(entry.last_fetched_epoch))
            if end.epoch < 0:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
            if end.epoch < entry.last_fetched_epoch or end.end_offset < entry.fetch_offset:
                data.diverging_epoch = EpochEndOffset(epoch=end.epoch, end_offset=end.end_offset)
                return data
        remaining = self.max_bytes - self.size
        if remaining <= 0 and self.size:
            return data
        end_offset = log.last_stable_offset if self._committed_only else log.high_watermark
        read = log.read(
            Offset(entry.fetch_offset),
            max_bytes=min(entry.max_bytes, max(remaining, 0)),
            end_offset=end_offset,
            minimum_one=self.size == 0,
        )
        data.records = read.records
        hosted.reads += 1
        if self._committed_only:
            data.aborted_transactions = [
                AbortedTransaction(producer_id=gone.producer_id, first_offset=gone.first_offset)
                for gone in log.aborted_transactions(Offset(entry.fetch_offset), end_offset)
            ]
        return data

    def _check_permission(self, entry: WatchedPartition) -> None:
        """A topic that is not there is as closed as one that is, unless nobody knows the name of its id."""
        assert self._may_read is not None
        hosted = entry.hosted
        if hosted is None and self._session.uses_topic_ids:
            return
        if not self._may_read(entry.topic if hosted is None else hosted.topic):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def has_cold_slices(self) -> bool:
        return any(_is_cold(data) for data in self._found.values())

    async def warm(self, ctx: Context) -> None:
        """Let a worker read what would make the loop wait for the disk."""
        for entry, data in list(self._found.items()):
            records, hosted = data.records, entry.hosted
            if isinstance(records, FileSlice) and hosted is not None and _is_cold(data):
                try:
                    data.records = await ctx.node.world.workers.run(records.read)
                except OSError as failure:
                    self._found[entry] = _error_data(entry, self._replicas.storage_error(hosted, failure).code)

    def answer(self, *, incremental: bool) -> list[FetchableTopicResponse]:
        """All partitions for a full fetch, those with news for an incremental one."""
        topics: list[FetchableTopicResponse] = []
        last: tuple[object, object] | None = None
        for entry, data in self._found.items():
            if incremental and not _has_news(entry, data):
                continue
            if entry.hosted is not None:
                entry.hosted.bytes_out += len(data.records or b"")
            entry.sent_high_watermark = data.high_watermark
            entry.sent_log_start_offset = data.log_start_offset
            name = topic_key(entry)
            if name != last:
                last = name
                topics.append(FetchableTopicResponse(topic=entry.topic, topic_id=entry.topic_id, partitions=[]))
            topics[-1].partitions.append(data)
        return topics


def _has_news(entry: WatchedPartition, data: PartitionData) -> bool:
    return (
        bool(data.records)
        or data.error_code != 0
        or data.high_watermark != entry.sent_high_watermark
        or data.log_start_offset != entry.sent_log_start_offset
        or data.diverging_epoch.epoch >= 0
    )


def _is_cold(data: PartitionData) -> bool:
    records = data.records
    try:
        return isinstance(records, FileSlice) and not records.file.resident(records.position, records.length)
    except OSError:
        return True  # Whoever reads it finds out what is wrong.


def _error_data(entry: WatchedPartition, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=entry.index,
        error_code=code,
        high_watermark=NO_OFFSET,
        last_stable_offset=NO_OFFSET,
        log_start_offset=NO_OFFSET,
        aborted_transactions=None,
        records=b"",
    )
