"""A file that one run locks, and with it Spark's JVM, which may outlive the process that started it by some seconds."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

ORPHAN_S = 60.0
"""How long the JVM of a run that was killed may take to notice that, and to end."""

LOOK_S = 0.05


def take(file: Path) -> int | None:
    """The file, open and locked; None if somebody has it. Whoever was killed does not count: what still holds it then
    is waited for."""
    deadline = time.monotonic() + ORPHAN_S
    while True:
        lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        locked = _is_locked(lock)
        if locked and _is_still(lock, file):
            os.ftruncate(lock, 0)
            os.pwrite(lock, str(os.getpid()).encode(), 0)
            return lock
        orphaned = locked or _is_orphaned(lock)
        os.close(lock)
        if not orphaned or time.monotonic() > deadline:
            return None
        time.sleep(LOOK_S)


def release(lock: int) -> None:
    """Not only close it: a JVM that is there for another run has it open, too."""
    fcntl.flock(lock, fcntl.LOCK_UN)
    os.close(lock)


def _is_locked(lock: int) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _is_still(lock: int, file: Path) -> bool:
    """Whether the name is that of the file that was opened: it may have been deleted meanwhile, and made anew."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(lock), os.stat(file))
    return False


def _is_orphaned(lock: int) -> bool:
    """Whether the process that took it has gone."""
    holder = os.pread(lock, 20, 0)
    if not holder.isdigit():
        return False
    try:
        os.kill(int(holder), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
