"""What the files and directories of a log are called."""

from __future__ import annotations

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
TEMPORARY_SUFFIX = ".tmp"

SEGMENT_SUFFIXES = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

_OFFSET_DIGITS = 20


def offset_name(offset: int) -> str:
    """Twenty digits, so that names sort as offsets do."""
    return f"{offset:020d}"


def snapshot_path(directory: str, offset: int) -> str:
    """The producers' state as of this offset."""
    return f"{directory}/{offset_name(offset)}{SNAPSHOT_SUFFIX}"


def offset_of(name: str, suffix: str) -> int | None:
    """The offset in a file's name, or None if it is no name of that kind."""
    digits = name.removesuffix(suffix)
    if digits == name or len(digits) != _OFFSET_DIGITS or not digits.isdecimal() or not digits.isascii():
        return None
    return int(digits)
