"""Jars from Maven Central, cached in the repository's `.cache/maven`.

Apache Kafka's own clients, tools and broker come to the tests and benchmarks this way. Nothing of it is needed to use
Odradek: where there is no Java or no Maven, `require_java` skips with a word that says what was not tested.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.compat.once import made_once

KAFKA_VERSION = "4.3.1"
KAFKA_CLIENTS = f"org.apache.kafka:kafka-clients:{KAFKA_VERSION}"
KAFKA_BROKER = f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}"
KAFKA_TOOLS = f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}"
KAFKA_SHELL = f"org.apache.kafka:kafka-shell:{KAFKA_VERSION}"
SLF4J_SIMPLE = "org.slf4j:slf4j-simple:1.7.36"

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "maven"
RESOLVE_TIMEOUT_S = 600


class ToolMissing(Exception):
    """Java or Maven is not installed here."""


def artifact(coordinate: str) -> Path:
    """The one jar of `group:artifact:version`, without what it depends on."""
    _, name, version = coordinate.split(":")
    return _resolved([coordinate], transitive=False) / f"{name}-{version}.jar"


def classpath(coordinates: Iterable[str]) -> str:
    """A Java class path with these artifacts and all they depend on at run time."""
    return f"{directory(coordinates)}{os.sep}*"


def directory(coordinates: Iterable[str]) -> Path:
    """Where the jars of these artifacts and of all they depend on at run time lie."""
    return _resolved(list(coordinates), transitive=True)


def require_java() -> None:
    """Skip the calling test, loudly, where Java or Maven is missing."""
    missing = missing_tools()
    if missing:
        pytest.skip(f"NOT TESTED: {' and '.join(missing)} not installed, so nothing of Apache Kafka's own can run here")


def missing_tools() -> list[str]:
    return [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]


def _resolved(coordinates: list[str], *, transitive: bool) -> Path:
    key = hashlib.sha256(f"{sorted(coordinates)} {transitive}".encode()).hexdigest()[:12]
    home = CACHE / key
    jars = home / "jars"
    missing = missing_tools()
    if missing and not (home / "done").exists():
        raise ToolMissing(f"{' and '.join(missing)} not installed")
    # Three nodes of a cluster are made ready at once: two Mavens that copy to one place trip over each other.
    made_once(home, lambda: _copy(coordinates, home, jars, transitive=transitive))
    return jars


def _copy(coordinates: list[str], home: Path, jars: Path, *, transitive: bool) -> None:
    pom = home / "pom.xml"
    pom.write_text(_pom(coordinates))
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    command += [
        f"-DoutputDirectory={jars}",
        "-DincludeScope=runtime",
        f"-DexcludeTransitive={str(not transitive).lower()}",
    ]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=RESOLVE_TIMEOUT_S, check=False)
    if outcome.returncode != 0:
        raise RuntimeError(f"Maven could not resolve {coordinates}:\n{outcome.stdout}{outcome.stderr}")


def _pom(coordinates: list[str]) -> str:
    dependencies = []
    for coordinate in coordinates:
        group, name, version = coordinate.split(":")
        dependencies.append(
            f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
        )
    return (
        "<project><modelVersion>4.0.0</modelVersion>"
        "<groupId>odradek.tests</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{''.join(dependencies)}</dependencies></project>"
    )
