"""`odradek`'s command line against Apache Kafka: it speaks to Kafka's brokers, not only to its own."""

from __future__ import annotations

import asyncio
import re
import subprocess
import time

import pytest
from bench.servers import Server
from tests.integration.cli import PATIENCE_S, Cli

pytest.register_assert_rewrite("tests.integration.cli_transaction_cases")

from tests.integration.cli_transaction_cases import CASES, Case  # noqa: E402

from odradek.client import GroupMetadata, TopicPartition  # noqa: E402
from odradek.clients import connect  # noqa: E402

pytestmark = [pytest.mark.compat, pytest.mark.java]


@pytest.fixture(scope="module")
def kafka(apache_kafka: Server, tmp_path_factory: pytest.TempPathFactory) -> Cli:
    """The command line with that broker."""
    return Cli(apache_kafka.bootstrap, tmp_path_factory.mktemp("home"))


def test_the_cluster(kafka: Cli) -> None:
    told = kafka.json("cluster", "info")
    assert [each["id"] for each in told["brokers"]] == [1]
    assert told["features"]["metadata.version"] > 0
    assert ["Controller", "1"] in kafka.ok("cluster", "info").rows


def test_features(kafka: Cli) -> None:
    """Of which Kafka has more: their levels by release are known here, too."""
    (shares,) = [each for each in kafka.json("feature", "describe")["features"] if each["feature"] == "share.version"]
    assert (shares["level"], shares["min_supported"], shares["max_supported"]) == (1, 0, 1)
    assert "INVALID_UPDATE_VERSION" in kafka.refused("feature", "upgrade", "-f", "share.version=9")
    assert kafka.ok("feature", "downgrade", "-f", "share.version=0").out == "share.version downgraded from 1 to 0.\n"
    raised = kafka.ok("feature", "upgrade", "--release-version", "4.3").out.splitlines()
    assert "share.version upgraded from 0 to 1." in raised
    assert "transaction.version is at 2 already." in raised


def test_topics(kafka: Cli) -> None:
    kafka.ok("topic", "create", "cities", "--partitions", 3, "--config", "retention.ms=3600000")
    kafka.ok("produce", "cities", "--partition", 0, stdin="x" * 5000 + "\n")
    (told,) = kafka.json("topic", "describe", "cities")
    assert told["configs"]["retention.ms"] == "3600000"
    assert [each["end_offset"] for each in told["partitions"]] == [1, 0, 0]
    assert told["size_bytes"] > 5000
    assert told["size_skew"] == 3.0
    assert kafka.refused("topic", "describe", "citie") == "there is no topic citie. Did you mean cities?"
    kafka.ok("topic", "alter", "cities", "--partitions", 4)
    assert kafka.json("topic", "trim", "cities", "--all", "--partition", 0)[0]["start_offset"] == 1
    kafka.ok("topic", "delete", "cities")
    assert "cities" not in [each["name"] for each in kafka.json("topic", "list")]


def test_records_and_groups(kafka: Cli) -> None:
    kafka.ok("topic", "create", "events", "--partitions", 2)
    lines = "".join(f"key-{number}:value {number}\n" for number in range(100))
    told = kafka.json("produce", "events", "--key-separator", ":", "--compression", "zstd", stdin=lines)
    assert told["records"] == 100
    assert len(kafka.json_lines("consume", "events")) == 100
    first = kafka.ok("consume", "events", "--group", "readers", "--max-messages", 60)
    assert "committed" in first.err
    (group,) = kafka.json("group", "describe", "readers")
    assert sum(each["lag"] for each in group["partitions"]) == 40
    assert ["readers", "classic", "Empty"] in [row[:3] for row in kafka.ok("group", "list").rows]
    kafka.ok("group", "reset-offsets", "readers", "--all-topics", "--to-earliest", "--execute")
    assert len(kafka.json_lines("consume", "events", "--group", "readers")) == 100
    kafka.ok("group", "delete-offsets", "readers", "--topic", "events:0")
    kafka.ok("group", "delete", "readers")
    assert kafka.json("group", "list") == []


def test_members(kafka: Cli) -> None:
    kafka.ok("topic", "create", "watched")
    follower = subprocess.Popen(
        kafka.command("consume", "watched", "--group", "watchers", "--follow"),
        env=kafka.environment(),
        stdout=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while "Stable" not in kafka.run("group", "describe", "watchers", "--state").out:
            assert time.monotonic() < deadline
        (told,) = kafka.json("group", "describe", "watchers", "--members")
        assert [each["assignment"] for each in told["members"]] == [["watched-0"]]
        assert "stop them first" in kafka.refused("group", "delete", "watchers")
    finally:
        follower.terminate()
        follower.wait()


def test_settings_rules_and_quotas(kafka: Cli) -> None:
    kafka.ok("topic", "create", "ruled")
    kafka.ok("config", "set", "topic", "ruled", "retention.ms=5000")
    assert kafka.ok("config", "describe", "topic", "ruled").rows[1:] == [["retention.ms", "5000", "topic"]]
    assert "INVALID_CONFIG" in kafka.refused("config", "set", "topic", "ruled", "retention.ms=soon")
    rule = ("--topic", "ruled", "--principal", "User:alice", "--operation", "read")
    kafka.ok("acl", "add", *rule)
    assert [each["operation"] for each in kafka.json("acl", "list", "--topic", "ruled")] == ["read"]
    assert len(kafka.json("acl", "remove", *rule)) == 1
    kafka.ok("quota", "set", "--user", "alice", "producer_byte_rate=1000")
    assert kafka.json("quota", "list")[0]["quotas"] == {"producer_byte_rate": 1000.0}
    kafka.ok("quota", "unset", "--user", "alice", "producer_byte_rate")
    assert re.search("^No quotas are set", kafka.ok("quota", "list").out)


def test_log_files_of_a_running_broker(kafka: Cli, apache_kafka: Server) -> None:
    """Whose indexes end in zeros while their segment is active."""
    settings = ("--config", "segment.bytes=1048576", "--config", "index.interval.bytes=500")
    kafka.ok("topic", "create", "stored", *settings)
    kafka.ok("produce", "stored", stdin=f"{'x' * 200}\n" * 10_000)
    kafka.ok("produce", "stored", "--compression", "lz4", stdin=f"{'x' * 200}\n" * 100)
    (told,) = kafka.json("log", "verify", apache_kafka.data / "stored-0")
    assert (told["records"], told["problems"]) == (10_100, [])
    assert told["segments"] >= 2
    (shown,) = kafka.json("log", "dump", apache_kafka.data / "stored-0")
    assert 0 < shown["segments"][-1]["index_entries"] < 1000


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_transactions(case: Case, kafka: Cli) -> None:
    case(kafka, case.__name__.replace("_", "-"))


def test_log_files_of_transactions(kafka: Cli, apache_kafka: Server) -> None:
    """As Kafka's coordinator and leaders write them."""

    async def write() -> None:
        async with connect(apache_kafka.bootstrap).producer({"transactional.id": "dumped"}) as producer:
            await producer.init_transactions()
            async with producer.transaction():
                await producer.submit("dumped", b"kept")
                await producer.send_offsets_to_transaction({TopicPartition("dumped", 0): 1}, GroupMetadata("dumpers"))
            producer.begin_transaction()
            await producer.submit("dumped", b"dropped")
            await producer.flush()
            await producer.abort_transaction()

    kafka.ok("topic", "create", "dumped")
    asyncio.run(write())
    partition = apache_kafka.data / "dumped-0"
    batches = kafka.json_lines("log", "dump", partition / f"{0:020d}.log")
    assert [each["control_type"] for each in batches] == [None, "COMMIT", None, "ABORT"]
    assert [each["coordinator_epoch"] for each in batches] == [None, 0, None, 0]
    (aborted,) = kafka.json("log", "dump", partition / f"{0:020d}.txnindex")
    assert (aborted["first_offset"], aborted["last_offset"], aborted["last_stable_offset"]) == (2, 3, 4)
    logged = [
        (record["value"]["transaction_status"], record["value"]["transaction_partitions"])
        for path in apache_kafka.data.glob("__transaction_state-*/*.log")
        for batch in kafka.json_lines("log", "dump", path, "--records")
        for record in batch["records"]
        if record["key"] == {"transactional_id": "dumped"}
    ]
    states = [state for state, _ in logged]
    assert states[:2] == ["Empty", "Ongoing"]
    assert states[-2:] == ["PrepareAbort", "CompleteAbort"]
    assert any({"topic": "dumped", "partition_ids": [0]} in (partitions or ()) for _, partitions in logged)
