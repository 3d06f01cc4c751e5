"""A conversation about transactions, request by request, in which every answer is what Apache Kafka 4.3 answered.

`transactions_wire.txt` holds Kafka's answers; to ask Kafka again:
`COMPAT_SERVER=kafka pytest tests/compat/test_transactions_wire.py --rewrite`. Producer ids are named.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench import wire
from bench.cells import wait_for_partitions
from tests.compat.brokers import new_server, running
from tests.compat.conversation import Conversation
from tests.compat.wire_producer import (
    ADDING,
    BEFORE_ADDING,
    STRANGER,
    TRANSACTION_KEY,
    Producer,
    finish,
    init,
    produce,
    wait_for_coordinators,
)

from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.protocol.records.control import EndTxnMarker, end_txn_batch

pytestmark = pytest.mark.compat

RECORDED = Path(__file__).with_name("transactions_wire.txt")
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000",
}
LONGEST_ID = (1 << 15) - 1


def markers(producer: Producer, topics: dict[str, list[int]], *, commit: bool, **other: Any) -> WriteTxnMarkersRequest:
    fields = {"producer_id": producer.id, "producer_epoch": producer.epoch, "coordinator_epoch": 0} | other
    named = [WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
    return WriteTxnMarkersRequest(markers=[WritableTxnMarker(**fields, transaction_result=commit, topics=named)])


def latest(isolation_level: int) -> ListOffsetsRequest:
    parts = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(3)]
    topics = [ListOffsetsTopic(name="t", partitions=parts)]
    return ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics)


def fetch(isolation_level: int) -> FetchRequest:
    parts = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(3)]
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=isolation_level,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic="t", partitions=parts)],
        forgotten_topics_data=[],
        rack_id="",
    )


def fetch_offsets(group: str, *, stable: bool) -> OffsetFetchRequest:
    older = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    groups = [OffsetFetchRequestGroup(group_id=group, topics=topics)]
    return OffsetFetchRequest(group_id=group, topics=older, groups=groups, require_stable=stable)


def talk(port: int) -> Iterator[str]:
    """Everything, in order; the lines are question and answer in turn."""
    talking = Conversation(port)
    try:
        wait_for_coordinators(talking)
        talking.lines.clear()
        _coordinators(talking)
        _producer_ids(talking)
        _partitions(talking)
        _ends(talking)
        _late_ends(talking)
        _batches(talking)
        _sequences(talking)
        _offsets(talking)
        _markers(talking)
        _what_readers_see(talking)
    finally:
        talking.close()
    yield from talking.lines


def _coordinators(talking: Conversation) -> None:
    for version in (1, 3):
        talking.ask("find", FindCoordinatorRequest(key="x", key_type=TRANSACTION_KEY), version)
    request = FindCoordinatorRequest(coordinator_keys=["x", ""], key_type=TRANSACTION_KEY)
    for version in (4, 6):
        talking.ask("find several", request, version)
    talking.ask("find none", FindCoordinatorRequest(key="", key_type=TRANSACTION_KEY), 2)
    talking.ask("find the longest", FindCoordinatorRequest(key="x" * LONGEST_ID, key_type=TRANSACTION_KEY), 3)
    for length in (LONGEST_ID + 1, 1 << 20):
        key = "x" * length
        talking.ask(f"find one of {length} bytes", FindCoordinatorRequest(key=key, key_type=TRANSACTION_KEY), 3)
        talking.ask(f"init of one of {length} bytes", init(key), 5)


def _producer_ids(talking: Conversation) -> None:
    for version in (1, 3, 4, 5):
        talking.ask("init", init("versions"), version)
    talking.ask("init of the longest id", init("x" * LONGEST_ID), 5)
    for timeout_ms in (0, -1, 900_001, (1 << 31) - 1):
        talking.ask(f"init with a timeout of {timeout_ms} ms", init("timeouts", timeout_ms), 5)
    talking.ask("init with the longest timeout", init("timeouts", 900_000), 5)
    for version in (1, 5):
        talking.ask("init of an empty id", init(""), version)
    talking.ask("init with an id without epoch", init("half", producer_id=7), 5)
    talking.ask("init with an epoch without id", init("half", producer_epoch=7), 5)
    talking.ask("init that goes on with what nobody has", init("new", producer_id=STRANGER, producer_epoch=3), 5)
    producer = Producer(talking, "goes-on")
    request = init("goes-on", producer_id=producer.id, producer_epoch=producer.epoch)
    talking.ask("init that goes on", request, 5)
    talking.ask("init that goes on again", request, 5)
    talking.ask("init of another", init("goes-on"), 5)
    for version in (3, 4):
        talking.ask("init that goes on too late", request, version)
    talking.ask("init of a stranger", init("goes-on", producer_id=STRANGER, producer_epoch=0), 5)
    talking.ask("init of an epoch to come", init("goes-on", producer_id=producer.id, producer_epoch=99), 5)


def _partitions(talking: Conversation) -> None:
    producer = Producer(talking, "adds")
    here, unknown = {"t": [0, 1]}, {"t": [0, 9], "nowhere": [0]}
    for version in (0, 1, 2, 3):
        talking.ask("add as a stranger", producer.add(here, transactional_id="nobody"), version)
        talking.ask("add with another's id", producer.add(here, producer_id=STRANGER), version)
        talking.ask("add with an epoch to come", producer.add(here, producer_epoch=5), version)
        talking.ask("add what is not there", producer.add(unknown), version)
    talking.ask("add nothing", producer.add({}), 3)
    talking.ask("add for no id", producer.add(here, transactional_id=""), 3)
    for verify in (True, False):
        what = "verify" if verify else "add as a broker"
        talking.ask(f"{what}: stranger", producer.add_as_broker(here, verify=verify, transactional_id="nobody"), 4)
        talking.ask(f"{what}: another's id", producer.add_as_broker(here, verify=verify, producer_id=STRANGER), 4)
        talking.ask(f"{what}: an epoch to come", producer.add_as_broker(here, verify=verify, producer_epoch=5), 5)
        talking.ask(f"{what}: not there", producer.add_as_broker(unknown, verify=verify), 4)
    talking.ask("verify before", producer.add_as_broker(here, verify=True), 4)
    talking.ask("verify before", producer.add_as_broker(here, verify=True), 5)
    talking.ask("add", producer.add({"t": [0]}), 3)
    talking.ask("add again", producer.add({"t": [0]}), 3)
    talking.ask("verify what is in and what is not", producer.add_as_broker(here, verify=True), 5)
    talking.ask("add as a broker", producer.add_as_broker(here, verify=False), 5)
    talking.ask("verify", producer.add_as_broker(here, verify=True), 5)
    finish(talking, producer, 4)


def _ends(talking: Conversation) -> None:
    for version in (0, 1, 2, 3, 4, 5):
        producer = Producer(talking, f"ends-{version}")
        for commit in (True, False):
            what = "commit" if commit else "abort"
            talking.ask(f"{what} as a stranger", producer.end(commit=commit, transactional_id="nobody"), version)
            talking.ask(f"{what} for no id", producer.end(commit=commit, transactional_id=""), version)
            talking.ask(f"{what} with another's id", producer.end(commit=commit, producer_id=STRANGER), version)
            talking.ask(f"{what} with an epoch to come", producer.end(commit=commit, producer_epoch=7), version)
            talking.ask(f"{what} with an epoch below all", producer.end(commit=commit, producer_epoch=-1), version)
        talking.ask("commit of nothing", producer.end(), version)
    for version in (2, 4, 5):
        for commit in (True, False):
            producer = Producer(talking, f"ends-{version}-{commit}")
            talking.ask("add", producer.add({"t": [2]}), 3)
            finish(talking, producer, version, commit=commit)
            talking.ask(f"end with {not commit} then", producer.end(commit=not commit), version)
            if version == 5:
                producer.epoch += 1
                talking.ask("commit of nothing in the next epoch", producer.end(), version)
                talking.settle("abort of nothing in the next epoch", producer.end(commit=False), version)


def _late_ends(talking: Conversation) -> None:
    """An EndTxn of the transaction before ends the next one of clients whose epoch stays, and of no others."""
    for version in (4, 5):
        producer = Producer(talking, f"late-{version}")
        late = producer.end(commit=False)
        talking.ask("add", producer.add({"t": [2]}), 3)
        finish(talking, producer, version, commit=False)
        if version == 5:
            producer.epoch += 1
        talking.settle("add to the next transaction", producer.add({"t": [2]}), 3)
        if version == 5:
            talking.ask("the abort that comes late", late, version)
            talking.ask("a commit of the epoch before", producer.end(producer_epoch=producer.epoch - 1), version)
        finish(talking, producer, version)


def _batches(talking: Conversation) -> None:
    for version in (BEFORE_ADDING - 1, BEFORE_ADDING, ADDING):
        producer = Producer(talking, f"writes-{version}")
        talking.ask("a batch of no transaction", producer.produce(0, transactional_id=None), version)
        talking.ask("a batch of a stranger's transaction", producer.produce(0, transactional_id="nobody"), version)
        talking.ask("a batch with another's id", producer.produce(0, producer_id=STRANGER), version)
        talking.ask("a batch of an epoch to come", producer.produce(0, producer_epoch=9), version)
        talking.ask("a batch for a partition that is not there", producer.produce(0, partition=9), version)
        talking.ask("a plain batch with a transactional id", producer.produce(0, plain=True, partition=1), version)
        marker = end_txn_batch(
            EndTxnMarker(committed=True, coordinator_epoch=0),
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            timestamp=int(time.time() * 1000),
        )
        for transactional_id in (None, producer.transactional_id):
            talking.ask("a marker", produce(transactional_id, {"t": {0: bytes(marker)}}), version)
        talking.ask("a first batch without having said so", producer.produce(0), version)
        if version < ADDING:
            talking.ask("add", producer.add({"t": [0]}), 3)
        talking.ask("a first batch out of order", producer.produce(3), version)
        talking.ask("a batch", producer.produce(int(version == ADDING)), version)
        talking.ask("a plain batch in it", producer.produce(2, plain=True), version)
        talking.ask("a batch of an older epoch", producer.produce(0, producer_epoch=-1), version)
        finish(talking, producer, 5 if version == ADDING else 4)
        talking.ask("a batch after the end", producer.produce(1 + int(version == ADDING)), version)


def _sequences(talking: Conversation) -> None:
    """They begin anew after the largest number."""
    producer = Producer(talking, "wraps")
    talking.ask("a first batch that is not the first", producer.produce((1 << 31) - 3, records=2), ADDING)
    talking.ask("add", producer.add({"u": [0]}), 3)
    talking.ask("a first batch that begins late", producer.produce((1 << 31) - 3, topic="u", records=2), BEFORE_ADDING)
    talking.ask("one over the end", producer.produce((1 << 31) - 1, topic="u", records=3), BEFORE_ADDING)
    talking.ask("the same again", producer.produce((1 << 31) - 1, topic="u", records=3), BEFORE_ADDING)
    talking.ask("the next", producer.produce(2, topic="u"), BEFORE_ADDING)
    talking.ask("a gap", producer.produce(9, topic="u"), BEFORE_ADDING)
    finish(talking, producer, 4)


def _offsets(talking: Conversation) -> None:
    for version in (2, 3, 4, 5):
        producer, group = Producer(talking, f"offsets-{version}"), f"group-{version}"
        ends = 5 if version == 5 else 4
        add_version = min(version, 4)
        talking.ask("commit offsets before", producer.commit_offsets(group, transactional_id="nobody"), version)
        talking.ask("add offsets as a stranger", producer.add_offsets(group, transactional_id="nobody"), add_version)
        talking.ask("add offsets with another's id", producer.add_offsets(group, producer_id=STRANGER), add_version)
        talking.ask("add offsets of no group", producer.add_offsets(""), add_version)
        talking.ask("add offsets", producer.add_offsets(group), add_version)
        talking.ask("commit offsets of a stranger", producer.commit_offsets(group, producer_id=STRANGER), version)
        talking.ask("commit offsets of an epoch to come", producer.commit_offsets(group, producer_epoch=9), version)
        talking.ask("commit offsets of nothing", producer.commit_offsets(group, topic="nowhere"), version)
        talking.ask("commit offsets of no group", producer.commit_offsets(""), version)
        talking.ask("commit offsets as no member", producer.commit_offsets(group, member=("x", 3)), version)
        talking.ask("commit offsets", producer.commit_offsets(group), version)
        for fetch_version in (6, 7, 9):
            talking.ask("what is committed", fetch_offsets(group, stable=False), fetch_version)
        for fetch_version in (7, 9):
            talking.ask("what is stable", fetch_offsets(group, stable=True), fetch_version)
        finish(talking, producer, ends, commit=False)
        talking.ask("what is stable after the abort", fetch_offsets(group, stable=True), 9)
        producer.epoch += int(ends == 5)
        if version < 5:
            talking.settle("add offsets", producer.add_offsets(group), add_version)
        talking.ask("commit offsets", producer.commit_offsets(group, 6), version)
        talking.ask("commit newer ones", producer.commit_offsets(group, 7), version)
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata="")
        others = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[OffsetCommitRequestTopic(name="t", partitions=[part])],
        )
        talking.ask("commit beside it", others, 8)
        talking.ask("what is committed", fetch_offsets(group, stable=False), 9)
        finish(talking, producer, ends)
        talking.ask("what is stable after the commit", fetch_offsets(group, stable=True), 9)
        talking.ask("commit offsets after the end", producer.commit_offsets(group, 8), version)


def _markers(talking: Conversation) -> None:
    Producer(talking, "marked")
    producer = Producer(talking, "marked")
    talking.ask("markers for what is not there", markers(producer, {"nowhere": [0], "t": [9]}, commit=True), 1)
    talking.ask("markers for a producer that nobody knows", markers(producer, {"u": [1]}, commit=True), 1)
    talking.ask("a batch", producer.produce(0, topic="u", partition=2), ADDING)
    for version in (1, 2):
        old = markers(producer, {"u": [2]}, commit=True, producer_epoch=0)
        talking.ask("a marker of an older epoch", old, version)
    talking.ask("a marker of a later epoch", markers(producer, {"u": [2]}, commit=False, producer_epoch=5), 1)
    talking.ask("the same marker again", markers(producer, {"u": [2]}, commit=False, producer_epoch=5), 1)
    newer = {"producer_epoch": 6, "coordinator_epoch": 8}
    talking.ask("a marker of a later coordinator", markers(producer, {"u": [2]}, commit=False, **newer), 1)
    talking.ask("a marker of the coordinator before", markers(producer, {"u": [2]}, commit=False, producer_epoch=7), 1)
    talking.ask("a batch of the producer", producer.produce(1, topic="u", partition=2), ADDING)
    talking.ask("no markers", WriteTxnMarkersRequest(markers=[]), 1)


def _what_readers_see(talking: Conversation) -> None:
    producer = Producer(talking, "seen")
    talking.ask("a batch", producer.produce(0, partition=1), ADDING)
    for isolation_level in (0, 1):
        for version in (4, 9):
            talking.ask(f"ends at level {isolation_level}", latest(isolation_level), version)
        for version in (4, 11):
            talking.ask(f"records at level {isolation_level}", fetch(isolation_level), version)
    finish(talking, producer, 5, commit=False)
    for isolation_level in (0, 1):
        talking.ask(f"ends at level {isolation_level}", latest(isolation_level), 9)
        talking.ask(f"records at level {isolation_level}", fetch(isolation_level), 11)


def test_every_answer_is_kafkas(request: pytest.FixtureRequest) -> None:
    with running(new_server(properties=PROPERTIES)) as server:
        with wire.Connection(server.port) as connection:
            for name in ("t", "u"):
                assert wire.create_topic(connection, name, 3, {}) == 0
                wait_for_partitions(connection, name, 3)
        said = list(talk(server.port))
    if request.config.getoption("--rewrite"):
        RECORDED.write_text("\n".join(said) + "\n")
    assert said == RECORDED.read_text().splitlines()
