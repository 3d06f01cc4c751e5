"""A log directory is a Kafka log directory: Kafka's tool reads it; each broker carries on where the other stopped."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench import wire
from bench.apache_kafka import ApacheKafka, tool
from bench.cells import wait_for_partitions
from bench.servers import Server
from tests.compat.brokers import new_server, running
from tests.compat.clients import CONFLUENT, ProducerSettings, Record
from tests.compat.conversation import Conversation
from tests.compat.transactional import TRANSACTIONAL_CLIENTS, end
from tests.compat.wire_producer import ADDING, Producer, finish, init, wait_for_coordinators

pytestmark = [pytest.mark.compat, pytest.mark.java]

BASE_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SMALL_SEGMENTS = {"segment.bytes": "1048576", "index.interval.bytes": "4096"}


def fill(server: Server, topic: str, *, partitions: int = 2, rounds: int = 1) -> list[Record]:
    """Records in every codec, from idempotent and plain producers, over several small segments."""
    sent: list[Record] = []
    for turn in range(rounds):
        for number, codec in enumerate(CODECS):
            records = [
                Record(
                    index % partitions,
                    BASE_MS + len(sent) + index,
                    b"%d" % index,
                    os.urandom(700),
                    (("codec", codec.encode()),),
                )
                for index in range(1_000)
            ]
            how = ProducerSettings(compression=codec, idempotent=(number + turn) % 2 == 0)
            CONFLUENT.produce(server.bootstrap, topic, records, how)
            sent += records
    return sent


def make_topic(server: Server, topic: str, partitions: int = 2) -> None:
    with wire.Connection(server.port) as connection:
        assert wire.create_topic(connection, topic, partitions, SMALL_SEGMENTS) == 0
        wait_for_partitions(connection, topic, partitions)


def assert_serves(server: Server, topic: str, records: list[Record], partitions: int = 2) -> None:
    """Every record, in order, with its offset."""
    for index in range(partitions):
        wanted = [record for record in records if record.partition == index]
        seen = CONFLUENT.consume(server.bootstrap, topic, {index: 0}, len(wanted))
        assert seen == list(enumerate(wanted))


def dump(*files: Path, options: tuple[str, ...] = ()) -> str:
    """What kafka-dump-log says about the files."""
    names = ",".join(map(str, files))
    return tool("org.apache.kafka.tools.DumpLogSegments", "--files", names, *options)


def test_kafkas_dump_tool_reads_the_files_without_complaint(tmp_path: Path) -> None:
    with running(new_server(tmp_path)) as server:
        make_topic(server, "dumped")
        records = fill(server, "dumped")
    directory = tmp_path / "data" / "dumped-0"
    logs = sorted(directory.glob("*.log"))
    assert len(logs) > 1, "the test means to see several segments"
    said = dump(*logs, options=("--deep-iteration", "--print-data-log"))
    payloads = re.findall(r"^\| offset: (\d+) CreateTime: (\d+) keySize: (\d+) valueSize: (\d+)", said, re.MULTILINE)
    wanted = [record for record in records if record.partition == 0]
    assert [(int(offset), int(stamp)) for offset, stamp, _, _ in payloads] == [
        (offset, record.timestamp_ms) for offset, record in enumerate(wanted)
    ]
    assert "isvalid: false" not in said.lower()
    assert "isvalid: true" in said.lower()
    indexes = [*sorted(directory.glob("*.index")), *sorted(directory.glob("*.timeindex"))]
    assert len(indexes) == 2 * len(logs)
    checked = dump(*indexes, options=("--index-sanity-check",))
    # An index may be empty where the segment is shorter than the interval; the tool says so, which is no complaint.
    assert checked.count("passed sanity check") + checked.count("is empty") == len(indexes), checked
    assert checked.count("passed sanity check") > len(logs), checked
    verified = dump(*indexes, options=("--verify-index-only",))
    for complaint in ("Mismatches in", "does not match", "out of order", "Found timestamp mismatch"):
        assert complaint not in verified, verified
    snapshots = sorted(directory.glob("*.snapshot"))
    assert snapshots, "a producer snapshot is written at each roll"
    assert "producerId: " in dump(snapshots[-1])


def test_kafkas_dump_tool_reads_the_metadata_log(tmp_path: Path) -> None:
    with running(new_server(tmp_path)) as server:
        make_topic(server, "in-metadata", 3)
    directory = tmp_path / "data" / "__cluster_metadata-0"
    said = dump(*sorted(directory.glob("*.log")), options=("--cluster-metadata-decoder",))
    assert '"type":"TOPIC_RECORD","version":0,"data":{"name":"in-metadata"' in said
    assert said.count('"type":"PARTITION_RECORD"') == 3
    assert '"type":"REGISTER_BROKER_RECORD"' in said
    assert '"name":"metadata.version"' in said + "".join(
        dump(snapshot, options=("--cluster-metadata-decoder",))
        for snapshot in sorted(tmp_path.rglob("*.checkpoint"))
        if re.match(r"\d{20}-\d{10}|bootstrap", snapshot.name)
    )
    assert "isvalid: false" not in said.lower()


@pytest.mark.parametrize("ending", ["clean stop", "kill -9"])
def test_apache_kafka_carries_on(tmp_path: Path, ending: str) -> None:
    with running(new_server(tmp_path)) as server:
        make_topic(server, "handed-over")
        records = fill(server, "handed-over")
        if ending == "kill -9":
            server.kill()
    with running(ApacheKafka(tmp_path)) as successor:
        assert_serves(successor, "handed-over", records)
        records += fill(successor, "handed-over")
        assert_serves(successor, "handed-over", records)
    said = (tmp_path / "kafka.log").read_text()
    assert "ERROR" not in said, said


@pytest.mark.parametrize("ending", ["clean stop", "kill -9"])
def test_odradek_carries_on_from_apache_kafka(tmp_path: Path, ending: str) -> None:
    with running(ApacheKafka(tmp_path)) as server:
        make_topic(server, "taken-over")
        records = fill(server, "taken-over")
        if ending == "kill -9":
            server.kill()
    with running(new_server(tmp_path)) as successor:
        assert_serves(successor, "taken-over", records)
        records += fill(successor, "taken-over")
        make_topic(successor, "new-here")
        new = fill(successor, "new-here")
        assert_serves(successor, "taken-over", records)
    if ending == "kill -9":
        return  # the second way back starts from the same clean stop
    with running(ApacheKafka(tmp_path)) as last:
        assert_serves(last, "taken-over", records)
        assert_serves(last, "new-here", new)


@contextlib.contextmanager
def talking_to(server: Server) -> Iterator[Conversation]:
    """Once its coordinators are ready."""
    with contextlib.closing(Conversation(server.port)) as talking:
        wait_for_coordinators(talking)
        yield talking


def write(talking: Conversation, producer: Producer, sequence: int) -> None:
    """A record that says whose it is to both partitions."""
    for partition in (0, 1):
        value = f"{producer.transactional_id} {sequence}".encode()
        request = producer.produce(sequence, topic="ledger", partition=partition, value=value)
        (topic,) = talking.ask("write", request, ADDING).responses
        assert topic.partition_responses[0].error_code == 0, talking.lines[-1]


def commit_offset(talking: Conversation, producer: Producer, offset: int) -> None:
    answer = talking.ask("offset", producer.commit_offsets("group", offset, topic="ledger"), 5)
    assert answer.topics[0].partitions[0].error_code == 0, talking.lines[-1]


def committed_offset(server: Server) -> int | None:
    reader = TRANSACTIONAL_CLIENTS[0].consumer(server.bootstrap, [], group="group", topic="ledger")
    with contextlib.closing(reader):
        return reader.committed(("ledger", 0))


@pytest.mark.parametrize("ending", ["clean stop", "kill -9"])
@pytest.mark.parametrize(
    ("first", "second"), [(new_server, ApacheKafka), (ApacheKafka, new_server)], ids=["to-kafka", "to-odradek"]
)
def test_transactions_go_on(
    tmp_path: Path, first: Callable[[Path], Server], second: Callable[[Path], Server], ending: str
) -> None:
    """What is committed, aborted and open is so to the successor, which ends what is open as its producers ask."""
    with running(first(tmp_path)) as server, talking_to(server) as talking:
        make_topic(server, "ledger")
        for name in ("committed", "aborted"):
            producer = Producer(talking, name)
            write(talking, producer, 0)
            commit_offset(talking, producer, 1 if name == "committed" else 100)
            finish(talking, producer, 5, commit=name == "committed")
        left_open = [Producer(talking, name) for name in ("to-commit", "to-abort", "to-fence")]
        for offset, producer in enumerate(left_open, start=2):
            write(talking, producer, 0)
            commit_offset(talking, producer, offset)
        if ending == "kill -9":
            server.kill()
    places = [("ledger", 0), ("ledger", 1)]
    with running(second(tmp_path)) as server, talking_to(server) as talking:
        end(server.bootstrap, places)
        with contextlib.closing(TRANSACTIONAL_CLIENTS[0].consumer(server.bootstrap, places)) as reader:
            assert {value for _, _, value in reader.read(2)} == {b"committed 0"}
            assert reader.poll() == []  # The rest lies behind transactions that are open.
            to_commit, to_abort, to_fence = left_open
            write(talking, to_commit, 1)
            write(talking, to_abort, 1)
            finish(talking, to_abort, 5, commit=False)
            finish(talking, to_commit, 5)
            assert talking.settle("fence", init(to_fence.transactional_id), 5).error_code == 0
            values = {value for _, _, value in reader.read(6)}
        assert values >= {b"to-commit 0", b"to-commit 1"}
        assert committed_offset(server) == 2
        for client in TRANSACTIONAL_CLIENTS:
            committed = [b"committed 0", b"to-commit 0", b"to-commit 1"]
            assert client.read_all(server.bootstrap, places) == sorted(2 * committed), client
        with_aborted = [b"aborted 0", b"to-abort 0", b"to-abort 1", b"to-fence 0", *committed]
        assert TRANSACTIONAL_CLIENTS[0].read_all(server.bootstrap, places, committed=False) == sorted(2 * with_aborted)
    assert "ERROR" not in (tmp_path / f"{server.kind}.log").read_text()
