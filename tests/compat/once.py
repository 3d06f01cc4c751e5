"""Work that one of several test processes does, and the others wait for."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def alone_in(directory: Path) -> Iterator[None]:
    """Made if it is not there; no other process is in the same block of the same directory meanwhile."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def made_once(directory: Path, make: Callable[[], None]) -> None:
    """Call `make` unless it was done for this directory before, by whichever process."""
    done = directory / "done"
    if done.exists():
        return
    with alone_in(directory):
        if not done.exists():
            make()
            done.touch()
