"""Holding processes to a share of a core, where the kernel lets us: control groups of version 1, as root."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

PERIOD_US = 100_000
ROOT = Path("/sys/fs/cgroup/cpu")


@contextmanager
def held_to(share: float, pids: Sequence[int]) -> Iterator[bool]:
    """Each process on at most that share of a core; False where it cannot be done, and nothing is held."""
    groups: list[Path] = []
    try:
        with suppress(OSError):
            for pid in pids:
                groups.append(_group(pid, share))
        yield len(groups) == len(pids)
    finally:
        for group, pid in zip(groups, pids, strict=False):
            with suppress(OSError):
                (ROOT / "cgroup.procs").write_text(str(pid))
                group.rmdir()


def _group(pid: int, share: float) -> Path:
    group = ROOT / f"odradek-bench-{os.getpid()}-{pid}"
    group.mkdir()
    (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
    (group / "cpu.cfs_quota_us").write_text(str(int(PERIOD_US * share)))
    (group / "cgroup.procs").write_text(str(pid))
    return group
