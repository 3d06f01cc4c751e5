"""A broker registers, beats, is unfenced and leaves; a controller makes itself known."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.metadata.building import broker, cluster, replayed, uuid
from tests.unit.server.controllers import Controllers, never, play

from odradek.ids import NodeId
from odradek.metadata.image import Image
from odradek.metadata.image.cluster import (
    ControllerRegistration,
    register_broker_record,
    register_controller_record,
)
from odradek.metadata.image.features import FeaturesImage
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from odradek.protocol.messages.broker_registration import BrokerRegistrationResponse
from odradek.protocol.messages.controller_registration import ControllerRegistrationResponse
from odradek.server.configs.node_config import load
from odradek.server.containment import Containment
from odradek.server.membership.lifecycle import (
    LONGEST_SILENCE_MS,
    BrokerLifecycle,
    ControllerRegistrar,
    RegistrationRefused,
    Self,
)
from odradek.values import replace

ME = Self(node_id=NodeId(1), cluster_id="ours", incarnation_id=uuid(1), endpoints=(), features=())
CONFIG = load(
    {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "controller.listener.names": "CONTROLLER",
        "initial.broker.registration.timeout.ms": "10000",
    }
)


class Scripted:
    """A lifecycle, and what its controller says and hears."""

    def __init__(self, controllers: Controllers) -> None:
        self.controllers = controllers
        self.image = cluster(broker(1))
        self.fenced = True
        self.let_go_after = 0
        self.registrations: list[int] = []
        self.failures: list[BaseException] = []
        self.lifecycle = BrokerLifecycle(
            CONFIG, controllers.world, controllers.channel, lambda: self.image, Containment()
        )
        self.lifecycle.on_failure = self.failures.append
        controllers.script(1, ApiKey.BROKER_REGISTRATION, self._register)
        controllers.script(1, ApiKey.BROKER_HEARTBEAT, self._heartbeat)

    @property
    def beats(self) -> list[BrokerHeartbeatRequest]:
        seen = self.controllers.by_port[1].seen
        return [request for key, _, request in seen if key is ApiKey.BROKER_HEARTBEAT]  # type: ignore[misc]

    @property
    def now_ms(self) -> int:
        return self.controllers.world.clock.monotonic_ms()

    def _register(self, _request: Any) -> BrokerRegistrationResponse:
        code = self.registrations.pop(0) if self.registrations else 0
        return BrokerRegistrationResponse(error_code=code, broker_epoch=-1 if code else 77)

    def _heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        if not request.want_fence:
            self.fenced = False
        self.let_go_after -= request.want_shut_down
        return BrokerHeartbeatResponse(
            is_caught_up=True, is_fenced=self.fenced, should_shut_down=request.want_shut_down and self.let_go_after <= 0
        )


def test_a_broker_registers_beats_and_is_unfenced() -> None:
    async def test(controllers: Controllers) -> None:
        scripted = Scripted(controllers)
        await scripted.lifecycle.register(ME)
        assert scripted.lifecycle.broker_epoch == 77
        await asyncio.sleep(5)
        assert [beat.want_fence for beat in scripted.beats] == [True, True, True], (
            "every two seconds, the first at once"
        )
        await scripted.lifecycle.unfence()
        assert (scripted.beats[-1].want_fence, scripted.beats[-1].broker_epoch) == (False, 77)
        assert not scripted.lifecycle.fenced
        await scripted.lifecycle.close()
        count = len(scripted.beats)
        await asyncio.sleep(10)
        assert len(scripted.beats) == count

    play(test)


def test_a_broker_that_stands_aside_wants_to_be_fenced_and_then_not() -> None:
    async def test(controllers: Controllers) -> None:
        scripted = Scripted(controllers)
        await scripted.lifecycle.register(ME)
        await scripted.lifecycle.unfence()
        scripted.fenced = True
        scripted.lifecycle.stand_aside(True)
        await asyncio.sleep(4.5)
        assert [beat.want_fence for beat in scripted.beats[-3:]] == [True] * 3
        fenced = [scripted.lifecycle.fenced]
        scripted.lifecycle.stand_aside(False)
        await asyncio.sleep(0.5)
        fenced.append(scripted.lifecycle.fenced)
        assert not scripted.beats[-1].want_fence
        assert fenced == [True, False]
        await scripted.lifecycle.close()

    play(test)


def test_an_id_that_is_taken_is_asked_for_again() -> None:
    async def test(controllers: Controllers) -> None:
        scripted = Scripted(controllers)
        scripted.registrations = [ErrorCode.DUPLICATE_BROKER_REGISTRATION] * 5
        await scripted.lifecycle.register(ME)
        assert scripted.lifecycle.broker_epoch == 77
        await scripted.lifecycle.close()

    play(test)


def test_it_gives_up_in_time_and_says_why() -> None:
    async def test(controllers: Controllers) -> None:
        scripted = Scripted(controllers)
        scripted.registrations = [ErrorCode.DUPLICATE_BROKER_REGISTRATION] * 1_000
        with pytest.raises(RegistrationRefused, match="within 10000 ms: the cluster has a broker 1 that is alive"):
            await scripted.lifecycle.register(ME)
        assert 10_000 <= scripted.now_ms < 11_000

    play(test)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (ErrorCode.INCONSISTENT_CLUSTER_ID, "belong to cluster ours, and the controller is of another one"),
        (ErrorCode.UNSUPPORTED_VERSION, "UNSUPPORTED_VERSION"),
        (ErrorCode.INVALID_REGISTRATION, "INVALID_REGISTRATION"),
    ],
)
def test_what_will_not_change_is_not_asked_again(code: ErrorCode, said: str) -> None:
    async def test(controllers: Controllers) -> None:
        scripted = Scripted(controllers)
        scripted.registrations = [code]
        with pytest.raises(RegistrationRefused, match=said):
            await scripted.lifecycle.register(ME)
        assert scripted.now_ms < 1_000

    play(test)


@pytest.mark.parametrize(
    ("metadata_version", "said"),
    [
        (0, "does not serve, which it does not know yet"),
        (30, r"does not serve, metadata\.version=30 \(served: 0 to 0\)"),
    ],
)
def test_it_names_the_features_that_it_lacks_as_far_as_it_knows_them(metadata_version: int, said: str) -> None:
    async def test(controllers: Controllers) -> None:
        scripted = Scripted(controllers)
        scripted.image = replace(
            scripted.image, features=FeaturesImage(metadata_version=metadata_version, finalized={"kraft.version": 0})
        )
        scripted.registrations = [ErrorCode.UNSUPPORTED_VERSION]
        with pytest.raises(RegistrationRefused, match=said):
            await scripted.lifecycle.register(ME)

    play(test)


def test_a_broker_that_was_fenced_says_at_once_that_it_is_there() -> None:
    async def test(controllers: Controllers) -> None:
        scripted = Scripted(controllers)
        await scripted.lifecycle.register(ME)
        await scripted.lifecycle.unfence()
        answers = [True, False]
        controllers.script(
            1,
            ApiKey.BROKER_HEARTBEAT,
            lambda request: BrokerHeartbeatResponse(is_fenced=bool(answers and answers.pop(0))),
        )
        before = len(scripted.beats)
        await asyncio.sleep(2.2)
        assert len(scripted.beats) == before + 2, "the second follows the first without waiting for its turn"
        assert not scripted.lifecycle.fenced
        await scripted.lifecycle.close()

    play(test)


def test_failed_directories_are_told_at_once() -> None:
    async def test(controllers: Controllers) -> None:
        scripted = Scripted(controllers)
        await scripted.lifecycle.register(ME)
        await asyncio.sleep(0.1)
        scripted.lifecycle.directories_failed([uuid(8)])
        await asyncio.sleep(0.1)
        assert scripted.beats[-1].offline_log_dirs == [uuid(8)]
        await scripted.lifecycle.close()

    play(test)


def test_a_broker_registers_anew_when_there_is_a_place_for_its_directories() -> None:
    """The cluster works with a newer metadata.version now; refusals are not the end of it."""
    me = replace(ME, incarnation_id=uuid(7001), log_dirs=(uuid(1001),))
    without = broker(1, log_dirs=0)

    async def test(controllers: Controllers) -> None:
        scripted = Scripted(controllers)

        def registered() -> int:
            return sum(key is ApiKey.BROKER_REGISTRATION for key, _, _ in controllers.by_port[1].seen)

        await scripted.lifecycle.register(me)
        for image in (cluster(without, metadata_version=14), cluster(without, metadata_version=16), cluster(broker(1))):
            scripted.lifecycle.learn(image)
        await asyncio.sleep(5)
        assert registered() == 1
        scripted.registrations = [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.NOT_CONTROLLER]
        image = cluster(without, metadata_version=17)
        scripted.lifecycle.learn(image)
        await asyncio.sleep(10)
        assert registered() == 4
        scripted.lifecycle.learn(replayed(image, [register_broker_record(broker(2))]))  # Its own comes a moment later.
        await asyncio.sleep(5)
        assert registered() == 4
        assert scripted.lifecycle.broker_epoch == 77
        await scripted.lifecycle.close()

    play(test)


def test_a_broker_leaves_when_it_is_let_go() -> None:
    async def test(controllers: Controllers) -> None:
        scripted = Scripted(controllers)
        await scripted.lifecycle.register(ME)
        await scripted.lifecycle.unfence()
        scripted.let_go_after = 4
        await scripted.lifecycle.leave()
        assert [beat.want_shut_down for beat in scripted.beats[-4:]] == [True] * 4
        assert scripted.now_ms < 1_000
        await scripted.lifecycle.close()

    play(test)


def test_a_broker_says_how_far_it_is_when_another_leaves() -> None:
    async def test(controllers: Controllers) -> None:
        scripted = Scripted(controllers)
        await scripted.lifecycle.register(ME)
        await scripted.lifecycle.unfence()
        before = len(scripted.beats)
        scripted.image = cluster(broker(1), broker(2))
        scripted.lifecycle.learn(scripted.image)
        await asyncio.sleep(0.1)
        assert len(scripted.beats) == before
        scripted.image = cluster(broker(1), broker(2, shutting_down=True))
        for _ in range(3):
            scripted.lifecycle.learn(scripted.image)
            await asyncio.sleep(0.1)
        assert len(scripted.beats) == before + 1
        await scripted.lifecycle.close()

    play(test)


def test_a_broker_that_no_controller_hears_leaves_anyway() -> None:
    async def test(controllers: Controllers) -> None:
        scripted = Scripted(controllers)
        await scripted.lifecycle.register(ME)
        await scripted.lifecycle.unfence()
        controllers.script(1, ApiKey.BROKER_HEARTBEAT, never)
        await scripted.lifecycle.leave()
        assert scripted.now_ms < LONGEST_SILENCE_MS + 1_000
        await scripted.lifecycle.close()

    play(test)


def test_another_process_with_the_same_id_ends_this_one() -> None:
    async def test(controllers: Controllers) -> None:
        scripted = Scripted(controllers)
        await scripted.lifecycle.register(ME)
        controllers.script(
            1, ApiKey.BROKER_HEARTBEAT, lambda request: BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        )
        await asyncio.sleep(3)
        assert scripted.failures == [], "an answer alone may be about the past"
        scripted.image = cluster(replace(broker(1), broker_epoch=78))
        await asyncio.sleep(3)
        assert "every node needs an id of its own" in str(scripted.failures[0])
        await scripted.lifecycle.close()

    play(test)


def registered(image: Image) -> Image:
    known = ControllerRegistration(ME.node_id, ME.incarnation_id, zk_migration_ready=False, endpoints=(), features=())
    return replayed(image, [register_controller_record(known)])


def test_a_controller_makes_itself_known_until_the_cluster_knows_it() -> None:
    async def test(controllers: Controllers) -> None:
        answers = [ControllerRegistrationResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, error_message="no")]
        controllers.script(
            1,
            ApiKey.CONTROLLER_REGISTRATION,
            lambda request: answers.pop() if answers else ControllerRegistrationResponse(),
        )
        registrar = ControllerRegistrar(CONFIG, controllers.channel, ME)
        image = cluster(broker(1))
        registrar.apply(image)
        registrar.apply(image)
        await registrar.registered()
        assert controllers.by_port[1].count(ApiKey.CONTROLLER_REGISTRATION) == 1
        registrar.apply(image)
        await registrar.registered()
        assert controllers.by_port[1].count(ApiKey.CONTROLLER_REGISTRATION) == 2
        registrar.apply(registered(image))
        await registrar.registered()
        assert controllers.by_port[1].count(ApiKey.CONTROLLER_REGISTRATION) == 2

    play(test)
