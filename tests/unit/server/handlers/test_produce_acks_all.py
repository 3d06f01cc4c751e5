"""Produce with acks=all to several partitions: answered once all their replicas have it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.server.replica_rig import ReplicaRig

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.records.batch import build_batch
from odradek.protocol.records.compression import Compression
from odradek.protocol.records.record import Record
from odradek.sim.disk import SimulatedFile
from odradek.sim.workers import SimulatedWorkers
from odradek.storage.validation import AT_ONCE_BYTES


async def produce(
    rig: ReplicaRig,
    *partitions: int,
    name: str = "t",
    version: int = 13,
    timeout_ms: int = 5_000,
    acks: int = -1,
    codec: Compression = Compression.NONE,
) -> list[PartitionProduceResponse]:
    """A batch for each partition in one request to broker 1."""
    now_ms = rig.brokers[1].world.clock.now_ms()
    parts = [
        PartitionProduceData(
            index=index, records=build_batch([Record(value=b"v%d" % index)], timestamp=now_ms, compression=codec)
        )
        for index in partitions
    ]
    topic_id = rig.image.topics.by_name[name].topic_id
    topic = TopicProduceData(name=name, topic_id=topic_id, partition_data=parts)
    response = await rig.request(1, ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic]), version)
    (answered,) = response.responses
    return list(answered.partition_responses)


def codes(answers: list[PartitionProduceResponse]) -> list[tuple[int, int, int]]:
    return [(each.index, each.error_code, each.base_offset) for each in answers]


@pytest.mark.parametrize("version", [9, 12, 13])
def test_all_replicas_have_it_when_it_is_answered(version: int) -> None:
    rig = ReplicaRig()

    async def test() -> None:
        await rig.create_topic("t", [[1, 2, 3], [1, 3, 2]])
        for number in range(3):
            answers = await produce(rig, 1, 0, version=version)
            assert codes(answers) == [(1, 0, number), (0, 0, number)]
            for index in (0, 1):
                assert {end for _, end in rig.ends("t", index).values()} == {number + 1}
                assert rig.ends("t", index)[1] == (number + 1, number + 1)

    rig.run(test)


def test_what_one_partition_lacks_the_others_do_not_pay_for() -> None:
    """One has too few replicas in sync, the other answers well."""
    rig = ReplicaRig()

    async def test() -> None:
        await rig.create_topic("t", [[1, 2, 3], [1, 3, 2]], configs={"min.insync.replicas": "2"})
        await rig.elect("t", 1, [1], index=1)
        rig.brokers[3].crash()
        rig.brokers[2].crash()
        await rig.brokers[2].start()
        answers = await produce(rig, 0, 1, timeout_ms=500)
        assert (answers[1].error_code, answers[1].base_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
        assert answers[0].error_code in (0, ErrorCode.REQUEST_TIMED_OUT)
        assert rig.ends("t", 1)[1] == (0, 0)

    rig.run(test)


def test_a_replica_that_does_not_come_makes_it_time_out() -> None:
    rig = ReplicaRig()

    async def test() -> None:
        await rig.create_topic("t", [[1, 2], [1, 3]])
        assert codes(await produce(rig, 0, 1)) == [(0, 0, 0), (1, 0, 0)]
        rig.brokers[3].crash()
        answers = await produce(rig, 0, 1, timeout_ms=1_000)
        assert codes(answers) == [(0, 0, 1), (1, ErrorCode.REQUEST_TIMED_OUT, 1)]
        assert (answers[1].error_message, answers[1].log_start_offset) == (None, 0), "only the error is another"
        assert rig.ends("t", 0)[1] == (2, 2)
        assert rig.ends("t", 1)[1] == (1, 2)

    rig.run(test)


@pytest.mark.parametrize("version", [9, 13])
def test_who_leads_no_more_says_who_does(version: int) -> None:
    rig = ReplicaRig()

    async def test() -> None:
        await rig.create_topic("t", [[1, 2], [1, 2]])
        rig.brokers[2].crash()
        waiting = asyncio.ensure_future(produce(rig, 0, 1, version=version, timeout_ms=20_000))
        await rig.until(lambda: rig.ends("t", 1)[1][1] == 1)
        await rig.elect("t", 2, [1, 2], index=0)
        await rig.elect("t", 2, [1, 2], index=1)
        answers = await waiting
        assert [each.error_code for each in answers] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
        leader = (2, 1) if version >= 10 else (-1, -1)
        assert [(each.current_leader.leader_id, each.current_leader.leader_epoch) for each in answers] == [leader] * 2

    rig.run(test)


def test_partitions_without_followers_and_of_the_cluster() -> None:
    rig = ReplicaRig()

    async def test() -> None:
        await rig.create_topic("t", [[1, 2], [1]])
        assert codes(await produce(rig, 0, 1)) == [(0, 0, 0), (1, 0, 0)]
        await rig.create_topic("__consumer_offsets", [[1, 2], [1, 2]])
        answers = await produce(rig, 0, 1, name="__consumer_offsets")
        assert [each.error_code for each in answers] == [ErrorCode.INVALID_TOPIC_EXCEPTION] * 2

    rig.run(test)


def test_a_batch_sent_again_is_acknowledged_with_its_replicas_and_not_with_those_of_later_ones() -> None:
    rig = ReplicaRig(2)

    async def story() -> None:
        await rig.create_topic("t", [[1, 2]])
        now_ms = rig.brokers[1].world.clock.now_ms()

        def send(sequence: int) -> asyncio.Future[PartitionProduceResponse]:
            batch = build_batch(
                [Record(value=b"v")], timestamp=now_ms, producer_id=7, producer_epoch=0, base_sequence=sequence
            )
            topic = TopicProduceData(
                topic_id=rig.image.topics.by_name["t"].topic_id,
                partition_data=[PartitionProduceData(index=0, records=batch)],
            )
            request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[topic])

            async def answered() -> PartitionProduceResponse:
                response = await rig.request(1, request, 13)
                answer: PartitionProduceResponse = response.responses[0].partition_responses[0]
                return answer

            return asyncio.ensure_future(answered())

        rig.internet.cut("host-2", "host-1")
        first = send(0)
        await asyncio.sleep(1)
        later = send(1)
        await asyncio.sleep(1)
        again = send(0)
        await asyncio.sleep(1)
        hosted = rig.hosted(1, "t")
        hosted.partition.log.advance_high_watermark(1)
        hosted.on_high_watermark_advanced()
        assert (await first).base_offset == (await again).base_offset == 0
        assert not later.done()
        rig.internet.heal("host-2", "host-1")
        assert (await later).base_offset == 1

    rig.run(story)


def test_a_partition_lost_with_the_directory_of_a_later_one_is_answered_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = ReplicaRig(2)
    write = SimulatedFile.write

    def failing(self: SimulatedFile, data: bytes | memoryview, position: int) -> None:
        if "/t-1/" in self.path:
            raise OSError(errno.EIO, "Input/output error", self.path)
        write(self, data, position)

    async def story() -> None:
        await rig.create_topic("t", [[1, 2], [1, 2]])
        await produce(rig, 0, 1)
        started = rig.loop.time()
        with monkeypatch.context() as patch:
            patch.setattr(SimulatedFile, "write", failing)
            first, second = await produce(rig, 0, 1)
        assert rig.loop.time() - started < 1
        assert (first.error_code, second.error_code) == (
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.KAFKA_STORAGE_ERROR,
        )

    rig.run(story)


def test_leadership_lost_and_won_again_while_another_batch_is_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands at that place by then may be another leader's, however far the high watermark has come."""
    rig = ReplicaRig(2)
    run = SimulatedWorkers.run
    may_look = asyncio.Event()

    async def slow(self: SimulatedWorkers, job: Callable[[], Any]) -> Any:
        if "examine" in repr(job):
            await may_look.wait()
        return await run(self, job)

    monkeypatch.setattr(SimulatedWorkers, "run", slow)

    async def story() -> None:
        await rig.create_topic("t", [[1, 2], [1, 2]])
        now_ms = rig.brokers[1].world.clock.now_ms()
        values = [bytes(AT_ONCE_BYTES) for _ in range(2)]
        large = build_batch([Record(value=each) for each in values], timestamp=now_ms, compression=Compression.GZIP)
        parts = [
            PartitionProduceData(index=0, records=large),
            PartitionProduceData(index=1, records=build_batch([Record(value=b"v")], timestamp=now_ms)),
        ]
        rig.internet.cut("host-2", "host-1")
        topic = TopicProduceData(topic_id=rig.image.topics.by_name["t"].topic_id, partition_data=parts)
        request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[topic])
        waiting = asyncio.ensure_future(rig.request(1, request, 13))
        await rig.until(lambda: rig.ends("t", 1)[1][1] == 1)
        await rig.elect("t", 2, [1, 2], index=1)
        await rig.elect("t", 1, [1], index=1)
        rig.internet.heal("host-2", "host-1")
        may_look.set()
        answers = (await waiting).responses[0].partition_responses
        assert codes(answers) == [(0, 0, 0), (1, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)]

    rig.run(story)
