"""A Spark session that is ready for topics: Java found, connector fetched, noise kept out of the terminal."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.apps.pipelines import lakes
from odradek.apps.pipelines.java import Java, cache_directory, find_java
from odradek.apps.terminal.sentence import Sentence

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"
AVRO = "org.apache.spark:spark-avro_2.13:4.0.0"
IN_SPARK = (
    "org.apache.hadoop:hadoop-client-runtime",
    "org.apache.hadoop:hadoop-client-api",
    "org.lz4:lz4-java",
    "org.xerial.snappy:snappy-java",
    "org.slf4j:slf4j-api",
    "com.google.code.findbugs:jsr305",
    "org.scala-lang.modules:scala-parallel-collections_2.13",
    "org.tukaani:xz",
    "org.antlr:antlr4-runtime",
)
"""What the connector depends on and Spark has already: 60 MB that need not be fetched a second time."""

JARS = (
    "org.apache.spark_spark-sql-kafka-0-10_2.13-4.0.0.jar",
    "org.apache.spark_spark-token-provider-kafka-0-10_2.13-4.0.0.jar",
    "org.apache.spark_spark-avro_2.13-4.0.0.jar",
    "org.apache.kafka_kafka-clients-3.9.0.jar",
    "org.apache.commons_commons-pool2-2.12.0.jar",
)
"""What is fetched, as Ivy names the files."""

USUAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.numRecentProgressUpdates": "100",
}
"""Settings of every pipeline's session; `--conf` may say otherwise."""

TRACES = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Where PySpark prints every exception of a query with all its traces, although it raises it as well."""

BRIEF_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
"""A JVM for little work: it is gone before its better compiler and a collector with threads of its own would pay, and
until then these two would take the cores from what they are there for. With one compiler the room for code would be a
fifth of the usual, and a session that many tests share fills that."""

JVM_OPTIONS = "spark.driver.extraJavaOptions"
GONE_S = 2.0
"""How long it may take until a JVM that does not answer any more is seen to have ended."""

During = Callable[[str], AbstractContextManager[None]]
"""Hears what is waited for, and until when."""

SHUFFLES = "spark.sql.shuffle.partitions"
HEARTBEAT_TIMEOUT = "spark.storage.blockManagerHeartbeatTimeoutMs"
HEARTBEAT_TIMEOUT_MS = str(24 * 3600 * 1000)
"""Where driver and executor are one process, a missing heartbeat says that the machine slept, or had no time for it.
After Spark's two minutes the only executor would be taken for lost, and there is no other."""

DEFAULT_MASTER = "local[*]"
NOT_INSTALLED = "pipelines need PySpark: run pip install 'odradek[spark]'."


def open_session(
    name: str,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    log_file: Path | None = None,
    formats: Sequence[str] = (),
    brief: bool = False,
    topics: bool = True,
    held: int | None = None,
    during: During = lambda _: nullcontext(),
) -> SparkSession:
    """The session of this process; a new one unless there is one already, as under spark-submit.

    Everything that Spark's JVM says goes to `log_file`, if one is given: nobody wants it on the terminal, and those who
    look for the cause of a failure do. `formats` are those of tables that Spark does not bring: `delta`, `iceberg`.
    With `brief`, the JVM is one for little work; without `topics`, it can read and write none, nor Avro. `held` is a
    locked file that a new JVM keeps open as well: it goes on for seconds when this process is killed. `during` hears
    what is being waited for.
    """
    with during("starting Spark"):
        return _opened(
            name, master, conf or {}, log_file, formats, brief=brief, topics=topics, held=held, during=during
        )


def _opened(
    name: str,
    master: str | None,
    conf: Mapping[str, str],
    log_file: Path | None,
    formats: Sequence[str],
    *,
    brief: bool,
    topics: bool,
    held: int | None,
    during: During,
) -> SparkSession:
    try:
        from pyspark.logger import PySparkLogger
        from pyspark.sql import SparkSession
    except ImportError:
        raise Sentence(NOT_INSTALLED) from None
    for logger in TRACES:
        PySparkLogger.getLogger(logger).disabled = True
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    settings = {
        **settings_for(master if master or submitted else DEFAULT_MASTER, brief=brief),
        **lakes.settings_of(formats),
        **conf,
    }
    builder = SparkSession.builder.appName(name)
    if submitted:
        settings.pop("spark.master", None)  # spark-submit has decided where it runs.
    else:
        with during("looking for Java"):
            java = find_java(os.environ)
        jars = connector(os.environ, settings, formats, topics=topics)
        if "spark.jars.ivy" in jars:
            with during("fetching Spark's Kafka connector, this once"), fetching(Path(jars["spark.jars.ivy"])):
                settings |= connector(os.environ, settings, formats, topics=topics)  # Another may have done it.
                _launch(settings, log_file, java, held)
        else:
            settings |= jars
            with during("starting the JVM"):
                _launch(settings, log_file, java, held)
    for key, setting in settings.items():
        builder = builder.config(key, setting)
    with during("opening the session"):
        session: SparkSession = builder.getOrCreate()
    where = session.sparkContext.master or ""
    if submitted and where.startswith("local") and SHUFFLES not in conf:
        session.conf.set(SHUFFLES, str(width(where)))  # Not Spark's 200, each of which would keep state of its own.
    return session


def settings_for(master: str | None, *, brief: bool = False) -> dict[str, str]:
    """The usual settings; on one machine, nothing listens to the outside and shuffles are as wide as the cores."""
    settings = {**USUAL, **({JVM_OPTIONS: BRIEF_JVM} if brief else {})}
    if master is None:
        return settings
    settings["spark.master"] = master
    if master.startswith("local"):
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            SHUFFLES: str(width(master)),
        }
        if not master.startswith("local-cluster"):
            settings[HEARTBEAT_TIMEOUT] = HEARTBEAT_TIMEOUT_MS
    return settings


def width(master: str) -> int:
    """How many tasks run at a time under `local[2]`, `local[*]`, `local` or `local-cluster[2,1,1024]`."""
    inside = master.partition("[")[2].rstrip("]").split(",")
    if master.startswith("local-cluster") and len(inside) == 3:
        return max(1, int(inside[0]) * int(inside[1]))
    if inside[0] == "*":
        return os.cpu_count() or 1
    return int(inside[0]) if inside[0].isdecimal() else 1


def connector(
    environment: Mapping[str, str], settings: Mapping[str, str], formats: Sequence[str] = (), *, topics: bool = True
) -> dict[str, str]:
    """How Spark gets the Kafka connector, and what table formats need: from jars fetched before, else by fetching them.

    Asking Ivy takes seconds at every start even when it has everything, so what it brought once is named by file.
    """
    if "spark.jars.packages" in settings or "spark.jars" in settings:
        return {}
    ivy = cache_directory(environment) / "ivy"
    wanted = [lakes.FORMATS[name] for name in formats]
    if not wanted and not topics:
        return {}
    fetched = [
        ivy / "jars" / name for name in (*(JARS if topics else ()), *(jar for each in wanted for jar in each.jars))
    ]
    if all(map(zipfile.is_zipfile, fetched)):
        return {"spark.jars": ",".join(map(str, fetched))}
    return {
        "spark.jars.packages": ",".join([*((CONNECTOR, AVRO) if topics else ()), *(each.package for each in wanted)]),
        "spark.jars.excludes": ",".join(IN_SPARK),
        "spark.jars.ivy": str(ivy),
    }


@contextlib.contextmanager
def fetching(ivy: Path) -> Iterator[None]:
    """While this holds, nobody else fetches jars: two that do at once break each other's downloads. What one left half
    done that was killed is deleted, since Ivy would take it for newer than the whole."""
    ivy.mkdir(parents=True, exist_ok=True)
    with (ivy / "odradek.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for jar in (ivy / "jars").glob("*.jar"):
            if not zipfile.is_zipfile(jar):
                jar.unlink()
        yield


def _launch(settings: Mapping[str, str], log_file: Path | None, java: Java, held: int | None) -> None:
    """Start the JVM; what it says goes to the file, and why it did not start becomes a Sentence."""
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    os.environ["JAVA_HOME"] = java.home
    # Python on executors must be this one, with the same packages; and a master of this machine needs no other address.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("PYARROW_IGNORE_TIMEZONE", "1")  # What Spark's pandas would warn about, and then do itself.
    # Spark's scripts first start a small JVM that only writes down how the real one is to be started.
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", BRIEF_JVM)
    if settings.get("spark.master", "").startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    conf = SparkConf(loadDefaults=False)
    for key, setting in settings.items():
        conf.set(key, setting)
    logging.getLogger().addFilter(_is_not_of_the_gateway)
    with _output(log_file) as output:
        try:
            told = {} if output is None else {"stdout": output, "stderr": output}
            kept = {} if held is None else {"pass_fds": (held,)}
            gateway = launch_gateway(conf, {**told, **kept})  # type: ignore[no-untyped-call]
        except PySparkRuntimeError as failure:
            raise Sentence(why_no_jvm(log_file, failure)) from failure
        # The context would start a JVM of its own, with its noise on the terminal.
        SparkContext._ensure_initialized(gateway=gateway)


def _is_not_of_the_gateway(record: logging.LogRecord) -> bool:
    """Py4J tells the root logger, with its traces, of every call that a JVM which has ended does not answer."""
    return Path(record.pathname).parent.name != "py4j"


@contextlib.contextmanager
def _output(log_file: Path | None) -> Iterator[int | None]:
    if log_file is None:
        yield None
        return
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with log_file.open("ab") as output:
        yield output.fileno()


def why_no_jvm(log_file: Path | None, failure: Exception) -> str:
    """A sentence about a JVM that has not come up, from what it said itself where it said anything."""
    told = log_file.read_text(errors="replace") if log_file is not None and log_file.exists() else ""
    if "UNRESOLVED DEPENDENCIES" in told or "unresolved dependency" in told:
        return (
            f"cannot fetch Spark's Kafka connector and table formats ({CONNECTOR}, …): go online for the first run, "
            "or name their jars with --conf spark.jars=FILE,FILE."
        )
    where = f"; all that it said is in {log_file}" if log_file is not None else ""
    return f"Spark did not start: {_spoken(told) or str(failure).splitlines()[0].rstrip('.')}{where}."


_REASONS = re.compile(r'^(?:Exception in thread "main" (?:[\w$.]+: )?(?:\[\w+\] )?|(?=Invalid ))(.+)$', re.M)


def _spoken(told: str) -> str:
    """Why a JVM ended, from what it said: the newest exception of its main thread, or why there was no JVM at all."""
    reasons = _REASONS.findall(told)
    return str(reasons[-1]).rstrip(".") if reasons else ""


def is_of_ended_jvm(failure: Exception) -> bool:
    """Whether a call failed because its JVM has gone, be it killed or told to stop together with this process."""
    from py4j.protocol import Py4JError

    return isinstance(failure, Py4JError | OSError) and has_ended()


def has_ended() -> bool:
    """Whether this process's JVM has gone."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if not isinstance(process, subprocess.Popen):
        return False
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=GONE_S)
    return process.returncode is not None


def stop_session(session: SparkSession) -> None:
    """End the session and its JVM."""
    from pyspark import SparkContext

    session.stop()
    gateway = SparkContext._gateway
    if gateway is not None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        gateway.shutdown()
        process = getattr(gateway, "proc", None)
        if isinstance(process, subprocess.Popen):
            if process.stdin is not None:
                process.stdin.close()  # How the JVM learns that its Python has gone.
            process.wait(timeout=60)
        SparkContext._gateway = None
        SparkContext._jvm = None
