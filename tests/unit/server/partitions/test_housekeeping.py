"""What a broker does now and then, each chore at its own interval."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest
from tests.unit.server.asking import fetch, fetched, produce, produced, wanted
from tests.unit.server.rig import Rig

from odradek.ids import ZERO_UUID, Offset
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.server.containment import Cost
from odradek.sim.disk import SimulatedDisk
from odradek.storage.log import Log


def test_retention_deletes_what_is_old_and_tells_those_who_wait() -> None:
    rig = Rig(properties={"log.retention.check.interval.ms": "1000", "log.initial.task.delay.ms": "0"})

    async def test() -> None:
        (hosted,) = await rig.create_topic("t", 1, {"retention.ms": "5000", "segment.ms": "1000"})
        client = rig.connect()
        await client.ask(produce("t", b"old", timestamp=rig.clock.now_ms()), 9)
        asked = fetch("t", wanted(0, 1), max_wait_ms=20_000)
        waiting = client.send(asked, 12)
        response = await client.answer(waiting, asked, 12)
        assert fetched(response)[0].log_start_offset == 1
        assert hosted.partition.log.log_start_offset == 1
        early = await client.ask(fetch("t", wanted(0, 0)), 12)
        assert fetched(early)[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    rig.run(test)


def test_old_segments_go_from_a_full_disk_where_there_is_no_room_to_roll() -> None:
    rig = Rig(properties={"log.retention.check.interval.ms": "1000", "log.initial.task.delay.ms": "0"})

    async def test() -> None:
        (hosted,) = await rig.create_topic("t", 1, {"retention.ms": "5000", "segment.ms": "2000"})
        client = rig.connect()
        log = hosted.partition.log
        await client.ask(produce("t", b"old", timestamp=rig.clock.now_ms()), 9)
        log.roll(rig.clock.now_ms())
        await client.ask(produce("t", b"new", timestamp=rig.clock.now_ms() + 3_000), 9)
        rig.device.capacity = rig.device.used
        await asyncio.sleep(7)
        assert (log.log_start_offset, log.log_end_offset) == (1, 2)
        assert hosted.directory.online
        rig.device.capacity = 1 << 40

    rig.run(test)


def test_checkpoints_are_written_as_their_intervals_say() -> None:
    rig = Rig(
        properties={
            "log.initial.task.delay.ms": "0",
            "replica.high.watermark.checkpoint.interval.ms": "1000",
            "log.flush.offset.checkpoint.interval.ms": "2000",
            "log.flush.start.offset.checkpoint.interval.ms": "3000",
        }
    )

    async def test() -> None:
        (hosted,) = await rig.create_topic("t")
        client = rig.connect()
        await client.ask(produce("t", b"a", b"b", b"c"), 9)
        rig.node.rooms.replicas.delete_records(hosted, Offset(2))
        await rig.node.rooms.replicas.flush([hosted])
        await asyncio.sleep(3.5)
        read = rig.world.disk.read_file
        assert b"t 0 3\n" in read("/data/replication-offset-checkpoint")
        assert b"t 0 3\n" in read("/data/recovery-point-offset-checkpoint")
        assert b"t 0 2\n" in read("/data/log-start-offset-checkpoint")

    rig.run(test)


def test_sealed_segments_are_synced_by_themselves() -> None:
    rig = Rig(properties={"log.initial.task.delay.ms": "0"})

    async def test() -> None:
        (hosted,) = await rig.create_topic("t", 1, {"segment.bytes": str(1024 * 1024)})
        client = rig.connect()
        await client.ask(produce("t", b"first"), 9)
        await asyncio.sleep(20)
        assert hosted.partition.log.recovery_point == 1, "with the file that says whose log it is"
        await client.ask(produce("t", b"x" * 900_000), 9)
        await asyncio.sleep(20)
        assert hosted.partition.log.recovery_point == 1
        await client.ask(produce("t", b"x" * 900_000), 9)
        await asyncio.sleep(20)
        assert hosted.partition.log.recovery_point >= 2

    rig.run(test)


def test_flush_ms_is_kept_without_further_appends() -> None:
    rig = Rig(properties={"log.initial.task.delay.ms": "0", "log.flush.scheduler.interval.ms": "500"})

    async def test() -> None:
        (hosted,) = await rig.create_topic("t", 1, {"flush.ms": "2000"})
        client = rig.connect()
        await client.ask(produce("t", b"first"), 9)
        await asyncio.sleep(1)
        assert hosted.partition.log.recovery_point == 1, "with the file that says whose log it is"
        await client.ask(produce("t", b"x"), 9)
        await asyncio.sleep(1)
        assert hosted.partition.log.recovery_point == 1
        await asyncio.sleep(2)
        assert hosted.partition.log.recovery_point == 2

    rig.run(test)


def test_silent_producers_are_forgotten() -> None:
    rig = Rig(
        properties={
            "log.initial.task.delay.ms": "0",
            "producer.id.expiration.ms": "10000",
            "producer.id.expiration.check.interval.ms": "1000",
        }
    )

    async def test() -> None:
        (hosted,) = await rig.create_topic("t")
        client = rig.connect()
        now_ms = rig.clock.now_ms()
        batch: Any = {"producer_id": 7, "producer_epoch": 0, "timestamp": now_ms}
        await client.ask(produce("t", b"x", base_sequence=0, **batch), 9)
        await asyncio.sleep(5)
        assert len(hosted.partition.log.producers) == 1
        await asyncio.sleep(10)
        assert len(hosted.partition.log.producers) == 0

    rig.run(test)


def test_files_that_cannot_be_removed_take_their_directory_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(
        properties={
            "log.dirs": "/a,/b",
            "log.retention.check.interval.ms": "1000",
            "log.initial.task.delay.ms": "0",
        }
    )

    def broken(self: SimulatedDisk, path: str) -> None:
        raise OSError(errno.EIO, "Input/output error", path)

    async def test() -> None:
        await rig.create_topic("first")
        (hosted,) = await rig.create_topic("t", 1, {"file.delete.delay.ms": "1000"})
        assert hosted.directory.path == "/b"
        monkeypatch.setattr(SimulatedDisk, "remove_directory", broken)
        deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="t", topic_id=ZERO_UUID)], timeout_ms=1)
        await rig.connect().ask(deletion, 6)
        await asyncio.sleep(5)
        assert [directory.online for directory in rig.node.rooms.replicas.directories] == [True, False]
        assert produced(await rig.connect().ask(produce("first", b"x"), 9)).error_code == 0

    rig.run(test)


def test_files_of_what_was_deleted_go_soon_after_their_delay_and_not_with_the_next_retention() -> None:
    rig = Rig(properties={"log.segment.delete.delay.ms": "60000"})

    async def test() -> None:
        (hosted,) = await rig.create_topic("t")
        (cut,) = await rig.create_topic("cut", 1, {"segment.bytes": str(1024 * 1024)})
        client = rig.connect()
        for _ in range(2):
            await client.ask(produce("cut", b"x" * 900_000), 9)
        deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="t", topic_id=ZERO_UUID)], timeout_ms=1)
        await client.ask(deletion, 6)
        rig.node.rooms.replicas.delete_records(cut, Offset(1))
        cut.partition.log.apply_retention(rig.clock.now_ms())

        def deleted() -> list[str]:
            listed = rig.world.disk.list
            return [
                name
                for name in (*listed("/data"), *listed(cut.partition.log.directory))
                if name.endswith(("-delete", ".deleted"))
            ]

        await asyncio.sleep(59)
        there = deleted()
        assert any(name.endswith("-delete") for name in there)
        assert any(name.endswith(".log.deleted") for name in there)
        await asyncio.sleep(62 + rig.node.config.log_initial_task_delay_ms / 1000)
        assert deleted() == []
        assert hosted.directory.online

    rig.run(test)


def test_a_partition_that_breaks_a_chore_keeps_it_from_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(properties={"log.retention.check.interval.ms": "1000", "log.initial.task.delay.ms": "0"})
    retained: set[str] = set()

    def broken(self: Log, now_ms: int) -> int:
        if self.topic == "a":
            raise ZeroDivisionError
        retained.add(self.topic)
        return 0

    async def test() -> None:
        await rig.start()
        await rig.create_topic("a")
        await rig.create_topic("t")
        monkeypatch.setattr(Log, "apply_retention", broken)
        await asyncio.sleep(5)
        assert retained == {"t"}
        assert rig.node.rooms.containment.counts[Cost.PARTITION] >= 3
        assert rig.node.failed is None
        await rig.node.stop()

    rig.loop.run_until_complete(test())
