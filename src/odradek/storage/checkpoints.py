"""Small text files that are replaced as a whole: offset checkpoints, leader epochs and `partition.metadata`.

A file is written under another name and renamed, so a crash leaves the old content or the new. A file that cannot be
read is told in one log line and treated as absent: everything in a checkpoint can be found again from the logs, at the
price of time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from odradek.ids import Uuid, parse_uuid, uuid_text
from odradek.ports import Disk
from odradek.storage.file_names import TEMPORARY_SUFFIX

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"

_VERSION = "0"

EntryT = TypeVar("EntryT")
logger = logging.getLogger(__name__)

TopicPartition = tuple[str, int]


def replace_file(disk: Disk, path: str, data: bytes, *, durable: bool, via: str = TEMPORARY_SUFFIX) -> None:
    """Put new content in place of the old, at once.

    `durable` waits for the device (start, stop and workers only); otherwise a power loss may bring back the old
    content.
    """
    temporary = path + via
    disk.write_file(temporary, data)
    if durable:
        sync_file(disk, temporary)
    disk.rename(temporary, path)
    if durable:
        disk.sync_directory(path.rpartition("/")[0])


def sync_file(disk: Disk, path: str) -> None:
    """Block until the content of a file is on the device."""
    file = disk.open(path)
    try:
        file.sync()
    finally:
        file.close()


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int], *, durable: bool = False) -> None:
    """An offset checkpoint: one line `topic partition offset` an entry."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    replace_file(disk, path, checkpoint_bytes(lines), durable=durable)


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """What `write_offsets` wrote; empty if the file is absent or unreadable."""
    return dict(read_checkpoint(disk, path, _offset_entry))


def write_partition_metadata(disk: Disk, path: str, topic_id: Uuid) -> None:
    """`partition.metadata`, which ties a directory to its topic's id."""
    replace_file(disk, path, f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode(), durable=False)


def read_partition_metadata(disk: Disk, path: str) -> Uuid | None:
    """The topic's id; None if the file is absent or unreadable."""
    try:
        lines = disk.read_file(path).decode().split("\n")
        if lines[0] != "version: 0" or not lines[1].startswith("topic_id: "):
            raise ValueError(f"unexpected lines {lines[:2]}")
        return parse_uuid(lines[1].removeprefix("topic_id: ").strip())
    except FileNotFoundError:
        return None
    except (ValueError, IndexError) as wrong:
        logger.warning("Ignoring unreadable %s: %s", path, wrong)
        return None


def checkpoint_bytes(lines: Iterable[str]) -> bytes:
    """Version, count, entries: the layout that all of Kafka's checkpoints share."""
    entries = list(lines)
    return "".join(f"{line}\n" for line in (_VERSION, str(len(entries)), *entries)).encode()


def read_checkpoint(disk: Disk, path: str, parse: Callable[[list[str]], EntryT]) -> list[EntryT]:
    """The entries; none if the file is absent, empty (as Kafka creates it) or unreadable."""
    try:
        data = disk.read_file(path)
    except FileNotFoundError:
        return []
    if not data:
        return []
    try:
        version, count, *entries, rest = data.decode().split("\n")
        if rest:
            raise ValueError("the last line is torn")
        if version != _VERSION:
            raise ValueError(f"unknown version {version!r}")
        if int(count) != len(entries):
            raise ValueError(f"{count} entries declared, {len(entries)} found")
        return [parse(entry.split()) for entry in entries]
    except ValueError as wrong:
        logger.warning("Ignoring unreadable checkpoint %s: %s", path, wrong)
        return []


def _offset_entry(words: list[str]) -> tuple[TopicPartition, int]:
    topic, partition, offset = words
    return (topic, int(partition)), int(offset)
