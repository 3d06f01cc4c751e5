"""Compiles the programs in `java/` against Kafka's client jar and says how to run them."""

from __future__ import annotations

import functools
import hashlib
import subprocess
from pathlib import Path

from tests.compat import maven

SOURCES = Path(__file__).with_name("java")
LIGHT_JVM = [
    "-Xmx512M",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
]


def java_command(program: str, *arguments: str) -> list[str]:
    """The command that runs a program of `java/`."""
    return ["java", *LIGHT_JVM, "-cp", f"{_compiled()}:{_clients()}", program, *arguments]


def _clients() -> str:
    return maven.classpath([maven.KAFKA_CLIENTS, maven.SLF4J_SIMPLE])


@functools.cache
def _compiled() -> Path:
    sources = sorted(SOURCES.glob("*.java"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    classes = maven.CACHE / f"classes-{digest}"
    if not (classes / "done").exists():
        classes.mkdir(parents=True, exist_ok=True)
        command = ["javac", "-Xlint:all", "-cp", _clients(), "-d", str(classes), *map(str, sources)]
        subprocess.run(command, check=True, timeout=180)
        (classes / "done").touch()
    return classes
