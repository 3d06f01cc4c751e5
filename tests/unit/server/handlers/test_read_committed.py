"""Fetch and ListOffsets at read_committed: what is told of transactions that are open, committed or aborted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.unit.server.asking import fetch, fetched, wanted
from tests.unit.server.replica_rig import ReplicaRig
from tests.unit.server.rig import Client, Rig
from tests.unit.server.transactions import Transactions

from odradek.ids import Offset
from odradek.protocol.messages.fetch import AbortedTransaction, PartitionData
from odradek.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.records.batch import iter_batches, read_header
from odradek.server.partitions.reads import Collector
from odradek.sim.clock import FIRST_MS

BY_NAME = 12
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
UNCOMMITTED, COMMITTED = 0, 1


def on_a_node(test: Callable[[Rig, Client, Transactions], Coroutine[Any, Any, None]]) -> None:
    """Run a test with a node, a client of it, and the transactions of topic `t`, which has one partition."""
    rig = Rig()

    async def run() -> None:
        (hosted,) = await rig.create_topic("t", 1)
        await test(rig, rig.connect(), Transactions(rig.node.rooms.replicas, hosted, now_ms=FIRST_MS))

    rig.run(run)


async def read(client: Client, offset: int, level: int, *, version: int = BY_NAME, **more: Any) -> PartitionData:
    partition = wanted(0, offset, **more)
    return fetched(await client.ask(fetch("t", partition, isolation_level=level), version))[0]


def offsets(data: PartitionData) -> list[int]:
    """Where the batches begin that came."""
    assert isinstance(data.records, bytes | memoryview)
    return [read_header(batch).base_offset for batch in iter_batches(data.records)]


def aborted(data: PartitionData) -> list[tuple[int, int]] | None:
    found: list[AbortedTransaction] | None = data.aborted_transactions
    return None if found is None else [(each.producer_id, each.first_offset) for each in found]


async def look_up(client: Client, timestamp: int, level: int, *, replica_id: int = -1) -> tuple[int, int, int]:
    topics = [
        ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)]),
    ]
    response = await client.ask(ListOffsetsRequest(replica_id=replica_id, isolation_level=level, topics=topics), 11)
    ((found,),) = [topic.partitions for topic in response.topics]
    assert found.error_code == 0
    return found.offset, found.timestamp, found.leader_epoch


@pytest.mark.parametrize("version", [4, 6, 11, 12])
def test_reads_end_before_the_first_open_transaction(version: int) -> None:
    async def test(rig: Rig, client: Client, txn: Transactions) -> None:
        txn.plain(b"a")
        txn.write(7, b"b")
        txn.plain(b"c")
        txn.write(8, b"d")
        for level, seen in ((UNCOMMITTED, [0, 1, 2, 3]), (COMMITTED, [0])):
            data = await read(client, 0, level, version=version)
            assert offsets(data) == seen
            assert (data.high_watermark, data.last_stable_offset) == (4, 1), "both are told to everybody"
        txn.commit(7)
        assert offsets(await read(client, 0, COMMITTED, version=version)) == [0, 1, 2]
        txn.commit(8)
        data = await read(client, 0, COMMITTED, version=version)
        assert offsets(data) == [0, 1, 2, 3, 4, 5], "markers are told as well: it is the client that skips them"
        assert (data.high_watermark, data.last_stable_offset) == (6, 6)
        assert aborted(data) == []

    on_a_node(test)


def test_a_reader_behind_the_stable_offset_gets_nothing_and_no_error() -> None:
    async def test(rig: Rig, client: Client, txn: Transactions) -> None:
        txn.write(7, b"a")
        txn.plain(b"b")
        for offset in (0, 1, 2):
            data = await read(client, offset, COMMITTED)
            assert (data.error_code, offsets(data), aborted(data)) == (0, [], [])
        assert (await read(client, 3, COMMITTED)).error_code == 1, "but not behind the end of the log"

    on_a_node(test)


def test_aborted_transactions_are_named_to_who_wants_to_know() -> None:
    async def test(rig: Rig, client: Client, txn: Transactions) -> None:
        for producer_id in (7, 8, 9):
            txn.write(producer_id, b"x")
        txn.abort(8)
        txn.commit(7)
        txn.abort(9)
        txn.write(7, b"y")
        txn.abort(7)
        assert aborted(await read(client, 0, COMMITTED)) == [(8, 1), (9, 2), (7, 6)]
        assert aborted(await read(client, 4, COMMITTED)) == [(9, 2), (7, 6)], "its marker is still to come"
        assert aborted(await read(client, 6, COMMITTED)) == [(7, 6)]
        assert aborted(await read(client, 8, COMMITTED)) == []
        assert aborted(await read(client, 0, UNCOMMITTED)) is None
        assert aborted(await read(client, 99, COMMITTED)) is None, "with an error there is nothing to tell"

    on_a_node(test)


def test_a_partition_for_which_there_is_no_room_names_none() -> None:
    rig = Rig()

    async def test() -> None:
        hosts = await rig.create_topic("t", 2)
        for hosted in hosts:
            txn = Transactions(rig.node.rooms.replicas, hosted, now_ms=FIRST_MS)
            txn.write(7, b"x")
            txn.abort(7)
        request = fetch("t", wanted(0), wanted(1), isolation_level=COMMITTED, max_bytes=1)
        answer = fetched(await rig.connect().ask(request, BY_NAME))
        assert [aborted(answer[index]) for index in (0, 1)] == [[(7, 0)], []]

    rig.run(test)


def test_a_transaction_that_lost_its_beginning_bounds_no_reader_before_the_start() -> None:
    async def test(rig: Rig, client: Client, txn: Transactions) -> None:
        txn.write(7, b"a")
        for _ in range(3):
            txn.plain(b"b")
        rig.node.rooms.replicas.delete_records(rig.node.rooms.replicas.require("t", 0), Offset(2))
        data = await read(client, 2, COMMITTED)
        assert (data.error_code, data.last_stable_offset, offsets(data)) == (0, 2, [])
        assert (await look_up(client, LATEST, COMMITTED))[0] == 2
        txn.abort(7)
        data = await read(client, 2, COMMITTED)
        assert (offsets(data), aborted(data)) == ([2, 3, 4], [(7, 0)])

    on_a_node(test)


def test_points_in_time_are_found_below_the_stable_offset_only() -> None:
    async def test(rig: Rig, client: Client, txn: Transactions) -> None:
        txn.write(7, b"a", timestamp=FIRST_MS + 10)
        txn.commit(7)
        txn.write(7, b"b", timestamp=FIRST_MS + 20)
        txn.write(8, b"c", timestamp=FIRST_MS + 30)
        nothing = (-1, -1, -1)
        for level, latest, later, newest in (
            (UNCOMMITTED, 4, (2, FIRST_MS + 20, 0), (3, FIRST_MS + 30, 0)),
            (COMMITTED, 2, nothing, nothing),
        ):
            assert await look_up(client, LATEST, level) == (latest, -1, 0)
            assert await look_up(client, EARLIEST, level) == (0, -1, 0)
            assert await look_up(client, FIRST_MS + 5, level) == (0, FIRST_MS + 10, 0)
            assert await look_up(client, FIRST_MS + 11, level) == later
            assert await look_up(client, MAX_TIMESTAMP, level) == newest
        assert (await look_up(client, LATEST, COMMITTED, replica_id=-2))[0] == 4, "replicas see all there is"
        txn.abort(7)
        assert (await look_up(client, LATEST, COMMITTED))[0] == 3
        assert await look_up(client, FIRST_MS + 11, COMMITTED) == (2, FIRST_MS + 20, 0)
        assert await look_up(client, MAX_TIMESTAMP, COMMITTED) == nothing, "as the newest record of all is not decided"
        txn.commit(8)
        assert await look_up(client, MAX_TIMESTAMP, COMMITTED) == (3, FIRST_MS + 30, 0)

    on_a_node(test)


def test_a_marker_counts_once_the_replicas_have_it() -> None:
    """Or a reader would be shown what another leader may decide otherwise; followers are readers as well (KIP-392)."""
    rig = ReplicaRig(2)

    async def test() -> None:
        await rig.create_topic("t", [[1, 2]])
        leader, follower = rig.hosted(1, "t"), rig.hosted(2, "t")
        txn = Transactions(rig.brokers[1].replicas, leader, now_ms=FIRST_MS)
        txn.plain(b"a")
        await rig.until(lambda: rig.ends("t")[2] == (1, 1))
        rig.brokers[2].fetchers.close()
        txn.write(7, b"b")
        txn.abort(7)
        log = leader.partition.log
        assert (log.log_end_offset, log.high_watermark, log.last_stable_offset) == (3, 1, 1)
        log.advance_high_watermark(2)
        assert log.last_stable_offset == 1, "the marker could be lost yet"
        log.advance_high_watermark(3)
        assert log.last_stable_offset == 3
        assert follower.partition.log.last_stable_offset == 1

    rig.run(test)


def test_a_follower_answers_as_its_leader_does() -> None:
    rig = ReplicaRig(2)

    async def test() -> None:
        await rig.create_topic("t", [[1, 2]])
        txn = Transactions(rig.brokers[1].replicas, rig.hosted(1, "t"), now_ms=FIRST_MS)
        txn.write(7, b"a")
        txn.abort(7)
        txn.plain(b"b")
        txn.write(8, b"c")
        await rig.until(lambda: rig.ends("t")[2] == (4, 4))
        topic_id = rig.image.topics.by_name["t"].topic_id
        for number in (1, 2):
            request = fetch("", wanted(0), topic_id=topic_id, isolation_level=COMMITTED)
            data = fetched(await rig.request(number, request, 18))[0]
            assert (data.error_code, data.high_watermark, data.last_stable_offset) == (0, 4, 3)
            assert (offsets(data), aborted(data)) == ([0, 1, 2], [(7, 0)])

    rig.run(test)


# Waiting.


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with each look that somebody takes at what there is."""
    looked: list[int] = []
    collect = Collector.collect

    def counting(self: Collector, **how: Any) -> None:
        looked.append(len(looked))
        collect(self, **how)

    monkeypatch.setattr(Collector, "collect", counting)
    return looked


@pytest.mark.parametrize("in_session", [False, True])
def test_appends_behind_an_open_transaction_wake_nobody(looks: list[int], in_session: bool) -> None:
    async def test(rig: Rig, client: Client, txn: Transactions) -> None:
        txn.write(7, b"a")
        asked = fetch("t", wanted(0), isolation_level=COMMITTED, max_wait_ms=60_000, min_bytes=1)
        if in_session:
            begun = await client.ask(fetch("t", wanted(0), isolation_level=COMMITTED, session=(0, 0)), BY_NAME)
            asked = fetch(session=(begun.session_id, 1), isolation_level=COMMITTED, max_wait_ms=60_000)
        looks.clear()
        waiting = client.send(asked, BY_NAME)
        await asyncio.sleep(1)
        for number in range(1000):
            (txn.plain if number % 2 else lambda value: txn.write(7, value))(b"b" * 500)
            await asyncio.sleep(0.01)
        assert not client.has_answer(waiting)
        assert len(looks) == 1
        txn.commit(7)
        data = fetched(await client.answer(waiting, asked, BY_NAME))[0]
        assert (data.last_stable_offset, len(offsets(data))) == (1002, 1002)
        assert len(looks) == 2

    on_a_node(test)


def test_a_watermark_that_moves_under_an_open_transaction_is_told_with_the_next_answer() -> None:
    async def test(rig: Rig, client: Client, txn: Transactions) -> None:
        txn.write(7, b"a")
        begun = await client.ask(fetch("t", wanted(0), isolation_level=COMMITTED, session=(0, 0)), BY_NAME)
        asked = fetch(session=(begun.session_id, 1), isolation_level=COMMITTED, max_wait_ms=500)
        waiting = client.send(asked, BY_NAME)
        await asyncio.sleep(0.1)
        txn.plain(b"b")
        await asyncio.sleep(0.1)
        assert not client.has_answer(waiting)
        data = fetched(await client.answer(waiting, asked, BY_NAME))[0]
        assert (data.high_watermark, data.last_stable_offset, offsets(data)) == (2, 0, [])

    on_a_node(test)


def test_min_bytes_counts_what_is_decided() -> None:
    """With several transactions under way each end decides a little, and only what is decided can be read."""

    async def test(rig: Rig, client: Client, txn: Transactions) -> None:
        for producer_id in range(10):
            txn.write(producer_id, b"x" * 1000)
        asked = fetch("t", wanted(0), isolation_level=COMMITTED, max_wait_ms=60_000, min_bytes=5000)
        waiting = client.send(asked, BY_NAME)
        for producer_id in range(5):
            await asyncio.sleep(1)
            assert not client.has_answer(waiting)
            txn.commit(producer_id)
        data = fetched(await client.answer(waiting, asked, BY_NAME))[0]
        assert offsets(data) == [0, 1, 2, 3, 4]

    on_a_node(test)


def test_a_session_may_look_farther_with_its_next_request() -> None:
    async def test(rig: Rig, client: Client, txn: Transactions) -> None:
        txn.write(7, b"a")
        begun = await client.ask(fetch("t", wanted(0), isolation_level=COMMITTED, session=(0, 0)), BY_NAME)
        session = begun.session_id
        farther = await client.ask(fetch(session=(session, 1), isolation_level=UNCOMMITTED), BY_NAME)
        assert offsets(fetched(farther)[0]) == [0]
        asked = fetch("t", wanted(0, 1), session=(session, 2), isolation_level=UNCOMMITTED, max_wait_ms=60_000)
        waiting = client.send(asked, BY_NAME)
        await asyncio.sleep(1)
        txn.write(7, b"b")
        assert offsets(fetched(await client.answer(waiting, asked, BY_NAME))[0]) == [1]
        asked = fetch("t", wanted(0, 2), session=(session, 3), isolation_level=COMMITTED, max_wait_ms=60_000)
        waiting = client.send(asked, BY_NAME)
        await asyncio.sleep(1)
        txn.write(7, b"c")
        await asyncio.sleep(1)
        assert not client.has_answer(waiting)
        txn.commit(7)
        assert offsets(fetched(await client.answer(waiting, asked, BY_NAME))[0]) == [2, 3]

    on_a_node(test)


@pytest.mark.parametrize("level", [UNCOMMITTED, COMMITTED])
def test_what_is_not_replicated_wakes_followers_only(looks: list[int], level: int) -> None:
    rig = ReplicaRig(2)

    async def test() -> None:
        await rig.create_topic("t", [[1, 2]])
        leader = rig.hosted(1, "t")
        txn = Transactions(rig.brokers[1].replicas, leader, now_ms=FIRST_MS)
        rig.brokers[2].fetchers.close()
        topic_id = rig.image.topics.by_name["t"].topic_id
        request = fetch("", wanted(0), topic_id=topic_id, isolation_level=level, max_wait_ms=60_000)
        waiting = asyncio.ensure_future(rig.request(1, request, 18))
        await asyncio.sleep(1)
        looks.clear()
        for _ in range(100):
            txn.plain(b"a" * 100)
        await asyncio.sleep(1)
        assert not waiting.done()
        assert not looks
        leader.partition.log.advance_high_watermark(50)
        leader.on_high_watermark_advanced()
        assert offsets(fetched(await waiting)[0]) == list(range(50))

    rig.run(test)
