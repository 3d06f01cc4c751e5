"""How a leader's records get into its metadata log: each decision a batch, and the quorum's own records in control
batches. Nothing here waits, and nothing is synced: that is up to who asked.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.ids import LeaderEpoch, Offset
from odradek.metadata.features import METADATA_VERSION
from odradek.metadata.raft.control_records import control_record
from odradek.metadata.records import FeatureLevelRecord
from odradek.metadata.serde import encode_record
from odradek.ports import Clock
from odradek.protocol.codec import Message
from odradek.protocol.records.batch import build_batch
from odradek.protocol.records.record import Record
from odradek.server.quorum.log import MetadataLog
from odradek.server.quorum.replay import Replay, Written

MAX_RECORDS_PER_BATCH = 20_000
"""More than any request may ask for, so each is one batch. Only a broker that leads more partitions when it starts
makes more records at once, and those need not be all or nothing; a batch must stay below Kafka's 8 MiB."""


class MetadataWriter:
    """One node's; it is asked for something only while the node leads."""

    def __init__(self, clock: Clock, metadata_log: MetadataLog, replay: Replay) -> None:
        self.version = 0
        """The metadata.version that records are written in."""
        self._clock = clock
        self._log = metadata_log
        self._replay = replay

    def write(self, batches: Sequence[Sequence[Message]], epoch: LeaderEpoch) -> None:
        """All of them in one write, and handed on to be replayed; KafkaError on a full disk."""
        now_ms = self._clock.now_ms()
        offset: int = self._log.log_end_offset
        built: list[bytearray] = []
        written: list[Written] = []
        for records in batches:
            for start in range(0, len(records), MAX_RECORDS_PER_BATCH):
                part = records[start : start + MAX_RECORDS_PER_BATCH]
                framed = [Record(value=self._encode(record)) for record in part]
                built.append(build_batch(framed, base_offset=offset, leader_epoch=epoch, timestamp=now_ms))
                written.append(Written(offset, offset + len(part), part, epoch, now_ms))
                offset += len(part)
        self._log.append(built, now_ms)
        self._replay.wrote(written)
        self._replay.grown(sum(len(batch) for batch in built))

    def _encode(self, record: Message) -> bytes:
        if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION:
            self.version = record.feature_level
        return encode_record(record, self.version)

    def write_control(self, messages: Sequence[Message], epoch: LeaderEpoch) -> Offset:
        """One batch of them. Where it begins; KafkaError on a full disk."""
        base_offset = self._log.log_end_offset
        now_ms = self._clock.now_ms()
        records = [control_record(message) for message in messages]
        batch = build_batch(records, base_offset=base_offset, leader_epoch=epoch, timestamp=now_ms, control=True)
        self._log.append([batch], now_ms)
        return base_offset
