"""One broker process for all compatibility tests, and topics that no other test uses."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

import pytest
from bench.apache_kafka import ApacheKafka
from bench.servers import Server
from tests.compat import maven
from tests.compat.brokers import created_topic, new_server
from tests.compat.members import QUICK_GROUPS, Member


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The broker all tests share."""
    with new_server() as running:
        yield running


@pytest.fixture(scope="session")
def apache_kafka() -> Iterator[Server]:
    """One of Apache Kafka, whatever `COMPAT_SERVER` says; who asks for it is in `tests.shares`."""
    maven.require_java()
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "group.initial.rebalance.delay.ms": "0",
    }
    with ApacheKafka(properties=settings) as running:
        yield running


@pytest.fixture
def new_topic(server: Server) -> Callable[..., str]:
    """Makes a topic and waits until its partitions answer; configs come with underscores for dots."""

    def make(partitions: int = 1, **configs: str) -> str:
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        return created_topic(server, partitions, settings)

    return make


@pytest.fixture(scope="module")
def group_server() -> Iterator[Server]:
    """A broker whose rebalances do not keep tests waiting."""
    with new_server(properties=QUICK_GROUPS) as running:
        yield running


@pytest.fixture
def group_topic(group_server: Server) -> str:
    """Of four partitions, empty."""
    return created_topic(group_server, 4, {})


@pytest.fixture
def members() -> Iterator[list[Member]]:
    """What was started, and is killed at the end if it still runs."""
    started: list[Member] = []
    yield started
    for member in started:
        member.kill()


@pytest.fixture(autouse=True)
def _java_or_skip(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("java") is not None:
        maven.require_java()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the broker said beside what the test said."""
    report = yield
    broker = getattr(item, "funcargs", {}).get("server")
    if report.failed and isinstance(broker, Server):
        report.sections.append(("broker log", broker.log_tail()))
    return report
