"""Apache Kafka's kafka-transactions, as it comes, against the cluster."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import pytest
from bench.apache_kafka import tool
from bench.clusters import Cluster
from tests.compat.brokers import new_cluster
from tests.compat.patience import eventually
from tests.integration.cli import PATIENCE_S, Cli

pytest.register_assert_rewrite("tests.integration.cli_transaction_cases")

from tests.integration.cli_transaction_cases import NOBODY, UNVERIFIED, begin, write_late  # noqa: E402

pytestmark = [pytest.mark.compat, pytest.mark.java]

DUMP = "org.apache.kafka.tools.DumpLogSegments"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with new_cluster(tmp_path_factory.mktemp("transactions")) as running:
        yield running


@pytest.fixture(scope="module")
def cli(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Cli:
    return Cli(cluster.bootstrap, tmp_path_factory.mktemp("home"))


def rows(cluster: Cluster, *arguments: object) -> list[dict[str, str]]:
    """The tool's table, a row by its headings; only of tables in which no cell is empty."""
    headings, *found = [
        line.split() for line in tool(TRANSACTIONS, "--bootstrap-server", cluster.bootstrap, *arguments).splitlines()
    ]
    return [dict(zip(headings, row, strict=True)) for row in found]


def test_what_is_open_is_listed_and_described(cluster: Cluster, cli: Cli) -> None:
    cli.ok("topic", "create", "orders", "--replication-factor", 3)
    first, second = begin(cli, "first", "orders"), begin(cli, "second", "orders", values=2)
    first.commit_transaction(PATIENCE_S)

    def states() -> dict[str, str]:
        return {row["TransactionalId"]: row["TransactionState"] for row in rows(cluster, "list")}

    eventually(states, {"first": "CompleteCommit", "second": "Ongoing"})
    assert [row["TransactionalId"] for row in rows(cluster, "list", "--transactional-id-pattern", "s.*")] == ["second"]
    (described,) = rows(cluster, "describe", "--transactional-id", "second")
    assert described["TransactionState"] == "Ongoing"
    assert described["TransactionTimeoutMs"] == "60000"
    assert described["TopicPartitions"] == "orders-0"
    assert 0 <= int(described["TransactionDurationMs"]) < 60_000
    partition = ("--topic", "orders", "--partition", 0)
    for broker in ((), ("--broker-id", 1), ("--broker-id", 2), ("--broker-id", 3)):
        producers = {row["ProducerId"]: row for row in rows(cluster, "describe-producers", *broker, *partition)}
        producer = producers[described["ProducerId"]]
        assert producer["ProducerEpoch"] == described["ProducerEpoch"]
        assert producer["CurrentTransactionStartOffset"] == "1"
        assert sorted(row["CurrentTransactionStartOffset"] for row in producers.values()) == ["1", "None"]
    assert rows(cluster, "find-hanging", "--topic", "orders", "--max-transaction-timeout", 0) == []
    second.abort_transaction(PATIENCE_S)
    eventually(lambda: states()["second"], "CompleteAbort")


def test_unknown_ids(cluster: Cluster) -> None:
    said = tool(
        TRANSACTIONS, "--bootstrap-server", cluster.bootstrap, "describe", "--transactional-id", "nobody", check=False
    )
    assert "Failed to describe transaction state of transactional-id `nobody`" in said
    assert "could not be found" in said


def test_what_hangs_is_found_and_aborted(cluster: Cluster, cli: Cli) -> None:
    cli.ok("topic", "create", "hung", "--replication-factor", 3)
    cli.ok("config", "set", "broker", "default", UNVERIFIED)
    asyncio.run(write_late(cli.bootstrap, "hung", age_s=3600))
    cli.ok("config", "unset", "broker", "default", UNVERIFIED.partition("=")[0])
    cli.ok("produce", "hung", stdin="behind\n")
    (hanging,) = rows(cluster, "find-hanging", "--topic", "hung")
    assert (hanging["ProducerId"], hanging["StartOffset"]) == (str(NOBODY), "0")
    assert cli.json_lines("consume", "hung", "--isolation-level", "read_committed") == []
    abort = ("abort", "--topic", "hung", "--partition", 0, "--start-offset", 0)
    assert tool(TRANSACTIONS, "--bootstrap-server", cluster.bootstrap, *abort) == ""
    assert rows(cluster, "find-hanging", "--topic", "hung") == []
    records = cli.json_lines("consume", "hung", "--isolation-level", "read_committed")
    assert [each["value"] for each in records] == ["behind"]


def test_a_transaction_is_ended_by_force(cluster: Cluster, cli: Cli) -> None:
    """By an administrator who knows the transactional id (FenceProducers)."""
    cli.ok("topic", "create", "forced")
    begin(cli, "forced", "forced")
    address = ("--bootstrap-server", cluster.bootstrap)
    tool(TRANSACTIONS, *address, "forceTerminateTransaction", "--transactionalId", "forced")
    (listed,) = [row for row in rows(cluster, "list") if row["TransactionalId"] == "forced"]
    assert listed["TransactionState"] == "Empty"  # The one who shut the other out has begun nothing.
    assert cli.json("transaction", "describe", "forced")[0]["partitions"] == []
    assert cli.json_lines("consume", "forced", "--isolation-level", "read_committed") == []


def test_dump_log_segments_reads_what_transactions_leave(cluster: Cluster, cli: Cli) -> None:
    """Records of the coordinator's log, markers, and the index of aborted transactions."""
    cli.ok("topic", "create", "dumped")
    for end in ("commit_transaction", "abort_transaction"):
        getattr(begin(cli, "dumper", "dumped", values=2), end)(PATIENCE_S)
    eventually(lambda: cli.json("transaction", "describe", "dumper")[0]["state"], "CompleteAbort")
    leader = next(each for each in cluster.servers if (each.data / "dumped-0").is_dir())
    segment = leader.data / "dumped-0" / f"{0:020d}"
    said = tool(DUMP, "--print-data-log", "--files", f"{segment}.log")
    assert re.findall(r"endTxnMarker: (\w+) coordinatorEpoch: \d+", said) == ["COMMIT", "ABORT"]
    assert "isvalid: false" not in said
    said = tool(DUMP, "--files", f"{segment}.txnindex")
    assert re.search(r"producerId: \d+ firstOffset: 3 lastOffset: 5 lastStableOffset: 6", said), said
    states = [
        told
        for path in sorted({path for each in cluster.servers for path in each.data.glob("__transaction_state-*/*.log")})
        if path.stat().st_size
        for told in re.findall(
            r'"transactionalId":"dumper".*?"transactionStatus":(\d)',
            tool(DUMP, "--transaction-log-decoder", "--files", path),
        )
    ]
    assert {"0", "1", "2", "4", "3", "5"} <= set(states), states
