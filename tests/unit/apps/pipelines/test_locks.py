"""Who may run on a checkpoint, also while something is left of a run that was killed."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from odradek.apps.pipelines import locks

DRIVER = """
import subprocess, sys
from pathlib import Path
from odradek.apps.pipelines import locks
lock = locks.take(Path(sys.argv[1]))
jvm = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[lock])
print(jvm.pid, flush=True)
sys.stdin.read()
"""


def test_one_has_it_until_it_is_released(tmp_path: Path) -> None:
    lock = locks.take(tmp_path / "lock")
    assert lock is not None
    assert locks.take(tmp_path / "lock") is None
    kept = os.dup(lock)  # As by a JVM that stays for the next run.
    locks.release(lock)
    again = locks.take(tmp_path / "lock")
    assert again is not None
    locks.release(again)
    os.close(kept)


def test_what_is_left_of_one_that_was_killed_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout is not None
        jvm = int(driver.stdout.readline())
        assert locks.take(file) is None, "it runs"
        os.kill(jvm, signal.SIGSTOP)
        driver.kill()
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            os.kill(jvm, signal.SIGCONT)

    monkeypatch.setattr(time, "sleep", sleep)
    lock = locks.take(file)
    assert lock is not None
    assert len(looks) >= 3
    locks.release(lock)


def test_a_file_that_was_deleted_meanwhile_is_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`reset` deletes the whole checkpoint: who had opened the file before would have one that nobody else sees."""
    file = tmp_path / "lock"
    real = fcntl.flock
    deleted: list[Path] = []

    def flock(lock: int, how: int) -> None:
        real(lock, how)
        if not deleted:
            deleted.append(file)
            file.unlink()

    monkeypatch.setattr(fcntl, "flock", flock)
    lock = locks.take(file)
    assert deleted
    assert lock is not None
    assert os.path.samestat(os.fstat(lock), file.stat())
    locks.release(lock)
