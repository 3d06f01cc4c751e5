"""What Prometheus and a health check read from a running node."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from math import isnan

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

pytest.register_assert_rewrite("tests.integration.cli_transaction_cases")

from tests.integration.cli_transaction_cases import UNVERIFIED, write_late  # noqa: E402

from odradek.client.admin.cluster import ConfigChange, ConfigResource, ResourceType  # noqa: E402
from odradek.clients import connect  # noqa: E402
from odradek.testing import RunningNode, running_node  # noqa: E402
from odradek.testing.ports import free_port  # noqa: E402


@pytest.fixture
def watched() -> Iterator[tuple[RunningNode, str]]:
    port = free_port()
    with running_node(properties={"odradek.http.listener": f"http://127.0.0.1:{port}"}) as node:
        yield node, f"http://127.0.0.1:{port}"


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as response:
        text: str = response.read().decode()
        return text


def samples(page: str) -> dict[str, float]:
    found = {}
    for line in page.splitlines():
        if not line.startswith("#"):
            name, _, number = line.rpartition(" ")
            assert re.fullmatch(r'[a-z_]+(\{([a-zA-Z]+="[^"]*",?)+\})?', name), line
            assert name not in found, line
            found[name] = float(number)
    return found


def test_what_clients_do_is_counted_under_kafkas_names(watched: tuple[RunningNode, str]) -> None:
    node, url = watched
    servers = {"bootstrap.servers": node.bootstrap_servers}
    admin = AdminClient(servers)
    admin.create_topics([NewTopic("watched", 2, 1)])["watched"].result(10)
    producer = Producer(servers)
    for number in range(100):
        producer.produce("watched", b"x" * 50, partition=number % 2)
    assert producer.flush(10) == 0
    consumer = Consumer({**servers, "group.id": "readers", "enable.auto.commit": False})
    consumer.assign([TopicPartition("watched", index, 0) for index in range(2)])
    assert len([consumer.poll(10) for _ in range(100)]) == 100
    consumer.close()
    page = samples(read(f"{url}/metrics"))
    for labels in ("", '{topic="watched"}'):
        assert page[f"kafka_server_brokertopicmetrics_messagesin_total{labels}"] == 100
        assert page[f"kafka_server_brokertopicmetrics_bytesin_total{labels}"] > 5_000
        assert page[f"kafka_server_brokertopicmetrics_bytesout_total{labels}"] > 5_000
    assert page['kafka_log_log_logendoffset{topic="watched",partition="1"}'] == 50
    assert page["kafka_server_replicamanager_partitioncount"] >= 2
    assert page["kafka_server_replicamanager_underreplicatedpartitions"] == 0
    assert page["kafka_controller_kafkacontroller_activecontrollercount"] == 1
    assert page["kafka_controller_kafkacontroller_globaltopiccount"] >= 1
    produced = [number for name, number in page.items() if "requests_total" in name and 'request="Produce"' in name]
    assert sum(produced) >= 1


def test_what_transactions_do_is_told_under_kafkas_names(watched: tuple[RunningNode, str]) -> None:
    node, url = watched
    servers = {"bootstrap.servers": node.bootstrap_servers}
    asyncio.run(prepare(node))
    producer = Producer({**servers, "transactional.id": "pay"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for partition in range(2):
        producer.produce("paid", b"x", partition=partition)
    assert producer.flush(30) == 0
    prefix = "kafka_server_addpartitionstotxnmanager_"
    page = samples(read(f"{url}/metrics"))
    assert page[f"{prefix}verificationtimems_count"] >= 1
    assert page[f"{prefix}verificationfailurerate_count"] == 0
    assert page["kafka_server_replicamanager_produceridcount"] == 2
    assert page['kafka_server_metadataloader_finalizedlevel{featureName="transactionVersion"}'] == 2
    assert isnan(page["kafka_server_transaction_coordinator_metrics_partition_load_time_max"])
    queues = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"
    assert page[f"{queues}unknowndestinationqueuesize"] == page[f"{queues}logappendretryqueuesize"] == 0
    producer.commit_transaction(30)
    with pytest.raises(AssertionError, match="error_code"):
        asyncio.run(write_late(node.bootstrap_servers, "young"))
    assert samples(read(f"{url}/metrics"))[f"{prefix}verificationfailurerate_count"] == 1
    asyncio.run(stop_verifying(node))
    hanging = "kafka_server_replicamanager_partitionswithlatetransactionscount"
    asyncio.run(write_late(node.bootstrap_servers, "young", age_s=19 * 60))
    assert samples(read(f"{url}/metrics"))[hanging] == 0  # Its coordinator may be about to end it.
    asyncio.run(write_late(node.bootstrap_servers, "old", age_s=21 * 60))
    assert samples(read(f"{url}/metrics"))[hanging] == 1
    node.restart()
    page = samples(read(f"{url}/metrics"))
    assert page["kafka_server_transaction_coordinator_metrics_partition_load_time_max"] >= 0
    assert page["kafka_server_transaction_coordinator_metrics_partition_load_time_avg"] >= 0


async def prepare(node: RunningNode) -> None:
    async with connect(node.bootstrap_servers).admin() as admin:
        for name in ("paid", "young", "old"):
            await admin.create_topic(name, partitions=2)


async def stop_verifying(node: RunningNode) -> None:
    name, _, setting = UNVERIFIED.partition("=")
    async with connect(node.bootstrap_servers).admin() as admin:
        everyone = ConfigResource(ResourceType.BROKER, "")
        assert await admin.alter_configs({everyone: [ConfigChange(name, setting)]}) == {everyone: None}


def test_totals_survive_the_topic(watched: tuple[RunningNode, str]) -> None:
    node, url = watched
    servers = {"bootstrap.servers": node.bootstrap_servers}
    producer = Producer(servers)
    producer.produce("gone", b"soon")
    assert producer.flush(10) == 0
    admin = AdminClient(servers)
    admin.delete_topics(["gone"])["gone"].result(10)
    page = samples(read(f"{url}/metrics"))
    assert page["kafka_server_brokertopicmetrics_messagesin_total"] == 1
    assert not [name for name in page if "gone" in name]


def test_health_and_what_is_not_there(watched: tuple[RunningNode, str]) -> None:
    _, url = watched
    assert json.loads(read(f"{url}/health"))["status"] == "ok"
    with pytest.raises(urllib.error.HTTPError) as missing:
        read(f"{url}/nothing")
    assert missing.value.code == 404
    missing.value.close()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(f"{url}/metrics", data=b"x"), timeout=10)
    assert refused.value.code == 405
    refused.value.close()


@pytest.mark.parametrize("sent", [b"\x00\x00\x00\x10kafka?\r\n\r\n", b"x" * 20_000, b"GET /metrics"])
def test_bytes_that_are_no_http_harm_nobody(watched: tuple[RunningNode, str], sent: bytes) -> None:
    _, url = watched
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=10) as wire:
        wire.sendall(sent)
        if not sent.startswith(b"GET"):
            assert wire.recv(100).startswith(b"HTTP/1.1 400")
    assert json.loads(read(f"{url}/health"))["status"] == "ok"
