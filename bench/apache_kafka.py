"""Apache Kafka from Maven Central: the peer in benchmarks, and the other end of compatibility tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.compat import maven

from bench.servers import CLUSTER_ID, Server

HEAP = ["-Xms1G", "-Xmx1G", "-XX:+UseG1GC"]
# Three JVMs share a machine with everything else; none of the measurements fills even this.
HEAP_IN_A_CLUSTER = ["-Xms512M", "-Xmx1G", "-XX:+UseG1GC"]
TOOL_TIMEOUT_S = 120


class ApacheKafka(Server):
    """A KRaft node of Apache Kafka; alone it has the heap its own start script gives it."""

    kind = "kafka"

    def format(self) -> None:
        """Write meta.properties and the bootstrap snapshot, unless the directory has them already."""
        if not (self.data / "meta.properties").exists():
            self.run_storage_format()

    def run_storage_format(self, *options: str) -> None:
        """kafka-storage format."""
        tool("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", self.properties_file, *options)

    def command(self) -> list[str]:
        heap = HEAP_IN_A_CLUSTER if len(self.voters) > 1 else HEAP
        return java("kafka.Kafka", str(self.properties_file), options=heap)


def jars() -> str:
    """The class path of the broker, its tools and a logger."""
    return maven.classpath([maven.KAFKA_BROKER, maven.KAFKA_TOOLS, maven.KAFKA_SHELL, maven.SLF4J_SIMPLE])


def java(
    main_class: str, *arguments: str, options: list[str] | None = None, extra_path: Path | None = None
) -> list[str]:
    """The command that runs a class of Kafka's, or one compiled against it that lies in `extra_path`."""
    path = jars() if extra_path is None else f"{extra_path}:{jars()}"
    return [
        "java",
        *(options or []),
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-cp",
        path,
        main_class,
        *arguments,
    ]


def tool(main_class: str, *arguments: object, given: str | None = None, check: bool = True) -> str:
    """Run one of Kafka's command-line tools; what it printed on both streams."""
    command = java(
        main_class, *map(str, arguments), options=["-Xmx256M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    )
    outcome = subprocess.run(command, input=given, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
    said = outcome.stdout + outcome.stderr
    if check and outcome.returncode != 0:
        raise RuntimeError(f"{main_class} {' '.join(map(str, arguments))} exited with {outcome.returncode}:\n{said}")
    return said
