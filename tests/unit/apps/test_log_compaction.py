"""`odradek log compaction` on a small log: what it says is what a cleaning then does, and nothing is changed by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.storage.compaction.worlds import COMPACTED, clean, put, settle
from tests.unit.storage.worlds import NOW_MS, open_log

from odradek.adapters.clock import SystemClock
from odradek.adapters.disk import RealDisk
from odradek.apps.cli.main import main
from odradek.storage.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    write_offsets,
)
from odradek.storage.log import Log
from odradek.values import replace

CONFIG = replace(COMPACTED, cleanup_policy=("delete",), segment_bytes=1 << 20, delete_retention_ms=0)
"""Not compacted while it is written, or it would refuse records without a key."""
SETTINGS = ("--config", "delete.retention.ms=0")


@pytest.fixture
def disk() -> RealDisk:
    return RealDisk(durable=False)


@pytest.fixture
def log(disk: RealDisk, tmp_path: Path) -> Log:
    """Two keys, one of them deleted again, and a record without a key, in two sealed segments; one more is active."""
    log = open_log(disk, CONFIG, directory=str(tmp_path / "t-0"))
    put(log, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (None, b"none"))
    log.roll(NOW_MS)
    put(log, (b"a", b"2"), (b"b", None))
    put(log, (b"a", b"3"))
    log.roll(NOW_MS)
    put(log, (b"a", b"4"), (b"d", b"1"))
    settle(log)
    log.close()
    return log


def told(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> list[dict[str, Any]]:
    assert main(["log", "compaction", *map(str, words), *SETTINGS, "--format", "json"]) == code
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def files(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.rglob("*") if path.is_file()}


def test_what_would_stay_and_go(capsys: pytest.CaptureFixture[str], log: Log, disk: RealDisk, tmp_path: Path) -> None:
    before = files(tmp_path)
    (data,) = told(capsys, tmp_path / "t-0")
    assert files(tmp_path) == before
    sizes = [segment.size for segment in log.segments]
    would = data.pop("round")
    assert data == {
        "directory": str(tmp_path / "t-0"),
        "topic": "t",
        "partition": 0,
        "cleanup_policy": ["compact"],
        "size_bytes": sum(sizes),
        "log_start_offset": 0,
        "log_end_offset": 9,
        "clean_bytes": 0,
        "dirty_bytes": sum(sizes[:2]),
        "dirty_ratio": 1.0,
        "min_cleanable_dirty_ratio": 0.5,
        "first_dirty_offset": 0,
        "first_uncleanable_offset": 7,
        "overdue_ms": 0,
        "due": True,
        "problem": None,
    }
    again = open_log(disk, replace(CONFIG, cleanup_policy=("compact",)), directory=str(tmp_path / "t-0"))
    again.flushed(9)
    again.advance_high_watermark(9)
    done = clean(again, disk, now_ms=SystemClock().now_ms())  # The delete horizon is of as many bytes.
    assert would == {
        "end_offset": 7,
        "bytes_before": sum(sizes[:2]),
        "bytes_after": done.bytes_written,
        "keys_before": 3,
        "keys_after": 3,
        "records_before": 7,
        "records_after": 3,
        "tombstones_before": 1,
        "tombstones_after": 1,
        "keyless": 1,
    }
    assert (done.records_read, done.records_kept, done.keyless) == (7, 3, 1)


def test_a_tombstone_whose_time_has_come(
    capsys: pytest.CaptureFixture[str], log: Log, disk: RealDisk, tmp_path: Path
) -> None:
    again = open_log(disk, replace(CONFIG, cleanup_policy=("compact",)), directory=str(tmp_path / "t-0"))
    again.flushed(9)
    again.advance_high_watermark(9)
    clean(again, disk)
    put(again, (b"c", b"2"))
    again.roll(NOW_MS)
    settle(again)
    write_offsets(disk, f"{tmp_path}/{CLEANER_OFFSET_CHECKPOINT}", {("t", 0): again.cleaned_offset})
    again.close()
    (data,) = told(capsys, tmp_path)
    assert (data["first_dirty_offset"], data["first_uncleanable_offset"]) == (7, 10)
    assert data["clean_bytes"]
    assert data["dirty_ratio"] == round(data["dirty_bytes"] / (data["clean_bytes"] + data["dirty_bytes"]), 4)
    would = data["round"]
    assert (would["records_before"], would["records_after"]) == (6, 3)
    assert (would["tombstones_before"], would["tombstones_after"]) == (1, 0)
    assert (would["keys_before"], would["keys_after"]) == (4, 3)


def test_checkpoints_say_how_far(capsys: pytest.CaptureFixture[str], log: Log, disk: RealDisk, tmp_path: Path) -> None:
    write_offsets(disk, f"{tmp_path}/{RECOVERY_POINT_CHECKPOINT}", {("t", 0): 9})
    write_offsets(disk, f"{tmp_path}/{HIGH_WATERMARK_CHECKPOINT}", {("t", 0): 5})
    (data,) = told(capsys, tmp_path)
    assert data["first_uncleanable_offset"] == 4
    assert (data["round"]["records_before"], data["round"]["records_after"]) == (4, 3)
    write_offsets(disk, f"{tmp_path}/{CLEANER_OFFSET_CHECKPOINT}", {("t", 0): 4})
    (data,) = told(capsys, tmp_path)
    assert (data["dirty_bytes"], data["due"], data["round"]) == (0, False, None)


def test_what_is_torn_is_not_mended(capsys: pytest.CaptureFixture[str], log: Log, tmp_path: Path) -> None:
    active = tmp_path / "t-0" / f"{7:020}.log"
    active.write_bytes(active.read_bytes()[:-3])
    for index in (tmp_path / "t-0").glob("*index"):
        index.unlink()
    before = files(tmp_path)
    (data,) = told(capsys, tmp_path)
    assert files(tmp_path) == before
    assert (data["log_end_offset"], data["round"]["records_after"]) == (7, 3)


def test_what_cannot_be_cleaned_is_told(
    capsys: pytest.CaptureFixture[str], log: Log, disk: RealDisk, tmp_path: Path
) -> None:
    write_offsets(disk, f"{tmp_path}/{RECOVERY_POINT_CHECKPOINT}", {("t", 0): 9})
    sealed = tmp_path / "t-0" / f"{0:020}.log"
    sealed.write_bytes(sealed.read_bytes()[:-1] + b"?")
    (data,) = told(capsys, tmp_path, code=1)
    assert "checksum" in data["problem"]
    assert data["round"] is None


def test_for_people(capsys: pytest.CaptureFixture[str], log: Log, tmp_path: Path) -> None:
    assert main(["log", "compaction", str(tmp_path), *SETTINGS]) == 0
    shown = capsys.readouterr()
    headings, row = shown.out.splitlines()
    assert headings.split()[:4] == ["PARTITION", "SIZE", "CLEAN", "DIRTY"]
    assert row.split()[0] == "t-0"
    assert row.split()[-9:] == ["1", "7", "3", "7", "3", "4", "1", "1", "yes"]
    assert "all count as compacted" in shown.err
    assert main(["log", "compaction", str(tmp_path / "t-0"), "--config", "cleanup.policy=delete"]) == 1
    assert "--config cleanup.policy=compact" in capsys.readouterr().err
    assert main(["log", "compaction", str(tmp_path / "t-0"), "--config", "cleanup.policy=x"]) == 2
