"""What `odradek transaction` must show and do, whichever broker it asks; in `tests/compat` it is Apache Kafka.

Each case uses topics and transactional ids of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException, Producer
from tests.integration.cli import PATIENCE_S, Cli

from odradek.client.admin import Admin
from odradek.clients import connect
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.protocol.records.batch import build_batch
from odradek.protocol.records.record import Record

Case = Callable[[Cli, str], None]
CASES: list[Case] = []

UNVERIFIED = "transaction.partition.verification.enable=false"
"""With that a broker takes transactional batches without asking their coordinator, as before KIP-890."""
NOBODY = 987_654
"""A producer id that no coordinator has given out."""
_BEFORE_TOPIC_IDS = 9


def case(test: Case) -> Case:
    CASES.append(test)
    return test


def producer(cli: Cli, transactional_id: str) -> Producer:
    made = Producer({"bootstrap.servers": cli.bootstrap, "transactional.id": transactional_id, "log_level": 0})
    made.init_transactions(PATIENCE_S)
    return made


def begin(cli: Cli, transactional_id: str, topic: str, values: int = 1) -> Producer:
    """A producer whose transaction has records in partition 0 of a topic, and is left open."""
    made = producer(cli, transactional_id)
    made.begin_transaction()
    for number in range(values):
        made.produce(topic, b"%d" % number, partition=0)
    assert made.flush(PATIENCE_S) == 0
    return made


def rows(cli: Cli, *arguments: object) -> dict[str, list[str]]:
    """What `list` shows, by transactional id."""
    return {row[0]: row[1:] for row in cli.ok("transaction", "list", *arguments).rows[1:]}


def state_of(cli: Cli, transactional_id: str) -> str:
    (told,) = cli.json("transaction", "describe", transactional_id)
    return str(told["state"])


def wait_for(cli: Cli, transactional_id: str, state: str) -> None:
    """Markers are written after the answer."""
    deadline = time.monotonic() + PATIENCE_S
    while state_of(cli, transactional_id) != state:
        assert time.monotonic() < deadline, state_of(cli, transactional_id)


@case
def what_is_open_is_listed_and_described(cli: Cli, name: str) -> None:
    cli.ok("topic", "create", name, "--partitions", 2)
    first = begin(cli, f"{name}-1", name, values=3)
    first.commit_transaction(PATIENCE_S)
    wait_for(cli, f"{name}-1", "CompleteCommit")
    second = begin(cli, f"{name}-2", name, values=2)
    listed = {each["transactional_id"]: each for each in cli.json("transaction", "list", "--pattern", f"{name}-.")}
    assert (listed[f"{name}-1"]["state"], listed[f"{name}-1"]["age_ms"]) == ("CompleteCommit", None)
    assert (listed[f"{name}-2"]["state"], listed[f"{name}-2"]["partitions"]) == ("Ongoing", 1)
    assert 0 <= listed[f"{name}-2"]["age_ms"] < 60_000
    assert f"{name}-1" not in rows(cli, "--open")
    assert rows(cli, "--open")[f"{name}-2"][0] == "Ongoing"
    assert rows(cli, "--state", "CompleteCommit")[f"{name}-1"][0] == "CompleteCommit"
    assert list(rows(cli, "--producer-id", listed[f"{name}-2"]["producer_id"])) == [f"{name}-2"]
    assert f"{name}-2" not in rows(cli, "--longer-than", 3600)
    assert list(rows(cli, "--longer-than", 0, "--pattern", f"{name}-.")) == [f"{name}-2"]
    (told,) = cli.json("transaction", "describe", f"{name}-2")
    assert told["producer_id"] == listed[f"{name}-2"]["producer_id"]
    assert told["timeout_ms"] == 60_000
    assert told["partitions"] == [
        {
            "topic": name,
            "partition": 0,
            "first_offset": 4,  # Three records and a marker before it.
            "last_stable_offset": 4,
            "high_watermark": 6,
            "lag": 2,
        }
    ]
    shown = cli.ok("transaction", "describe").out
    assert f"Transactional id  {name}-2\n" in shown
    assert f"Transactional id  {name}-1\n" not in shown
    second.abort_transaction(PATIENCE_S)
    wait_for(cli, f"{name}-2", "CompleteAbort")
    (told,) = cli.json("transaction", "describe", f"{name}-2")
    assert (told["partitions"], told["age_ms"], told["start_timestamp"]) == ([], None, None)


@case
def a_producer_is_shut_out(cli: Cli, name: str) -> None:
    cli.ok("topic", "create", name)
    fenced = begin(cli, name, name)
    (before,) = cli.json("transaction", "describe", name)
    assert cli.ok("transaction", "fence", name).out == f"producer {name} fenced.\n"
    (after,) = cli.json("transaction", "describe", name)
    assert after["producer_epoch"] > before["producer_epoch"]
    assert after["timeout_ms"] == before["timeout_ms"]
    assert after["state"] not in ("Ongoing", "PrepareAbort")
    with pytest.raises(KafkaException, match=r"(?i)fenced|newer instance|invalid producer epoch"):
        fenced.commit_transaction(PATIENCE_S)
    assert cli.json_lines("consume", name, "--isolation-level", "read_committed") == []


@case
def ids_that_nobody_uses(cli: Cli, name: str) -> None:
    """And none of them is made by asking."""
    producer(cli, f"{name}-known")
    for action in ("describe", "fence"):
        assert cli.refused("transaction", action, f"{name}-unknown") == (
            f"there is no transactional id {name}-unknown. Did you mean {name}-known?"
        )
    assert list(rows(cli, "--pattern", f"{name}-.*")) == [f"{name}-known"]
    assert cli.ok("complete", "--", "transaction", "fence", f"{name}-kn").out == f"{name}-known\n"


@case
def filters_that_make_no_sense(cli: Cli, name: str) -> None:
    assert cli.refused("transaction", "list", "--state", "Ongoin", code=2) == (
        "there is no state Ongoin. Did you mean Ongoing?"
    )
    assert "INVALID_REGULAR_EXPRESSION" in cli.refused("transaction", "list", "--pattern", "((")
    assert cli.refused("transaction", "abort", "t", "--start-offset", 0).startswith("there is no topic t.")


@case
def a_transaction_that_its_coordinator_will_end_does_not_hang(cli: Cli, name: str) -> None:
    cli.ok("topic", "create", name, "--partitions", 2)
    held = begin(cli, name, name)
    assert cli.json("transaction", "find-hanging", name, "--older-than", 0) == []
    assert cli.refused("transaction", "abort", f"{name}:0", "--start-offset", 0) == (
        f"its coordinator knows of the transaction at offset 0 of {name}-0 and will end it: "
        "`odradek transaction fence` aborts it everywhere."
    )
    assert cli.refused("transaction", "abort", f"{name}:1", "--start-offset", 0).startswith(
        f"no transaction that is open in {name}-1 begins at offset 0"
    )
    assert cli.refused("transaction", "abort", name, "--start-offset", 0, code=2) == (
        f"abort takes one partition, as in {name}:0."
    )
    held.commit_transaction(PATIENCE_S)
    assert len(cli.json_lines("consume", name, "--isolation-level", "read_committed")) == 1


@case
def one_that_does_not_hang_is_torn_by_force_alone(cli: Cli, name: str) -> None:
    """Aborted in one of its partitions, and committed in the other."""
    cli.ok("topic", "create", name, "--partitions", 2)
    held = begin(cli, name, name)
    held.produce(name, b"kept", partition=1)
    assert held.flush(PATIENCE_S) == 0
    cli.ok("transaction", "abort", f"{name}:0", "--start-offset", 0, "--force")
    held.commit_transaction(PATIENCE_S)
    wait_for(cli, name, "CompleteCommit")
    records = cli.json_lines("consume", name, "--isolation-level", "read_committed")
    assert [each["value"] for each in records] == ["kept"]


@case
def one_that_hangs_is_found_and_aborted(cli: Cli, name: str) -> None:
    """As brokers before KIP-890 could leave behind: a batch that came after its transaction had ended."""
    cli.ok("topic", "create", name)
    cli.ok("config", "set", "broker", "default", UNVERIFIED)
    try:
        asyncio.run(write_late(cli.bootstrap, name))
    finally:
        cli.ok("config", "unset", "broker", "default", UNVERIFIED.partition("=")[0])
    cli.ok("produce", name, stdin="behind\n")
    assert cli.json_lines("consume", name, "--isolation-level", "read_committed") == []
    assert cli.ok("transaction", "find-hanging", name).out == "No transaction hangs.\n"  # It may be in time yet.
    (told,) = cli.json("transaction", "find-hanging", f"{name}:0", "--older-than", 0)
    assert (told["topic"], told["partition"], told["start_offset"]) == (name, 0, 0)
    assert (told["producer_id"], told["producer_epoch"], told["coordinator_epoch"]) == (NOBODY, 0, -1)
    assert [name, "0", "0", str(NOBODY)] in [
        row[:4] for row in cli.ok("transaction", "find-hanging", "--older-than", 0).rows
    ]
    assert cli.ok("transaction", "abort", f"{name}:0", "--start-offset", 0).out == (
        f"transaction at offset 0 of {name}-0 aborted.\n"
    )
    assert cli.json("transaction", "find-hanging", name, "--older-than", 0) == []
    records = cli.json_lines("consume", name, "--isolation-level", "read_committed")
    assert [each["value"] for each in records] == ["behind"]


async def write_late(bootstrap: str, topic: str, *, age_s: int = 0) -> None:
    """A batch in the transaction of a producer that no coordinator knows, in partition 0."""
    batch = build_batch(
        [Record(None, b"late")],
        timestamp=int((time.time() - age_s) * 1000),
        producer_id=NOBODY,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    request = ProduceRequest(
        transactional_id="gone",
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])],
    )

    async with connect(bootstrap).admin() as admin:
        leader = await _leader(admin, topic)
        response = await admin.cluster.ask(request, ProduceResponse, node_id=leader, max_version=_BEFORE_TOPIC_IDS)
        (partition,) = response.responses[0].partition_responses
        assert partition.error_code == 0, partition


async def _leader(admin: Admin, topic: str) -> int:
    described = (await admin.describe_topics([topic]))[topic]
    assert not isinstance(described, Exception)
    return described.partitions[0].leader
