"""A run as somebody at a terminal sees it, and as a log and a program hear of it."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from odradek.apps.pipelines.brokers import Brokers
from odradek.apps.pipelines.java import find_java
from odradek.apps.pipelines.session import has_ended
from odradek.apps.pipelines.trial import Trial
from odradek.apps.terminal.sentence import Sentence
from odradek.apps.terminal.session import Session
from odradek.testing import running_node

PATIENCE_S = 240.0
COLUMNS = 100

LETTERS = """
    pipeline = Pipeline("letters")
    pipeline.source("letters", sources.topic("letters", value=schemas.raw(), key=schemas.raw()))
    pipeline.sink("lake", "letters", sinks.parquet("lake", files=1))
"""


class Terminal:
    """A command in a terminal of its own, and all that was ever on its screen."""

    def __init__(self, *arguments: str) -> None:
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, COLUMNS))
        command = [sys.executable, "-m", "odradek", *arguments]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        self._ours = ours
        self._read = bytearray()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):  # How a terminal says that its last process has gone.
            while more := os.read(self._ours, 4096):
                self._read += more

    @property
    def shown(self) -> str:
        return self._read.decode(errors="replace")

    def wait_for(self, pattern: str, patience_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + patience_s
        while not re.search(pattern, self.shown):
            assert time.monotonic() < deadline, f"no {pattern} in:\n{self.shown}"
            assert self.process.poll() is None or re.search(pattern, self.shown), self.shown
            time.sleep(0.02)

    def jvm(self) -> int:
        """The process of the group that is Spark's."""
        for each in Path("/proc").iterdir():
            if each.name.isdecimal():
                with contextlib.suppress(OSError):
                    if (
                        os.getpgid(int(each.name)) == self.process.pid
                        and b"SparkSubmit" in (each / "cmdline").read_bytes()
                    ):
                        return int(each.name)
        raise AssertionError("there is no JVM")

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._thread.join()
        os.close(self._ours)


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    with contextlib.ExitStack() as cleaning:

        def run(*arguments: str) -> Terminal:
            made = Terminal(*arguments)
            cleaning.callback(made.close)
            return made

        yield run


def test_what_a_run_waits_for_is_always_on_the_screen(
    terminal: Callable[..., Terminal], written: Callable[[str], Path], tmp_path: Path
) -> None:
    """From its start over a broker that is away to a JVM that is killed: each is said, and none with a traceback."""
    try:
        find_java(os.environ)
    except Sentence as missing:
        pytest.skip(f"NOT TESTED: {missing}")
    with running_node(in_process=False) as node:
        with Brokers(Session({"bootstrap.servers": node.bootstrap_servers})) as brokers:
            brokers.create_topic("letters", 1)
        file = str(written(LETTERS))
        run = terminal("pipeline", "run", file, "--data", str(tmp_path), "-b", node.bootstrap_servers)
        run.wait_for("letters: starting the JVM")
        run.wait_for("letters: opening the session")
        run.wait_for("letters: starting the queries")
        run.wait_for("letters: waiting for records.*; 0 records, 0/s; lag 0;")
        node.kill()
        run.wait_for("odradek: broker 1 .* does not answer")
        run.wait_for(r"letters: waiting for broker 1 \(127.0.0.1:\d+\), away for \d+ s")
        node.start()
        run.wait_for(r"odradek: broker 1 .* is back after \d+ s\.")
        os.kill(run.jvm(), signal.SIGKILL)
        run.wait_for(r"odradek: Spark's JVM has ended \(.*spark.log has all that it said\)")
        assert run.process.wait(PATIENCE_S) == 1
    assert "Traceback" not in run.shown
    drawn = [line for line in re.split(r"[\r\n]+", run.shown) if line.startswith("letters: ")]
    assert max(map(len, drawn)) < COLUMNS, "a line that does not fit could not be drawn over"


def test_a_stop_of_the_whole_process_group_is_a_stop(
    terminal: Callable[..., Terminal], written: Callable[[str], Path], tmp_path: Path
) -> None:
    """As supervisors stop a service: Spark's JVM gets the signal as well, and is gone while the queries are stopped."""
    try:
        find_java(os.environ)
    except Sentence as missing:
        pytest.skip(f"NOT TESTED: {missing}")
    with running_node(in_process=False) as node:
        with Brokers(Session({"bootstrap.servers": node.bootstrap_servers})) as brokers:
            brokers.create_topic("letters", 1)
        file = str(written(LETTERS))
        run = terminal("pipeline", "run", file, "--data", str(tmp_path), "-b", node.bootstrap_servers)
        run.wait_for("letters: waiting for records")
        os.killpg(run.process.pid, signal.SIGTERM)
        assert run.process.wait(PATIENCE_S) == 0, run.shown
    assert "Traceback" not in run.shown


def test_two_runs_at_once_are_one(
    terminal: Callable[..., Terminal], written: Callable[[str], Path], tmp_path: Path
) -> None:
    """Also where the first was killed and its JVM has not noticed yet: it may still be writing."""
    try:
        find_java(os.environ)
    except Sentence as missing:
        pytest.skip(f"NOT TESTED: {missing}")
    with running_node(in_process=False) as node:
        with Brokers(Session({"bootstrap.servers": node.bootstrap_servers})) as brokers:
            brokers.create_topic("letters", 1)
        command = ("pipeline", "run", str(written(LETTERS)), "--data", str(tmp_path), "-b", node.bootstrap_servers)
        first = terminal(*command)
        first.wait_for("letters: waiting for records")
        for beside in (command, ("pipeline", "compact", command[2], "--data", str(tmp_path))):
            second = terminal(*beside)
            assert second.process.wait(PATIENCE_S) == 1
            assert "odradek: somebody runs on the checkpoint" in second.shown
        os.kill(first.jvm(), signal.SIGSTOP)
        first.process.kill()
        first.process.wait()
        third = terminal(*command)
        third.wait_for(r"letters: taking its checkpoint \(\d+ s\)")
        os.kill(first.jvm(), signal.SIGCONT)
        third.wait_for("letters: waiting for records")
        with pytest.raises(AssertionError, match="there is no JVM"):
            first.jvm()


def test_a_log_and_a_program_hear_the_same(
    pipeline: Callable[[Path], Trial], written: Callable[[str], Path], capfd: pytest.CaptureFixture[str]
) -> None:
    trial = pipeline(written(LETTERS))
    trial.send("letters", *"abcdef", partition=0)
    capfd.readouterr()
    trial.run(quiet=False, timings=True)
    out, err = capfd.readouterr()
    assert re.search(r"^letters: \[#{24}\] 100%; .*6 records, [\d,]+/s; lag 0; ", err, re.M)
    assert "\r" not in err
    lines = out.splitlines()
    assert lines[1] == "  sink-lake: 6 records read in 1 batch"
    assert lines[3].startswith("PHASE ")
    phases = [re.split(r"\s{2,}", line.strip())[0] for line in lines[4:]]
    assert phases[-4:] == ["starting the queries", "batches", "sink-lake", "all"]

    trial.send("letters", *"gh", partition=1)
    trial.run(quiet=False, timings=True, form="json")
    out, err = capfd.readouterr()
    assert "records" not in err
    *progress, summary = map(json.loads, out.splitlines())
    assert {each["event"] for each in progress} == {"progress"}
    assert summary["lag"] == {"letters-0": 0, "letters-1": 0}
    assert summary["records_read"] == 2
    assert summary["timings"]["queries"]["sink-lake"]["addBatch"] > 0
    assert "batches" in [each["phase"] for each in summary["timings"]["phases"]]
    assert not has_ended()
