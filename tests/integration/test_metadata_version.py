"""metadata.version is raised while brokers serve: they make known what an older one had no place for."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.integration.cluster_asking import ask, eventually

from odradek.client.admin.topics import NewTopic
from odradek.metadata.features import SUPPORTED_FEATURES
from odradek.metadata.records import PartitionChangeRecord, RegisterBrokerRecord
from odradek.metadata.serde import decode_record
from odradek.protocol.codec import Message
from odradek.protocol.records.batch import BATCH_HEADER, BatchHeader, decode_records, iter_batches
from odradek.testing.cluster import RunningCluster

OLD_RELEASE, OLD_LEVEL = "3.6", 14
NEWEST = next(each.maximum for each in SUPPORTED_FEATURES if each.name == "metadata.version")
CONTROLLER = 101


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    """Two brokers and a controller, formatted as Kafka 3.6 would have them: nobody knew of log directories then."""
    running = RunningCluster(
        str(tmp_path), brokers=2, controllers=1, in_process=False, properties={}, log_dirs=1, places=()
    )
    try:
        for node in running.nodes.values():
            shutil.rmtree(node.data_directory)
            options = ["--cluster-id", running.cluster_id, "--release-version", OLD_RELEASE]
            command = ["storage", "format", "--config", str(node.properties_file), *options]
            subprocess.run([sys.executable, "-m", "odradek", *command], check=True, capture_output=True, timeout=60)
        running.start()
        yield running
    finally:
        running.close()


def test_brokers_register_anew_and_serve_on(cluster: RunningCluster) -> None:
    first = cluster.nodes[1]
    level = ask(first, lambda admin: admin.describe_features()).finalized_features
    assert {each.name: each.max_version_level for each in level} == {"metadata.version": OLD_LEVEL}
    new = NewTopic("t", assignments=((1, 2), (2, 1)))
    assert ask(first, lambda admin: admin.create_topics([new])) == {"t": None}
    produce(cluster)
    assert ask(first, lambda admin: admin.update_features({"metadata.version": NEWEST})) == {"metadata.version": None}
    eventually(lambda: len(registrations(cluster)) == 4, "both are registered anew")
    assert sorted((each.broker_id, len(each.log_dirs)) for each in registrations(cluster)) == [
        (1, 0),
        (1, 1),
        (2, 0),
        (2, 1),
    ]
    assert len({(each.broker_id, each.broker_epoch) for each in registrations(cluster)}) == 2
    eventually(lambda: len(places(cluster)) == 4, "where partitions are is on record")
    produce(cluster)
    topic = ask(first, lambda admin: admin.describe_topics(["t"]))["t"]
    assert not isinstance(topic, Exception)
    assert [(each.leader, each.isr) for each in topic.partitions] == [(1, (1, 2)), (2, (2, 1))]


def produce(cluster: RunningCluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 0})
    for partition in (0, 1):
        producer.produce("t", b"x", partition=partition)
    assert producer.flush(30) == 0


def records(cluster: RunningCluster) -> list[Message]:
    """All that the metadata log holds."""
    directory = cluster.nodes[CONTROLLER].data_directory / "__cluster_metadata-0"
    log = memoryview((directory / "00000000000000000000.log").read_bytes())
    return [
        decode_record(record.value)
        for batch in iter_batches(log)
        if not BatchHeader(*BATCH_HEADER.unpack_from(batch)).is_control
        for record in decode_records(batch)
        if record.value is not None
    ]


def registrations(cluster: RunningCluster) -> list[RegisterBrokerRecord]:
    return [record for record in records(cluster) if isinstance(record, RegisterBrokerRecord)]


def places(cluster: RunningCluster) -> dict[tuple[int, bytes], None]:
    """The directories that partitions are said to be in."""
    changes = [each for each in records(cluster) if isinstance(each, PartitionChangeRecord) and each.directories]
    unknown = bytes(16)
    return {
        (each.partition_id, bytes(directory)): None
        for each in changes
        for directory in each.directories or ()
        if directory != unknown
    }
