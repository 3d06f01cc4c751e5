"""Log files read without a broker and without a care who writes them: nothing is changed, nothing is recovered."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

from odradek.apps.terminal.sentence import Sentence
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records.batch import HEADER_SIZE, LENGTH_OVERHEAD, BatchHeader, read_header
from odradek.storage.file_names import LOG_SUFFIX, offset_of


def read_batches(path: str) -> Iterator[tuple[int, BatchHeader, bytes]]:
    """Position, header and bytes of every whole batch; CORRUPT_MESSAGE where the file goes on with something else."""
    try:
        with open(path, "rb") as opened:
            size = os.fstat(opened.fileno()).st_size
            position = 0
            while position < size:
                head = opened.read(HEADER_SIZE)
                if len(head) < HEADER_SIZE:
                    raise _corrupt(f"{size - position} bytes at position {position} are too few for a batch")
                header = read_header(head)
                if header.batch_length < HEADER_SIZE - LENGTH_OVERHEAD:
                    raise _corrupt(f"the length {header.batch_length} at position {position} is not a batch's")
                if position + header.size > size:
                    there = size - position
                    raise _corrupt(f"of the {header.size} bytes of the batch at position {position}, {there} are there")
                yield position, header, head + opened.read(header.size - HEADER_SIZE)
                position += header.size
    except OSError as wrong:
        raise cannot_read(path, wrong) from wrong


def read_entries(path: str, entry: struct.Struct) -> tuple[list[tuple[int, ...]], int]:
    """The entries of an index file, and how many bytes at its end are none.

    A running Apache Kafka keeps zeros behind the entries of active segments, which are left out.
    """
    try:
        with open(path, "rb") as opened:
            content = opened.read()
    except OSError as wrong:
        raise cannot_read(path, wrong) from wrong
    torn = len(content) % entry.size
    used = len(content[: len(content) - torn].rstrip(b"\0"))
    whole = -(-used // entry.size) * entry.size
    return list(entry.iter_unpack(content[:whole])), torn


def listed(directory: str) -> list[str]:
    """Names in a directory, sorted."""
    try:
        return sorted(os.listdir(directory))
    except OSError as wrong:
        raise cannot_read(directory, wrong) from wrong


def base_offsets(directory: str) -> list[int]:
    """The segments of a partition's directory by their base offsets; none if it is no such directory."""
    found = [offset_of(name, LOG_SUFFIX) for name in listed(directory)]
    return sorted(offset for offset in found if offset is not None)


def partition_directories(directory: str) -> list[str]:
    """The directory itself if it holds segments, else those below it that do, or a Sentence if none does."""
    if base_offsets(directory):
        return [directory]
    below = [os.path.join(directory, name) for name in listed(directory)]
    found = [path for path in below if os.path.isdir(path) and base_offsets(path)]
    if not found:
        raise Sentence(f"there are no segments in {directory}: name a partition's directory, or a data directory.")
    return found


def size_of(path: str) -> int:
    """Bytes in a file; 0 if it is not there."""
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return 0
    except OSError as wrong:
        raise cannot_read(path, wrong) from wrong


def cannot_read(path: str, wrong: OSError) -> Sentence:
    return Sentence(f"cannot read {path}: {(wrong.strerror or str(wrong)).lower()}.")


def _corrupt(why: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, why)
