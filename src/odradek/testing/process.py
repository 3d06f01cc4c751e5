"""A node as users run it, `odradek start` in a process of its own, and what may happen to a process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

START_PATIENCE_S = 30.0
STOP_PATIENCE_S = 30.0
READY = re.compile(r"Odradek \S+ ready: (.*)")
"""The line that a node prints when everybody can be served, and where it serves them."""


class NodeFailed(Exception):
    """The node did not start, did not stop, or gave up in between."""


def node_environment() -> dict[str, str]:
    """This process's, without what `odradek start` would take for settings of the node."""
    return {name: text for name, text in os.environ.items() if not name.startswith("KAFKA_")}


class NodeProcess:
    """One node's process, over all its starts."""

    def __init__(self, name: str = "the node", *, prefix: Sequence[str] = ()) -> None:
        """`prefix` is a command that runs the node, as `ip netns exec NAME` does."""
        self._name = name
        self._prefix = tuple(prefix)
        self._process: subprocess.Popen[bytes] | None = None
        self._output = tempfile.NamedTemporaryFile(prefix="odradek-", suffix=".log")  # noqa: SIM115 - closed by close()
        self._begun_at = 0

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self._name} was not started"
        return self._process.pid

    def output(self) -> str:
        """All it has printed, over all its starts."""
        with open(self._output.name, encoding="utf-8", errors="replace") as output:
            return output.read()

    def begin(self, arguments: Sequence[str]) -> None:
        """Start it without waiting for it; `arguments` are those of `odradek start`."""
        assert not self.running, f"{self._name} is running"
        self._begun_at = len(self.output())
        command = [*self._prefix, sys.executable, "-m", "odradek", "start", *arguments]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.STDOUT, env=node_environment()
        )

    def wait_until_ready(self) -> str:
        """What its ready line says of where it serves."""
        deadline = time.monotonic() + START_PATIENCE_S
        while not (ready := READY.search(self.output(), self._begun_at)):
            if not self.running:
                raise NodeFailed(f"{self._name} did not start:\n{self._printed()}")
            if time.monotonic() > deadline:
                printed = self._printed()
                self.kill()
                raise NodeFailed(f"{self._name} was not ready after {START_PATIENCE_S:.0f} s:\n{printed}")
            time.sleep(0.01)
        return ready[1]

    def stop(self) -> None:
        """The orderly way; nothing if it is not running."""
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            status = process.wait(STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:
            printed = self._printed()
            self.kill()
            raise NodeFailed(f"{self._name} had not stopped after {STOP_PATIENCE_S:.0f} s:\n{printed}") from None
        self._process = None
        if status:
            raise NodeFailed(f"{self._name} ended with status {status}:\n{self._printed()}")

    def kill(self) -> None:
        """kill -9: it gets to say nothing."""
        process = self._process
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()
            self._process = None

    def pause(self) -> None:
        """SIGSTOP: it is there and answers nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT: it goes on as if no time had passed."""
        os.kill(self.pid, signal.SIGCONT)

    def wait_until_ended(self, patience_s: float) -> int:
        """Its status, once it has ended by itself."""
        assert self._process is not None, f"{self._name} was not started"
        try:
            status = self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            raise NodeFailed(f"{self._name} still runs after {patience_s:.0f} s:\n{self._printed()}") from None
        self._process = None
        return status

    def close(self) -> None:
        try:
            self.stop()
        finally:
            self._output.close()

    def _printed(self) -> str:
        return self.output()[self._begun_at :]
