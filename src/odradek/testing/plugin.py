"""The pytest plugin: `def test(kafka): …` gets a running node, `def test(kafka_cluster): …` three of them.

Every pytest run of everyone who has Odradek installed loads this module, so it imports nothing of Odradek until a
fixture is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from odradek.testing.cluster import RunningCluster
    from odradek.testing.node import RunningNode

WAYS = ("in-process", "subprocess")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("kafka_node", "how the kafka fixture runs its node: in-process (default) or subprocess", default="")
    parser.getgroup("odradek").addoption(
        "--kafka-node", choices=WAYS, default=None, help="how the kafka fixture runs its node (ini: kafka_node)"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "kafka(properties=None, in_process=None): server properties for the test's node, and whether it runs in the "
        "test's own process",
    )
    _runs_in_process(config)


@pytest.fixture
def kafka(request: pytest.FixtureRequest) -> Iterator[RunningNode]:
    """A Kafka node of the test's own, empty, on a free port; gone after the test."""
    from odradek.testing.node import running_node

    properties, in_process = _wishes(request)
    with running_node(in_process=in_process, properties=properties) as node:
        yield node


@pytest.fixture(scope="session")
def kafka_session(request: pytest.FixtureRequest) -> Iterator[RunningNode]:
    """One Kafka node for all tests of the run: use topic names of your own."""
    from odradek.testing.node import running_node

    with running_node(in_process=_runs_in_process(request.config)) as node:
        yield node


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[RunningCluster]:
    """A cluster of three nodes of the test's own, empty, on free ports; gone after the test."""
    from odradek.testing.cluster import running_cluster

    properties, in_process = _wishes(request)
    with running_cluster(in_process=in_process, properties=properties) as cluster:
        yield cluster


def _wishes(request: pytest.FixtureRequest) -> tuple[dict[str, str], bool]:
    """What the markers say; the one nearest to the test decides."""
    properties: dict[str, str] = {}
    in_process = _runs_in_process(request.config)
    for marker in reversed(list(request.node.iter_markers("kafka"))):
        wanted = dict(marker.kwargs)
        if marker.args or wanted.keys() - {"properties", "in_process"}:
            raise pytest.UsageError("@pytest.mark.kafka takes properties={...} and in_process=True or False")
        for key, setting in (wanted.get("properties") or {}).items():
            properties[key] = str(setting).lower() if isinstance(setting, bool) else str(setting)
        if wanted.get("in_process") is not None:
            in_process = bool(wanted["in_process"])
    return properties, in_process


def _runs_in_process(config: pytest.Config) -> bool:
    way = config.getoption("--kafka-node") or config.getini("kafka_node") or WAYS[0]
    if way not in WAYS:
        raise pytest.UsageError(f"kafka_node is {way!r}; it may be {' or '.join(WAYS)}")
    return bool(way == WAYS[0])
