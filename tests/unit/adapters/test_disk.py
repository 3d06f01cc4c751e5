"""The real disk: bytes stay right while descriptors come, go, move and are taken away."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from odradek.adapters import disk as disk_module
from odradek.adapters.disk import RealDisk, RealFile
from odradek.ports import AlreadyLocked, FileSlice


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return str(tmp_path)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_file_is_written_and_read_at_positions(directory: str) -> None:
    file = RealDisk().open(f"{directory}/a", create=True)
    file.write(b"hello world", 0)
    file.write(memoryview(b"J"), 0)
    file.write(bytearray(b"!"), 11)
    assert file.read(0, 100) == b"Jello world!"
    assert file.read(6, 5) == b"world"
    assert file.read(100, 5) == b""
    assert file.size() == 12
    file.truncate(5)
    file.sync()
    assert Path(directory, "a").read_bytes() == b"Jello"


def test_a_missing_file_is_not_made_by_accident(directory: str) -> None:
    with pytest.raises(FileNotFoundError):
        RealDisk().open(f"{directory}/none")


def test_short_writes_and_reads_are_gone_on_with(directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite, pread = os.pwrite, os.pread
    monkeypatch.setattr(disk_module.os, "pwrite", lambda fd, data, at: pwrite(fd, bytes(data)[:3], at))
    monkeypatch.setattr(disk_module.os, "pread", lambda fd, length, at: pread(fd, min(length, 4), at))
    file = RealDisk().open(f"{directory}/a", create=True)
    file.write(b"0123456789", 2)
    assert file.read(0, 50) == b"\0\x000123456789"
    assert file.read(4, 6) == b"234567"


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors through /proc")
def test_more_files_than_the_bound(directory: str) -> None:
    disk = RealDisk(max_open_files=8)
    before = open_descriptors()
    files = [disk.open(f"{directory}/{number}", create=True) for number in range(100)]
    for turn in range(3):
        for number, file in enumerate(files):
            file.write(b"%03d" % number, turn * 3)
        assert open_descriptors() - before <= 8
    for number, file in enumerate(files):
        assert file.read(0, 9) == b"%03d" % number * 3
        file.sync()
        assert open_descriptors() - before <= 8
    for file in files:
        file.close()
    assert open_descriptors() == before


def test_a_file_in_steady_use_keeps_its_descriptor(directory: str) -> None:
    disk = RealDisk(max_open_files=4)
    busy = disk.open(f"{directory}/busy", create=True)
    descriptor = busy.descriptor()
    for number in range(50):
        disk.open(f"{directory}/{number}", create=True)
        busy.write(b"x", number)
    assert busy.descriptor() is descriptor


def test_a_descriptor_in_use_survives_being_taken_away(directory: str) -> None:
    disk = RealDisk(max_open_files=1)
    file = disk.open(f"{directory}/a", create=True)
    file.write(b"right", 0)
    held = file.descriptor()
    other = disk.open(f"{directory}/b", create=True)
    other.write(b"wrong", 0)
    third = disk.open(f"{directory}/c", create=True)
    assert os.pread(held, 5, 0) == b"right"
    assert held not in (other.descriptor(), third.descriptor())


def test_threads_read_right_bytes_while_descriptors_are_taken_away(directory: str) -> None:
    disk = RealDisk(max_open_files=2)
    files = [disk.open(f"{directory}/{number}", create=True) for number in range(12)]
    for number, file in enumerate(files):
        file.write(b"%02d" % number * 50, 0)
    wrong: list[object] = []

    def read_all() -> None:
        try:
            for turn in range(300):
                number = turn * 7 % 12
                if files[number].read(0, 100) != b"%02d" % number * 50:
                    wrong.append(number)
                if turn % 20 == 0:
                    files[number].sync()
        except OSError as failed:
            wrong.append(failed)

    threads = [threading.Thread(target=read_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_handles_follow_a_renamed_file(directory: str) -> None:
    disk = RealDisk(max_open_files=1)
    file = disk.open(f"{directory}/a", create=True)
    file.write(b"kept", 0)
    replaced = disk.open(f"{directory}/b", create=True)
    replaced.write(b"old", 0)
    disk.rename(f"{directory}/a", f"{directory}/b")
    disk.open(f"{directory}/other", create=True).write(b"x", 0)
    assert file.path == f"{directory}/b"
    assert file.read(0, 9) == b"kept"
    assert replaced.read(0, 9) == b"old"
    replaced.close()
    disk.unlink(f"{directory}/b")
    disk.open(f"{directory}/yet another", create=True).write(b"x", 0)
    assert file.read(0, 9) == b"kept"


def test_handles_follow_a_renamed_directory(directory: str) -> None:
    disk = RealDisk(max_open_files=1)
    disk.make_directory(f"{directory}/t-0/deep")
    files = [disk.open(f"{directory}/t-0/{name}", create=True) for name in ("a", "b", "deep/c")]
    for file in files:
        file.write(file.path[-1:].encode(), 0)
    disk.rename(f"{directory}/t-0", f"{directory}/t-0.gone-delete")
    assert [file.read(0, 9) for file in files] == [b"a", b"b", b"c"]
    assert files[2].path == f"{directory}/t-0.gone-delete/deep/c"
    disk.make_directory(f"{directory}/t-0")
    again = disk.open(f"{directory}/t-0/a", create=True)
    again.write(b"new", 0)
    assert files[0].read(0, 9) == b"a"
    assert again.read(0, 9) == b"new"


def test_an_unlinked_file_stays_readable_until_closed(directory: str) -> None:
    disk = RealDisk(max_open_files=1)
    file = disk.open(f"{directory}/a", create=True)
    file.write(b"still here", 0)
    slice_ = FileSlice(file, 6, 4)
    disk.open(f"{directory}/b", create=True).write(b"b", 0)  # takes the descriptor of a away
    disk.unlink(f"{directory}/a")
    for number in range(5):
        disk.open(f"{directory}/{number}", create=True).write(b"n", 0)
    assert slice_.read() == b"here"
    file.close()
    with pytest.raises(OSError, match="closed") as refused:
        slice_.read()
    assert refused.value.errno == errno.EBADF


def test_two_handles_of_one_unlinked_file_stay_readable(directory: str) -> None:
    disk = RealDisk(max_open_files=1)
    files = [disk.open(f"{directory}/a", create=True) for _ in range(3)]
    files[0].write(b"shared", 0)
    disk.unlink(f"{directory}/a")
    assert [file.read(0, 9) for file in files] == [b"shared"] * 3
    for file in files:
        file.close()


def test_a_removed_directory_leaves_handles_readable(directory: str) -> None:
    disk = RealDisk(max_open_files=1)
    disk.make_directory(f"{directory}/t-0/deep")
    files = [disk.open(f"{directory}/t-0/{name}", create=True) for name in ("a", "deep/b")]
    for file in files:
        file.write(b"data", 0)
    disk.remove_directory(f"{directory}/t-0")
    disk.remove_directory(f"{directory}/t-0")
    assert not disk.exists(f"{directory}/t-0")
    assert [file.read(0, 9) for file in files] == [b"data", b"data"]


def test_whole_files_and_directories(directory: str) -> None:
    disk = RealDisk()
    disk.make_directory(f"{directory}/x/y")
    disk.make_directory(f"{directory}/x/y")
    disk.write_file(f"{directory}/x/b", b"long content")
    disk.write_file(f"{directory}/x/b", b"short")
    disk.write_file(f"{directory}/x/a", b"")
    disk.sync_directory(f"{directory}/x")
    assert disk.list(f"{directory}/x") == ["a", "b", "y"]
    assert disk.read_file(f"{directory}/x/b") == b"short"
    assert disk.file_size(f"{directory}/x/b") == 5
    with pytest.raises(FileNotFoundError):
        disk.list(f"{directory}/none")
    with pytest.raises(FileNotFoundError):
        disk.unlink(f"{directory}/none")


def test_what_was_just_written_is_resident(directory: str) -> None:
    file = RealDisk().open(f"{directory}/a", create=True)
    file.write(bytes(3 * 4096), 0)
    assert file.resident(0, 3 * 4096)
    assert file.resident(100, 0)


def test_the_lock_excludes_this_process_and_others(directory: str) -> None:
    path = f"{directory}/.lock"
    release = RealDisk().lock(path)
    with pytest.raises(AlreadyLocked):
        RealDisk().lock(path)
    program = (
        "import sys, fcntl, os\n"
        "from odradek.adapters.disk import RealDisk\n"
        "from odradek.ports import AlreadyLocked\n"
        "try:\n    RealDisk().lock(sys.argv[1])\nexcept AlreadyLocked:\n    print('refused')\n"
        "else:\n    print('taken')\n"
        "try:\n    fcntl.lockf(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except OSError:\n    print('refused')\n"  # the kind of lock a JVM takes
        "else:\n    print('taken')\n"
    )

    def elsewhere() -> list[str]:
        command = [sys.executable, "-c", program, path]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split()

    assert elsewhere() == ["refused", "refused"]
    release()
    release()
    assert elsewhere() == ["taken", "taken"]
    RealDisk().lock(path)()


def test_a_handle_shows_its_path(directory: str) -> None:
    file = RealDisk().open(f"{directory}/a", create=True)
    assert isinstance(file, RealFile)
    assert repr(file) == f"RealFile({directory + '/a'!r})"
