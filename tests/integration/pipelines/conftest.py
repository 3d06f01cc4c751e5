"""What tests of pipelines share: the examples, and small pipelines written on the spot."""

from __future__ import annotations

import importlib.util
import textwrap
from collections.abc import Callable, Generator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from odradek.apps.pipelines.plugin import MASTER, open_test_session
from odradek.apps.pipelines.session import stop_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[2] / "examples" / "pipelines"

HEAD = """
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from odradek.pipelines import Pipeline, schemas, sinks, sources
"""


_sessions: list[SparkSession] = []


@pytest.fixture
def spark(tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """As the plugin's, but ended after the last of the tests that need it: others need the memory."""
    if not _sessions:
        _sessions.append(open_test_session(MASTER, tmp_path_factory.mktemp("spark")))
    return _sessions[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """After the test's own fixtures, which may still ask the session."""
    yield
    if _sessions and (nextitem is None or not _needs_spark(nextitem)):
        stop_session(_sessions.pop())


def pytest_itemcollected(item: pytest.Item) -> None:
    """What Spark hands to Python comes through sockets that PySpark leaves to the garbage collector."""
    item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


def _needs_spark(item: pytest.Item) -> bool:
    return HERE in item.path.parents and "spark" in getattr(item, "fixturenames", ())


@pytest.fixture(scope="session")
def data() -> ModuleType:
    """The generators of the examples."""
    spec = importlib.util.spec_from_file_location("example_data", EXAMPLES / "data.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a pipeline's file, with the usual imports at its head."""

    def write(text: str, name: str = "pipeline.py") -> Path:
        file = tmp_path / name
        file.write_text(HEAD + textwrap.dedent(text) if name.endswith(".py") else textwrap.dedent(text))
        return file

    return write
