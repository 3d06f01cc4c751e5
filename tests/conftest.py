"""What all tests share: the switch that writes transcripts anew, a keyboard that can interrupt, and who runs what when.

`make test` gives whole files to several workers (`tests/shares.py`): what a file starts for its tests is started once.
The quickest folders come first: most mistakes show within a minute.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from tests.shares import ByShare

HERE = Path(__file__).parent

ORDER = ("tidy", "scenarios", "unit", "integration/pipelines", "compat", "chaos", "integration", "fuzz", "simulation")
"""After the quick ones those whose files keep a worker longest; what fills the last minutes evenly comes last."""

# A shell that starts the tests in the background lets them ignore SIGINT, and so would every command they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A deadline measures the machine, not the code: beside other load any example may take longer.
hypothesis.settings.register_profile("odradek", deadline=None)
hypothesis.settings.load_profile("odradek")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write the transcripts of tests/scenarios anew; then read the diff"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByShare:
    """In the process that hands the tests out."""
    return ByShare(config, log)


@pytest.fixture(scope="session")
def run_directory(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A directory that all workers of this test run share."""
    own = tmp_path_factory.getbasetemp()
    return own if worker_id == "master" else own.parent


def _place(item: pytest.Item) -> int:
    folder = item.path.relative_to(HERE).parent
    for name in (folder.as_posix(), folder.parts[0]):
        if name in ORDER:
            return ORDER.index(name)
    return len(ORDER)
