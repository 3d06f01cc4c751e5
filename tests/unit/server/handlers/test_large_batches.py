"""Batches that take long to look into: a worker does it, the loop goes on, and order holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module

import pytest
from tests.fuzz.batches import bomb
from tests.unit.server.rig import Rig

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.protocol.records.batch import build_batch
from odradek.protocol.records.compression import Compression
from odradek.protocol.records.record import Record
from odradek.storage.validation import AT_ONCE_BYTES, PACKED_AT_ONCE_BYTES

PACKED = [codec for codec in Compression if codec is not Compression.NONE]


def produce(topic: str, topic_id: object, batches: list[bytes], *, acks: int = -1) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=memoryview(batch)) for index, batch in enumerate(batches)]
    made = TopicProduceData(name=topic, topic_id=topic_id, partition_data=data)  # type: ignore[arg-type]
    return ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=[made])


def parts_of(response: object) -> list[PartitionProduceResponse]:
    assert isinstance(response, ProduceResponse)
    return response.responses[0].partition_responses


def large_batch(now_ms: int, codec: Compression, **options: int) -> bytes:
    values = [bytes(AT_ONCE_BYTES // 2) + b"%d" % index for index in range(3)]
    return bytes(build_batch([Record(b"k", each) for each in values], timestamp=now_ms, compression=codec, **options))


def small_batch(now_ms: int, **options: int) -> bytes:
    return bytes(build_batch([Record(b"k", b"small")], timestamp=now_ms, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("version", [7, 9, 13])
@pytest.mark.parametrize("settings", [{}, {"cleanup.policy": "compact"}, {"compression.type": "lz4"}], ids=str)
def test_order_of_a_connection_holds(codec: Compression, version: int, settings: dict[str, str]) -> None:
    rig = Rig()

    async def send() -> None:
        (hosted,) = await rig.create_topic("t", 1, settings)
        client = rig.connect()
        now_ms = rig.clock.now_ms()
        batches = [
            large_batch(now_ms, codec, producer_id=7, producer_epoch=0, base_sequence=0),
            bytes(
                build_batch(
                    [Record(b"k", b"small")], timestamp=now_ms, producer_id=7, producer_epoch=0, base_sequence=3
                )
            ),
            large_batch(now_ms, codec, producer_id=7, producer_epoch=0, base_sequence=4),
            bytes(
                build_batch(
                    [Record(b"k", b"small")], timestamp=now_ms, producer_id=7, producer_epoch=0, base_sequence=7
                )
            ),
        ]
        asked = [
            asyncio.ensure_future(client.ask(produce("t", hosted.topic_id, [batch]), version)) for batch in batches
        ]
        answers = [parts_of(await each)[0] for each in asked]
        assert [(each.error_code, each.base_offset) for each in answers] == [(0, 0), (0, 3), (0, 4), (0, 7)]
        assert hosted.partition.log.log_end_offset == 8

    rig.run(send)


@pytest.mark.parametrize("codec", PACKED)
def test_the_loop_goes_on(codec: Compression) -> None:
    """Another connection is answered while a worker is at it."""
    rig = Rig()

    async def send() -> None:
        (hosted,) = await rig.create_topic("t", 1)
        large, small = rig.connect(), rig.connect()
        now_ms = rig.clock.now_ms()
        first = asyncio.ensure_future(large.ask(produce("t", hosted.topic_id, [large_batch(now_ms, codec)]), 13))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        batch = small_batch(now_ms)
        (quick,) = parts_of(await small.ask(produce("t", hosted.topic_id, [batch]), 13))
        assert (quick.error_code, quick.base_offset) == (0, 0)
        (slow,) = parts_of(await first)
        assert (slow.error_code, slow.base_offset) == (0, 1)

    rig.run(send)


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize(
    "settings", [{}, {"message.timestamp.type": "LogAppendTime"}, {"compression.type": "gzip"}], ids=str
)
def test_several_partitions_of_which_one_takes_long(codec: Compression, settings: dict[str, str]) -> None:
    rig = Rig()

    async def send() -> None:
        hosts = await rig.create_topic("t", 3, settings)
        client = rig.connect()
        now_ms = rig.clock.now_ms()
        small = small_batch(now_ms, compression=codec)
        spoilt = bytearray(large_batch(now_ms, codec))
        request = produce("t", hosts[0].topic_id, [small, large_batch(now_ms, codec), small])
        answers = parts_of(await client.ask(request, 13))
        assert [(each.error_code, each.base_offset) for each in answers] == [(0, 0)] * 3
        assert [hosted.partition.log.log_end_offset for hosted in hosts] == [1, 3, 1]
        spoilt[-3] ^= 1
        request = produce("t", hosts[0].topic_id, [small, bytes(spoilt), small])
        answers = parts_of(await client.ask(request, 13))
        assert [each.error_code for each in answers] == [0, ErrorCode.CORRUPT_MESSAGE, 0]

    rig.run(send)


def watched(rig: Rig, monkeypatch: pytest.MonkeyPatch, name: str) -> list[bool]:
    """Of each call of that function whether a worker made it."""
    by_worker, calls = [False], []
    run, whole = rig.world.workers.run, getattr(*_place(name))

    async def working(job: Callable[[], object]) -> object:
        def noted() -> object:
            by_worker[0] = True
            try:
                return job()
            finally:
                by_worker[0] = False

        return await run(noted)

    def called(*arguments: object, **options: object) -> object:
        calls.append(by_worker[0])
        return whole(*arguments, **options)

    monkeypatch.setattr(rig.world.workers, "run", working)
    monkeypatch.setattr(*_place(name), called)
    return calls


def _place(name: str) -> tuple[object, str]:
    module, _, function = name.rpartition(".")
    return import_module(module), function


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("acks", [1, -1])
def test_a_worker_packs_what_is_more_than_a_little(partitions: int, acks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()

    async def send() -> None:
        hosts = await rig.create_topic("t", partitions, {"compression.type": "gzip"})
        client = rig.connect()
        packed = watched(rig, monkeypatch, "odradek.storage.validation.compress")
        now_ms = rig.clock.now_ms()
        kinds = (
            (1_000, Compression.NONE, False),
            (PACKED_AT_ONCE_BYTES, Compression.NONE, True),
            (1_000, Compression.LZ4, True),
            (1_000, Compression.NONE, False),
        )
        for end_offset, (size, codec, by_worker) in enumerate(kinds):
            batch = bytes(build_batch([Record(b"k", bytes(size))], timestamp=now_ms, compression=codec))
            request = produce("t", hosts[0].topic_id, [batch] * partitions, acks=acks)
            answers = parts_of(await client.ask(request, 13))
            assert [(each.error_code, each.base_offset) for each in answers] == [(0, end_offset)] * partitions
            assert packed == [by_worker] * partitions
            packed.clear()

    rig.run(send)


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("settings", [{}, {"message.timestamp.type": "LogAppendTime"}], ids=str)
def test_what_takes_long_is_found_out_once(
    partitions: int, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though a request tries one way after the other until there is one that waits."""
    rig = Rig()

    async def send() -> None:
        hosts = await rig.create_topic("t", partitions, settings)
        client = rig.connect()
        now_ms = rig.clock.now_ms()
        small = produce("t", hosts[0].topic_id, [small_batch(now_ms)], acks=1)
        for _ in range(3):  # By then the connection knows what it is asked.
            await client.ask(small, 13)
        unpacked = watched(rig, monkeypatch, "odradek.protocol.records.check.decompressed_pieces")
        batches = [large_batch(now_ms, Compression.GZIP)] * partitions
        answers = parts_of(await client.ask(produce("t", hosts[0].topic_id, batches, acks=1), 13))
        assert [each.error_code for each in answers] == [0] * partitions
        assert sorted(unpacked) == [False] * unpacked.count(False) + [True] * partitions
        assert unpacked.count(False) <= partitions

    rig.run(send)


def test_what_is_wrong_with_a_large_batch_is_told() -> None:
    rig = Rig()

    async def send() -> None:
        (hosted,) = await rig.create_topic("t", 1, {"cleanup.policy": "compact"})
        client = rig.connect()
        records = [Record(b"k", bytes(AT_ONCE_BYTES)), Record(None, b"")]
        batch = bytes(build_batch(records, timestamp=rig.clock.now_ms(), compression=Compression.GZIP))
        (part,) = parts_of(await client.ask(produce("t", hosted.topic_id, [batch]), 13))
        assert part.error_code == ErrorCode.INVALID_RECORD
        assert [each.batch_index for each in part.record_errors] == [1]
        (part,) = parts_of(await client.ask(produce("t", hosted.topic_id, [bomb(Compression.ZSTD, 1 << 28, 0)]), 13))
        assert part.error_code == ErrorCode.INVALID_RECORD
        assert hosted.partition.log.log_end_offset == 0

    rig.run(send)


def test_a_client_that_leaves_in_between_stops_nobody() -> None:
    rig = Rig()

    async def send() -> None:
        (hosted,) = await rig.create_topic("t", 1)
        leaving, staying = rig.connect(), rig.connect()
        batch = large_batch(rig.clock.now_ms(), Compression.GZIP)
        asked = asyncio.ensure_future(leaving.ask(produce("t", hosted.topic_id, [batch]), 13))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        leaving.wire.lose(None)
        asked.cancel()
        (part,) = parts_of(await staying.ask(produce("t", hosted.topic_id, [batch]), 13))
        assert part.error_code == 0

    rig.run(send)
