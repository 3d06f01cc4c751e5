"""Apache Kafka from Maven Central: the peer in benchmarks, and the other end of compatibility tests."""

from __future__ import annotations

import functools
from pathlib import Path

from tests.compat import maven

from bench.servers import CLUSTER_ID, Server
from bench.tool_host import ToolHost, ToolRun

HEAP = ["-Xms1G", "-Xmx1G", "-XX:+UseG1GC"]
# Three JVMs share a machine with everything else; none of the measurements fills even this.
HEAP_IN_A_CLUSTER = ["-Xms512M", "-Xmx1G", "-XX:+UseG1GC"]
KAFKA = (maven.KAFKA_BROKER, maven.KAFKA_TOOLS, maven.KAFKA_SHELL, maven.SLF4J_SIMPLE)


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
    return maven.classpath(KAFKA)


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


def tool(main_class: str, *arguments: object, given: str = "", check: bool = True) -> str:
    """Run one of Kafka's command-line tools; what it printed on both streams."""
    return tool_run(main_class, *arguments, given=given, check=check).said


def tool_run(main_class: str, *arguments: object, given: str = "", check: bool = True) -> ToolRun:
    """The same with streams and exit code apart, for tools whose output begins with a log line at times."""
    run = tool_host().run(main_class, *map(str, arguments), given=given)
    if check and run.exit_code != 0:
        raise RuntimeError(f"{main_class} {' '.join(map(str, arguments))} exited with {run.exit_code}:\n{run.said}")
    return run


@functools.cache
def tool_host() -> ToolHost:
    """The JVM in which this process runs Kafka's tools."""
    return ToolHost(maven.directory(KAFKA), loaded_anew=("kafka-tools-4",))
