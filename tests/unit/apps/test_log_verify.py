"""`odradek log verify` on logs with spoilt batches in them, from an older release or a broker that believes headers."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from tests.spoilt.batches import TIME_MS, batch, record
from tests.spoilt.record import recorded
from tests.spoilt.unlike_kafka import expected

from odradek.apps.cli.main import main
from odradek.protocol.records.batch import BATCH_HEADER, build_batch, read_header
from odradek.protocol.records.compression import Compression
from odradek.protocol.records.record import Record

UNREADABLE = 87


def verified(capsys: pytest.CaptureFixture[str], directory: Path, batches: list[bytes]) -> tuple[list[str], int]:
    """What is wrong with a log of these batches, and how many records there are."""
    directory.mkdir(exist_ok=True)
    offset = 0
    with (directory / f"{0:020}.log").open("wb") as log:
        for each in batches:
            log.write(struct.pack(">q", offset) + each[8:])
            offset += read_header(each).last_offset_delta + 1
    code = main(["log", "verify", str(directory), "--format", "json"])
    (report,) = json.loads(capsys.readouterr().out)
    assert code == bool(report["problems"])
    return report["problems"], report["records"]


def test_each_batch_that_cannot_be_read_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    sound = batch(record(0) + record(1), 2)
    plain = [each for each in recorded() if each.case.topic == "plain" and not each.case.name.startswith("header")]
    spoilt = [case for case, answers in plain if expected(case, answers[13]).code == UNREADABLE]
    spoilt = [case for case in spoilt if 0 < read_header(case.batch).records_count < 20_000]
    assert len(spoilt) > 150
    readable = 0
    for number, case in enumerate(spoilt):
        problems, records = verified(capsys, tmp_path / f"t-{number}", [sound, case.batch, sound])
        if not problems:
            # What some clients cannot read, and this one can.
            assert "stream" in case.name, case.name
            readable += 1
            continue
        assert len(problems) == 1
        assert f"position {len(sound)} (offset 2) cannot be read: " in problems[0], case.name
        assert records == 4
    assert readable < 8


@pytest.mark.parametrize("codec", list(Compression))
def test_what_compaction_has_left_is_sound(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, codec: Compression
) -> None:
    whole = build_batch([Record(b"k", b"v")] * 3, timestamp=TIME_MS, compression=codec)
    assert verified(capsys, tmp_path / "whole-0", [bytes(whole)]) == ([], 3)
    left = batch(record(1) + record(4), 2, last_delta=6)
    assert verified(capsys, tmp_path / "left-0", [left]) == ([], 2)
    emptied = batch(b"", 0, last_delta=6)
    assert BATCH_HEADER.size == len(emptied)
    assert verified(capsys, tmp_path / "emptied-0", [emptied, bytes(whole)]) == ([], 3)
    disordered = batch(record(4) + record(1), 2, last_delta=6)
    problems, _ = verified(capsys, tmp_path / "disordered-0", [disordered])
    assert "out of order" in problems[0]
