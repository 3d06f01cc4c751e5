"""Fetch, versions 4 to 18: long poll and fetch sessions (KIP-227), for consumers and followers.

Records leave as slices of log files. A request that finds too little waits until enough was committed (a follower:
appended) or its time is up; one that meets an error is answered at once. What is not in memory is read by a worker,
never by the loop. The offset that a follower asks for tells its leader what it has. Consumers of version 11 and above
may read from followers, and are sent to one in their rack (KIP-392) if `replica.selector.class` says so.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.ids import NO_OFFSET, LeaderEpoch, NodeId, Offset
from odradek.ports import FileSlice
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from odradek.replication.truncation import divergence
from odradek.security.acl import Operation, ResourceType
from odradek.server.authorizer import allowed, topic_check
from odradek.server.context import Context
from odradek.server.fetch_sessions import FetchSession, WatchedPartition, topic_key
from odradek.server.hosted import Hosted
from odradek.server.known_leaders import KnownLeaders
from odradek.server.replicas import Replicas
from odradek.server.routes import Role, serves
from odradek.values import value

READ_COMMITTED = 1
_READS_FROM_FOLLOWERS_VERSION = 11
_REPLICA_STATE_VERSION = 15
_LEADER_VERSION = 16
_NAMES_A_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


@serves(ApiKey.FETCH, on=Role.BROKER)
async def handle(ctx: Context, request: FetchRequest) -> FetchResponse:
    node = ctx.node
    sessions = node.fetch_sessions
    reader = _reader(ctx, request)
    try:
        session, incremental = sessions.open(request, ctx.api_version, node.replicas, replica_id=reader.replica_id)
    except KafkaError as error:
        return FetchResponse(error_code=error.code, session_id=0)
    collector = Collector(
        session,
        node.replicas,
        reader,
        max_bytes=min(request.max_bytes, node.config.fetch_max_bytes),
        committed_only=request.isolation_level == READ_COMMITTED,
        may_read=_permission(ctx, reader),
    )
    try:
        collector.collect()
        min_bytes = min(request.min_bytes, collector.max_bytes)
        # A Fetch that wants nothing has nothing to wait for: consumers end a session with one, and wait for the answer.
        waits = request.max_wait_ms > 0 and bool(session.partitions)
        if waits and collector.size < min_bytes and not collector.urgent:
            if collector.excess_ms:
                await _wait_for_quota(ctx, session, collector, min_bytes=min_bytes, max_wait_ms=request.max_wait_ms)
            else:
                await _wait(ctx, session, min_bytes - collector.size, request.max_wait_ms)
                collector.collect()
        if collector.has_cold_slices():
            await collector.warm(ctx)
    finally:
        sessions.done(session)
    response = FetchResponse(session_id=session.id, responses=collector.answer(incremental=incremental))
    if collector.failed and ctx.api_version >= _LEADER_VERSION:
        _name_leaders(ctx, response)
    return response


def _reader(ctx: Context, request: FetchRequest) -> Reader:
    version = ctx.api_version
    state = request.replica_state
    return Reader(
        replica_id=NodeId(state.replica_id if version >= _REPLICA_STATE_VERSION else request.replica_id),
        broker_epoch=state.replica_epoch if version >= _REPLICA_STATE_VERSION else -1,
        may_read_followers=version >= _READS_FROM_FOLLOWERS_VERSION,
        rack=request.rack_id,
        listener_name=ctx.listener_name,
    )


def _permission(ctx: Context, reader: Reader) -> Callable[[str], bool] | None:
    if reader.replica_id < 0:
        return topic_check(ctx, Operation.READ)
    return None if allowed(ctx, Operation.CLUSTER_ACTION, ResourceType.CLUSTER) else lambda topic: False


def _name_leaders(ctx: Context, response: FetchResponse) -> None:
    leaders = KnownLeaders(ctx.node.image, ctx.listener_name)
    for topic in response.responses:
        for data in topic.partitions:
            if data.error_code in _NAMES_A_LEADER:
                leader, epoch = leaders.leader_of(topic.topic_id, data.partition_index)
                data.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
    response.node_endpoints = [
        NodeEndpoint(node_id=node_id, host=endpoint.host, port=endpoint.port, rack=rack)
        for node_id, endpoint, rack in leaders.endpoints()
    ]


async def _wait_for_quota(
    ctx: Context, session: FetchSession, collector: Collector, *, min_bytes: int, max_wait_ms: int
) -> None:
    """As `_wait`, and those that were held back are looked at again when the quota may have room for them."""
    left_ms = max_wait_ms
    while left_ms > 0 and collector.size < min_bytes and not collector.urgent:
        wait_ms = min(left_ms, collector.excess_ms or left_ms)
        woken = await _wait(ctx, session, min_bytes - collector.size, wait_ms)
        collector.collect()
        if woken:
            break
        left_ms -= wait_ms


async def _wait(ctx: Context, session: FetchSession, missing_bytes: int, max_wait_ms: int) -> bool:
    """Whether it was woken; else its time is up."""
    session.watch()
    if session.waiter is not None and not session.waiter.done():
        # Two connections on one session: the older one is let go with what there is.
        session.waiter.set_result(True)
    session.missing_bytes = missing_bytes
    session.waiter = waiter = ctx.node.purgatory.park(timeout_ms=max_wait_ms)
    try:
        return await waiter
    finally:
        if session.waiter is waiter:
            session.waiter = None
        if not waiter.done():
            # A client that is gone by the next turn of the loop would else be remembered until its time is up.
            waiter.cancel()


@value
class Reader:
    """Who fetches."""

    replica_id: NodeId
    """Below 0 if it is a consumer."""
    broker_epoch: int
    may_read_followers: bool
    rack: str
    listener_name: str


class Collector:
    """Reads what a session's dirty partitions have, up to the request's size."""

    __slots__ = (
        "_committed_only",
        "_found",
        "_may_read",
        "_reader",
        "_replicas",
        "_session",
        "excess_ms",
        "failed",
        "max_bytes",
        "size",
        "urgent",
    )

    def __init__(
        self,
        session: FetchSession,
        replicas: Replicas,
        reader: Reader,
        *,
        max_bytes: int,
        committed_only: bool,
        may_read: Callable[[str], bool] | None = None,
    ) -> None:
        self._session = session
        self._replicas = replicas
        self._committed_only = committed_only
        self._reader = reader
        self._may_read = may_read
        self._found: dict[WatchedPartition, PartitionData] = {}
        self.max_bytes = max_bytes
        self.size = 0
        self.failed = False
        self.excess_ms = 0
        """If a throttle holds something back (KIP-73): after how long to look at it again."""
        self.urgent = False
        """Whether there is something to tell that cannot wait: an error, a history that differs, another replica."""

    def collect(self) -> None:
        dirty = self._session.dirty
        self.size = self.excess_ms = 0
        for entry in list(dirty):
            try:
                data = self._read(entry)
            except OSError as failure:
                self.failed = self.urgent = True
                assert entry.hosted is not None
                data = _error_data(entry, self._replicas.storage_error(entry.hosted, failure).code)
            except KafkaError as error:
                self.failed = self.urgent = True
                data = _error_data(entry, error.code)
            else:
                size = len(data.records or b"")
                self.size += size
                assert entry.hosted is not None
                readable_end = self._readable_end(entry.hosted)
                if data.diverging_epoch.epoch >= 0 or data.preferred_read_replica >= 0:
                    self.urgent = True
                elif entry.fetch_offset >= readable_end:
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
        reader = self._reader
        if reader.replica_id >= 0:
            partition.require_follower(reader.replica_id, reader.broker_epoch, entry.current_leader_epoch)
        elif reader.may_read_followers:
            partition.require_replica(entry.current_leader_epoch)
        else:
            partition.require_leader(entry.current_leader_epoch)
        log = partition.log
        diverging = divergence(
            log,
            fetch_offset=Offset(entry.fetch_offset),
            last_fetched_epoch=LeaderEpoch(entry.last_fetched_epoch),
        )
        if diverging is None and reader.replica_id >= 0:
            self._note(hosted, entry)
        data = PartitionData(
            partition_index=entry.index,
            error_code=0,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=None,
            records=b"",
        )
        if diverging is not None:
            data.diverging_epoch = EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.end_offset)
            return data
        if reader.rack:
            nearest = self._replicas.nearest_replica(
                hosted, client_rack=reader.rack, fetch_offset=Offset(entry.fetch_offset), listener=reader.listener_name
            )
            if nearest is not None:
                data.preferred_read_replica = nearest
                return data
        if hosted.leader_throttle is not None and reader.replica_id >= 0 and self._holds_back(entry, hosted):
            return data
        remaining = self.max_bytes - self.size
        if remaining <= 0 and self.size:
            return data
        end_offset = self._readable_end(hosted)
        read = log.read(
            Offset(entry.fetch_offset),
            max_bytes=min(entry.max_bytes, max(remaining, 0)),
            end_offset=end_offset,
            minimum_one=self.size == 0,
        )
        data.records = read.records
        hosted.reads += reader.replica_id < 0
        if self._committed_only and reader.replica_id < 0:
            data.aborted_transactions = [
                AbortedTransaction(producer_id=gone.producer_id, first_offset=gone.first_offset)
                for gone in log.aborted_transactions(Offset(entry.fetch_offset), end_offset)
            ]
        return data

    def _holds_back(self, entry: WatchedPartition, hosted: Hosted) -> bool:
        """Whether the follower is to get nothing for now; never if it is in sync, or it would not stay so (KIP-73)."""
        leadership = hosted.partition.leadership
        excess_ms = 0
        if leadership is not None and self._reader.replica_id not in leadership.in_sync.committed:
            excess_ms = self._replicas.throttles.sending_excess_ms()
        entry.held_back = excess_ms > 0
        self.excess_ms = self.excess_ms or excess_ms
        return entry.held_back

    def _readable_end(self, hosted: Hosted) -> Offset:
        log = hosted.partition.log
        if self._reader.replica_id >= 0:
            return log.log_end_offset
        return log.last_stable_offset if self._committed_only else log.high_watermark

    def _note(self, hosted: Hosted, entry: WatchedPartition) -> None:
        """Let the leader know what the follower has, unless it is an offset that the leader never had."""
        log = hosted.partition.log
        if log.log_start_offset <= entry.fetch_offset <= log.log_end_offset:
            self._replicas.note_fetch(
                hosted,
                self._reader.replica_id,
                fetch_offset=Offset(entry.fetch_offset),
                log_start_offset=Offset(entry.log_start_offset),
                broker_epoch=self._reader.broker_epoch,
            )

    def _check_permission(self, entry: WatchedPartition) -> None:
        """A topic that is not there is as closed as one that is, unless nobody knows the name of its id."""
        assert self._may_read is not None
        hosted = entry.hosted
        if hosted is None and self._session.uses_topic_ids:
            return
        if not self._may_read(entry.topic if hosted is None else hosted.topic):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def has_cold_slices(self) -> bool:
        return any(_is_cold(data) for entry, data in self._found.items() if not self._reads_what_is_new(entry))

    def _reads_what_is_new(self, entry: WatchedPartition) -> bool:
        """Whether a follower in sync asks: what it lacks was appended moments ago, and is in memory."""
        hosted = entry.hosted
        leadership = None if hosted is None else hosted.partition.leadership
        return leadership is not None and self._reader.replica_id in leadership.in_sync.committed

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
                if self._reader.replica_id < 0:
                    entry.hosted.bytes_out += len(data.records or b"")
                else:
                    entry.hosted.replication_bytes_out += len(data.records or b"")
                    if entry.hosted.leader_throttle is not None:
                        self._replicas.throttles.sent(len(data.records or b""))
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
        or data.preferred_read_replica >= 0
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
