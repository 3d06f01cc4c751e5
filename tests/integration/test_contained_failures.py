"""What is broken in Odradek itself and costs a request is told: to who asked, as a metric, and by `cluster health`."""

from __future__ import annotations

import json
import pathlib
import urllib.request
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.cli import Cli

from odradek.metadata.controller import topics as topic_decisions
from odradek.testing.cluster import running_cluster
from odradek.testing.ports import free_port

PATIENCE_S = 30


def test_a_failure_is_told_wherever_somebody_looks(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deciding = topic_decisions.create_topics

    def create_topics(image: Any, request: Any, **how: Any) -> Any:
        if request.topics[0].name == "bad":
            raise ZeroDivisionError("planted")
        return deciding(image, request, **how)

    monkeypatch.setattr("odradek.server.controller.controller.create_topics", create_topics)
    url = f"http://127.0.0.1:{free_port()}"
    with running_cluster(brokers=1, in_process=True, properties={"odradek.http.listener": url}) as cluster:
        cli = Cli(cluster.bootstrap_servers, tmp_path)
        whole = cli.json("cluster", "health")
        assert (whole["healthy"], whole["unexpected_failures"]) == (True, {"1": 0})
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        with pytest.raises(KafkaException) as refused:
            admin.create_topics([NewTopic("bad", 1, 1)])["bad"].result(PATIENCE_S)
        assert refused.value.args[0].code() == KafkaError.UNKNOWN
        admin.create_topics([NewTopic("good", 1, 1)])["good"].result(PATIENCE_S)
        with urllib.request.urlopen(f"{url}/metrics", timeout=PATIENCE_S) as page:
            assert b'odradek_unexpectedfailures_total{cost="request"} 1\n' in page.read()
        with urllib.request.urlopen(f"{url}/health", timeout=PATIENCE_S) as health:
            assert json.loads(health.read())["unexpected_failures"] == 1
        told = cli.ok("cluster", "health").out
        assert ["Contained", "failures", "1", "in", "broker", "1"] in [line.split() for line in told.splitlines()]


def test_brokers_that_do_not_tell_are_left_out(tmp_path: pathlib.Path) -> None:
    with running_cluster(brokers=1, in_process=True) as cluster:
        told = Cli(cluster.bootstrap_servers, tmp_path).json("cluster", "health")
        assert (told["healthy"], told["unexpected_failures"]) == (True, {})
