"""Segments that grow have room reserved ahead of them, and keep none when they are done."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.unit.storage.worlds import NOW_MS, TOPIC_ID, append, open_log, read_all, values

from odradek.adapters.disk import RealDisk
from odradek.adapters.entropy import SystemEntropy
from odradek.ids import Uuid
from odradek.storage.config import LogConfig
from odradek.storage.directories import LogDirectory
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


def test_a_directory_without_room_gives_all_of_it_back(disk: RealDisk, tmp_path: Path) -> None:
    directory = LogDirectory(disk, str(tmp_path), Uuid(bytes(16)), SystemEntropy())
    log = directory.open_log("t", 0, topic_id=TOPIC_ID, config=LogConfig(), now_ms=NOW_MS)
    for _ in range(10):
        append(log, RECORD)
    assert reserved_bytes(tmp_path) > ROUNDING_BYTES
    directory.give_back_room()
    assert reserved_bytes(tmp_path) <= ROUNDING_BYTES
    append(log, RECORD)
    assert values(read_all(log)) == [RECORD] * 11


def test_a_file_system_that_is_nearly_full_reserves_nothing(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.open(f"{tmp_path}/other", create=True)
    for left, reserves in ((99, False), (100, True)):
        monkeypatch.setattr(os, "fstatvfs", lambda _, left=left: SimpleNamespace(f_bavail=left, f_blocks=1000))
        assert file.reserve(0, RESERVED_FROM_BYTES) is reserves


def test_a_log_that_is_cut_reserves_again_when_it_grows(disk: RealDisk, tmp_path: Path) -> None:
    log = a_log(disk, tmp_path)
    for _ in range(10):
        append(log, RECORD)
    log.truncate_to(6)
    assert reserved_bytes(tmp_path) <= ROUNDING_BYTES
    append(log, RECORD)
    assert reserved_bytes(tmp_path) > ROUNDING_BYTES
    assert values(read_all(log)) == [RECORD] * 7
