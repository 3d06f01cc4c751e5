"""`odradek pipeline` in processes of its own, for tests that kill it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from odradek.apps.pipelines.session import BRIEF_JVM

PATIENCE_S = 480.0


class Driver:
    """An `odradek pipeline` command in a process group of its own, with everything that it starts."""

    def __init__(self, file: Path, data: Path, *more: str, action: str = "run") -> None:
        command = [sys.executable, "-m", "odradek", "pipeline", action, str(file), "--data", str(data), *more]
        for which in ("driver", "executor"):
            command += ["--conf", f"spark.{which}.extraJavaOptions={BRIEF_JVM}"]
        self._output = data / "driver.log"
        self._said_before = self._output.stat().st_size if self._output.exists() else 0
        with self._output.open("ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        self.checkpoint = data / ".checkpoints" / "numbers"

    def finished(self) -> int:
        """How many batches are in the lake."""
        return sum(each.name.isdecimal() for each in (self.checkpoint / "sink-lake" / "commits").glob("*"))

    def wait_for_batches(self, count: int) -> None:
        self.wait_until(lambda: self.finished() >= count)

    def wait_until(self, met: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not met():
            assert self.process.poll() is None, self.told()
            assert time.monotonic() < deadline, f"{self.finished()} batches after {PATIENCE_S} s:\n{self.told()}"
            time.sleep(0.005)

    def executors(self) -> list[int]:
        """Processes of the group that run tasks."""
        found = []
        for each in Path("/proc").iterdir():
            if each.name.isdecimal():
                try:
                    words = (each / "cmdline").read_bytes()
                    group = os.getpgid(int(each.name))
                except OSError:
                    continue
                if group == self.process.pid and b"CoarseGrainedExecutorBackend" in words:
                    found.append(int(each.name))
        return sorted(found)

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def wait(self) -> int:
        return self.process.wait(PATIENCE_S)

    def told(self) -> str:
        """What it has printed; those before it in the same directory are left out."""
        return self._output.read_bytes()[self._said_before :].decode(errors="replace")
