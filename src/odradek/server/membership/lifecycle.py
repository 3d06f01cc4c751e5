"""A node's life in its cluster: it registers, says again and again that it lives, is unfenced, and takes its leave.

A broker is of use to nobody before the controller has unfenced it, and it is fenced as soon as it falls silent. Its
epoch, the offset of its registration, tells this life of it from those before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from odradek.ids import NodeId, Uuid
from odradek.metadata.features import (
    METADATA_VERSION,
    supports_controller_registration,
    supports_cordoned_directories,
    supports_directories,
)
from odradek.metadata.image import Image
from odradek.metadata.image.cluster import ClusterImage, Endpoint, FeatureRange
from odradek.metadata.image.features import FeaturesImage
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages import broker_registration, controller_registration
from odradek.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from odradek.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from odradek.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from odradek.server.containment import Containment, Cost
from odradek.values import value

if TYPE_CHECKING:
    from odradek.ports import World
    from odradek.server.configs.node_config import NodeConfig
    from odradek.server.peers.controller_channel import ControllerChannel

log = logging.getLogger(__name__)

REGISTRATION_PAUSE_MS = 150
"""Between two tries to register, for instance while the controller takes a process of the same id to be alive."""

AMENDMENT_PAUSE_MS = 1_000
LEAVING_PAUSE_MS = 50
"""Between two heartbeats of a broker that wants to leave and may not yet."""

LONGEST_LEAVE_MS = 300_000
LONGEST_SILENCE_MS = 3_000
"""A broker that hears no controller for so long while it wants to leave goes without being let go."""

_FINAL = (
    ErrorCode.INCONSISTENT_CLUSTER_ID,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.INVALID_REGISTRATION,
)
"""Refusals that asking again would not change."""


class RegistrationRefused(Exception):
    """The cluster does not take this node in; the message is for a person."""


@value
class Self:
    """What a node says about itself when it registers; another `incarnation_id` at every start."""

    node_id: NodeId
    cluster_id: str
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]
    rack: str | None = None
    log_dirs: tuple[Uuid, ...] = ()


class BrokerLifecycle:
    """Registration and heartbeats of one broker."""

    def __init__(
        self,
        config: NodeConfig,
        world: World,
        channel: ControllerChannel,
        image: Callable[[], Image],
        containment: Containment,
    ) -> None:
        """`image` gives what this node has replayed, which is what the controller wants to know of it."""
        self._config = config
        self._world = world
        self._channel = channel
        self._image = image
        self._node_id = NodeId(config.node_id)
        self._containment = containment
        self._me: Self | None = None
        self._amending: asyncio.Task[None] | None = None
        self._ready = False
        self._leaving = False
        self._aside = False
        self._offline: tuple[Uuid, ...] = ()
        self._task: asyncio.Task[None] | None = None
        self._wake: asyncio.Event | None = None
        self._unfenced: asyncio.Future[None] | None = None
        self._let_go: asyncio.Future[None] | None = None
        self._answered_ms = 0
        self._complained = False
        self._cluster: ClusterImage | None = None
        self._features: FeaturesImage | None = None
        self.broker_epoch = -1
        """Of this life; -1 until the broker is registered."""
        self.previous_epoch = -1
        """Of the life before, as the controller was told; -1 if something may be lost since."""
        self.fenced = True
        """What the controller said last."""
        self.cordoned: Callable[[], list[Uuid]] = list
        """Which log directories get no new partitions."""
        self.on_failure: Callable[[BaseException], None] = lambda failure: None
        """Told when another process has taken this broker's place: this one must stop."""

    @property
    def incarnation_id(self) -> Uuid | None:
        """Of this start; None before the broker has registered."""
        return None if self._me is None else self._me.incarnation_id

    # Coming.

    async def register(self, me: Self, previous_epoch: Callable[[], int] = lambda: -1) -> None:
        """Come back once the cluster has taken the broker in, fenced; RegistrationRefused if it does not.

        `previous_epoch` is that of the life before this if nothing it had acknowledged is lost (KIP-966), and asked for
        before every try: what the cluster knows of that life may have been on its way.
        """
        await self.close()
        self._me = me
        timeout_ms = self._config.initial_broker_registration_timeout_ms
        deadline_ms = self._world.clock.monotonic_ms() + timeout_ms
        why = ""
        while (left_ms := deadline_ms - self._world.clock.monotonic_ms()) > 0:
            self.previous_epoch = previous_epoch()
            request = _broker_registration(me, self.previous_epoch)
            try:
                response: BrokerRegistrationResponse = await self._channel.ask(request, timeout_ms=left_ms)
            except KafkaError as failure:
                why = str(failure)
            else:
                code = ErrorCode(response.error_code)
                if code is ErrorCode.NONE:
                    self._registered(response.broker_epoch)
                    return
                said, why = why, _explained(code, me, self._image())
                if code in _FINAL:
                    raise RegistrationRefused(why)
                if why != said:
                    log.warning("Not registered yet: %s", why)
            await asyncio.sleep(REGISTRATION_PAUSE_MS / 1000)
        raise RegistrationRefused(f"Could not register with the controller within {timeout_ms} ms: {why}")

    def _registered(self, broker_epoch: int) -> None:
        self.broker_epoch = broker_epoch
        self._answered_ms = self._world.clock.monotonic_ms()
        said = f", and told that nothing of epoch {self.previous_epoch} is lost" if self.previous_epoch >= 0 else ""
        log.info("Registered broker %d with epoch %d%s.", self._node_id, broker_epoch, said)
        self._wake = asyncio.Event()
        self._wake.set()
        self._task = asyncio.create_task(self._beat_forever())

    async def unfence(self) -> None:
        """Say that this broker is ready, and come back once the controller agrees."""
        self._ready = True
        self._unfenced = asyncio.get_running_loop().create_future()
        self._beat_now()
        await self._unfenced

    # Being there.

    def directories_failed(self, offline: Sequence[Uuid]) -> None:
        """Tell the controller which log directories do not serve any more, so that others lead what was in them."""
        self._offline = tuple(offline)
        self._beat_now()

    def directories_cordoned(self) -> None:
        """Other ones than before, perhaps."""
        self._beat_now()

    def stand_aside(self, aside: bool) -> None:
        """Ask to be fenced for a while, so that others lead, or to be unfenced again."""
        self._aside = aside
        self._beat_now()

    def leader_changed(self) -> None:
        """Say at once to a new controller that this broker lives, and be watched by it from then on."""
        self._beat_now()

    def learn(self, image: Image) -> None:
        """Tell the controller at once how far this broker is when another one leaves: that one waits to be let go."""
        if image.features is not self._features:
            self._features = image.features
            self._maybe_amend(image)
        if image.cluster is self._cluster:
            return
        self._cluster = image.cluster
        brokers = image.cluster.brokers.values()
        if any(each.in_controlled_shutdown and not each.fenced and each.broker_id != self._node_id for each in brokers):
            self._beat_now()

    def _maybe_amend(self, image: Image) -> None:
        """Register anew, as the same incarnation, what an older metadata.version had no place for: directories."""
        known = image.cluster.brokers.get(self._node_id)
        if (
            self._me is not None
            and known is not None
            and known.incarnation_id == self._me.incarnation_id
            and self._me.log_dirs
            and not known.log_dirs
            and supports_directories(image.features.metadata_version)
            and (self._amending is None or self._amending.done())
        ):
            self._amending = asyncio.create_task(self._amend(_broker_registration(self._me)))

    async def _amend(self, request: BrokerRegistrationRequest) -> None:
        with self._containment.at_most(Cost.TASK, "registering anew"):
            await self._amend_until_taken(request)

    async def _amend_until_taken(self, request: BrokerRegistrationRequest) -> None:
        while True:
            try:
                response: BrokerRegistrationResponse = await self._channel.ask(
                    request, timeout_ms=self._config.broker_session_timeout_ms
                )
            except KafkaError as failure:
                why = str(failure)
            else:
                if not response.error_code:
                    log.info("Registered broker %d anew: metadata.version was raised.", self._node_id)
                    return
                why = ErrorCode(response.error_code).name
            log.warning("Not registered anew yet: %s", why)
            await asyncio.sleep(AMENDMENT_PAUSE_MS / 1000)

    def _beat_now(self) -> None:
        if self._wake is not None:
            self._wake.set()

    async def _beat_forever(self) -> None:
        interval_ms = self._config.broker_heartbeat_interval_ms
        assert self._wake is not None
        while True:
            pause_ms = LEAVING_PAUSE_MS if self._leaving else interval_ms
            try:
                async with asyncio.timeout(pause_ms / 1000):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            with self._containment.at_most(Cost.TASK, "a heartbeat"):
                await self._beat()

    async def _beat(self) -> None:
        image = self._image()
        knows_cordoned = supports_cordoned_directories(image.features.metadata_version)
        request = BrokerHeartbeatRequest(
            broker_id=self._node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=image.provenance.offset,
            want_fence=not self._ready or self._aside,
            want_shut_down=self._leaving,
            offline_log_dirs=list(self._offline),
            cordoned_log_dirs=self.cordoned() if knows_cordoned else None,
        )
        timeout_ms = LONGEST_SILENCE_MS if self._leaving else self._config.broker_session_timeout_ms
        try:
            response: BrokerHeartbeatResponse = await self._channel.ask(request, timeout_ms=timeout_ms)
        except KafkaError as failure:
            self._complain(str(failure))
            return
        if response.error_code:
            self._refused(ErrorCode(response.error_code))
            return
        self._answered(response)

    def _answered(self, response: BrokerHeartbeatResponse) -> None:
        self._answered_ms = self._world.clock.monotonic_ms()
        if self._complained:
            self._complained = False
            log.info("The controller answers heartbeats again.")
        if response.is_fenced and not self.fenced and not self._leaving:
            log.warning("The controller has fenced this broker.")
        self.fenced = response.is_fenced
        if not self.fenced:
            _complete(self._unfenced)
        elif self._ready and not self._leaving and not self._aside:
            # Not caught up with its own registration yet, or fenced while it was silent: it says so again at once.
            asyncio.get_running_loop().call_later(LEAVING_PAUSE_MS / 1000, self._beat_now)
        if self._leaving and response.should_shut_down:
            _complete(self._let_go)

    def _refused(self, code: ErrorCode) -> None:
        self._complain(code.name)
        broker = self._image().cluster.brokers.get(self._node_id)
        if code is ErrorCode.STALE_BROKER_EPOCH and broker is not None and broker.broker_epoch > self.broker_epoch:
            self.on_failure(
                RegistrationRefused(
                    f"Another process has registered as broker {self._node_id}: every node needs an id of its own."
                )
            )

    def _complain(self, why: str) -> None:
        if not self._complained:
            self._complained = True
            log.warning("A heartbeat was not answered as it should be: %s", why)

    # Leaving.

    async def leave(self) -> None:
        """Ask to be let go, so that others lead first what this broker leads; give up when no controller answers."""
        if self._task is None or self._task.done():
            return
        self._leaving = True
        let_go = self._let_go = asyncio.get_running_loop().create_future()
        clock = self._world.clock
        started_ms = self._answered_ms = clock.monotonic_ms()
        self._beat_now()
        while not let_go.done():
            await asyncio.wait([let_go], timeout=LEAVING_PAUSE_MS / 1000)
            now_ms = clock.monotonic_ms()
            if now_ms - self._answered_ms > LONGEST_SILENCE_MS or now_ms - started_ms > LONGEST_LEAVE_MS:
                log.warning("Stopping without having been let go by the controller.")
                return

    async def close(self) -> None:
        """Fall silent."""
        for task in (self._task, self._amending):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait([task])


class ControllerRegistrar:
    """Makes a controller's listeners and features known, as often as the cluster does not know them (KIP-919)."""

    def __init__(self, config: NodeConfig, channel: ControllerChannel, me: Self) -> None:
        self._timeout_ms = config.controller_socket_timeout_ms
        self._channel = channel
        self._me = me
        self._task: asyncio.Task[None] | None = None

    def apply(self, image: Image) -> None:
        """Look whether the cluster knows this incarnation, and tell it if not."""
        if self._task is None and not self._is_known(image):
            self._task = asyncio.create_task(self._register())
            self._task.add_done_callback(self._told)

    async def registered(self) -> None:
        """Come back when what was under way is done, one way or the other."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _is_known(self, image: Image) -> bool:
        if not supports_controller_registration(image.features.metadata_version):
            return True
        known = image.cluster.controllers.get(self._me.node_id)
        return known is not None and known.incarnation_id == self._me.incarnation_id

    async def _register(self) -> None:
        request = _controller_registration(self._me)
        response: ControllerRegistrationResponse = await self._channel.ask(request, timeout_ms=self._timeout_ms)
        if response.error_code:
            code = ErrorCode(response.error_code)
            raise KafkaError(code, response.error_message or code.default_message)

    def _told(self, task: asyncio.Task[None]) -> None:
        """One that failed is tried again with the next image: an idle controller makes one twice a second."""
        self._task = None
        if not task.cancelled() and (failure := task.exception()) is not None:
            log.warning("Could not register as a controller: %s", failure)


def _complete(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)


def _explained(code: ErrorCode, me: Self, image: Image) -> str:
    match code:
        case ErrorCode.UNSUPPORTED_VERSION:
            return (
                f"the cluster works with levels of features that this node does not serve, "
                f"{', '.join(_levels_not_served(me, image)) or 'which it does not know yet'} (UNSUPPORTED_VERSION)."
            )
        case ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            return (
                f"the cluster has a broker {me.node_id} that is alive (DUPLICATE_BROKER_REGISTRATION): this one's last "
                "run, whose session ends by itself, or another node, and every node needs an id of its own."
            )
        case ErrorCode.INCONSISTENT_CLUSTER_ID:
            return (
                f"this node's directories belong to cluster {me.cluster_id}, and the controller is of another one "
                "(INCONSISTENT_CLUSTER_ID)."
            )
        case _:
            return f"{code.default_message} ({code.name})."


def _levels_not_served(me: Self, image: Image) -> list[str]:
    served = {feature.name: (feature.minimum, feature.maximum) for feature in me.features}
    finalized = dict(image.features.finalized)
    if image.features.metadata_version:  # It is refused before it has read any of the metadata, at times.
        finalized[METADATA_VERSION] = image.features.metadata_version
    ranges = [(name, level, *served.get(name, (0, 0))) for name, level in finalized.items()]
    return [
        f"{name}={level} (served: {lowest} to {highest})"
        for name, level, lowest, highest in ranges
        if not lowest <= level <= highest
    ]


def _broker_registration(me: Self, previous_epoch: int = -1) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=me.node_id,
        cluster_id=me.cluster_id,
        incarnation_id=me.incarnation_id,
        listeners=[
            broker_registration.Listener(
                name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol
            )
            for each in me.endpoints
        ],
        features=[
            broker_registration.Feature(
                name=each.name, min_supported_version=each.minimum, max_supported_version=each.maximum
            )
            for each in me.features
        ],
        rack=me.rack,
        log_dirs=list(me.log_dirs),
        previous_broker_epoch=previous_epoch,
    )


def _controller_registration(me: Self) -> ControllerRegistrationRequest:
    return ControllerRegistrationRequest(
        controller_id=me.node_id,
        incarnation_id=me.incarnation_id,
        zk_migration_ready=False,
        listeners=[
            controller_registration.Listener(
                name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol
            )
            for each in me.endpoints
        ],
        features=[
            controller_registration.Feature(
                name=each.name, min_supported_version=each.minimum, max_supported_version=each.maximum
            )
            for each in me.features
        ],
    )
