"""The metadata log on disk: loaded at the start, appended to by the controller, snapshotted when it has grown.

This, with `snapshot_files.py`, alone touches `__cluster_metadata-0`. What `metadata.raft` decides is written in the
order it says; a record counts once it is synced, and only then is it replayed into the image that everyone reads.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence

from odradek.ids import METADATA_TOPIC_ID, LeaderEpoch, NodeId, Offset, Uuid
from odradek.metadata.bootstrap import METADATA_DIRECTORY
from odradek.metadata.features import LATEST_METADATA_VERSION, METADATA_VERSION, RELEASES
from odradek.metadata.image import Changes, Image, Provenance, UnknownRecord
from odradek.metadata.loader import Loader
from odradek.metadata.raft.control_records import control_record, read_control_record, recorded_voters
from odradek.metadata.raft.core import LoggedQuorum, Ready, elect_itself
from odradek.metadata.raft.quorum_state import (
    QUORUM_STATE_FILE,
    BadQuorumState,
    QuorumState,
    decode_quorum_state,
    encode_quorum_state,
)
from odradek.metadata.raft.snapshot import QuorumRecords, Snapshot, SnapshotId, build_snapshot
from odradek.metadata.raft.voters import BadVoters, Voter
from odradek.metadata.records import FeatureLevelRecord
from odradek.metadata.serde import decode_record, encode_record
from odradek.metadata.topic_names import METADATA_TOPIC
from odradek.ports import World
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedFrame
from odradek.protocol.messages.control_records import KRaftVersionRecord, VotersRecord
from odradek.protocol.records.batch import build_batch, decode_records, iter_batches, read_header
from odradek.protocol.records.record import Record
from odradek.server.snapshot_files import SnapshotFiles
from odradek.storage.checkpoints import replace_file
from odradek.storage.config import LogConfig
from odradek.storage.log import Log
from odradek.values import replace, value

log = logging.getLogger(__name__)

MAX_RECORDS_PER_BATCH = 20_000
"""More than any request may ask for, so each is one batch. Only a broker that leads more partitions when it starts
makes more records at once, and those need not be all or nothing; a batch must stay below Kafka's 8 MiB."""

_READ_BYTES = 1 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT)


class BadMetadataLog(Exception):
    """The node cannot start on what is in its metadata directory; the message is for a person."""


@value
class QuorumSettings:
    """The metadata log's part of the configuration."""

    segment_bytes: int
    segment_ms: int
    max_bytes_between_snapshots: int
    max_snapshot_interval_ms: int
    max_retention_bytes: int
    max_retention_ms: int
    election_timeout_ms: int = 1000
    election_backoff_max_ms: int = 1000
    fetch_timeout_ms: int = 2000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_bytes: int = 8 << 20
    fetch_snapshot_max_bytes: int = 1 << 20
    max_idle_interval_ms: int = 500
    auto_join: bool = False


class Quorum:
    """The metadata log and the newest image of it."""

    def __init__(
        self,
        world: World,
        *,
        metadata_log_dir: str,
        me: Voter,
        listener_name: str,
        settings: QuorumSettings,
        cluster_id: str = "",
        static_voters: tuple[Voter, ...] = (),
        bootstrap_servers: tuple[tuple[str, int], ...] = (),
        may_vote: bool = True,
    ) -> None:
        """`me` is this node as a voter: its id, its controller listener's address, and the metadata directory's id.

        `static_voters` are those of `controller.quorum.voters`, which count while kraft.version is 0; without them this
        node is the only one. `bootstrap_servers` are where to ask who leads. A node without the controller's role does
        not vote and follows as an observer.
        """
        self._cluster_id = cluster_id
        self._static_voters = static_voters or (me,)
        self._bootstrap_servers = bootstrap_servers
        self._may_vote = may_vote
        self._world = world
        self._metadata_log_dir = metadata_log_dir
        self._directory = f"{metadata_log_dir}/{METADATA_DIRECTORY}"
        self._me = me
        self._listener_name = listener_name
        self._settings = settings
        self._loader = Loader()
        self._logged = LoggedQuorum(kraft_version=0, voters=())
        self._write_version = 0
        self._bytes_since_snapshot = 0
        self._last_snapshot_ms = 0
        self._snapshots = SnapshotFiles(world, self._directory)
        self._snapshot_task: asyncio.Task[None] | None = None
        self._log: Log
        self.epoch = LeaderEpoch(0)
        self.on_commit: Callable[[Image, Changes], Awaitable[None]] = _nothing_to_carry_out
        """Awaited before an append counts as done: who asked for a topic finds it served."""
        self.on_leadership: Callable[[LeaderEpoch | None], None] = lambda epoch: None
        """Told the epoch in which this node may decide, once it may, and None when it may not any more."""
        self.on_leader: Callable[[], None] = lambda: None
        """Told when the leader, its address or its epoch is another."""
        self.on_failure: Callable[[BaseException], None] = lambda failure: None
        """Told when this node's log and the quorum's cannot be brought together: the node must stop."""

    @property
    def image(self) -> Image:
        """Everything committed."""
        return self._loader.image

    @property
    def leader_id(self) -> NodeId:
        """The active controller."""
        return self._me.node_id

    @property
    def leader_address(self) -> tuple[str, int] | None:
        """Where the active controller listens; None while nobody is known to lead."""
        return self._me.host, self._me.port

    @property
    def is_active(self) -> bool:
        """Whether this node leads, and has replayed everything that was committed before it did: it may decide now."""
        return True

    @property
    def voters(self) -> tuple[Voter, ...]:
        """Whose votes count."""
        return self._logged.voters if self.kraft_version else self._static_voters

    @property
    def directory_id(self) -> Uuid:
        """Of the directory that holds the metadata log."""
        return self._me.directory_id

    @property
    def high_watermark(self) -> Offset:
        """Below it everything is committed."""
        return Offset(self._log.high_watermark)

    @property
    def kraft_version(self) -> int:
        return self._logged.kraft_version

    @property
    def next_offset(self) -> Offset:
        """Where the next record will be: nobody else appends."""
        return Offset(self._log.log_end_offset)

    @property
    def interrupted_transaction(self) -> bool:
        """Whether the log ends inside a metadata transaction, which the controller must then abort."""
        return self._loader.in_transaction

    # Starting.

    def advertise(self, host: str, port: int) -> None:
        """Where this node's controller listener really is, once it is open: any free port may have been asked for."""
        self._me = replace(self._me, host=host, port=port)

    async def caught_up(self) -> None:
        """Come back once all that the leader has committed by now is replayed here."""

    async def start(self, *, clean: bool) -> None:
        """Load what is there and become the leader of a new epoch.

        `clean` says that the last shutdown was; else the log is checked and a torn tail cut. What is appended here is
        synced with the first commit, before anybody can have learnt of it. BadMetadataLog when that cannot be.
        """
        try:
            self._start(clean=clean)
        except (BadQuorumState, BadVoters, UnknownRecord, MalformedFrame, KafkaError) as wrong:
            raise BadMetadataLog(f"Cannot start on {self._directory}: {wrong}") from wrong

    def _start(self, *, clean: bool) -> None:
        disk = self._world.disk
        if not disk.exists(self._directory):
            disk.make_directory(self._directory)
            disk.sync_directory(self._metadata_log_dir)  # Syncing what is in it would not keep its name.
        now_ms = self._world.clock.now_ms()
        self._last_snapshot_ms = self._world.clock.monotonic_ms()
        start_offset = self._load_snapshot()
        self._log = Log.open(
            disk,
            self._directory,
            topic=METADATA_TOPIC,
            partition=0,
            topic_id=METADATA_TOPIC_ID,
            config=_log_config(self._settings),
            now_ms=now_ms,
            clean=clean,
        )
        self._replay_log(start_offset)
        self._check_features()
        ready = elect_itself(
            self._me,
            listener_name=self._listener_name,
            state=self._read_state(),
            last_epoch=self.image.provenance.epoch,
            logged=self._logged,
            log_is_empty=self._log.log_end_offset == 0,
        )
        self._become_leader(ready, now_ms)

    def _load_snapshot(self) -> Offset:
        """Replay the newest snapshot that is whole, and say where the log goes on from it."""
        loaded = self._snapshots.load()
        if loaded is None:
            return Offset(0)
        self._replay_snapshot(*loaded)
        return loaded[0].end_offset

    def _replay_snapshot(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        self._logged = LoggedQuorum(snapshot.kraft_version, snapshot.voters)
        last_offset = Offset(snapshot_id.end_offset - 1)
        provenance = Provenance(last_offset, snapshot_id.epoch, snapshot.last_contained_timestamp_ms)
        self._loader.replay(snapshot.records, provenance)

    def _replay_log(self, start_offset: Offset) -> None:
        if self._log.log_start_offset > start_offset:
            raise BadMetadataLog(
                f"{self._directory} begins at offset {self._log.log_start_offset}, and no snapshot that is whole "
                "covers what came before."
            )
        if self._log.log_end_offset < start_offset:
            self._log.truncate_fully_and_start_at(start_offset)
        newest = self.image.provenance
        records: list[Message] = []
        for batch in self._batches_from(start_offset):
            header = read_header(batch)
            newest = Provenance(Offset(header.last_offset), LeaderEpoch(header.leader_epoch), header.max_timestamp)
            if header.is_control:
                for record in decode_records(batch):
                    self._note_control_record(read_control_record(record))
            else:
                self._bytes_since_snapshot += header.size
                records += [decode_record(record.value or b"") for record in decode_records(batch)]
        self._loader.replay(records, newest)

    def _batches_from(self, start_offset: Offset) -> Iterator[memoryview]:
        position: int = start_offset
        end_offset = self._log.log_end_offset
        while position < end_offset:
            read = self._log.read(position, max_bytes=_READ_BYTES, end_offset=end_offset, minimum_one=True)
            content = read.records if isinstance(read.records, bytes) else read.records.read()
            for batch in iter_batches(content):
                header = read_header(batch)
                if header.base_offset >= start_offset:
                    yield batch
                position = header.last_offset + 1

    def _note_control_record(self, message: Message | None) -> None:
        match message:
            case KRaftVersionRecord():
                self._logged = LoggedQuorum(message.kraft_version, self._logged.voters)
            case VotersRecord():
                self._logged = LoggedQuorum(self._logged.kraft_version, recorded_voters(message))
            case _:
                pass

    def _check_features(self) -> None:
        level = self.image.features.metadata_version
        if level > LATEST_METADATA_VERSION:
            raise BadMetadataLog(
                f"The cluster has {METADATA_VERSION} {level}, and this node knows none above "
                f"{LATEST_METADATA_VERSION} ({RELEASES[LATEST_METADATA_VERSION]})."
            )
        self._write_version = level

    def _read_state(self) -> QuorumState:
        path = f"{self._directory}/{QUORUM_STATE_FILE}"
        if not self._world.disk.exists(path):
            return QuorumState()
        return decode_quorum_state(self._world.disk.read_file(path))

    def _become_leader(self, ready: Ready, now_ms: int) -> None:
        state = encode_quorum_state(ready.state, kraft_version=self.kraft_version, voters=(self._me.node_id,))
        replace_file(self._world.disk, f"{self._directory}/{QUORUM_STATE_FILE}", state, durable=True)
        self.epoch = ready.state.leader_epoch
        records = [control_record(message) for message in ready.control_records]
        for message in ready.control_records:
            self._note_control_record(message)
        batch = build_batch(
            records, base_offset=self._log.log_end_offset, leader_epoch=self.epoch, timestamp=now_ms, control=True
        )
        self._write([batch], now_ms)

    # Appending.

    async def append(self, batches: Sequence[Sequence[Message]], *, epoch: LeaderEpoch | None = None) -> None:
        """Make these records durable, each sequence a batch of its own, then replay them; one sync for all of them.

        NOT_CONTROLLER when this node does not lead (in `epoch`, if one is given). KafkaError when the disk is full:
        then nothing has changed. Any other error of the disk is the end of this node.
        """
        if epoch is not None and epoch != self.epoch:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"This node does not lead epoch {epoch}.")
        now_ms = self._world.clock.now_ms()
        offset: int = self._log.log_end_offset
        built = []
        for records in batches:
            framed = [Record(value=self._encode(record)) for record in records]
            for start in range(0, len(framed), MAX_RECORDS_PER_BATCH):
                part = framed[start : start + MAX_RECORDS_PER_BATCH]
                built.append(build_batch(part, base_offset=offset, leader_epoch=self.epoch, timestamp=now_ms))
                offset += len(part)
        if built:
            self._write_or_nothing(built, now_ms)
            self._bytes_since_snapshot += sum(len(batch) for batch in built)
        await self._sync()
        if built:
            replayed = [record for records in batches for record in records]
            changes = self._loader.replay(replayed, Provenance(Offset(offset - 1), self.epoch, now_ms))
            await self.on_commit(self.image, changes)
            self._maybe_snapshot()

    def _encode(self, record: Message) -> bytes:
        if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION:
            self._write_version = record.feature_level
        return encode_record(record, self._write_version)

    def _write_or_nothing(self, batches: list[bytearray], now_ms: int) -> None:
        start_offset = self._log.log_end_offset
        try:
            self._write(batches, now_ms)
        except OSError as failure:
            if failure.errno not in _FULL:
                raise
            self._log.truncate_to(start_offset)
            log.error("Refused a change of metadata: no space left in %s", self._metadata_log_dir)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)) from failure

    def _write(self, batches: list[bytearray], now_ms: int) -> None:
        together = batches[0] if len(batches) == 1 else bytearray().join(batches)
        self._log.append_as_follower(memoryview(together), now_ms=now_ms)

    async def _sync(self) -> None:
        work = self._log.flush_work()
        await self._world.workers.run(work)
        self._log.flushed(work.offset)
        self._log.advance_high_watermark(work.offset)

    # Snapshots.

    def _maybe_snapshot(self) -> bool:
        settings = self._settings
        age_ms = self._world.clock.monotonic_ms() - self._last_snapshot_ms
        due = self._bytes_since_snapshot >= settings.max_bytes_between_snapshots or (
            0 < settings.max_snapshot_interval_ms <= age_ms
        )
        if not due or self._snapshot_task is not None or self._loader.in_transaction:
            return False
        self._bytes_since_snapshot = 0
        self._last_snapshot_ms = self._world.clock.monotonic_ms()
        self._snapshot_task = asyncio.create_task(self.write_snapshot())
        self._snapshot_task.add_done_callback(self._snapshot_done)
        return True

    def _snapshot_done(self, task: asyncio.Task[None]) -> None:
        self._snapshot_task = None
        if not task.cancelled() and isinstance(task.exception(), OSError):
            # The log is whole without it; the next commit that finds one due tries again.
            log.error("Could not write a metadata snapshot: %s", task.exception())

    async def write_snapshot(self) -> None:
        """Write the committed image down, and let go of what it makes unnecessary."""
        image = self.image
        snapshot_id = SnapshotId(Offset(image.provenance.offset + 1), image.provenance.epoch)
        if self._snapshots.newest == snapshot_id:
            return
        quorum = None
        if self.kraft_version > 0:
            quorum = QuorumRecords(self.kraft_version, self._logged.voters, self._listener_name)
        now_ms = self._world.clock.now_ms()
        content = await self._world.workers.run(
            lambda: build_snapshot(
                image.records(),
                metadata_version=image.features.metadata_version,
                epoch=image.provenance.epoch,
                last_contained_timestamp_ms=image.provenance.timestamp_ms,
                now_ms=now_ms,
                quorum=quorum,
            )
        )
        await self._snapshots.write(snapshot_id, content, timestamp_ms=image.provenance.timestamp_ms)
        self._clean(now_ms)

    def _clean(self, now_ms: int) -> None:
        """Remove snapshots that newer ones replace, and the log before the oldest that stays."""
        self._snapshots.remove_superseded(
            log_bytes=self._log.size_bytes,
            now_ms=now_ms,
            max_bytes=self._settings.max_retention_bytes,
            max_age_ms=self._settings.max_retention_ms,
        )
        if self._snapshots.oldest_end_offset > self._log.log_start_offset:
            self._log.delete_records_before(self._snapshots.oldest_end_offset)
        self._log.apply_retention(now_ms)
        self._log.purge_deleted(now_ms)

    # Stopping.

    async def close(self) -> None:
        """Leave the log closed in order; nothing is appended after this."""
        if self._snapshot_task is not None:
            await asyncio.wait([self._snapshot_task])
        self._log.close()


async def _nothing_to_carry_out(image: Image, changes: Changes) -> None:
    """Until the node has partitions to change."""


def _log_config(settings: QuorumSettings) -> LogConfig:
    """Retention is by snapshots alone, and a batch is as large as a decision makes it."""
    return LogConfig(
        segment_bytes=settings.segment_bytes,
        segment_ms=settings.segment_ms,
        retention_ms=-1,
        retention_bytes=-1,
        max_message_bytes=(1 << 31) - 1,
        file_delete_delay_ms=0,
    )
