"""What a Fetch finds: the records of a session's partitions, or what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable

from odradek.ids import NO_OFFSET, NodeId
from odradek.ports import FileSlice, Workers
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    PartitionData,
)
from odradek.replication.truncation import divergence
from odradek.server.partitions.fetch_sessions import FetchSession, WatchedPartition, topic_key
from odradek.server.partitions.hosted_partition import HostedPartition
from odradek.server.partitions.replicas import Replicas
from odradek.server.partitions.visible import LAST_STABLE, Visible
from odradek.values import value

_UNREADABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""What is found out before anything is read, as with Kafka: the others wait as if it had not been asked for."""


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
        "_found",
        "_may_read",
        "_reader",
        "_replicas",
        "_session",
        "_unreadable",
        "_visible",
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
        visible: Visible,
        may_read: Callable[[str], bool] | None = None,
    ) -> None:
        self._session = session
        self._replicas = replicas
        self._visible = visible
        self._reader = reader
        self._may_read = may_read
        self._found: dict[WatchedPartition, PartitionData] = {}
        self._unreadable: set[WatchedPartition] = set()
        """Partitions that are not there, or are closed to this reader: nobody waits for them."""
        self.max_bytes = max_bytes
        self.size = 0
        self.failed = False
        self.excess_ms = 0
        """If a throttle holds something back (KIP-73): after how long to look at it again."""
        self.urgent = False
        """Whether there is something to tell that cannot wait: an error of a partition that exists and may be read, a
        history that differs, another replica; or that there is nothing at all to wait for."""

    def collect(self, *, has_waited: bool = False) -> None:
        """A request that `has_waited` said what its follower has when it came, and nothing of it is news since."""
        dirty = self._session.dirty
        self.size = self.excess_ms = 0
        for entry in list(dirty):
            if entry in self._unreadable:
                continue  # That was decided when the request came.
            try:
                data = self._read(entry, has_waited=has_waited)
            except OSError as failure:
                self.failed = self.urgent = True
                assert entry.hosted is not None
                data = _error_data(entry, self._replicas.storage_error(entry.hosted, failure).code)
            except KafkaError as error:
                self.failed = True
                data = _error_data(entry, error.code)
                if error.code in _UNREADABLE and not has_waited:
                    self._unreadable.add(entry)
                    data.aborted_transactions = []  # So Kafka tells these from what it found when it read.
                else:
                    self.urgent = True
            else:
                size = len(data.records or b"")
                self.size += size
                assert entry.hosted is not None
                if data.diverging_epoch.epoch >= 0 or data.preferred_read_replica >= 0:
                    self.urgent = True
                elif entry.fetch_offset >= entry.hosted.readable_end(self._visible):
                    del dirty[entry]
                elif size:
                    # To the end of the line after its turn, or those behind it would never get theirs.
                    del dirty[entry]
                    dirty[entry] = None
            self._found[entry] = data
        if len(self._unreadable) == len(self._session.partitions):
            self.urgent = True

    def _read(self, entry: WatchedPartition, *, has_waited: bool) -> PartitionData:
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
            fetch_offset=entry.fetch_offset,
            last_fetched_epoch=entry.last_fetched_epoch,
        )
        if diverging is None and reader.replica_id >= 0 and not has_waited:
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
                hosted, client_rack=reader.rack, fetch_offset=entry.fetch_offset, listener=reader.listener_name
            )
            if nearest is not None:
                data.preferred_read_replica = nearest
                return data
        if hosted.leader_throttle is not None and reader.replica_id >= 0 and self._holds_back(entry, hosted):
            return data
        if self._visible is LAST_STABLE:
            data.aborted_transactions = []
        remaining = self.max_bytes - self.size
        if remaining <= 0 and self.size:
            return data
        read = log.read(
            entry.fetch_offset,
            max_bytes=min(entry.max_bytes, max(remaining, 0)),
            end_offset=hosted.readable_end(self._visible),
            minimum_one=self.size == 0,
        )
        data.records = read.records
        hosted.reads += reader.replica_id < 0 and not has_waited
        if self._visible is LAST_STABLE:
            data.aborted_transactions = [
                AbortedTransaction(producer_id=gone.producer_id, first_offset=gone.first_offset)
                for gone in log.aborted_in(entry.fetch_offset, read)
            ]
        return data

    def _holds_back(self, entry: WatchedPartition, hosted: HostedPartition) -> bool:
        """Whether the follower is to get nothing for now; never if it is in sync, or it would not stay so (KIP-73)."""
        leadership = hosted.partition.leadership
        excess_ms = 0
        if leadership is not None and self._reader.replica_id not in leadership.in_sync.committed:
            excess_ms = self._replicas.throttles.sending_excess_ms()
        entry.held_back = excess_ms > 0
        self.excess_ms = self.excess_ms or excess_ms
        return entry.held_back

    def _note(self, hosted: HostedPartition, entry: WatchedPartition) -> None:
        """Let the leader know what the follower has, unless it is an offset that the leader never had."""
        log = hosted.partition.log
        if log.log_start_offset <= entry.fetch_offset <= log.log_end_offset:
            self._replicas.update_follower_fetch_state(
                hosted,
                self._reader.replica_id,
                fetch_offset=entry.fetch_offset,
                log_start_offset=entry.log_start_offset,
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

    async def warm(self, workers: Workers) -> None:
        """Let a worker read what would make the loop wait for the disk."""
        for entry, data in list(self._found.items()):
            records, hosted = data.records, entry.hosted
            if isinstance(records, FileSlice) and hosted is not None and _is_cold(data):
                try:
                    data.records = await workers.run(records.read)
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
