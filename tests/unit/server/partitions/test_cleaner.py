"""The cleaner of a node: which log, how fast, and what becomes of a cleaning when the log changes under it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

import pytest
from tests.unit.server.asking import deletion, produce_bytes, produced
from tests.unit.server.rig import Client, Rig
from tests.unit.storage.worlds import read_all

from odradek.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.records.batch import build_batch, decode_records
from odradek.protocol.records.record import Record
from odradek.server.metrics import exposition
from odradek.server.partitions.hosted_partition import HostedPartition
from odradek.sim.disk import SimulatedDisk, SimulatedFile
from odradek.storage.log import Log

QUICK = {
    "log.initial.task.delay.ms": "0",
    "log.cleaner.backoff.ms": "1000",
    "log.cleaner.min.cleanable.ratio": "0.01",
}
COMPACTED = {"cleanup.policy": "compact", "file.delete.delay.ms": "1000"}
SYNCED_S = 10
"""Until a segment that was sealed is on the device, and may be cleaned."""


async def put(client: Client, topic: str, *pairs: tuple[bytes, bytes | None]) -> None:
    batch = build_batch([Record(*pair) for pair in pairs], timestamp=1_700_000_000_000)
    assert produced(await client.ask(produce_bytes(topic, batch), 9)).error_code == 0


async def filled(rig: Rig, topic: str = "t", configs: dict[str, str] | None = None, count: int = 10) -> HostedPartition:
    """Three keys, over and over, in a segment each; and a last one in the active one."""
    (hosted,) = await rig.create_topic(topic, 1, COMPACTED | (configs or {}))
    client = rig.connect()
    for number in range(count):
        await put(client, topic, (b"k%d" % (number % 3), b"v%d" % number))
        hosted.partition.log.roll(rig.clock.now_ms())
    await put(client, topic, (b"active", b"1"))
    return hosted


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - the clock is made up
        await asyncio.sleep(0.1)


def found(log: Log) -> list[tuple[bytes | None, bytes | None]]:
    return [(each.key, each.value) for batch in read_all(log) for each in decode_records(batch)]


CLEANED = [(b"k1", b"v7"), (b"k2", b"v8"), (b"k0", b"v9"), (b"active", b"1")]


def test_a_compacted_topic_is_compacted_and_its_checkpoint_says_so() -> None:
    rig = Rig(properties=QUICK)

    async def test() -> None:
        hosted = await filled(rig)
        log = hosted.partition.log
        await asyncio.sleep(SYNCED_S)
        assert found(log) == CLEANED
        assert len(log.segments) == 2
        assert log.log_end_offset == 11
        checkpoint = rig.world.disk.read_file("/data/cleaner-offset-checkpoint")
        assert checkpoint == b"0\n1\nt 0 10\n"
        assert "kafka_log_logcleaner_cleaner_recopy_percent 30\n" in exposition(rig.node.rooms)
        await asyncio.sleep(70)
        assert not [name for name in rig.world.disk.list("/data/t-0") if name.endswith((".deleted", ".cleaned"))]

        await rig.restart()
        hosted = rig.node.rooms.replicas.require("t", 0)
        assert hosted.partition.log.cleaned_offset == 10
        before = hosted.partition.log.segments[0]
        await asyncio.sleep(SYNCED_S)
        assert hosted.partition.log.segments[0] is before, "there is nothing to clean"
        assert found(hosted.partition.log) == CLEANED

    rig.run(test)


def test_a_topic_that_is_not_compacted_is_left_alone_and_one_that_becomes_it_is_not() -> None:
    rig = Rig(properties=QUICK)

    async def test() -> None:
        hosted = await filled(rig, configs={"cleanup.policy": "delete"})
        await asyncio.sleep(SYNCED_S)
        assert len(found(hosted.partition.log)) == 11
        await set_config(rig, 2, "t", "cleanup.policy", "compact,delete")
        await asyncio.sleep(2)
        assert found(hosted.partition.log) == CLEANED

    rig.run(test)


def test_nothing_is_cleaned_where_the_cleaner_is_disabled() -> None:
    rig = Rig(properties=QUICK | {"log.cleaner.enable": "false"})

    async def test() -> None:
        hosted = await filled(rig)
        await asyncio.sleep(10 * SYNCED_S)
        assert len(found(hosted.partition.log)) == 11

    rig.run(test)


def test_the_dirtiest_log_comes_first_and_one_that_is_clean_enough_not_at_all() -> None:
    rig = Rig(properties=QUICK | {"log.cleaner.min.cleanable.ratio": "0.5"})

    async def test() -> None:
        hosted = await filled(rig)
        await asyncio.sleep(SYNCED_S)
        client = rig.connect()
        log = hosted.partition.log
        await put(client, "t", (b"k0", b"new"))
        log.roll(rig.clock.now_ms())
        await asyncio.sleep(SYNCED_S)
        assert (b"k0", b"v9") in found(log), "two segments of five or so are not half of it"
        cleaner = rig.node.rooms.cleaner
        assert 0.2 < cleaner.max_dirty_ratio <= 0.5
        for number in range(3):
            await put(client, "t", (b"k0", b"newer%d" % number))
            log.roll(rig.clock.now_ms())
        await asyncio.sleep(SYNCED_S)
        assert (b"k0", b"v9") not in found(log)
        assert cleaner.max_dirty_ratio == 0.0

    rig.run(test)


def test_it_reads_and_writes_no_faster_than_it_may() -> None:
    rig = Rig(properties=QUICK)

    async def test() -> None:
        await set_config(rig, 4, "", "log.cleaner.io.max.bytes.per.second", "100")
        hosted = await filled(rig)
        size = hosted.partition.log.size_bytes
        await asyncio.sleep(SYNCED_S)
        began = rig.clock.monotonic_ms()
        await until(lambda: hosted.partition.log.cleaned_offset > 0)
        took_s = (rig.clock.monotonic_ms() - began) / 1000
        assert 2 * size / 100 - SYNCED_S <= took_s <= 3 * size / 100, "what is read twice, and what is written"

    rig.run(test)


@pytest.mark.parametrize("what", ["deleted", "deleted and made anew", "cut", "not compacted", "stopped"])
def test_a_log_that_changes_under_a_cleaning_takes_nothing_in(what: str) -> None:
    rig = Rig(properties=QUICK | {"log.cleaner.io.max.bytes.per.second": "100"})

    async def test() -> None:
        hosted = await filled(rig)
        log = hosted.partition.log
        await until(lambda: any(name.endswith(".cleaned") for name in rig.world.disk.list("/data/t-0")))
        before = found(log)
        match what:
            case "deleted":
                await rig.connect().ask(deletion("t"), 6)
            case "deleted and made anew":
                await rig.connect().ask(deletion("t"), 6)
                hosted = await filled(rig)
                before = [(b"k%d" % (number % 3), b"v%d" % number) for number in range(10)] + [(b"active", b"1")]
            case "cut":
                log.truncate_to(log.log_end_offset - 1)
                del before[-1]
            case "not compacted":
                await set_config(rig, 2, "t", "cleanup.policy", "delete")
            case "stopped":
                began_ms = rig.clock.monotonic_ms()
                await rig.restart()
                assert rig.clock.monotonic_ms() - began_ms < 5_000
                hosted = rig.node.rooms.replicas.require("t", 0)
        await asyncio.sleep(1.5)
        if what != "deleted":
            assert found(hosted.partition.log) == before
        assert rig.node.rooms.containment.total == 0
        assert all(directory.online for directory in rig.node.rooms.replicas.directories)
        await set_config(rig, 4, str(rig.node.node_id), "log.cleaner.io.max.bytes.per.second", "1e9")
        await asyncio.sleep(60)
        if what in ("deleted and made anew", "stopped"):
            assert found(hosted.partition.log) == CLEANED
        elif what == "cut":
            assert found(hosted.partition.log) == CLEANED[:-1]
        elif what == "not compacted":
            assert found(hosted.partition.log) == before

    rig.run(test)


def test_a_partition_that_nobody_can_read_is_left_and_told_of_and_others_are_cleaned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig(properties=QUICK)

    async def test() -> None:
        damaged = await filled(rig, "damaged")
        log = damaged.partition.log
        data = bytearray(rig.world.disk.read_file(log.segments[3].path))
        data[-1] ^= 1
        rig.world.disk.write_file(log.segments[3].path, bytes(data))
        size = log.size_bytes
        well = await filled(rig, "well")
        await asyncio.sleep(2 * SYNCED_S)
        assert found(well.partition.log) == CLEANED
        assert log.size_bytes == size
        page = exposition(rig.node.rooms)
        assert 'kafka_log_logcleanermanager_uncleanable_partitions_count{logdirectory="/data"} 1\n' in page
        assert f'kafka_log_logcleanermanager_uncleanable_bytes{{logdirectory="/data"}} {size}\n' in page

    rig.run(test)
    told = [each.getMessage() for each in caplog.records if "not compacted any more" in each.getMessage()]
    assert len(told) == 1
    assert "damaged-0" in told[0]
    assert "checksum" in told[0]


def test_a_full_disk_costs_a_cleaning_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(properties=QUICK)
    refused = 0
    write = SimulatedFile.write

    def full(file: SimulatedFile, data: bytes, position: int) -> None:
        nonlocal refused
        if file.path.endswith(".cleaned") and refused < 3:
            refused += 1
            raise OSError(errno.ENOSPC, "No space left on device")
        write(file, data, position)

    async def test() -> None:
        hosted = await filled(rig)
        before = found(hosted.partition.log)
        monkeypatch.setattr(SimulatedFile, "write", full)
        while refused < 3:
            assert found(hosted.partition.log) == before
            await asyncio.sleep(1)
        assert hosted.directory.online
        await asyncio.sleep(SYNCED_S)
        assert found(hosted.partition.log) == CLEANED

    rig.run(test)


def test_a_disk_that_fails_in_a_cleaning_is_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(properties=QUICK | {"log.dirs": "/data,/other", "metadata.log.dir": "/metadata"})
    rename = SimulatedDisk.rename

    def failing(disk: SimulatedDisk, old: str, new: str) -> None:
        if new.endswith(".swap"):
            raise OSError(errno.EIO, "Input/output error", new)
        rename(disk, old, new)

    async def test() -> None:
        hosted = await filled(rig)
        other = next(each for each in rig.node.rooms.replicas.directories if each is not hosted.directory)
        monkeypatch.setattr(SimulatedDisk, "rename", failing)
        await asyncio.sleep(SYNCED_S)
        assert not hosted.directory.online
        assert other.online
        assert rig.node.rooms.containment.total == 0

    rig.run(test)


def test_more_logs_at_a_time_once_there_are_more_threads() -> None:
    rig = Rig(properties=QUICK | {"log.cleaner.io.max.bytes.per.second": "200"})

    async def test() -> None:
        for name in ("t", "u", "v"):
            await filled(rig, name)
        under_way = rig.node.rooms.cleaner._under_way
        await asyncio.sleep(SYNCED_S)
        assert len(under_way) == 1
        await set_config(rig, 4, "", "log.cleaner.threads", "2")
        await until(lambda: len(under_way) == 2)
        await set_config(rig, 4, "", "log.cleaner.io.max.bytes.per.second", "1e9")
        await asyncio.sleep(30)
        for name in ("t", "u", "v"):
            assert found(rig.node.rooms.replicas.require(name, 0).partition.log) == CLEANED

    rig.run(test)


async def set_config(rig: Rig, resource_type: int, name: str, key: str, text: str) -> None:
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=resource_type,
                resource_name=name,
                configs=[AlterableConfig(name=key, config_operation=0, value=text)],
            )
        ],
        validate_only=False,
    )
    response = await rig.connect().ask(request, 1)
    assert response.responses[0].error_code == 0, response
