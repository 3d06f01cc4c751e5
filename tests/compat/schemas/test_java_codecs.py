"""Kafka's own codecs read what ours wrote and write the same bytes again: every declared message in every version.

kio has no metadata records, coordinator records or APIs of ZooKeeper mode; Kafka has.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from tests.compat.maven import KAFKA_VERSION, classpath, require_java
from tests.compat.schemas.kafka_schemas import JARS, ZOOKEEPER_MODE_VERSION
from tests.unit.protocol.generated import declared_messages, structs

from odradek.protocol.codec import Message, encode

pytestmark = pytest.mark.java

EXAMPLES_PER_VERSION = 8
JAVA_TIMEOUT_S = 120
ONLY_IN_ZOOKEEPER_MODE = {"leader_and_isr", "stop_replica", "update_metadata", "controlled_shutdown"}

PACKAGES = {
    "odradek.protocol.frame": "org.apache.kafka.common.message",
    "odradek.metadata.records": "org.apache.kafka.common.metadata",
    "odradek.coordinator.group": "org.apache.kafka.coordinator.group.generated",
    "odradek.coordinator.transaction": "org.apache.kafka.coordinator.transaction.generated",
    "odradek.protocol.messages.quorum_state": "org.apache.kafka.raft.generated",
    "odradek.protocol.messages": "org.apache.kafka.common.message",
}

Case = tuple[type[Message], int]


def belongs_to_zookeeper_mode(cls: type[Message]) -> bool:
    return cls.__module__.rpartition(".")[2] in ONLY_IN_ZOOKEEPER_MODE


def java_class(cls: type[Message]) -> str:
    package = next(package for prefix, package in PACKAGES.items() if cls.__module__.startswith(prefix))
    suffix = "Data" if cls.__name__.endswith(("Request", "Response", "Header")) else ""
    return f"{package}.{cls.__name__}{suffix}"


def cases(*, zookeeper_mode: bool) -> list[Case]:
    return [
        (cls, version)
        for cls in declared_messages()
        for version in cls.versions
        if belongs_to_zookeeper_mode(cls) == zookeeper_mode and (cls.__name__, version) != ("RequestHeader", 0)
    ]


def drawn(cls: type[Message], version: int) -> list[bytes]:
    """The encodings of a few random messages, the same ones in every run."""
    encoded: list[bytes] = []

    @settings(
        max_examples=EXAMPLES_PER_VERSION,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(message=structs(cls, version))
    def draw(message: Message) -> None:
        encoded.append(encode(message, version))

    draw()
    return encoded


@pytest.mark.parametrize(
    ("zookeeper_mode", "jars"),
    [
        (False, [f"org.apache.kafka:{jar}:{KAFKA_VERSION}" for jar in JARS]),
        (True, [f"org.apache.kafka:kafka-clients:{ZOOKEEPER_MODE_VERSION}"]),
    ],
    ids=["KRaft", "ZooKeeper"],
)
def test_kafka_reads_and_writes_the_same_bytes(*, zookeeper_mode: bool, jars: list[str]) -> None:
    require_java()
    sent = [
        (cls, version, encoded)
        for cls, version in cases(zookeeper_mode=zookeeper_mode)
        for encoded in drawn(cls, version)
    ]
    lines = [f"{java_class(cls)} {version} {encoded.hex()}\n" for cls, version, encoded in sent]
    program = Path(__file__).with_name("RoundTrip.java")
    outcome = subprocess.run(
        ["java", "-Xmx512m", "-cp", classpath(jars), str(program)],
        input="".join(lines),
        capture_output=True,
        text=True,
        timeout=JAVA_TIMEOUT_S,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    answers = outcome.stdout.splitlines()
    assert len(answers) == len(sent) >= len(cases(zookeeper_mode=zookeeper_mode))
    wrong = [
        f"{cls.__name__} v{version}: sent {encoded.hex()}, Kafka left {answer}"
        for (cls, version, encoded), answer in zip(sent, answers, strict=True)
        if answer != f"0 {encoded.hex()}"
    ]
    assert not wrong, "\n".join(wrong)
