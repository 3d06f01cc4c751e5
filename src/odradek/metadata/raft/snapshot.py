"""Snapshots of the metadata log: their names, how they are written and read, and when old ones may go.

A snapshot is a file of record batches as in a log: a header, the voters (from kraft.version 1 on), the image's records,
a footer. Without its footer a file is torn and means nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from odradek.ids import LeaderEpoch, Offset
from odradek.metadata.raft.control_records import (
    control_record,
    read_control_record,
    recorded_voters,
    voters_record,
)
from odradek.metadata.raft.voters import Voter
from odradek.metadata.serde import decode_batch, encode_record
from odradek.protocol.codec import Message
from odradek.protocol.errors import KafkaError, MalformedFrame
from odradek.protocol.messages.control_records import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from odradek.protocol.records.batch import (
    build_batch,
    crc_matches,
    decode_records,
    iter_batches,
    read_header,
)
from odradek.protocol.records.record import Record
from odradek.values import value

SNAPSHOT_SUFFIX = ".checkpoint"
_OFFSET_DIGITS = 20
_EPOCH_DIGITS = 10

RECORDS_PER_BATCH = 1000
"""Few enough that a batch stays far below the metadata log's limit of 8 MiB, many enough that headers cost nothing."""


class BadSnapshot(Exception):
    """A snapshot file that is torn or damaged."""


@value
class SnapshotId:
    """The log up to `end_offset` (exclusive), whose last record has `epoch`."""

    end_offset: Offset
    epoch: LeaderEpoch

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:0{_OFFSET_DIGITS}d}-{self.epoch:0{_EPOCH_DIGITS}d}{SNAPSHOT_SUFFIX}"


BOOTSTRAP_SNAPSHOT = SnapshotId(Offset(0), LeaderEpoch(0))
"""What formatting writes for a dynamic quorum: the voters, and nothing else."""


@value
class Snapshot:
    """A snapshot's content; `kraft_version` is 0 and `voters` is empty where it does not say."""

    last_contained_timestamp_ms: int
    kraft_version: int
    voters: tuple[Voter, ...]
    records: tuple[Message, ...]


@value
class QuorumRecords:
    """The voters of a dynamic quorum, as a snapshot carries them along."""

    kraft_version: int
    voters: tuple[Voter, ...]
    listener_name: str


def snapshot_id_of(file_name: str) -> SnapshotId | None:
    """Read a name such as `00000000000000000020-0000000003.checkpoint`; None for any other file."""
    digits = file_name.removesuffix(SNAPSHOT_SUFFIX)
    offset, dash, epoch = digits.partition("-")
    if digits == file_name or not dash or len(offset) != _OFFSET_DIGITS or len(epoch) != _EPOCH_DIGITS:
        return None
    if not (offset.isdecimal() and epoch.isdecimal() and digits.isascii()):
        return None
    return SnapshotId(Offset(int(offset)), LeaderEpoch(int(epoch)))


def build_snapshot(
    records: Iterable[Message],
    *,
    metadata_version: int,
    epoch: LeaderEpoch,
    last_contained_timestamp_ms: int,
    now_ms: int,
    quorum: QuorumRecords | None = None,
) -> bytes:
    """The whole file. It may be large, so a worker calls this, not the loop."""
    header: list[Message] = [SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_contained_timestamp_ms)]
    if quorum is not None:
        header.append(KRaftVersionRecord(version=0, kraft_version=quorum.kraft_version))
        header.append(voters_record(quorum.voters, quorum.listener_name))
    content = bytearray()
    offset = 0
    for batch, control in _batches(header, records, metadata_version):
        content += build_batch(batch, base_offset=offset, leader_epoch=epoch, timestamp=now_ms, control=control)
        offset += len(batch)
    return bytes(content)


def read_snapshot(content: bytes) -> Snapshot:
    """Everything in it; BadSnapshot unless every batch is whole and the footer is there."""
    timestamp_ms = 0
    kraft_version = 0
    voters: tuple[Voter, ...] = ()
    records: list[Message] = []
    finished = False
    try:
        for batch in iter_batches(memoryview(content)):
            if not crc_matches(batch):
                raise BadSnapshot("a batch does not match its checksum")
            if not read_header(batch).is_control:
                records += decode_batch(batch)
                continue
            for record in decode_records(batch):
                match read_control_record(record):
                    case SnapshotHeaderRecord(last_contained_log_timestamp=at):
                        timestamp_ms = at
                    case KRaftVersionRecord(kraft_version=level):
                        kraft_version = level
                    case VotersRecord() as recorded:
                        voters = recorded_voters(recorded)
                    case SnapshotFooterRecord():
                        finished = True
                    case _:
                        pass
    except (KafkaError, MalformedFrame) as damaged:
        raise BadSnapshot(str(damaged)) from damaged
    if not finished:
        raise BadSnapshot("it has no footer")
    return Snapshot(timestamp_ms, kraft_version, voters, tuple(records))


@value
class HeldSnapshot:
    """A snapshot file: how large it is, and when its newest record was written."""

    id: SnapshotId
    size_bytes: int
    timestamp_ms: int


def superseded(
    snapshots: Sequence[HeldSnapshot],
    *,
    log_bytes: int,
    now_ms: int,
    max_bytes: int,
    max_age_ms: int,
) -> list[HeldSnapshot]:
    """Which of the snapshots, oldest first, may go.

    One goes when it is too old or when log and snapshots together are too large, and only while a newer one is there to
    start from; the log before the oldest that stays may then go too.
    """
    going: list[HeldSnapshot] = []
    total = log_bytes + sum(held.size_bytes for held in snapshots)
    for held in snapshots[:-1]:
        too_old = max_age_ms >= 0 and now_ms - held.timestamp_ms > max_age_ms
        too_large = 0 <= max_bytes < total
        if not too_old and not too_large:
            break
        going.append(held)
        total -= held.size_bytes
    return going


def _batches(
    header: list[Message], records: Iterable[Message], metadata_version: int
) -> Iterator[tuple[list[Record], bool]]:
    yield [control_record(message) for message in header], True
    batch: list[Record] = []
    for record in records:
        batch.append(Record(value=encode_record(record, metadata_version)))
        if len(batch) == RECORDS_PER_BATCH:
            yield batch, False
            batch = []
    if batch:
        yield batch, False
    yield [control_record(SnapshotFooterRecord(version=0))], True
