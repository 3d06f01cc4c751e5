"""What a broker tells of the life before when it registers: nothing is lost, or something may be (KIP-966)."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.unit.metadata.building import uuid
from tests.unit.server.asking import fetch, fetched, produce, values, wanted
from tests.unit.server.controllers import Controllers, play
from tests.unit.server.membership.test_lifecycle import ME, Scripted
from tests.unit.server.rig import Rig

from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.server.membership.lifecycle import BrokerLifecycle, RegistrationRefused
from odradek.server.quorum.quorum import Quorum
from odradek.sim.disk import SimulatedDisk, SimulatedFile
from odradek.sim.loop import Life
from odradek.storage.last_life import LastLife, mark_running

MARK = ".odradek_running"
LOG = "t-0/00000000000000000000.log"


BEATING = {"broker.heartbeat.interval.ms": "2000", "broker.session.timeout.ms": "9000"}


def on_rig(test: Callable[[Rig], Coroutine[Any, Any, None]], *, directories: tuple[str, ...] = ("/data",)) -> None:
    rig = Rig(properties={"log.dirs": ",".join(directories)} | BEATING)

    async def run() -> None:
        await rig.create_topic("t")
        await rig.connect().ask(produce("t", b"kept"), 9)
        await test(rig)

    rig.run(run)


async def told_after_crash(rig: Rig, change: Callable[[Any], None] = lambda disk: None) -> tuple[int, int]:
    """What the next life tells, after something was done to the disk; and the epoch of the one before."""
    before = rig.node.rooms.lifecycle.broker_epoch
    rig.crash()
    change(rig.device.attach(Life("a tool")))
    await rig.start()
    return rig.node.rooms.lifecycle.previous_epoch, before


def test_a_killed_broker_tells_that_nothing_is_lost() -> None:
    async def test(rig: Rig) -> None:
        for _ in range(2):
            told, before = await told_after_crash(rig)
            assert told == before
        before = rig.node.rooms.lifecycle.broker_epoch
        await rig.restart()
        assert rig.node.rooms.lifecycle.previous_epoch == before
        told, before = await told_after_crash(rig)
        assert told == before
        assert values(fetched(await rig.connect().ask(fetch("t", wanted(0)), 12))[0]) == [b"kept"]

    on_rig(test)


def test_one_whose_machine_went_down_does_not() -> None:
    async def test(rig: Rig) -> None:
        rig.device.settle()
        rig.life.end()
        rig.device.crash("power")
        await rig.start()
        assert rig.node.rooms.lifecycle.previous_epoch == -1
        told, before = await told_after_crash(rig)
        assert told == before, "from then on it counts again"

    on_rig(test)


def test_with_the_switch_off_only_a_clean_stop_vouches() -> None:
    """As in Apache Kafka; also where the switch was on before, and once it is on again."""

    async def test(rig: Rig) -> None:
        assert rig.world.disk.exists(f"/data/{MARK}")
        rig.properties["odradek.trust.killed.logs.enable"] = "false"
        for _ in range(2):
            told, _ = await told_after_crash(rig)
            assert told == -1
            assert not rig.world.disk.exists(f"/data/{MARK}")
        before = rig.node.rooms.lifecycle.broker_epoch
        await rig.restart()
        assert rig.node.rooms.lifecycle.previous_epoch == before
        assert not rig.world.disk.exists(f"/data/{MARK}")
        rig.properties["odradek.trust.killed.logs.enable"] = "true"
        told, _ = await told_after_crash(rig)
        assert told == -1
        told, before = await told_after_crash(rig)
        assert told == before

    on_rig(test)


@pytest.mark.parametrize("directory", ["/a", "/b"])
def test_a_directory_without_the_mark_is_enough_to_doubt(directory: str) -> None:
    async def test(rig: Rig) -> None:
        told, _ = await told_after_crash(rig, lambda disk: disk.unlink(f"{directory}/{MARK}"))
        assert told == -1

    on_rig(test, directories=("/a", "/b"))


def test_a_directory_that_is_new_says_nothing_of_the_others() -> None:
    """Counted as a loss, it took a broker with everything out of the ELR, and left one without (seed 810370)."""

    async def test(rig: Rig) -> None:
        rig.properties["log.dirs"] = "/data,/new"
        for _ in range(2):
            told, before = await told_after_crash(rig)
            assert told == before
        told, _ = await told_after_crash(rig, lambda disk: disk.unlink(f"/new/{MARK}"))
        assert told == -1, "by now it is one of those that count"

    on_rig(test)


def test_a_directory_that_comes_with_logs_is_enough_to_doubt() -> None:
    async def test(rig: Rig) -> None:
        rig.properties["log.dirs"] = "/data,/new"

        def bring_logs(disk: SimulatedDisk) -> None:
            meta = disk.read_file("/data/meta.properties").decode()
            lines = [line for line in meta.splitlines() if not line.startswith("directory.id")]
            disk.make_directory("/new")
            disk.write_file("/new/meta.properties", "\n".join(lines).encode())
            disk.make_directory("/new/away-0")

        told, _ = await told_after_crash(rig, bring_logs)
        assert told == -1

    on_rig(test)


def test_a_directory_that_failed_before_the_kill_is_enough_to_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: SimulatedFile, *arguments: Any) -> None:
        raise OSError(errno.EIO, "Input/output error", self.path)

    async def test(rig: Rig) -> None:
        (hosted,) = rig.node.rooms.replicas
        other = "/b" if hosted.directory.path == "/a" else "/a"
        with monkeypatch.context() as patched:
            patched.setattr(SimulatedFile, "write", fail)
            await rig.connect().ask(produce("t", b"x"), 9)
        assert not rig.world.disk.exists(f"{other}/{MARK}")
        told, _ = await told_after_crash(rig)
        assert told == -1

    on_rig(test, directories=("/a", "/b"))


def test_a_kill_around_the_registration_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three starts are killed before they ask, as they ask, and before they hear the answer."""

    class Killed(Exception):
        pass

    register, registered = BrokerLifecycle.register, BrokerLifecycle._registered

    async def before_asking(self: BrokerLifecycle, *arguments: Any) -> None:
        raise Killed

    def before_hearing(self: BrokerLifecycle, broker_epoch: int) -> None:
        raise Killed

    async def test(rig: Rig) -> None:
        before = rig.node.rooms.lifecycle.broker_epoch
        for name, killing in (("register", before_asking), ("_registered", before_hearing), ("_registered", None)):
            rig.crash()
            with monkeypatch.context() as patched:
                if killing is not None:
                    patched.setattr(BrokerLifecycle, name, killing)
                    with pytest.raises(Killed):
                        await rig.start()
                else:
                    await rig.start()
        assert rig.node.rooms.lifecycle.previous_epoch > before, "the epoch of the registration that nobody heard of"
        assert rig.node.rooms.lifecycle.previous_epoch < rig.node.rooms.lifecycle.broker_epoch
        assert (BrokerLifecycle.register, BrokerLifecycle._registered) == (register, registered)

    on_rig(test)


def test_a_registration_of_which_nobody_heard_is_asked_after_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(self: Quorum) -> None:
        await asyncio.sleep(1e6)

    async def test(rig: Rig) -> None:
        epoch = rig.node.rooms.lifecycle.broker_epoch
        rig.crash()
        mark_running(rig.device.attach(Life("a tool")), "/data", LastLife(epoch).attempting(uuid(9)))
        began = rig.loop.time()
        with monkeypatch.context() as patched:
            patched.setattr(Quorum, "in_touch", never)
            with pytest.raises(RegistrationRefused, match="No controller was heard of within 60000 ms"):
                await rig.start()
        assert rig.loop.time() - began < 61
        rig.life.end()
        await rig.start()
        assert rig.node.rooms.lifecycle.previous_epoch == epoch

    on_rig(test)


@pytest.mark.parametrize("cleanly", [True, False])
def test_a_directory_that_was_taken_out_makes_the_start_unclean(cleanly: bool) -> None:
    """What was in it is not here, whatever the marks in the others say."""

    async def test(rig: Rig) -> None:
        if cleanly:
            await rig.node.stop()
        rig.crash()
        rig.properties["log.dirs"] = "/data"
        await rig.start()
        assert rig.node.rooms.lifecycle.previous_epoch == -1
        told, before = await told_after_crash(rig)
        assert told == before, "it has registered without the directory, so nobody counts on that any more"

    on_rig(test, directories=("/data", "/more"))


def test_damage_is_told_by_registering_anew() -> None:
    def scribble(disk: Any) -> None:
        file = disk.open(f"/data/{LOG}")
        file.write(b"\xff", file.size() - 1)

    async def test(rig: Rig) -> None:
        began = rig.loop.time()
        told, before = await told_after_crash(rig, scribble)
        assert told == -1
        assert (
            rig.node.rooms.image.cluster.brokers[rig.node.node_id].broker_epoch
            == rig.node.rooms.lifecycle.broker_epoch
            > before
        )
        assert rig.loop.time() - began > 5, "once the session of the registration before is over"
        assert rig.node.rooms.replicas.liveness.broker_epoch == rig.node.rooms.lifecycle.broker_epoch
        await rig.connect().ask(produce("t", b"new"), 9)
        assert values(fetched(await rig.connect().ask(fetch("t", wanted(0)), 12))[0]) == [b"new"]
        told, before = await told_after_crash(rig)
        assert told == before

    on_rig(test)


def test_what_is_damaged_is_doubted_before_it_is_mended() -> None:
    """A process that is killed in between leaves nothing wrong to be found, so it must have said so before."""

    def scribble(disk: Any) -> None:
        file = disk.open(f"/data/{LOG}")
        file.write(b"\xff", file.size() - 1)

    async def test(rig: Rig) -> None:
        rig.crash()
        tool = rig.device.attach(Life("a tool"))
        scribble(tool)
        trusted: list[bool] = []

        def watch(path: str, length: int) -> int | None:
            if path.endswith(LOG):
                trusted.append(tool.exists(f"/data/{MARK}"))
            return None

        rig.device.on_change = watch
        await rig.start()
        assert trusted[0] is False

    on_rig(test)


def test_what_is_told_may_change_from_try_to_try() -> None:
    async def test(controllers: Controllers) -> None:
        scripted = Scripted(controllers)
        scripted.registrations = [ErrorCode.DUPLICATE_BROKER_REGISTRATION] * 2
        epochs = [5, 5, 6]
        await scripted.lifecycle.register(ME, lambda: epochs.pop(0))
        seen = controllers.by_port[1].seen
        asked = [request for key, _, request in seen if key is ApiKey.BROKER_REGISTRATION]
        assert [request.previous_broker_epoch for request in asked] == [5, 5, 6]  # type: ignore[attr-defined]
        assert scripted.lifecycle.previous_epoch == 6
        await scripted.lifecycle.close()

    play(test)
