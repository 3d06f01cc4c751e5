"""What a run knows of its brokers while it is busy: who is away, who is back, and where topics end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from odradek.apps.pipelines import brokers as brokers_module
from odradek.apps.pipelines.brokers import Brokers
from odradek.apps.pipelines.watch import BrokerWatch
from odradek.apps.terminal.session import Session
from odradek.client.cluster import Cluster, TopicPartition
from odradek.pipelines import Pipeline, schemas, sinks, sources
from odradek.testing.cluster import running_cluster
from odradek.testing.node import running_node

PATIENCE_S = 60.0
SAID_WITHIN_S = 2.0


def wait_until(met: Callable[[], bool]) -> float:
    """How long it took."""
    began = time.monotonic()
    while not met():
        assert time.monotonic() - began < PATIENCE_S
        time.sleep(0.02)
    return time.monotonic() - began


@pytest.mark.alone
def test_a_broker_that_is_away_is_said_at_once_and_again_when_it_is_back() -> None:
    said: list[str] = []
    with running_cluster(brokers=1) as cluster:
        (node_id,) = cluster.nodes
        node = cluster.nodes[node_id]
        watch = BrokerWatch(Session({"bootstrap.servers": cluster.bootstrap_servers}), lambda: (), said.append)
        with watch.watching():
            wait_until(lambda: bool(watch._known))
            node.kill()
            assert wait_until(lambda: bool(said)) < SAID_WITHIN_S
            assert said[0].startswith(f"broker {node_id} (")
            assert "does not answer" in said[0]
            assert watch.away.startswith(f"broker {node_id} (")
            node.start()
            wait_until(lambda: len(said) > 1)
            assert "is back after" in said[1]
            assert watch.away == ""
            node.pause()
            assert wait_until(lambda: len(said) > 2) < SAID_WITHIN_S, "one that hangs takes connections, too"
            node.resume()
            wait_until(lambda: len(said) > 3)
        assert len(said) == 4, said


def writing_to(topics: int) -> Pipeline:
    made = Pipeline(f"to-{topics}")
    made.source("words", sources.topic("words", value=schemas.text()))
    for number in range(topics):
        made.sink(f"out_{number}", "words", sinks.topic(f"out-{topics}-{number}", partitions=2))
    return made


def test_topics_are_asked_about_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many questions for eight topics as for one: each is a round trip to brokers before Spark can start."""
    asked: list[str] = []
    ask = Cluster.ask

    async def counting(self: Cluster, request: Any, *given: Any, **more: Any) -> Any:
        asked.append(type(request).__name__)
        return await ask(self, request, *given, **more)

    with running_node() as node, Brokers(Session({"bootstrap.servers": node.bootstrap_servers})) as brokers:
        brokers.create_topic("words", 3)
        for topics in (1, 8):
            brokers.prepare(writing_to(topics), needs_dead_letters=True)
        monkeypatch.setattr(Cluster, "ask", counting)
        counts = []
        for topics in (1, 8):
            asked.clear()
            brokers.prepare(writing_to(topics), needs_dead_letters=True)
            counts.append(len(asked))
        assert counts[0] == counts[1], asked
        begins, ends = brokers.spans({"words", "out-8-3"})
        assert (
            set(ends)
            == set(begins)
            == {
                *(TopicPartition("words", number) for number in range(3)),
                *(TopicPartition("out-8-3", number) for number in range(2)),
            }
        )
        assert brokers.spans(()) == ({}, {})
        stream = sources.topic(pattern="out-8-.*")
        assert brokers.names([stream, sources.topic("words")]) == {"words", *(f"out-8-{number}" for number in range(8))}


def test_a_run_does_not_stand_still_for_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers_module, "COMMIT_S", 0.5)
    with running_cluster(brokers=1) as cluster:
        (node,) = cluster.nodes.values()
        with Brokers(Session({"bootstrap.servers": cluster.bootstrap_servers})) as brokers:
            brokers.create_topic("words", 1)
            partition = TopicPartition("words", 0)
            wait_until(lambda: brokers.commit("readers", {partition: 0}) == "")
            node.pause()
            began = time.monotonic()
            assert brokers.commit("readers", {partition: 0}) == "no broker has done it within 0.5 s"
            assert time.monotonic() - began < PATIENCE_S / 2
            node.resume()
            wait_until(lambda: brokers.commit("readers", {partition: 0}) == "")
