"""A disk on which everything can be done, and nothing happens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.adapters.untouched_disk import UntouchedDisk

LARGE = bytes(range(256)) * 8192
"""Too much for memory, and for one copying step."""


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """With two files, which are the same afterwards."""
    contents = {"a": b"first", "b": LARGE}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    yield tmp_path
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == contents


def test_what_is_written_is_there_for_all_handles(directory: Path) -> None:
    disk = UntouchedDisk()
    one, other = disk.open(f"{directory}/b"), disk.open(f"{directory}/b")
    one.write(b"new", 5)
    assert other.read(0, 10) == LARGE[:5] + b"new" + LARGE[8:10]
    assert disk.read_file(f"{directory}/b") == LARGE[:5] + b"new" + LARGE[8:]
    disk.open(f"{directory}/c", create=True).write(LARGE, 2)
    assert disk.read_file(f"{directory}/c") == bytes(2) + LARGE


def test_what_is_cut_ends_there(directory: Path) -> None:
    disk = UntouchedDisk()
    file = disk.open(f"{directory}/a")
    file.truncate(3)
    assert (file.size(), file.read(1, 10), file.read(4, 10)) == (3, b"ir", b"")
    file.write(b"!", 3)
    file.truncate(6)
    assert disk.read_file(f"{directory}/a") == b"fir!\0\0"


def test_names_change(directory: Path) -> None:
    disk = UntouchedDisk()
    handle = disk.open(f"{directory}/a")
    disk.rename(f"{directory}/a", f"{directory}/b")
    assert (disk.list(str(directory)), disk.read_file(f"{directory}/b"), handle.read(0, 9)) == (
        ["b"],
        b"first",
        b"first",
    )
    disk.write_file(f"{directory}/a", b"again")
    disk.unlink(f"{directory}/b")
    assert disk.list(str(directory)) == ["a"]
    assert (disk.exists(f"{directory}/a"), disk.exists(f"{directory}/b")) == (True, False)
    for look in (disk.open, disk.file_size, disk.unlink):
        with pytest.raises(FileNotFoundError):
            look(f"{directory}/b")
    disk.remove_directory(str(directory))
    assert disk.list(str(directory)) == []
