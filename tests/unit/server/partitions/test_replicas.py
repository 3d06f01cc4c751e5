"""The partitions of a node: how they are kept, and what failing disks do to them."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.unit.server.asking import deletion, fetch, fetched, produce, produced, values, wanted
from tests.unit.server.rig import Client, Rig

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.sim.disk import SimulatedDisk, SimulatedFile
from odradek.sim.loop import Life

TWO_DIRECTORIES = {"log.dirs": "/a,/b"}


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
