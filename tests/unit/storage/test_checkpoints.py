"""The small text files: golden bytes, damage, and crashes while they are replaced."""

from __future__ import annotations

import logging

import pytest
from tests.unit.storage.worlds import Machine

from odradek.ids import METADATA_TOPIC_ID
from odradek.sim.loop import Crashed
from odradek.storage.checkpoints import (
    read_offsets,
    read_partition_metadata,
    replace_file,
    write_offsets,
    write_partition_metadata,
)

PATH = "/data/recovery-point-offset-checkpoint"


def test_offset_checkpoints() -> None:
    disk = Machine().disk
    assert read_offsets(disk, PATH) == {}
    offsets = {("b-topic", 10): 7, ("a", 0): 1 << 40}
    write_offsets(disk, PATH, offsets)
    assert disk.read_file(PATH) == b"0\n2\na 0 1099511627776\nb-topic 10 7\n"
    assert read_offsets(disk, PATH) == offsets


@pytest.mark.parametrize(
    "content",
    [b"1\n0\n", b"0\nx\n", b"0\n1\n", b"0\n1\na 0\n", b"0\n1\na b 1\n", b"0\n1\na 0 1 1\n", b"0\n1\na 0 1", b"\xff"],
)
def test_an_unreadable_checkpoint_is_told_and_ignored(content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    disk = Machine().disk
    disk.write_file(PATH, content)
    with caplog.at_level(logging.WARNING):
        assert read_offsets(disk, PATH) == {}
    assert len(caplog.messages) == 1
    assert PATH in caplog.text


def test_partition_metadata(caplog: pytest.LogCaptureFixture) -> None:
    disk = Machine().disk
    path = "/data/partition.metadata"
    assert read_partition_metadata(disk, path) is None
    write_partition_metadata(disk, path, METADATA_TOPIC_ID)
    assert disk.read_file(path) == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    assert read_partition_metadata(disk, path) == METADATA_TOPIC_ID
    for content in (b"", b"version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ", b"version: 0\ntopic_id: !", b"\xff"):
        disk.write_file(path, content)
        assert read_partition_metadata(disk, path) is None
    assert len(caplog.messages) == 4


@pytest.mark.parametrize("keep", ["process", "power"])
@pytest.mark.parametrize("seed", range(5))
def test_a_crash_leaves_the_old_content_or_the_new(keep: str, seed: int) -> None:
    for point in range(4):
        machine = Machine(seed)
        replace_file(machine.disk, PATH, b"old", durable=True)
        left = point

        def strike(path: str, length: int) -> int | None:
            nonlocal left
            left -= 1
            return 1 if left < 0 else None

        machine.device.on_change = strike
        try:
            replace_file(machine.disk, PATH, b"new content", durable=True)
            done = True
        except Crashed:
            done = False
        machine.crash("power" if keep == "power" else "process")
        assert machine.disk.read_file(PATH) in ([b"new content"] if done else [b"old", b"new content"])
