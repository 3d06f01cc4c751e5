"""A node: the one place where the rooms of the house are wired to the world.

It is a broker, a controller or both. Starting goes bottom up (whose directories, the ports, the metadata log; then, as
a broker, the registration, the logs, the unfencing), stopping top down. A controller's listeners serve as soon as the
metadata log is loaded; a broker's take no connection until the broker is unfenced, so nobody sees half of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from odradek.ids import NO_NODE, LeaderEpoch, NodeId, Uuid
from odradek.metadata.bootstrap import BOOTSTRAP_FILE, default_bootstrap_records, read_bootstrap
from odradek.metadata.features import SUPPORTED_FEATURES
from odradek.metadata.image import Changes, Image
from odradek.metadata.image.cluster import FeatureRange
from odradek.metadata.image.configs import BROKER_RESOURCE
from odradek.metadata.image.topics import PartitionsOf
from odradek.metadata.raft.voters import Voter
from odradek.metadata.uuids import random_uuid
from odradek.ports import DISK_FULL, World
from odradek.protocol.codec import Message
from odradek.server.access.authorizer import Authorizer
from odradek.server.access.quotas import Quotas
from odradek.server.configs.dynamic import apply_broker_configs
from odradek.server.configs.log_configs import LogConfigs
from odradek.server.configs.node_config import NodeConfig
from odradek.server.configs.quorum_settings import quorum_settings
from odradek.server.containment import Containment, Cost
from odradek.server.controller.controller import Controller
from odradek.server.coordinators.coordinator import Coordinator
from odradek.server.coordinators.groups import GroupCoordinator
from odradek.server.coordinators.marker_sender import MarkerSender
from odradek.server.coordinators.markers import MarkerWriter
from odradek.server.coordinators.producer_ids import ProducerIds
from odradek.server.coordinators.transactions import TransactionCoordinator
from odradek.server.coordinators.verification import TransactionVerifier
from odradek.server.following.fetchers import Fetchers
from odradek.server.handlers.forwarding import InternalTopics, forward
from odradek.server.handlers.metadata_cache import MetadataCache
from odradek.server.http import HttpListener
from odradek.server.membership.directory_locks import DirectoryLocks
from odradek.server.membership.identity import Identity, check_joining, join, resolve_identity
from odradek.server.membership.last_lives import LastLives
from odradek.server.membership.lifecycle import BrokerLifecycle, ControllerRegistrar, RegistrationRefused, Self
from odradek.server.net.buffers import BufferPool
from odradek.server.net.listeners import Listeners
from odradek.server.partitions.cleaner import LogCleaner
from odradek.server.partitions.directory_assignments import DirectoryAssignments
from odradek.server.partitions.directory_choices import DirectoryChoices
from odradek.server.partitions.fetch_sessions import FetchSessions
from odradek.server.partitions.fetch_wakeups import LENT_FROM_BYTES, FetchWakeups
from odradek.server.partitions.hosted_partition import HostedPartition
from odradek.server.partitions.hosting import Hosting, whole_image
from odradek.server.partitions.housekeeping import Housekeeping
from odradek.server.partitions.isr_changes import IsrChanges
from odradek.server.partitions.log_chores import LogChores
from odradek.server.partitions.replicas import Replicas
from odradek.server.peers.broker_channels import BrokerChannels
from odradek.server.peers.controller_channel import ControllerChannel
from odradek.server.quorum.log import BadMetadataLog
from odradek.server.quorum.quorum import Quorum
from odradek.server.rooms import Rooms
from odradek.server.waiting.purgatory import Purgatory
from odradek.storage.directories import LogDirectory
from odradek.storage.last_life import NOBODY, LastLife

log = logging.getLogger(__name__)

SESSION_EVICTION_MS = 120_000
_LENT_IN_SIMULATION = 500


class Node:
    """One process: a broker, a controller, or both."""

    def __init__(self, config: NodeConfig, world: World, *, cluster_id: str = "", poison_buffers: bool = False) -> None:
        """`cluster_id` names a new cluster; `poison_buffers` (simulation) shows views that outlive their request."""
        self.config = config
        self.world = world
        self.node_id = NodeId(config.node_id)
        rooms = self.rooms = Rooms(config, world, cluster_id=cluster_id)
        rooms.containment = Containment()
        rooms.purgatory = Purgatory(world.clock, rooms.containment)
        rooms.fetch_sessions = FetchSessions(
            slots=config.max_incremental_fetch_session_cache_slots,
            eviction_ms=SESSION_EVICTION_MS,
            clock=world.clock,
            entropy=world.entropy,
        )
        # Simulations lend batches of their size, too, so that a view which is kept too long is seen there.
        rooms.fetch_wakeups = FetchWakeups(
            rooms.containment, lent_from_bytes=_LENT_IN_SIMULATION if poison_buffers else LENT_FROM_BYTES
        )
        rooms.quotas = Quotas(world.clock, windows=config.quota_window_num, window_s=config.quota_window_size_seconds)
        if config.authorizer_class_name:
            rooms.authorizer = Authorizer(
                super_users=config.super_users, allow_if_no_acl=config.allow_everyone_if_no_acl_found
            )
        rooms.metadata_cache = MetadataCache()
        self._log_configs = LogConfigs(config)
        self.on_failure: Callable[[BaseException], None] = lambda failure: None
        """Told once when the node cannot go on; whoever runs it must stop it."""
        self.on_loaded: Callable[[], None] = lambda: None
        """Told while very much is being loaded that is here to stay, which need not be looked through for garbage."""
        self.failed: BaseException | None = None
        rooms.listeners = Listeners(rooms, BufferPool(poison=poison_buffers), forward)
        self.http = HttpListener(rooms, lambda: self.serving and self.failed is None)
        self.serving = False
        self._directories: list[LogDirectory] = []
        self._locks = DirectoryLocks(world.disk)
        self._channels: list[ControllerChannel] = []
        self._coordinators: tuple[Coordinator[Any], ...] = ()
        self._held_back: list[tuple[Image, Changes]] | None = None
        """What was committed while the partitions are being opened, to be carried out after that."""
        self._hosts_partitions = False
        self._rooms_made = False
        self._quorum_started = False
        self._may_have_registered = False
        self._incarnation_id = random_uuid(world.entropy)
        """Of this process: its controller and its broker register with it, and so are known to be one process."""
        self._registrar: ControllerRegistrar | None = None
        self._housekeeping: Housekeeping | None = None
        self._hosting: Hosting
        self._last_lives: LastLives
        self._directory_choices: DirectoryChoices

    # Starting and stopping.

    async def start(self) -> None:
        """Come back when every client can be served; whatever was begun is undone if that fails."""
        for warning in self.config.warnings:
            log.warning("%s", warning)
        try:
            await self._start()
        except BaseException:
            await self._abandon()
            raise

    async def _start(self) -> None:
        failed = self._locks.take(self.config)
        identity = resolve_identity(self.config, self.world, cluster_id=self.rooms.cluster_id)
        self.rooms.cluster_id = identity.cluster_id
        self._open_directories(identity, failed)
        await self.rooms.listeners.open()
        http = self.config.odradek_http_listener
        if http is not None:
            self.rooms.listeners.ports[http.name] = await self.http.open(http.host, http.port)
        self._open_quorum(identity)
        self._rooms_made = True
        was_clean = bool(self._directories) and all(directory.was_clean for directory in self._directories)
        await self.rooms.quorum.start(clean=was_clean)
        self._quorum_started = True
        with self.rooms.containment.at_most(Cost.TASK, "settings of this broker"):
            apply_broker_configs(self.config, self.rooms.image.configs)
        self._guard(self.rooms.image)
        self.rooms.listeners.serve(self.config.controller_listeners)
        if self._registrar is not None:
            with self.rooms.containment.at_most(Cost.TASK, "registering as a controller"):
                self._registrar.apply(self.rooms.image)
        if self.config.is_broker:
            await self._join(identity)
        if self._registrar is not None and self.config.is_alone:
            await self._registrar.registered()
        self.serving = True

    async def _join(self, identity: Identity) -> None:
        """Become a broker that serves."""
        if identity.joining:
            identity = await self._take_in(identity)
        await self._register(identity)
        await self._open_partitions()
        if self._last_lives.is_damaged:
            log.warning("Registering anew: others must not take this broker for one that has lost nothing.")
            self._incarnation_id = random_uuid(self.world.entropy)
            await self._register(identity)
            self._last_lives.is_damaged = False
        self.rooms.fetchers.start()
        for coordinator in self._coordinators:
            coordinator.start(self.rooms.image)
        self._housekeeping = Housekeeping(
            self.config, self.rooms.replicas, LogChores(self.world.clock, self.rooms.replicas)
        )
        self._housekeeping.start()
        self.rooms.cleaner.start()
        await self.rooms.lifecycle.unfence()
        await self._until(lambda image: not image.cluster.brokers[self.node_id].fenced)
        self.rooms.listeners.serve(self.config.broker_listeners)

    async def _take_in(self, identity: Identity) -> Identity:
        """Use the empty directories as well, if the cluster knows of nothing that was in one of them."""
        await self._know_last_registration()
        check_joining(identity, self.rooms.image, self.node_id)
        whole = join(self.config, self.world, identity)
        for path in identity.joining:
            self._open_directory(path, whole)
        self.rooms.replicas.watch_damage()
        return whole

    async def _register(self, identity: Identity) -> None:
        """Be taken in. Whose logs are here is on disk before anybody is asked: this process may be killed meanwhile."""
        me = self._self(identity)
        self._may_have_registered = True
        if any(directory.last_life != NOBODY for directory in self._directories):
            await self._know_last_registration()
        self._last_lives.mark_running(self._last_lives.last_life(self.rooms.image).attempting(me.incarnation_id))
        await self.rooms.lifecycle.register(me, lambda: self._last_lives.last_life(self.rooms.image).broker_epoch)
        self._last_lives.mark_running(LastLife(self.rooms.lifecycle.broker_epoch))
        self.rooms.replicas.liveness.broker_epoch = self.rooms.lifecycle.broker_epoch
        await self.rooms.quorum.caught_up()
        await self._until(lambda image: self._broker_epoch_in(image) == self.rooms.lifecycle.broker_epoch)

    def _damaged(self) -> None:
        """Something is missing, and the cluster was told that nothing is: tell it so, or if it relies on it, go."""
        if self.rooms.lifecycle.previous_epoch >= 0:
            self._last_lives.doubt()
            if self._hosts_partitions:
                self.fail(OSError("a log has lost data that this broker is taken to have"))

    async def _know_last_registration(self) -> None:
        """See which directories this broker had, and what became of a registration that nobody lived to hear of."""
        timeout_ms = self.config.initial_broker_registration_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self.rooms.quorum.in_touch()
        except TimeoutError:
            raise RegistrationRefused(f"No controller was heard of within {timeout_ms} ms.") from None
        await self.rooms.quorum.caught_up()

    async def _until(self, holds: Callable[[Image], bool]) -> None:
        while not holds(self.rooms.image):
            await self.rooms.next_image(timeout_ms=1_000)

    def _broker_epoch_in(self, image: Image) -> int:
        broker = image.cluster.brokers.get(self.node_id)
        return -1 if broker is None else broker.broker_epoch

    async def stop(self) -> None:
        """Leave everything on disk as a clean shutdown leaves it."""
        self.serving = False
        if self.config.is_broker and self.config.controlled_shutdown_enable and self.failed is None:
            await self.rooms.lifecycle.leave()
        self.http.close()
        self.rooms.listeners.close(self.config.broker_listeners)
        self.rooms.purgatory.close()
        try:
            try:
                await self._close_rooms()
            except OSError as failure:
                if failure.errno not in DISK_FULL:
                    self.fail(failure)
                log.error("Not everything could be written, so the next start checks the logs: %s", failure)
                for directory in self._directories:
                    directory.go_offline()
            self._hosting.close()
            self.rooms.replicas.close(
                broker_epoch=-1 if self._last_lives.is_damaged else self.rooms.lifecycle.broker_epoch
            )
        finally:
            self.rooms.listeners.close(self.config.listeners)
            self._locks.release()

    async def _close_rooms(self) -> None:
        if self._housekeeping is not None:
            await self._housekeeping.stop()
            await self.rooms.cleaner.stop()
        for coordinator in self._coordinators:
            await coordinator.close()
        self.rooms.fetchers.close()
        await self.rooms.isr_changes.close()
        self.rooms.producer_ids.close()
        self.rooms.verifier.close()
        self.directory_assignments.close()
        await self.rooms.lifecycle.close()
        if self._registrar is not None:
            self._registrar.close()
        for channel in self._channels:
            channel.close()
        if self._quorum_started:
            if self.config.is_controller:
                await self.rooms.controller.close()
            await self.rooms.quorum.close()

    async def _abandon(self) -> None:
        """Undo a start that failed half way."""
        self.http.close()
        self.rooms.listeners.close(self.config.broker_listeners)
        if self._rooms_made:
            await self._close_rooms()
        self.rooms.listeners.close(self.config.listeners)
        for directory in self._directories:
            if directory.was_clean and not self._may_have_registered:  # No log was touched: it is as it was found.
                directory.mark_clean_shutdown(broker_epoch=directory.last_life.broker_epoch)
            directory.go_offline()
        self._locks.release()

    def fail(self, failure: BaseException) -> None:
        """The metadata log, or what this node promised as a voter, is in doubt: better down than wrong.

        Everything else goes to `containment`.
        """
        if self.failed is None:
            self.failed = failure
            told = isinstance(failure, BadMetadataLog | RegistrationRefused)  # Their messages are for a person.
            log.critical("The node cannot go on: %s", failure, exc_info=None if told else failure)
            self.on_failure(failure)

    # Starting, step by step.

    def _open_directories(self, identity: Identity, failed: dict[str, OSError]) -> None:
        """One that has failed is left out: the others and their partitions are served."""
        for path in self.config.log_dirs:
            if path in failed or path in identity.failed:
                log.error("Log directory %s is offline: %s", path, failed.get(path) or identity.failed[path])
            elif path not in identity.joining:
                self._open_directory(path, identity)

    def _open_directory(self, path: str, identity: Identity) -> None:
        if path in self.config.log_dirs:  # That of the metadata alone has no partitions.
            self._directories.append(
                LogDirectory(
                    self.world.disk,
                    path,
                    identity.directory_ids[path],
                    self.world.entropy,
                    producers=self.config.producer_settings,
                    trusts_kills=self.config.odradek_trust_killed_logs_enable,
                )
            )

    def _open_quorum(self, identity: Identity) -> None:
        """Make everything that lives by the metadata log; nothing happens before the quorum starts."""
        config = self.config
        self.rooms.quorum = Quorum(
            self.world,
            metadata_log_dir=config.metadata_log_dir,
            me=self._as_voter(identity),
            listener_name=config.controller_listener_names[0],
            settings=quorum_settings(config),
            cluster_id=self.rooms.cluster_id,
            static_voters=tuple(
                Voter(NodeId(each.node_id), each.host, each.port) for each in config.controller_quorum_voters
            ),
            bootstrap_servers=config.controller_bootstrap,
            may_vote=config.is_controller,
        )
        self.rooms.quorum.on_commit = self._committed
        self.rooms.quorum.on_leader = self._leader_changed
        self.rooms.quorum.on_leadership = self._leadership_changed
        self.rooms.quorum.on_failure = self.fail
        self._open_channels()
        self._open_replicas()
        if config.is_controller:
            self.rooms.controller = Controller(
                config,
                self.world,
                self.rooms.quorum,
                self.rooms.containment,
                cluster_id=self.rooms.cluster_id,
                bootstrap=self._bootstrap(),
            )
            self.rooms.controller.on_failure = self.fail
            self.rooms.quorum.on_leader_ended = self.rooms.controller.process_ended
            endpoints = self.rooms.listeners.endpoints(config.controller_advertised_listeners)
            me = Self(self.node_id, self.rooms.cluster_id, self._incarnation_id, endpoints, _FEATURES)
            self._registrar = ControllerRegistrar(config, self.rooms.channel, me)

    def _as_voter(self, identity: Identity) -> Voter:
        """This node as it votes; one that does not has no controller listener."""
        directory_id = identity.directory_ids[self.config.metadata_log_dir]
        if not self.config.is_controller:
            return Voter(self.node_id, "", 0, directory_id)
        own = self.rooms.listeners.endpoints(self.config.controller_advertised_listeners)[0]
        return Voter(self.node_id, own.host, own.port, directory_id)

    def _open_channels(self) -> None:
        """A connection for each purpose: a heartbeat does not wait behind a thousand topics."""
        config = self.config
        to_live = self._channel("heartbeats")
        self.rooms.channel = self._channel("broker")
        self.rooms.forwarding = self._channel("forwarding")
        self.rooms.lifecycle = BrokerLifecycle(
            config, self.world, to_live, lambda: self.rooms.image, self.rooms.containment
        )
        self.rooms.lifecycle.on_failure = self.fail
        self.rooms.lifecycle.cordoned = self._cordoned
        self.rooms.producer_ids = ProducerIds(
            self.rooms.channel, self.node_id, self._own_epoch, timeout_ms=config.request_timeout_ms
        )
        self.directory_assignments = DirectoryAssignments(
            self.rooms.channel,
            self.node_id,
            self._own_epoch,
            self.rooms.containment,
            timeout_ms=config.controller_socket_timeout_ms,
        )

    def _channel(self, purpose: str) -> ControllerChannel:
        channel = ControllerChannel(
            self.world,
            lambda: self.rooms.quorum.leader_address,
            client_id=f"node-{self.node_id}-{purpose}",
            answer_timeout_ms=self.config.controller_socket_timeout_ms,
        )
        self._channels.append(channel)
        return channel

    def _own_epoch(self) -> int:
        return self.rooms.lifecycle.broker_epoch

    def _open_replicas(self) -> None:
        """A node that is no broker has them, too, and hosts nothing."""
        self.rooms.replicas = Replicas(self.config, self.world, self._directories, self.rooms.containment)
        self.rooms.cleaner = LogCleaner(self.config, self.world, self.rooms.replicas)
        self._hosting = Hosting(
            self.config,
            self.world,
            self.rooms.replicas,
            lambda topic: self._log_configs.of(topic, self.rooms.image.configs),
        )
        self._hosting.on_opened = self._opened
        self._directory_choices = DirectoryChoices(self.node_id, self.rooms.replicas, self.directory_assignments)
        self._last_lives = LastLives(
            self.node_id,
            self._directories,
            configured=len(self.config.log_dirs),
            on_error=self.rooms.replicas.directory_error,
        )
        self.rooms.replicas.on_offline = self._directory_failed
        self.rooms.replicas.on_damage = self._damaged
        self.rooms.replicas.full_disks.on_change = self._room_changed
        self.rooms.replicas.on_all_offline = lambda: self.fail(OSError("all log directories have failed"))
        self.rooms.fetchers = Fetchers(self.config, self.world, self.rooms.replicas)
        self.rooms.isr_changes = IsrChanges(self.world, self.rooms.replicas, self.rooms.channel, node_id=self.node_id)
        topics = InternalTopics(self.rooms, timeout_ms=self.config.request_timeout_ms)
        self.rooms.groups = GroupCoordinator(self.config, self.world, self.rooms.replicas, topics)
        self.rooms.markers = MarkerWriter(
            self.world,
            self.rooms.replicas,
            self.rooms.purgatory,
            self.rooms.groups.runner_behind,
            timeout_ms=self.config.request_timeout_ms,
        )
        markers = MarkerSender(
            self.node_id,
            lambda: self.rooms.image,
            self.rooms.markers,
            self._broker_channels("markers"),
            self.rooms.containment,
        )
        self.rooms.transactions = TransactionCoordinator(
            self.config, self.world, self.rooms.replicas, topics, self.rooms.producer_ids, markers
        )
        self._coordinators = (self.rooms.groups, self.rooms.transactions)
        for coordinator in self._coordinators:
            coordinator.on_loaded = self.on_loaded
        self.rooms.verifier = TransactionVerifier(
            self.config,
            self.world.clock,
            lambda: self.rooms.image,
            self.rooms.transactions,
            self._broker_channels("verification"),
            self.rooms.containment,
        )

    def _broker_channels(self, purpose: str) -> BrokerChannels:
        return BrokerChannels(
            self.world,
            lambda: self.rooms.image,
            client_id=f"node-{self.node_id}-{purpose}",
            listener_name=self.config.inter_broker_listener_name,
            timeout_ms=self.config.request_timeout_ms,
        )

    def _directory_failed(self) -> None:
        """The controller lets others lead what was in it; without the cluster's metadata there is nothing to go by."""
        for directory in self._directories:
            if not directory.online and directory.path == self.config.metadata_log_dir:
                self.fail(OSError(f"{directory.path}, the directory with the cluster's metadata, has failed"))
        self.rooms.lifecycle.directories_failed([each.directory_id for each in self._directories if not each.online])

    def _room_changed(self) -> None:
        """The controller lets others lead while there is no room for what this broker leads."""
        self.rooms.lifecycle.stand_aside(self.rooms.replicas.full_disks.stands_aside)

    async def _open_partitions(self) -> None:
        """Open what the cluster says is here, with other work between, then what it said meanwhile."""
        held_back = self._held_back = []
        image = self.rooms.image
        self.rooms.replicas.learn(image)
        await self._hosting.apply_topics_gradually(whole_image(image))
        while held_back:
            await self._carry_out(*held_back.pop(0))
        self._held_back = None
        self._hosts_partitions = True
        with self.rooms.containment.at_most(Cost.TASK, "setting aside what was deleted meanwhile"):
            self._hosting.set_aside_strays()
        with self.rooms.containment.at_most(Cost.TASK, "the controller hears where partitions are"):
            self._directory_choices.tell_all(self.rooms.image)

    def _cordoned(self) -> list[Uuid]:
        return [each.directory_id for each in self._directories if each.online and self.config.is_cordoned(each.path)]

    # What the cluster agreed on.

    async def _committed(self, image: Image, changes: Changes) -> None:
        if changes.configs and any(resource_type == BROKER_RESOURCE for resource_type, _ in changes.configs):
            with self.rooms.containment.at_most(Cost.TASK, "other settings of this broker"):
                cordoned = self.config.cordoned_log_dirs
                apply_broker_configs(self.config, image.configs)
                if self._hosts_partitions and cordoned != self.config.cordoned_log_dirs:
                    self.rooms.lifecycle.directories_cordoned()
        self._guard(image)
        if self._held_back is not None:
            self._held_back.append((image, changes))
        elif self._hosts_partitions:
            await self._carry_out(image, changes)
            for coordinator in self._coordinators:
                with self.rooms.containment.at_most(Cost.TASK, "coordinators hear of what was committed"):
                    coordinator.apply(image, changes)
            with self.rooms.containment.at_most(Cost.TASK, "the controller hears where partitions are"):
                self._directory_choices.tell_changes(image, changes)
            with self.rooms.containment.at_most(Cost.TASK, "heartbeats hear of what was committed"):
                self.rooms.lifecycle.learn(image)
        if self._registrar is not None:
            with self.rooms.containment.at_most(Cost.TASK, "registering as a controller"):
                self._registrar.apply(image)
            with self.rooms.containment.at_most(Cost.TASK, "reaching the listeners of brokers"):
                self.rooms.controller.learn(image)
        self.rooms.image_carried_out()

    async def _carry_out(self, image: Image, changes: Changes) -> None:
        await self._hosting.apply(image, changes)

    def _guard(self, image: Image) -> None:
        with self.rooms.containment.at_most(Cost.TASK, "other quotas"):
            self.rooms.quotas.apply(image.client_quotas)
        if self.rooms.authorizer is not None:
            with self.rooms.containment.at_most(Cost.TASK, "other access rules: only super users may do anything"):
                self.rooms.authorizer.apply(image.acls)
        self.rooms.guarded = self.rooms.quotas.active or self.rooms.authorizer is not None

    def _opened(self, hosted: HostedPartition) -> None:
        """A partition for which there was no room at first."""
        for coordinator in self._coordinators:
            coordinator.opened(hosted)
        topic = self.rooms.replicas.image.topics.by_id[hosted.topic_id]
        self._directory_choices.tell((PartitionsOf(topic, (hosted.index,), None),))

    def _leader_changed(self) -> None:
        for channel in self._channels:
            channel.leader_changed()
        if self.rooms.quorum.leader_id != NO_NODE:
            self.rooms.lifecycle.leader_changed()

    def _leadership_changed(self, epoch: LeaderEpoch | None) -> None:
        if epoch is None:
            self.rooms.controller.deactivate()
        else:
            self.rooms.controller.activate(epoch)

    # What others are told of this node.

    def _self(self, identity: Identity) -> Self:
        return Self(
            node_id=self.node_id,
            cluster_id=self.rooms.cluster_id,
            incarnation_id=self._incarnation_id,
            endpoints=self.rooms.listeners.endpoints(self.config.advertised_listeners),
            features=_FEATURES,
            rack=self.config.broker_rack,
            log_dirs=tuple(sorted(self._online_directory_ids(identity))),
        )

    def _online_directory_ids(self, identity: Identity) -> list[Uuid]:
        return [identity.directory_ids[path] for path in self.config.log_dirs if path in identity.directory_ids]

    def _bootstrap(self) -> tuple[Message, ...]:
        path = f"{self.config.metadata_log_dir}/{BOOTSTRAP_FILE}"
        if not self.world.disk.exists(path):
            return default_bootstrap_records()
        return read_bootstrap(self.world.disk.read_file(path))


_FEATURES = tuple(FeatureRange(each.name, each.minimum, each.maximum) for each in SUPPORTED_FEATURES)
