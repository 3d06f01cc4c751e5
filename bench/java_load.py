"""Load from Kafka's own Java clients: kafka-producer-perf-test, and a consumer that reads with assign().

kafka-consumer-perf-test subscribes, so it needs consumer groups; a reader that assigns its partitions itself does the
same fetches without them.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench import apache_kafka

SOURCE = Path(__file__).with_name("java") / "LoadDriver.java"
LATENCY = re.compile(
    r"(\d+) records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\), ([\d.]+) ms avg latency, ([\d.]+) ms max latency, "
    r"(\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th"
)


@dataclass(frozen=True)
class Produced:
    """What kafka-producer-perf-test says at its end."""

    records: int
    seconds: float
    p50_ms: float
    p99_ms: float


class JavaLoad:
    """One warm JVM that runs the load tools on demand."""

    def __init__(self) -> None:
        self._classes = tempfile.TemporaryDirectory(prefix="odradek-bench-classes-")
        path = Path(self._classes.name)
        subprocess.run(["javac", "-cp", apache_kafka.jars(), "-d", str(path), str(SOURCE)], check=True, timeout=120)
        command = apache_kafka.java("LoadDriver", options=["-Xms512M", "-Xmx512M", "-XX:+UseG1GC"], extra_path=path)
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> JavaLoad:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._classes.cleanup()

    def produce(
        self,
        bootstrap: str,
        topic: str,
        *,
        records: int,
        size: int,
        settings: dict[str, str],
        rate: int = -1,
        transaction: tuple[str, int] | None = None,
    ) -> Produced:
        """Send that many records of that many bytes; returns when all are acknowledged.

        In transactions, if there is an id for them, and the milliseconds after which each is committed.
        """
        words = ["produce", "--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(records)]
        words += ["--record-size", str(size), "--throughput", str(rate), "--command-property"]
        words += [f"{key}={value}" for key, value in {"client.id": "bench", **settings}.items()]
        if transaction is not None:
            name, duration_ms = transaction
            words += ["--transactional-id", name, "--transaction-duration-ms", str(duration_ms)]
        started = time.monotonic()
        said = self._run(words)
        seconds = time.monotonic() - started
        matches = LATENCY.findall(said)
        if not matches or int(matches[-1][0]) != records:
            raise RuntimeError(f"kafka-producer-perf-test did not send {records} records:\n{said[-2_000:]}")
        last = matches[-1]
        return Produced(records=records, seconds=seconds, p50_ms=float(last[5]), p99_ms=float(last[7]))

    def consume(self, bootstrap: str, topic: str, *, partitions: int, records: int, settings: dict[str, str]) -> float:
        """Read that many records from the beginning; the seconds it took."""
        words = ["consume", bootstrap, topic, str(partitions), str(records)]
        words += [f"{key}={value}" for key, value in settings.items()]
        started = time.monotonic()
        self._run(words)
        return time.monotonic() - started

    def transactions(self, bootstrap: str, topic: str, *, name: str, count: int) -> float:
        """Commit that many of one record each, one after the other; the seconds it took."""
        started = time.monotonic()
        self._run(["transactions", bootstrap, topic, name, str(count)])
        return time.monotonic() - started

    def _run(self, words: list[str]) -> str:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write("\t".join(words) + "\n")
        stdin.flush()
        said: list[str] = []
        for line in stdout:
            if line == "done\n":
                return "".join(said)
            if line == "failed\n":
                break
            said.append(line)
        raise RuntimeError(f"the load driver failed:\n{''.join(said)[-2_000:]}")
