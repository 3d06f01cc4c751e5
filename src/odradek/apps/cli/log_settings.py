"""What topics are configured with, as the metadata log in a data directory tells."""

from __future__ import annotations

import os

from odradek.apps.cli.log_files import base_offsets, listed, read_batches
from odradek.ids import LeaderEpoch, Offset
from odradek.metadata.image import Image, Provenance
from odradek.metadata.loader import Loader
from odradek.metadata.raft.snapshot import BadSnapshot, read_snapshot, snapshot_id_of
from odradek.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from odradek.metadata.serde import decode_batch
from odradek.protocol.codec import Message
from odradek.protocol.errors import KafkaError
from odradek.storage.directories import METADATA_TOPIC
from odradek.storage.file_names import LOG_SUFFIX, offset_name

_TELLING = (
    TopicRecord,
    RemoveTopicRecord,
    ConfigRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    AbortTransactionRecord,
)


def image_of(data_directory: str) -> Image | None:
    """Topics and what is configured, up to the end of the metadata log; None if the directory has none."""
    directory = os.path.join(data_directory, f"{METADATA_TOPIC}-0")
    if not os.path.isdir(directory):
        return None
    next_offset, records = _newest_snapshot(directory)
    for base in base_offsets(directory):
        try:
            for _, header, batch in read_batches(os.path.join(directory, f"{offset_name(base)}{LOG_SUFFIX}")):
                if header.base_offset >= next_offset:
                    next_offset = header.last_offset + 1
                    records += [] if header.is_control else decode_batch(memoryview(batch))
        except KafkaError:
            break  # Of its last batch, half is written.
    loader = Loader()
    telling = [record for record in records if isinstance(record, _TELLING)]
    loader.replay(telling, Provenance(Offset(next_offset - 1), LeaderEpoch(0), 0))
    return loader.image


def _newest_snapshot(directory: str) -> tuple[int, list[Message]]:
    """Where the log goes on behind it, and what it holds; a damaged one is passed over, as at a start."""
    for name in reversed(listed(directory)):
        snapshot_id = snapshot_id_of(name)
        if snapshot_id is not None:
            with open(os.path.join(directory, name), "rb") as opened:
                try:
                    return snapshot_id.end_offset, list(read_snapshot(opened.read()).records)
                except BadSnapshot:
                    continue
    return 0, []
