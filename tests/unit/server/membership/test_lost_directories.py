"""Disks that are not mounted, replaced, taken out or back: what was in them is never taken for empty."""

from __future__ import annotations

import pytest
from tests.unit.server.asking import fetch, fetched, produce, values, wanted
from tests.unit.server.rig import Rig

from odradek.metadata.bootstrap import FormatError
from odradek.server.configs.node_config import load
from odradek.server.membership.identity import format_directories
from odradek.sim.loop import Life
from odradek.storage.last_life import CLEAN_SHUTDOWN_FILE

PARTITIONS = range(4)


async def filled(rig: Rig) -> list[int]:
    """A topic over both directories; what of it is in the second."""
    hosted = await rig.create_topic("t", len(PARTITIONS))
    for index in PARTITIONS:
        await rig.connect().ask(produce("t", b"kept", partition=index), 9)
    return [each.index for each in hosted if each.directory.path == "/more"]


async def end(rig: Rig, *, cleanly: bool) -> None:
    if cleanly:
        await rig.node.stop()
    rig.crash()


def rename(rig: Rig, old: str, new: str) -> None:
    rig.device.attach(Life("the operator")).rename(old, new)


async def content(rig: Rig) -> list[list[bytes | None]]:
    client = rig.connect()
    return [values(fetched(await client.ask(fetch("t", wanted(index)), 12))[index]) for index in PARTITIONS]


@pytest.mark.parametrize("cleanly", [True, False])
def test_a_disk_that_is_not_mounted_is_not_taken_for_a_new_one(cleanly: bool) -> None:
    rig = Rig(properties={"log.dirs": "/data,/more"})

    async def test() -> None:
        assert await filled(rig)
        before = rig.node.rooms.lifecycle.broker_epoch
        await end(rig, cleanly=cleanly)
        rename(rig, "/more", "/away")
        for _ in range(2):
            with pytest.raises(FormatError, match=r"/more is empty, and a log directory .* is missing .*: mount it"):
                await rig.start()
            assert rig.device.attach(Life("a look")).list("/more") == [".lock"]
            assert rig.device.attach(Life("a look")).exists(f"/data/{CLEAN_SHUTDOWN_FILE}") is cleanly
            rig.crash()
        rename(rig, "/more", "/mountpoint")
        rename(rig, "/away", "/more")
        await rig.start()
        assert rig.node.rooms.lifecycle.previous_epoch == before, "nothing is lost"
        assert await content(rig) == [[b"kept"]] * len(PARTITIONS)

    rig.run(test)


def test_a_disk_that_is_lost_is_replaced_by_one_that_was_formatted_for_it() -> None:
    rig = Rig(properties={"log.dirs": "/data,/more"})

    async def test() -> None:
        lost = await filled(rig)
        await end(rig, cleanly=True)
        rename(rig, "/more", "/away")
        cluster_id = rig.node.rooms.cluster_id
        disk = rig.device.attach(Life("the operator"))
        config = load(rig.properties, host_name="node")
        format_directories(
            config,
            disk,
            rig.world.entropy,
            now_ms=0,
            cluster_id=cluster_id,
            unformatted=("/more",),
            initial_controllers=None,
        )
        await rig.start()
        assert rig.node.rooms.lifecycle.previous_epoch == -1
        assert await content(rig) == [[] if index in lost else [b"kept"] for index in PARTITIONS]
        leaders = [each.leader for each in rig.node.rooms.image.topics.by_name["t"].partitions]
        assert leaders == [-1 if index in lost else 1 for index in PARTITIONS]

    rig.run(test)


def test_a_directory_that_was_away_does_not_come_back_with_older_copies() -> None:
    rig = Rig(properties={"log.dirs": "/data,/more"})

    async def test() -> None:
        lost = await filled(rig)
        await end(rig, cleanly=True)
        rig.properties["log.dirs"] = "/data"
        await rig.start()
        assert rig.node.rooms.lifecycle.previous_epoch == -1
        await end(rig, cleanly=True)
        rig.properties["log.dirs"] = "/data,/more"
        with pytest.raises(FormatError, match=rf"t-{lost[0]} is in /data and in /more"):
            await rig.start()
        rig.crash()
        rename(rig, "/more", "/away")
        rig.properties["log.dirs"] = "/data"
        await rig.start()

    rig.run(test)


def test_a_directory_that_was_added_is_used() -> None:
    rig = Rig(properties={"log.dirs": "/data"})

    async def test() -> None:
        await rig.create_topic("t")
        await end(rig, cleanly=True)
        rig.properties["log.dirs"] = "/data,/more"
        await rig.start()
        assert {each.directory.path for each in await rig.create_topic("u")} == {"/more"}
        assert len(rig.node.rooms.image.cluster.brokers[rig.node.node_id].log_dirs) == 2
        await rig.restart()

    rig.run(test)
