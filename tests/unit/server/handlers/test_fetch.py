"""Fetch: what is read, what is waited for, what is told, and how much of it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

import pytest
from tests.unit.server.asking import fetch, fetched, produce, values, wanted
from tests.unit.server.rig import Client, Rig

from odradek.ids import ZERO_UUID, Uuid
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse, ReplicaState
from odradek.protocol.records.batch import build_batch
from odradek.protocol.records.record import Record
from odradek.sim.disk import SimulatedFile

BY_NAME = 12
BY_ID = 18


def on_a_node(test: Callable[[Rig, Client], object]) -> None:
    """Run an async test with a node, a client of it, and a topic `t` of three partitions."""
    rig = Rig()

    async def run() -> None:
        await rig.create_topic("t", 3)
        await test(rig, rig.connect())  # type: ignore[misc]

    rig.run(run)


async def seconds_until_answer(rig: Rig, client: Client, request: FetchRequest) -> tuple[float, FetchResponse]:
    start = rig.loop.time()
    response = await client.ask(request, BY_NAME)
    return rig.loop.time() - start, response


# Reading.


@pytest.mark.parametrize("version", range(4, 19))
def test_records_come_back_as_they_were_written(version: int) -> None:
    async def test(rig: Rig, client: Client) -> None:
        await client.ask(produce("t", b"one", b"two", partition=1), 9)
        topic_id = rig.topic_id("t")
        response = await client.ask(fetch("t", wanted(0), wanted(1), wanted(7), topic_id=topic_id), version)
        nothing, found, unknown = (fetched(response)[index] for index in (0, 1, 7))
        assert (nothing.error_code, nothing.high_watermark, values(nothing)) == (0, 0, [])
        assert (found.error_code, found.high_watermark, values(found)) == (0, 2, [b"one", b"two"])
        assert found.last_stable_offset == 2
        assert found.log_start_offset == (0 if version >= 5 else -1)
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert unknown.high_watermark == -1

    on_a_node(test)


def test_an_unknown_topic_id_is_called_so() -> None:
    async def test(rig: Rig, client: Client) -> None:
        response = await client.ask(fetch("", wanted(0), topic_id=Uuid(b"\x07" * 16)), BY_ID)
        assert fetched(response)[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert response.responses[0].topic_id == b"\x07" * 16

    on_a_node(test)


def test_offsets_outside_of_the_log_are_refused() -> None:
    async def test(rig: Rig, client: Client) -> None:
        for number in range(3):
            await client.ask(produce("t", b"%d" % number), 9)
        hosted = rig.node.rooms.replicas.require("t", 0)
        rig.node.rooms.replicas.delete_records(hosted, 1)  # type: ignore[arg-type]
        for offset, code in ((-1, 1), (0, 1), (1, 0), (3, 0), (4, 1), (2**63 - 1, 1)):
            response = await client.ask(fetch("t", wanted(0, offset)), BY_NAME)
            assert fetched(response)[0].error_code == code, offset
        assert fetched(await client.ask(fetch("t", wanted(0, 1)), BY_NAME))[0].log_start_offset == 1

    on_a_node(test)


def test_a_client_with_another_epoch_is_fenced() -> None:
    async def test(rig: Rig, _: Client) -> None:
        await rig.restart()
        client = rig.connect()
        epoch = rig.node.rooms.replicas.require("t", 0).partition.state.leader_epoch
        assert epoch > 0
        for asked, code in (
            (-1, ErrorCode.NONE),
            (epoch, ErrorCode.NONE),
            (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
            (epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
        ):
            response = await client.ask(fetch("t", wanted(0, current_leader_epoch=asked)), BY_NAME)
            assert fetched(response)[0].error_code == code

    on_a_node(test)


def test_a_reader_of_another_history_is_told_where_it_parts() -> None:
    async def test(rig: Rig, client: Client) -> None:
        await client.ask(produce("t", b"one", b"two"), 9)
        old = rig.node.rooms.replicas.require("t", 0).partition.state.leader_epoch
        await rig.restart()
        client = rig.connect()
        await client.ask(produce("t", b"three", b"four"), 9)
        new = rig.node.rooms.replicas.require("t", 0).partition.state.leader_epoch
        diverged = fetched(await client.ask(fetch("t", wanted(0, 3, last_fetched_epoch=old)), BY_NAME))[0]
        assert (diverged.diverging_epoch.epoch, diverged.diverging_epoch.end_offset) == (old, 2)
        assert not diverged.records
        for epoch, offset in ((old, 2), (new, 3)):
            same = fetched(await client.ask(fetch("t", wanted(0, offset, last_fetched_epoch=epoch)), BY_NAME))[0]
            assert same.diverging_epoch.epoch == -1
            assert values(same) == [b"three", b"four"]
        unheard_of = fetched(await client.ask(fetch("t", wanted(0, 3, last_fetched_epoch=new + 5)), BY_NAME))[0]
        assert unheard_of.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    on_a_node(test)


def test_nobody_else_is_a_replica_here() -> None:
    async def test(rig: Rig, client: Client) -> None:
        old = await client.ask(fetch("t", wanted(0), replica_id=2), BY_NAME)
        new = await client.ask(
            fetch("", wanted(0), topic_id=rig.topic_id("t"), replica_state=ReplicaState(replica_id=2)), BY_ID
        )
        for response in (old, new):
            assert fetched(response)[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    on_a_node(test)


def test_read_committed_names_aborted_transactions_and_read_uncommitted_none() -> None:
    async def test(rig: Rig, client: Client) -> None:
        await client.ask(produce("t", b"one"), 9)
        for level, aborted in ((0, None), (1, [])):
            response = await client.ask(fetch("t", wanted(0), isolation_level=level), BY_NAME)
            assert fetched(response)[0].aborted_transactions == aborted
            assert values(fetched(response)[0]) == [b"one"]

    on_a_node(test)


# How much.


def test_one_batch_always_comes_however_little_was_asked_for() -> None:
    async def test(rig: Rig, client: Client) -> None:
        for partition in (0, 1):
            await client.ask(produce("t", b"x" * 1000, partition=partition), 9)
            await client.ask(produce("t", b"y" * 1000, partition=partition), 9)
        response = await client.ask(fetch("t", wanted(0), wanted(1), max_bytes=1), BY_NAME)
        first, second = fetched(response)[0], fetched(response)[1]
        assert values(first) == [b"x" * 1000]
        assert values(second) == []
        assert second.high_watermark == 2
        response = await client.ask(fetch("t", wanted(0, max_bytes=1), wanted(1, max_bytes=1)), BY_NAME)
        assert values(fetched(response)[0]) == [b"x" * 1000]
        assert values(fetched(response)[1]) == []

    on_a_node(test)


def test_the_limits_of_request_partition_and_broker_hold() -> None:
    rig = Rig(properties={"fetch.max.bytes": "1024"})

    async def test() -> None:
        await rig.create_topic("t", 2)
        client = rig.connect()
        size = len(build_batch([Record(value=b"x" * 200)]))
        for partition in (0, 1):
            for _ in range(10):
                await client.ask(produce("t", b"x" * 200, partition=partition), 9)
        by_partition = fetched(await client.ask(fetch("t", wanted(0, max_bytes=2 * size), wanted(1)), BY_NAME))
        assert len(values(by_partition[0])) == 2
        assert len(values(by_partition[1])) == (1024 - 2 * size) // size
        by_request = fetched(await client.ask(fetch("t", wanted(0), wanted(1), max_bytes=3 * size), BY_NAME))
        assert [len(values(by_request[index])) for index in (0, 1)] == [3, 0]

    rig.run(test)


def test_partitions_take_turns_where_not_all_fit() -> None:
    """Without that, a reader whose first partition always has more would never hear of its others."""

    async def test(rig: Rig, client: Client) -> None:
        for partition in (0, 1, 2):
            for number in range(4):
                await client.ask(produce("t", b"%d" % number * 500, partition=partition), 9)
        response = await client.ask(
            fetch("t", *(wanted(index) for index in range(3)), session=(0, 0), max_bytes=600), BY_NAME
        )
        session = response.session_id
        read = dict.fromkeys(range(3), 0)
        order = []
        for epoch in range(1, 9):
            moved = []
            for index, each in fetched(response).items():
                if found := values(each):
                    read[index] += len(found)
                    order.append(index)
                    moved.append(wanted(index, read[index]))
            response = await client.ask(fetch("t", *moved, session=(session, epoch), max_bytes=600), BY_NAME)
        assert order[:6] == [0, 1, 2, 0, 1, 2]

    on_a_node(test)


# Waiting.


def test_a_fetch_waits_until_something_is_appended() -> None:
    async def test(rig: Rig, client: Client) -> None:
        start = rig.loop.time()
        asked = fetch("t", wanted(0), wanted(1), max_wait_ms=60_000)
        waiting = client.send(asked, BY_NAME)
        await asyncio.sleep(10)
        assert not client.has_answer(waiting)
        await rig.connect().ask(produce("t", b"elsewhere", partition=2), 9)
        assert not client.has_answer(waiting)
        await rig.connect().ask(produce("t", b"news", partition=1), 9)
        response = await client.answer(waiting, asked, BY_NAME)
        assert values(fetched(response)[1]) == [b"news"]
        assert rig.loop.time() - start < 11
        assert len(rig.node.rooms.purgatory) == 0

    on_a_node(test)


def test_a_fetch_is_answered_empty_when_its_time_is_up() -> None:
    async def test(rig: Rig, client: Client) -> None:
        took, response = await seconds_until_answer(rig, client, fetch("t", wanted(0), max_wait_ms=700))
        assert 0.7 <= took < 0.72
        assert values(fetched(response)[0]) == []

    on_a_node(test)


@pytest.mark.parametrize(
    "impatient",
    [
        fetch("t", wanted(0), max_wait_ms=0),
        fetch("t", max_wait_ms=60_000),
        fetch("t", wanted(0), max_wait_ms=60_000, min_bytes=0),
        fetch("t", wanted(9), wanted(7), max_wait_ms=60_000),
        fetch("t", wanted(0), wanted(1, 5), max_wait_ms=60_000),
        fetch("t", wanted(0), wanted(1, current_leader_epoch=9), max_wait_ms=60_000),
        fetch("t", wanted(0), max_wait_ms=60_000, max_bytes=0),
    ],
    ids=[
        "no wait",
        "no partitions",
        "nothing wanted",
        "unknown partitions",
        "out of range",
        "unknown epoch",
        "no room",
    ],
)
def test_what_cannot_get_better_by_waiting_is_answered_at_once(impatient: FetchRequest) -> None:
    async def test(rig: Rig, client: Client) -> None:
        took, _ = await seconds_until_answer(rig, client, impatient)
        assert took < 0.1

    on_a_node(test)


async def answers_within(rig: Rig, client: Client, session: int, epoch: int, *, seconds: float) -> list[FetchResponse]:
    """Of a reader that asks again as soon as it has an answer, and would wait half a second for each."""
    start, answers = rig.loop.time(), []
    while rig.loop.time() - start < seconds:
        answers.append(await client.ask(fetch(session=(session, epoch), max_wait_ms=500), BY_NAME))
        epoch += 1
    return answers


def test_a_partition_that_is_not_there_hurries_nobody() -> None:
    """Apache Kafka 4.3.1 lets the others wait as if it had not been asked for, and tells the error with each answer."""

    async def test(rig: Rig, client: Client) -> None:
        session = (await client.ask(fetch("t", wanted(0), wanted(9), session=(0, 0)), BY_NAME)).session_id
        answers = await answers_within(rig, client, session, 1, seconds=3)
        assert len(answers) == 6
        for answer in answers:
            (unknown,) = fetched(answer).values()
            assert (unknown.partition_index, unknown.error_code) == (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            assert unknown.aborted_transactions == []
        request = fetch("", wanted(0), topic_id=rig.topic_id("t"), max_wait_ms=500)
        request.topics += fetch("", wanted(3), topic_id=Uuid(b"\x07" * 16)).topics
        start = rig.loop.time()
        answer = await client.ask(request, BY_ID)
        assert rig.loop.time() - start >= 0.5
        assert fetched(answer)[3].error_code == ErrorCode.UNKNOWN_TOPIC_ID

    on_a_node(test)


def test_what_comes_is_told_at_once_beside_a_partition_that_is_not_there() -> None:
    async def test(rig: Rig, client: Client) -> None:
        start = rig.loop.time()
        asked = fetch("t", wanted(0), wanted(9), max_wait_ms=60_000)
        waiting = client.send(asked, BY_NAME)
        await asyncio.sleep(1)
        await rig.connect().ask(produce("t", b"news"), 9)
        response = await client.answer(waiting, asked, BY_NAME)
        assert rig.loop.time() - start < 2
        assert values(fetched(response)[0]) == [b"news"]
        assert fetched(response)[9].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    on_a_node(test)


def test_a_partition_deleted_beside_quiet_ones_is_told_once_at_once() -> None:
    """While somebody waits; who asks for it later waits for the others, which Apache Kafka 4.3.1 does as well."""

    async def test(rig: Rig, client: Client) -> None:
        await rig.create_topic("u", 1)
        asked = fetch("t", wanted(0), session=(0, 0))
        asked.topics += fetch("u", wanted(0)).topics
        session = (await client.ask(asked, BY_NAME)).session_id
        asked = fetch(session=(session, 1), max_wait_ms=60_000)
        waiting = client.send(asked, BY_NAME)
        await asyncio.sleep(1)
        start = rig.loop.time()
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="u", topic_id=ZERO_UUID)], timeout_ms=1000)
        await rig.connect().ask(request, 6)
        answers = [await client.answer(waiting, asked, BY_NAME)]
        assert rig.loop.time() - start < 1
        answers += await answers_within(rig, client, session, 2, seconds=3)
        assert len(answers) == 7
        assert all(fetched(each)[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for each in answers)

    on_a_node(test)


def test_min_bytes_counts_over_all_partitions() -> None:
    async def test(rig: Rig, client: Client) -> None:
        other = rig.connect()
        await other.ask(produce("t", b"x" * 100, partition=2), 9)
        asked = fetch("t", wanted(0), wanted(1), wanted(2), max_wait_ms=60_000, min_bytes=1000)
        waiting = client.send(asked, BY_NAME)
        for partition in (0, 1, 0, 1):
            assert not client.has_answer(waiting)
            await other.ask(produce("t", b"x" * 150, partition=partition), 9)
            await asyncio.sleep(1)
        response = await client.answer(waiting, asked, BY_NAME)
        assert [len(values(fetched(response)[index])) for index in range(3)] == [2, 2, 1]

    on_a_node(test)


@pytest.mark.parametrize(
    ("version", "code"), [(BY_NAME, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (BY_ID, ErrorCode.UNKNOWN_TOPIC_ID)]
)
def test_a_topic_deleted_meanwhile_ends_the_wait(version: int, code: ErrorCode) -> None:
    async def test(rig: Rig, client: Client) -> None:
        start = rig.loop.time()
        asked = fetch("t", wanted(0), topic_id=rig.topic_id("t"), max_wait_ms=60_000)
        waiting = client.send(asked, version)
        await asyncio.sleep(1)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t", topic_id=ZERO_UUID)], timeout_ms=1000)
        await rig.connect().ask(request, 6)
        response = await client.answer(waiting, asked, version)
        assert fetched(response)[0].error_code == code
        assert rig.loop.time() - start < 2

    on_a_node(test)


def test_records_deleted_meanwhile_are_told_once_the_wait_is_over() -> None:
    async def test(rig: Rig, client: Client) -> None:
        await client.ask(produce("t", b"one", b"two"), 9)
        asked = fetch("t", wanted(0, 2), max_wait_ms=500)
        waiting = client.send(asked, BY_NAME)
        await asyncio.sleep(0.1)
        rig.node.rooms.replicas.delete_records(rig.node.rooms.replicas.require("t", 0), 2)  # type: ignore[arg-type]
        response = await client.answer(waiting, asked, BY_NAME)
        assert fetched(response)[0].log_start_offset == 2

    on_a_node(test)


def test_a_client_that_leaves_while_it_waits_leaves_nothing_behind() -> None:
    async def test(rig: Rig, client: Client) -> None:
        hosted = rig.node.rooms.replicas.require("t", 0)
        for _ in range(3):
            gone = rig.connect()
            gone.send(fetch("t", wanted(0), max_wait_ms=60_000), BY_NAME)
            await asyncio.sleep(0.1)
            assert hosted.is_read
            gone.wire.lose(None)
            await asyncio.sleep(0.1)
            assert not hosted.is_read
        gone = rig.connect()
        gone.send(fetch("t", wanted(0), max_wait_ms=60_000), BY_NAME)
        gone.wire.lose(ConnectionResetError())  # Before its task has taken a step.
        await asyncio.sleep(0.1)
        assert not hosted.is_read
        assert len(rig.node.rooms.purgatory) == 0

    on_a_node(test)


# Disks.


def test_what_is_not_in_memory_is_read_by_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(rig: Rig, client: Client) -> None:
        await client.ask(produce("t", b"cold"), 9)
        monkeypatch.setattr(SimulatedFile, "resident", lambda self, position, length: False)
        took, response = await seconds_until_answer(rig, client, fetch("t", wanted(0)))
        assert values(fetched(response)[0]) == [b"cold"]
        assert took > 0

    on_a_node(test)


def test_a_topic_deleted_while_a_worker_reads_it_costs_the_reader_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(rig: Rig, client: Client) -> None:
        await client.ask(produce("t", b"cold"), 9)
        monkeypatch.setattr(SimulatedFile, "resident", lambda self, position, length: False)
        asked = fetch("t", wanted(0))
        reading = client.send(asked, BY_NAME)
        await rig.connect().ask(
            DeleteTopicsRequest(topics=[DeleteTopicState(name="t", topic_id=ZERO_UUID)], timeout_ms=1000), 6
        )
        assert fetched(await client.answer(reading, asked, BY_NAME))[0].error_code in (0, 3)

    on_a_node(test)


def test_a_disk_that_cannot_be_read_says_so_and_goes_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(properties={"log.dirs": "/a,/b"})

    def broken(self: SimulatedFile, position: int, length: int) -> bytes:
        if self.path.startswith("/b/"):
            raise OSError(errno.EIO, "Input/output error", self.path)
        return read(self, position, length)

    read = SimulatedFile.read

    async def test() -> None:
        hosted = await rig.create_topic("t", 4)
        client = rig.connect()
        for index in range(4):
            await client.ask(produce("t", b"x", partition=index), 9)
        on_b = [each.index for each in hosted if each.directory.path == "/b"]
        assert len(on_b) == 2
        monkeypatch.setattr(SimulatedFile, "read", broken)
        monkeypatch.setattr(SimulatedFile, "resident", lambda self, position, length: False)
        for _ in range(2):
            response = await client.ask(fetch("t", *map(wanted, range(4))), BY_NAME)
            codes = {index: partition.error_code for index, partition in fetched(response).items()}
            assert codes == {index: ErrorCode.KAFKA_STORAGE_ERROR if index in on_b else 0 for index in range(4)}
        assert [directory.online for directory in rig.node.rooms.replicas.directories] == [True, False]

    rig.run(test)
