"""Log directories that get no new partitions (KIP-1066): what is in them is served, and the controller knows."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.server.handlers.test_alter_configs import alter
from tests.unit.server.rig import Client, Rig

from odradek.configdef import ConfigError
from odradek.metadata.image.configs import BROKER_RESOURCE
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from odradek.server.configs.node_config import load

TWO = {"log.dirs": "/one,/two"}


async def cordoned(client: Client) -> dict[str, bool]:
    told = await client.ask(DescribeLogDirsRequest(topics=None), 5)
    return {each.log_dir: each.is_cordoned for each in told.results}


async def created(client: Client, name: str) -> int:
    topic = CreatableTopic(name=name, num_partitions=4, replication_factor=1, assignments=[], configs=[])
    (answer,) = (await client.ask(CreateTopicsRequest(topics=[topic]), 7)).topics
    code: int = answer.error_code
    return code


def places(rig: Rig, topic: str) -> list[str]:
    return sorted({rig.node.rooms.replicas.require(topic, index).directory.path for index in range(4)})


def test_new_partitions_go_elsewhere_or_nowhere() -> None:
    rig = Rig(properties=TWO)

    async def change() -> None:
        client = rig.connect()
        await rig.create_topic("before", 4)
        assert places(rig, "before") == ["/one", "/two"]
        assert await alter(client, BROKER_RESOURCE, "1", cordoned_log_dirs="/one") == (0, None)
        await rig.create_topic("beside", 4)
        assert places(rig, "beside") == ["/two"]
        assert places(rig, "before") == ["/one", "/two"]
        assert await cordoned(client) == {"/one": True, "/two": False}
        for everything in ("*", "/one,/two"):
            assert await alter(client, BROKER_RESOURCE, "1", cordoned_log_dirs=everything) == (0, None)
            await asyncio.sleep(0.1)  # Told at once, not with the next heartbeat.
            assert await created(client, "nowhere") == ErrorCode.INVALID_REPLICATION_FACTOR
            assert await cordoned(client) == {"/one": True, "/two": True}
        await rig.restart()
        client = rig.connect()
        assert await created(client, "nowhere") == ErrorCode.INVALID_REPLICATION_FACTOR
        assert await alter(client, BROKER_RESOURCE, "1", cordoned_log_dirs=None) == (0, None)
        await asyncio.sleep(0.1)
        assert await created(client, "after") == 0
        assert await cordoned(client) == {"/one": False, "/two": False}

    rig.run(change)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            "/one,/three,/four",
            "requirement failed: All entries in cordoned.log.dirs must be present in log.dirs or log.dir. "
            "Missing entries : /three, /four",
        ),
        ("*,/one", "requirement failed: When cordoned.log.dirs is set to *, it must not contain other values"),
    ],
)
def test_what_is_no_directory_of_the_node_is_refused(given: str, says: str) -> None:
    rig = Rig(properties=TWO)

    async def change() -> None:
        assert await alter(rig.connect(), BROKER_RESOURCE, "1", cordoned_log_dirs=given) == (
            ErrorCode.INVALID_REQUEST,
            says,
        )

    rig.run(change)
    with pytest.raises(ConfigError, match="requirement failed"):
        load(rig.properties | {"cordoned.log.dirs": given})
