"""What a session is told, without starting one."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from odradek.apps.pipelines.lakes import FORMATS, settings_of
from odradek.apps.pipelines.session import (
    HEARTBEAT_TIMEOUT,
    JARS,
    connector,
    fetching,
    settings_for,
    why_no_jvm,
    width,
)


@pytest.mark.parametrize(
    ("master", "tasks"), [("local", 1), ("local[3]", 3), ("local[4,2]", 4), ("local-cluster[2,3,1024]", 6)]
)
def test_shuffles_are_as_wide_as_the_master(master: str, tasks: int) -> None:
    assert width(master) == tasks
    assert settings_for(master)["spark.sql.shuffle.partitions"] == str(tasks)
    assert settings_for(master)["spark.driver.host"] == "127.0.0.1"


def test_a_machine_that_slept_has_lost_no_executor() -> None:
    assert int(settings_for("local[2]")[HEARTBEAT_TIMEOUT]) > 8 * 3600 * 1000
    assert HEARTBEAT_TIMEOUT not in settings_for("local-cluster[2,1,1024]"), "there one may be lost alone"


def test_a_cluster_decides_for_itself() -> None:
    settings = settings_for("spark://master:7077")
    assert HEARTBEAT_TIMEOUT not in settings
    assert "spark.driver.host" not in settings
    assert "spark.sql.shuffle.partitions" not in settings
    assert "spark.master" not in settings_for(None)


def test_the_connector_is_fetched_once(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    first = connector(environment, {})
    assert "spark-sql-kafka-0-10_2.13" in first["spark.jars.packages"]
    jars = Path(first["spark.jars.ivy"]) / "jars"
    jars.mkdir(parents=True)
    for name in JARS[1:]:
        write_jar(jars / name)
    assert "spark.jars.packages" in connector(environment, {}), "one of them is missing"
    write_jar(jars / JARS[0])
    whole = (jars / JARS[0]).read_bytes()
    (jars / JARS[0]).write_bytes(whole[:-10])
    assert "spark.jars.packages" in connector(environment, {}), "one of them is not whole"
    (jars / JARS[0]).write_bytes(whole)
    assert connector(environment, {}) == {"spark.jars": ",".join(str(jars / name) for name in JARS)}
    assert connector(environment, {"spark.jars": "mine.jar"}) == {}
    with_tables = connector(environment, {}, ["delta", "iceberg"])["spark.jars.packages"]
    assert "io.delta:delta-spark_2.13" in with_tables, "what is there already does not hide what is missing"
    assert "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13" in with_tables


def write_jar(file: Path) -> None:
    with zipfile.ZipFile(file, "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0")


def test_one_at_a_time_fetches(tmp_path: Path) -> None:
    """Two first runs at once: one of them lost its downloads to the other."""
    jars = tmp_path / "ivy" / "jars"
    with fetching(tmp_path / "ivy"):
        jars.mkdir()
        write_jar(jars / "whole.jar")
        (jars / "half.jar").write_bytes((jars / "whole.jar").read_bytes()[:-10])
        (lock,) = (tmp_path / "ivy").glob("*.lock")
        with lock.open() as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with fetching(tmp_path / "ivy"):
        assert [each.name for each in jars.iterdir()] == ["whole.jar"], "Ivy would not have fetched the other again"


def test_what_reads_no_topic_needs_no_connector(tmp_path: Path) -> None:
    """`validate`, `explain` and `compact` work offline, and do not wait for jars that they do not use."""
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    assert connector(environment, {}, topics=False) == {}
    assert connector(environment, {}, ["delta"], topics=False)["spark.jars.packages"] == FORMATS["delta"].package


SAID = {
    """Error: Could not create the Java Virtual Machine.
Error: A fatal exception has occurred. Program will exit.
Invalid maximum heap size: -Xmxlots
""": "Invalid maximum heap size: -Xmxlots",
    """26/11/18 WARN NativeCodeLoader: Unable to load native-hadoop library
Exception in thread "main" org.apache.spark.SparkException: Master must either be yarn or start with spark.
\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1065)
""": "Master must either be yarn or start with spark",
    "": "[JAVA_GATEWAY_EXITED] Java gateway process exited",
}


@pytest.mark.parametrize("said", SAID)
def test_why_spark_did_not_start(tmp_path: Path, said: str) -> None:
    log = tmp_path / "spark.log"
    log.write_text(said)
    failure = RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited.\nMore.")
    assert why_no_jvm(log, failure) == f"Spark did not start: {SAID[said]}; all that it said is in {log}."
    assert why_no_jvm(None, failure) == "Spark did not start: [JAVA_GATEWAY_EXITED] Java gateway process exited."


def test_extensions_of_several_formats_are_all_named() -> None:
    assert settings_of([]) == {}
    assert settings_of(["delta", "iceberg"])["spark.sql.extensions"].count(",") == 1


def test_neither_brokers_nor_the_command_line_import_spark() -> None:
    """Nor does the plugin that every pytest run loads."""
    modules = "odradek.server.node, odradek.apps.pipelines.options, odradek.apps.pipelines.plugin, odradek.testing.node"
    program = (
        f"import sys, {modules}; print(sorted(n for n in sys.modules if n.startswith(('pyspark', 'py4j', 'pandas'))))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
