"""The partitions of a node: where they are put, how they are kept, and what failing disks do to them."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.unit.server.asking import fetch, fetched, produce, produced, values, wanted
from tests.unit.server.rig import Client, Rig

from odradek.ids import ZERO_UUID
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.sim.disk import SimulatedDisk, SimulatedFile
from odradek.sim.loop import Life
from odradek.storage.directories import LogDirectory
from odradek.storage.log import Log

TWO_DIRECTORIES = {"log.dirs": "/a,/b"}


def deletion(name: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID)], timeout_ms=1000)


def on_two_directories(test: Callable[[Rig, Client], Coroutine[Any, Any, None]]) -> None:
    rig = Rig(properties=TWO_DIRECTORIES)

    async def run() -> None:
        await test(rig, rig.connect())

    rig.run(run)


def broken(*, under: str) -> Callable[..., Any]:
    """In the place of a file's method: fails below that directory."""

    def fail(self: SimulatedFile, *arguments: Any) -> Any:
        assert self.path.startswith(under)
        raise OSError(errno.EIO, "Input/output error", self.path)

    return fail


def test_new_partitions_go_where_the_fewest_are_and_stay_there() -> None:
    async def test(rig: Rig, client: Client) -> None:
        await rig.create_topic("t", 5)
        where = {each.index: each.directory.path for each in rig.node.replicas}
        assert sorted(where.values()) == ["/a", "/a", "/a", "/b", "/b"]
        for index in range(5):
            await client.ask(produce("t", b"%d" % index, partition=index), 9)
        await rig.restart()
        assert {each.index: each.directory.path for each in rig.node.replicas} == where
        response = await rig.connect().ask(fetch("t", *map(wanted, range(5))), 12)
        assert [values(partition) for partition in fetched(response).values()] == [[b"%d" % i] for i in range(5)]

    on_two_directories(test)


def test_a_directory_that_fails_to_open_leaves_its_partitions_out_and_makes_no_empty_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An empty log in another directory would look to consumers as if everything had been deleted."""
    listed = SimulatedDisk.list
    made = SimulatedDisk.make_directory

    def unlistable(self: SimulatedDisk, path: str) -> list[str]:
        if path.startswith("/b"):
            raise OSError(errno.EIO, "Input/output error", path)
        return listed(self, path)

    def unmakable(self: SimulatedDisk, path: str) -> None:
        if path.startswith("/b"):
            raise OSError(errno.EIO, "Input/output error", path)
        made(self, path)

    async def test(rig: Rig, client: Client) -> None:
        hosted = await rig.create_topic("t", 4)
        for index in range(4):
            await client.ask(produce("t", b"kept", partition=index), 9)
        on_b = [each.index for each in hosted if each.directory.path == "/b"]
        assert len(on_b) == 2
        await asyncio.sleep(5)  # The cluster has heard by now which directories were chosen.
        await rig.node.stop()
        rig.life.end()
        rig.device.locks.clear()
        with monkeypatch.context() as patched:
            patched.setattr(SimulatedDisk, "list", unlistable)
            patched.setattr(SimulatedDisk, "make_directory", unmakable)
            await rig.start()
            client = rig.connect()
            response = await client.ask(fetch("t", *map(wanted, range(4))), 12)
            codes = {index: partition.error_code for index, partition in fetched(response).items()}
            assert codes == {index: ErrorCode.KAFKA_STORAGE_ERROR if index in on_b else 0 for index in range(4)}
            for index in range(4):
                answer = produced(await client.ask(produce("t", b"more", partition=index), 9))
                assert answer.error_code == codes[index]
        await rig.restart()
        response = await rig.connect().ask(fetch("t", *map(wanted, range(4))), 12)
        for index, partition in fetched(response).items():
            assert values(partition) == ([b"kept"] if index in on_b else [b"kept", b"more"])

    on_two_directories(test)


def test_a_partition_whose_directory_fails_is_dismissed_and_comes_back_with_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(rig: Rig, client: Client) -> None:
        hosted = await rig.create_topic("t", 2)
        for index in range(2):
            await client.ask(produce("t", b"kept", partition=index), 9)
        (lost,) = [each.index for each in hosted if each.directory.path == "/b"]
        asked = fetch("t", wanted(lost, 1), max_wait_ms=60_000)
        waiting = client.send(asked, 12)
        with monkeypatch.context() as patched:
            patched.setattr(SimulatedFile, "write", broken(under="/b"))
            await rig.connect().ask(produce("t", b"x", partition=lost), 9)
        response = await client.answer(waiting, asked, 12)
        assert fetched(response)[lost].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert rig.loop.time() < 60
        again = await client.ask(fetch("t", wanted(lost)), 12)
        assert fetched(again)[lost].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await rig.restart()
        response = await rig.connect().ask(fetch("t", wanted(0), wanted(1)), 12)
        assert [values(partition) for partition in fetched(response).values()] == [[b"kept"], [b"kept"]]

    on_two_directories(test)


def test_a_topic_with_offline_partitions_can_be_deleted_and_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(rig: Rig, client: Client) -> None:
        hosted = await rig.create_topic("t", 2)
        (lost,) = [each.index for each in hosted if each.directory.path == "/b"]
        with monkeypatch.context() as patched:
            patched.setattr(SimulatedFile, "write", broken(under="/b"))
            await client.ask(produce("t", b"x", partition=lost), 9)
        deleted = await client.ask(deletion("t"), 6)
        assert deleted.responses[0].error_code == 0
        answer = produced(await client.ask(produce("t", b"x", partition=lost), 9))
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await rig.create_topic("t", 2)
        assert produced(await client.ask(produce("t", b"x", partition=lost), 9)).error_code == 0

    on_two_directories(test)


def test_the_last_directory_to_fail_takes_the_node_along(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(properties={"log.dirs": "/a", "metadata.log.dir": "/metadata"})
    failures: list[BaseException] = []

    async def test() -> None:
        await rig.start()
        rig.node.on_failure = failures.append
        await rig.create_topic("t")
        with monkeypatch.context() as patched:
            patched.setattr(SimulatedFile, "write", broken(under="/a"))
            await rig.connect().ask(produce("t", b"x"), 9)
        assert len(failures) == 1
        assert rig.node.failed is failures[0]
        await rig.node.stop()

    rig.loop.run_until_complete(test())


def test_a_metadata_log_that_breaks_does_not_keep_the_node_from_stopping(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    sync = SimulatedFile.sync

    def break_once(self: SimulatedFile) -> None:
        monkeypatch.setattr(SimulatedFile, "sync", sync)
        raise OSError(errno.EIO, "Input/output error", self.path)

    async def test() -> None:
        await rig.start()
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        monkeypatch.setattr(SimulatedFile, "sync", break_once)
        rig.connect().send(CreateTopicsRequest(topics=[topic]), 7)
        await rig.node.stop()
        assert isinstance(rig.node.failed, OSError)

    rig.loop.run_until_complete(test())


def test_a_full_disk_creates_no_topic_and_serves_the_others() -> None:
    rig = Rig()

    async def test() -> None:
        await rig.create_topic("t")
        client = rig.connect()
        await client.ask(produce("t", b"before"), 9)
        capacity, rig.device.capacity = rig.device.capacity, rig.device.used
        topic = CreatableTopic(name="new", num_partitions=3, replication_factor=1, assignments=[], configs=[])
        try:
            response = await client.ask(CreateTopicsRequest(topics=[topic]), 7)
            assert response.topics[0].error_code != 0
        except ConnectionError:
            client = rig.connect()
        assert rig.node.failed is None
        assert values(fetched(await client.ask(fetch("t", wanted(0)), 12))[0]) == [b"before"]
        rig.device.capacity = capacity
        await rig.create_topic("other")
        assert produced(await client.ask(produce("other", b"x"), 9)).error_code == 0

    rig.run(test)


@pytest.mark.parametrize("room", range(0, 130, 10))
def test_a_partition_for_which_there_was_no_room_is_served_once_there_is(room: int) -> None:
    rig = Rig()

    async def test() -> None:
        client = rig.connect()
        capacity = rig.device.capacity
        open_log = LogDirectory.open_log

        def fill_then_open(directory: LogDirectory, *which: Any, **how: Any) -> Log:
            """The cluster has agreed on the topic; where in making its logs the disk is full depends on the room."""
            if rig.device.capacity == capacity:
                rig.device.capacity = rig.device.used + room
            return open_log(directory, *which, **how)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LogDirectory, "open_log", fill_then_open)
            topic = CreatableTopic(name="t", num_partitions=3, replication_factor=1, assignments=[], configs=[])
            await client.ask(CreateTopicsRequest(topics=[topic]), 7)
            await asyncio.sleep(20)  # Some vain tries.
            missing = [index for index in range(3) if rig.node.replicas.find("t", index) is None]
            assert missing
            assert rig.node.replicas.offline_count == len(missing)
            for index in missing:
                refused = produced(await client.ask(produce("t", b"x", partition=index), 9))
                assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        rig.device.capacity = capacity
        await asyncio.sleep(6)
        assert rig.node.replicas.offline_count == 0
        for index in range(3):
            assert produced(await client.ask(produce("t", b"x", partition=index), 9)).error_code == 0
        await rig.restart()
        client = rig.connect()
        for index in range(3):
            assert values(fetched(await client.ask(fetch("t", wanted(index)), 12))[index]) == [b"x"]

    rig.run(test)


def test_a_topic_made_again_under_its_name_begins_empty() -> None:
    rig = Rig()

    async def test() -> None:
        client = rig.connect()
        for round_ in range(5):
            await rig.create_topic("t", 2)
            answer = produced(await client.ask(produce("t", b"%d" % round_, partition=1), 9))
            assert answer.base_offset == 0
            await client.ask(deletion("t"), 6)
            assert rig.node.replicas.find("t", 1) is None
        await asyncio.sleep(600)
        assert [name for name in rig.world.disk.list("/data") if name.startswith("t-")] == []

    rig.run(test)


def test_a_partition_nobody_knows_is_set_aside_and_kept() -> None:
    """A crash between the deletion of a topic and that of its files leaves one; so would a wrong cluster."""
    rig = Rig()

    async def test() -> None:
        await rig.create_topic("t", 2)
        await rig.connect().ask(produce("t", b"kept"), 9)
        await rig.node.stop()
        rig.life.end()
        rig.device.locks.clear()
        disk = rig.device.attach(Life("meanwhile"))
        disk.make_directory("/data/ghost-3")
        disk.write_file("/data/ghost-3/00000000000000000000.log", b"records")
        await rig.start()
        await asyncio.sleep(1000)
        names = rig.world.disk.list("/data")
        assert "ghost-3" not in names
        (stray,) = [name for name in names if name.startswith("ghost-3.")]
        assert stray.endswith("-stray")
        assert rig.world.disk.read_file(f"/data/{stray}/00000000000000000000.log") == b"records"
        assert [name for name in names if name.startswith("t-")] == ["t-0", "t-1"]
        await rig.restart()
        assert stray in rig.world.disk.list("/data")
        assert values(fetched(await rig.connect().ask(fetch("t", wanted(0)), 12))[0]) == [b"kept"]

    rig.run(test)


def test_a_node_stops_in_order_on_a_full_disk_and_the_next_start_looks_through_its_logs() -> None:
    rig = Rig()

    async def run() -> None:
        await rig.create_topic("t")
        await rig.connect().ask(produce("t", b"kept"), 9)
        rig.device.capacity = 0
        await rig.node.stop()
        rig.life.end()
        rig.device.locks.clear()
        rig.device.capacity = 1 << 40
        assert not rig.device.attach(Life("a tool")).exists("/data/.kafka_cleanshutdown")
        await rig.start()
        response = await rig.connect().ask(fetch("t", wanted(0)), 12)
        assert values(fetched(response)[0]) == [b"kept"]

    rig.run(run)
