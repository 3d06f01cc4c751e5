"""Segments that grow have room reserved ahead of them, and keep none when they are done."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.unit.storage.worlds import append, open_log, read_all, values

from odradek.adapters.disk import RealDisk
from odradek.storage.config import LogConfig
from odradek.storage.log import Log
from odradek.storage.segment import MOST_RESERVED_BYTES, RESERVED_FROM_BYTES

RECORD = b"x" * 256 * 1024
ROUNDING_BYTES = 64 * 1024
"""Blocks that are not full, and those of the file system's own for so large a file."""


@pytest.fixture
def disk(tmp_path: Path) -> RealDisk:
    disk = RealDisk()
    file = disk.open(f"{tmp_path}/probe", create=True)
    if not file.reserve(0, RESERVED_FROM_BYTES):
        pytest.skip("this file system reserves nothing")
    return disk


def a_log(disk: RealDisk, directory: Path, config: LogConfig | None = None, *, clean: bool = False) -> Log:
    return open_log(disk, config, directory=f"{directory}/t-0", clean=clean)


def first_file(directory: Path) -> os.stat_result:
    return os.stat(f"{directory}/t-0/00000000000000000000.log")


def reserved_bytes(directory: Path) -> int:
    """What the first segment takes on the device beyond its size."""
    found = first_file(directory)
    return found.st_blocks * 512 - found.st_size


def test_no_more_than_there_is_already_and_the_size_tells_the_truth(disk: RealDisk, tmp_path: Path) -> None:
    log = a_log(disk, tmp_path)
    seen = []
    for _ in range(40):
        append(log, RECORD)
        size = log.segments[0].size
        assert first_file(tmp_path).st_size == size
        seen.append(reserved_bytes(tmp_path))
        if size < RESERVED_FROM_BYTES:
            assert seen[-1] <= ROUNDING_BYTES
        assert seen[-1] <= min(size, MOST_RESERVED_BYTES) + ROUNDING_BYTES
    assert max(seen) > MOST_RESERVED_BYTES - 2 * len(RECORD)
    assert values(read_all(log)) == [RECORD] * 40


def test_a_sealed_segment_keeps_none(disk: RealDisk, tmp_path: Path) -> None:
    log = a_log(disk, tmp_path, LogConfig(segment_bytes=3 * 1024 * 1024))
    while len(log.segments) == 1:
        before = reserved_bytes(tmp_path)
        append(log, RECORD)
    assert before > ROUNDING_BYTES
    assert reserved_bytes(tmp_path) <= ROUNDING_BYTES


def test_a_log_that_was_closed_keeps_none(disk: RealDisk, tmp_path: Path) -> None:
    log = a_log(disk, tmp_path)
    for _ in range(10):
        append(log, RECORD)
    assert reserved_bytes(tmp_path) > ROUNDING_BYTES
    log.close()
    assert reserved_bytes(tmp_path) <= ROUNDING_BYTES
    assert values(read_all(a_log(disk, tmp_path, clean=True))) == [RECORD] * 10


def test_what_a_killed_process_had_reserved_is_given_back_at_the_next_start(disk: RealDisk, tmp_path: Path) -> None:
    log = a_log(disk, tmp_path)
    for _ in range(10):
        append(log, RECORD)
    assert reserved_bytes(tmp_path) > ROUNDING_BYTES
    again = a_log(RealDisk(), tmp_path)
    assert reserved_bytes(tmp_path) <= ROUNDING_BYTES
    append(again, RECORD)
    assert reserved_bytes(tmp_path) > ROUNDING_BYTES
    assert values(read_all(again)) == [RECORD] * 11


def test_a_log_that_is_cut_reserves_again_when_it_grows(disk: RealDisk, tmp_path: Path) -> None:
    log = a_log(disk, tmp_path)
    for _ in range(10):
        append(log, RECORD)
    log.truncate_to(6)
    assert reserved_bytes(tmp_path) <= ROUNDING_BYTES
    append(log, RECORD)
    assert reserved_bytes(tmp_path) > ROUNDING_BYTES
    assert values(read_all(log)) == [RECORD] * 7
