"""Kafka's command-line tools in one JVM that stays, instead of a new one for each call.

A tool takes a second of CPU to start and a tenth of that to do its work; `java/ToolHost.java` runs one after the other.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import struct
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.compat import maven
from tests.compat.once import made_once

SOURCE = Path(__file__).with_name("java") / "ToolHost.java"
LIGHT_JVM = ["-Xmx512M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
CALL_TIMEOUT_S = 120.0
END_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class ToolRun:
    """How a tool ended, and what it printed."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def said(self) -> str:
        """On both streams."""
        return self.stdout + self.stderr


class ToolHost:
    """The JVM, started by the first call and ended with this process."""

    def __init__(self, jars: Path, loaded_anew: Sequence[str]) -> None:
        """`loaded_anew` begins the names of the jars whose classes keep state between calls: each call has its own."""
        self._jars = jars
        self._loaded_anew = tuple(loaded_anew)
        self._process: subprocess.Popen[bytes] | None = None
        self._one_at_a_time = threading.Lock()
        atexit.register(self.close)

    def run(self, main_class: str, *arguments: str, given: str = "", classes: Path | None = None) -> ToolRun:
        """Call a class's main, which may lie in the directory `classes`, with what it reads from standard input."""
        with self._one_at_a_time:
            process = self._running()
            watch = threading.Timer(CALL_TIMEOUT_S, process.kill)
            watch.start()
            try:
                return _call(process, [main_class, str(classes or ""), given, *arguments])
            except (OSError, EOFError):
                self._kill()
                problem = (
                    f"{main_class} {' '.join(arguments)} did not end within {CALL_TIMEOUT_S} s, or took its JVM along"
                )
                raise RuntimeError(problem) from None
            finally:
                watch.cancel()

    def close(self) -> None:
        """End the JVM; the next call starts another."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._kill()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(self._command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self._process

    def _command(self) -> list[str]:
        every = sorted(self._jars.glob("*.jar"))
        anew = [jar for jar in every if jar.name.startswith(self._loaded_anew)]
        path = [_compiled(self._jars), *(jar for jar in every if jar not in anew)]
        options = [*LIGHT_JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        return ["java", *options, "-cp", os.pathsep.join(map(str, path)), "ToolHost", *map(str, anew)]

    def _kill(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()
        self._process = None


def _call(process: subprocess.Popen[bytes], words: Sequence[str]) -> ToolRun:
    assert process.stdin is not None
    assert process.stdout is not None
    encoded = [word.encode() for word in words]
    process.stdin.write(struct.pack(">i", len(encoded)))
    for each in encoded:
        process.stdin.write(struct.pack(">i", len(each)) + each)
    process.stdin.flush()
    (code,) = struct.unpack(">i", _exactly(process, 4))
    texts = []
    for _ in range(2):
        (length,) = struct.unpack(">i", _exactly(process, 4))
        texts.append(_exactly(process, length).decode())
    return ToolRun(code, *texts)


def _exactly(process: subprocess.Popen[bytes], count: int) -> bytes:
    assert process.stdout is not None
    got = process.stdout.read(count)
    if len(got) < count:
        raise EOFError
    return got


def _compiled(jars: Path) -> Path:
    classes = maven.CACHE / f"tool-host-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]}"
    made_once(classes, lambda: _compile(jars, classes))
    return classes


def _compile(jars: Path, classes: Path) -> None:
    command = ["javac", "-Xlint:all", "-cp", f"{jars}{os.sep}*", "-d", str(classes), str(SOURCE)]
    subprocess.run(command, check=True, timeout=180)
