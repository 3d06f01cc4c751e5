"""What earlier releases left on disks, made by hand: it opens with a clear word, and what can be recovered is.

What each word means, and what to do, is in docs/howto/upgrade.md. Eligible leaders that are none are in
`test_controller.py`, voters that forgot what they promised in `test_lost_voters.py`, indexes of batches without
timestamps in `tests/unit/storage/test_recovery.py`.
"""

from __future__ import annotations

import asyncio
import re

import pytest
from tests.unit.server.asking import deletion, fetch, fetched, produce, produced, values, wanted
from tests.unit.server.rig import Rig

from odradek.ids import Uuid, uuid_text
from odradek.metadata.bootstrap import FormatError
from odradek.ports import Disk
from odradek.protocol.errors import ErrorCode
from odradek.sim.loop import Life

STRAY = "0123456789abcdef0123456789abcdef-stray"
METADATA = "__cluster_metadata-0"
PARTITIONS = range(4)


def operator(rig: Rig) -> Disk:
    return rig.device.attach(Life("an earlier release, or the operator"))


async def filled(rig: Rig) -> dict[int, str]:
    """A topic over both directories; in which of them each partition is."""
    hosted = await rig.create_topic("t", len(PARTITIONS))
    where = {each.index: each.directory.path for each in hosted}
    for index in PARTITIONS:
        await rig.connect().ask(produce("t", b"kept", partition=index), 9)
    assert len(set(where.values())) == 2
    return where


async def stop(rig: Rig) -> None:
    await rig.node.stop()
    rig.crash()


async def content(rig: Rig, partitions: range = PARTITIONS) -> list[list[bytes | None]]:
    client = rig.connect()
    return [values(fetched(await client.ask(fetch("t", wanted(index)), 12))[index]) for index in partitions]


def copy(disk: Disk, old: str, new: str) -> None:
    disk.make_directory(new)
    for name in disk.list(old):
        disk.write_file(f"{new}/{name}", disk.read_file(f"{old}/{name}"))


@pytest.mark.parametrize("cleanly", [True, False])
def test_a_topic_made_anew_beside_the_checkpoints_of_its_predecessor(
    cleanly: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """400 of 500 records were deleted, the topic too, and ten were written to the next one."""
    rig = Rig(properties={"broker.heartbeat.interval.ms": "500", "broker.session.timeout.ms": "3000"})

    async def test() -> None:
        await rig.create_topic("t")
        for number in range(10):
            await rig.connect().ask(produce("t", b"%d" % number), 9)
        if cleanly:
            await rig.node.stop()
        rig.crash()
        disk = operator(rig)
        for name, offset in (("log-start", 400), ("recovery-point", 500), ("replication", 500)):
            disk.write_file(f"/data/{name}-offset-checkpoint", b"0\n1\nt 0 %d\n" % offset)
        await rig.start()
        assert await content(rig, range(1)) == [[b"%d" % number for number in range(10)]]
        assert "holds offsets 0 to 10, and the checkpoint says that it starts at 400: what the log holds" in caplog.text
        assert (
            "ends at 10, below its high watermark of 500 (unless both were noted by an earlier release" in caplog.text
        )
        caplog.clear()
        await stop(rig)
        await rig.start()
        assert await content(rig, range(1)) == [[b"%d" % number for number in range(10)]]
        assert "offset" not in caplog.text, "it is told once"

    rig.run(test)


def test_logs_that_were_set_aside_under_another_order_of_directories_come_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An empty metadata log was begun in the other directory, and by that one no partition was known."""
    rig = Rig(properties={"log.dirs": "/data,/more"})

    async def test() -> None:
        where = await filled(rig)
        await stop(rig)
        disk = operator(rig)
        for index, path in where.items():
            disk.rename(f"{path}/t-{index}", f"{path}/t-{index}.{STRAY}")
        disk.make_directory(f"/more/{METADATA}")
        disk.write_file(f"/more/{METADATA}/00000000000000000000.log", b"")
        disk.write_file("/data/replication-offset-checkpoint", b"0\n0\n")
        disk.write_file("/more/replication-offset-checkpoint", b"0\n0\n")
        with pytest.raises(FormatError, match=f"Both /data and /more hold a metadata log .{METADATA}.: move the one"):
            await rig.start()
        rig.crash()
        operator(rig).remove_directory(f"/more/{METADATA}")
        await rig.start()
        assert await content(rig) == [[b"kept"]] * len(PARTITIONS)
        told = re.findall(r"Brought back t-(\d) from (\S+): the cluster counts on it", caplog.text)
        assert sorted(told) == [(str(index), f"{where[index]}/t-{index}.{STRAY}") for index in PARTITIONS]
        await stop(rig)
        await rig.start()
        assert await content(rig) == [[b"kept"]] * len(PARTITIONS)
        assert {each.index: each.directory.path for each in rig.node.rooms.replicas} == where

    rig.run(test)


def test_a_log_that_was_set_aside_does_not_take_the_place_of_one_that_is_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig()

    async def test() -> None:
        await rig.create_topic("t")
        await rig.connect().ask(produce("t", b"newer"), 9)
        await stop(rig)
        copy(operator(rig), "/data/t-0", f"/data/t-0.{STRAY}")
        await rig.start()
        assert f"/data/t-0.{STRAY} is an earlier log of t-0, which is not used" in caplog.text
        assert await content(rig, range(1)) == [[b"newer"]]

    rig.run(test)


@pytest.mark.parametrize("why", ["several", "another topic's"])
def test_of_several_logs_that_were_set_aside_and_of_other_topics_none_comes_back(
    why: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig()

    async def test() -> None:
        await rig.create_topic("t")
        await rig.connect().ask(produce("t", b"kept"), 9)
        if why == "another topic's":
            old = "/data/t-0"
            await rig.connect().ask(deletion("t"), 6)
            await asyncio.sleep(0.1)
            (old,) = [f"/data/{name}" for name in rig.world.disk.list("/data") if name.endswith("-delete")]
            await rig.create_topic("t")
        await stop(rig)
        disk = operator(rig)
        if why == "several":
            copy(disk, "/data/t-0", f"/data/t-0.{STRAY[::-1].replace('yarts-', '')}-stray")
            disk.rename("/data/t-0", f"/data/t-0.{STRAY}")
        else:
            disk.rename(old, f"/data/t-0.{STRAY}")
            disk.remove_directory("/data/t-0")
        before = disk.list("/data")
        await rig.start()
        assert "Brought back" not in caplog.text
        assert ("t-0 is not served: several logs of it were set aside" in caplog.text) is (why == "several")
        answer = produced(await rig.connect().ask(produce("t", b"x"), 9))
        assert answer.error_code == (ErrorCode.KAFKA_STORAGE_ERROR if why == "several" else 0)
        assert {name for name in before if "stray" in name} <= set(rig.world.disk.list("/data"))

    rig.run(test)


def test_an_older_copy_on_a_disk_that_was_away_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """Others were begun in an empty directory under its mount point, which had an id of its own."""
    rig = Rig(properties={"log.dirs": "/data,/more"})

    async def test() -> None:
        where = await filled(rig)
        missing = rig.node.rooms.replicas.directories[1].directory_id
        await stop(rig)
        disk = operator(rig)
        before = disk.read_file("/more/meta.properties").decode()
        away = uuid_text(Uuid(b"the id it had   "))
        disk.write_file("/more/meta.properties", before.replace(uuid_text(missing), away).encode())
        await rig.start()
        assert rig.node.rooms.lifecycle.previous_epoch == -1, "a directory of its last registration is missing"
        for index, path in where.items():
            told = f"t-{index} was last in a log directory that is missing (directory.id {uuid_text(missing)})"
            assert (told in caplog.text) is (path == "/more")

    rig.run(test)


def test_a_directory_that_was_dropped_and_is_back_beside_logs_that_were_begun_in_its_stead() -> None:
    rig = Rig(properties={"log.dirs": "/data,/more"})

    async def test() -> None:
        where = await filled(rig)
        await stop(rig)
        disk = operator(rig)
        index = next(index for index, path in where.items() if path == "/more")
        disk.make_directory(f"/data/t-{index}")
        metadata = disk.read_file(f"/more/t-{index}/partition.metadata")
        disk.write_file(f"/data/t-{index}/partition.metadata", metadata)
        disk.write_file(f"/data/t-{index}/00000000000000000000.log", b"")
        with pytest.raises(FormatError, match=rf"t-{index} is in /data and in /more: move the copy away"):
            await rig.start()
        rig.crash()
        operator(rig).remove_directory(f"/data/t-{index}")
        await rig.start()
        assert await content(rig) == [[b"kept"]] * len(PARTITIONS)

    rig.run(test)
