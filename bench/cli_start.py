"""How long `odradek` takes from Enter to the end, and how much CPU: help, and the simplest question to a node.

Run it on a quiet machine: `python -m bench.cli_start`. It prints medians of several runs with bytecode at hand, as
after an installation, beside the bare interpreter, and fails above the limit.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from odradek.testing import running_node

LIMIT_MS = 150
RUNS = 21


def main() -> None:
    with tempfile.TemporaryDirectory() as bytecode, running_node(in_process=False) as node:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode, "ODRADEK_BOOTSTRAP": node.bootstrap_servers}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        commands = {
            "bare interpreter": ["-c", "pass"],
            "odradek --help": ["-m", "odradek", "--help"],
            "odradek topic list --help": ["-m", "odradek", "topic", "list", "--help"],
            "odradek topic list": ["-m", "odradek", "topic", "list"],
            "odradek group list": ["-m", "odradek", "group", "list"],
        }
        slowest = 0.0
        for name, arguments in commands.items():
            measure(arguments, environment)
            runs = [measure(arguments, environment) for _ in range(RUNS)]
            wall_ms, cpu_ms = (statistics.median(times) for times in zip(*runs, strict=True))
            slowest = max(slowest, wall_ms)
            print(f"{name:28} {wall_ms:6.0f} ms  {cpu_ms:6.0f} ms of CPU")
    print(f"limit {LIMIT_MS} ms")
    raise SystemExit(0 if slowest <= LIMIT_MS else 1)


def measure(arguments: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Wall and CPU milliseconds of a fresh interpreter."""
    before, began = _children_cpu(), time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=environment)
    return (time.perf_counter() - began) * 1000, (_children_cpu() - before) * 1000


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
