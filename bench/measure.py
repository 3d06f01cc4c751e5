"""What a process costs, as the kernel counts it."""

from __future__ import annotations

import platform
import re
import statistics
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from odradek.protocol.records.native import in_use


def cpu_seconds(pid: int) -> float:
    """CPU time of the whole process, ended threads too, to the nanosecond (the clock behind clock_getcpuclockid)."""
    return time.clock_gettime((~pid << 3) | 2)


def memory_mib(pid: int) -> tuple[float, float]:
    """Resident and proportional set size."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return _kib(rollup, "Rss") / 1024, _kib(rollup, "Pss") / 1024


def have_memory_at_hand(directory: Path, megabytes: float) -> None:
    """Let this process take memory for so much in the page cache, and free it for whoever writes next.

    A virtual machine may have given free memory back to its host within seconds, and to take it again costs ten times
    what it costs to fill a page that was used a moment ago; the kernel counts that as time of the process that writes.
    """
    ballast = directory / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file:
            for _ in range(int(megabytes)):
                file.write(bytes(1_000_000))
    finally:
        ballast.unlink()


def median(values: Sequence[float]) -> float:
    """The middle of the repetitions."""
    return statistics.median(values)


def machine() -> str:
    """One line about where the numbers come from."""
    cpuinfo = Path("/proc/cpuinfo").read_text()
    models = re.findall(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    memory = int(_kib(Path("/proc/meminfo").read_text(), "MemTotal") / 1024 / 1024)
    return (
        f"{len(models)} cores of {models[0] if models else 'unknown'}, {memory} GiB, Linux {platform.release()}, "
        f"{platform.python_implementation()} {platform.python_version()}, {_loop()}, {in_use()}; both brokers look at "
        "every record that is produced"
    )


def today() -> str:
    """The date and time of the run, UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _loop() -> str:
    """Which event loop a node of this environment runs on."""
    try:
        return f"uvloop {version('uvloop')}"
    except PackageNotFoundError:
        return "asyncio's own loop"


def _kib(text: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    assert found is not None
    return int(found.group(1))
