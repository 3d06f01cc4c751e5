"""The pytest plugin for pipelines: `def test(pipeline): …`, without Docker, in seconds once the session is warm.

Every pytest run of everyone who has Odradek installed loads this module, so it imports nothing until a fixture is asked
for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odradek.apps.pipelines.trial import Trial
    from odradek.testing.node import RunningNode

MASTER = "local[2]"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("spark_master", f"the master of the spark fixture's session (default: {MASTER})", default="")
    parser.addini("spark_formats", "table formats that the session can write: delta, iceberg", type="args", default=[])


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One Spark session for all tests of the run, with the Kafka connector; skipped where Spark cannot run."""
    from odradek.apps.pipelines.session import stop_session

    session = open_test_session(
        request.config.getini("spark_master") or MASTER,
        tmp_path_factory.mktemp("spark"),
        request.config.getini("spark_formats"),
    )
    yield session
    stop_session(session)


def open_test_session(master: str, directory: Path, formats: Sequence[str] = ()) -> SparkSession:
    """A session that keeps everything it writes in a directory; skips the test that asks for one which cannot be."""
    from odradek.apps.pipelines.session import open_session
    from odradek.apps.terminal.sentence import Sentence

    conf = {
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.local.dir": str(directory),
        "spark.sql.shuffle.partitions": "2",
    }
    try:
        return open_session(
            "odradek tests", master=master, conf=conf, log_file=directory / "spark.log", formats=formats, brief=True
        )
    except Sentence as missing:
        pytest.skip(f"NOT TESTED: {missing}")


@pytest.fixture
def pipeline(spark: SparkSession, kafka: RunningNode, tmp_path: Path) -> Callable[[str | Path], Trial]:
    """Loads a pipeline's file for a trial: on the test's own node, with a directory of its own for data."""
    from odradek.apps.pipelines.trial import Trial

    def load(file: str | Path) -> Trial:
        return Trial(str(file), spark, kafka.bootstrap_servers, tmp_path)

    return load
