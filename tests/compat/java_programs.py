"""Compiles the programs in `java/` against Kafka's client jar and says how to run them."""

from __future__ import annotations

import functools
import hashlib
import subprocess
from pathlib import Path

from bench.apache_kafka import tool_host
from bench.tool_host import ToolRun
from tests.compat import maven
from tests.compat.once import made_once

SOURCES = Path(__file__).with_name("java")
LIGHT_JVM = [
    "-Xmx512M",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
]


def java_command(program: str, *arguments: str) -> list[str]:
    """The command that runs a program of `java/` in a process that a test may kill."""
    return ["java", *LIGHT_JVM, "-cp", f"{_compiled()}:{_clients()}", program, *arguments]


def java_run(program: str, *arguments: str, given: str = "") -> ToolRun:
    """What a program of `java/` says that ends by itself; it runs in the JVM of Kafka's tools."""
    return tool_host().run(program, *arguments, given=given, classes=_compiled())


def _clients() -> str:
    return maven.classpath([maven.KAFKA_CLIENTS, maven.SLF4J_SIMPLE])


@functools.cache
def _compiled() -> Path:
    sources = sorted(SOURCES.glob("*.java"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    classes = maven.CACHE / f"classes-{digest}"
    made_once(classes, lambda: _compile(sources, classes))
    return classes


def _compile(sources: list[Path], classes: Path) -> None:
    command = ["javac", "-Xlint:all", "-cp", _clients(), "-d", str(classes), *map(str, sources)]
    subprocess.run(command, check=True, timeout=180)
