"""Partitions come to this node, change and go, as the cluster agrees on it: their logs are opened, configured, deleted.

What is here is found and used through `Replicas`, which this fills.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator

from odradek.ids import NodeId, Uuid, uuid_text
from odradek.metadata.image import Changes, Image
from odradek.metadata.image.configs import BROKER_RESOURCE, TOPIC_RESOURCE, Resource
from odradek.metadata.image.topics import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    RECOVERING,
    UNASSIGNED_DIRECTORY,
    PartitionRegistration,
    PartitionsOf,
    TopicChanges,
    TopicImage,
)
from odradek.ports import DISK_FULL, World
from odradek.replication.partition import Partition, PartitionState
from odradek.server.configs.node_config import NodeConfig
from odradek.server.containment import Cost
from odradek.server.partitions.fetch_sessions import ALL_BYTES
from odradek.server.partitions.hosted_partition import HostedPartition
from odradek.server.partitions.replicas import Replicas
from odradek.server.partitions.unopened import Unopened
from odradek.storage.config import LogConfig
from odradek.storage.directories import LogDirectory

log = logging.getLogger(__name__)

PARTITIONS_A_TURN = 16
"""How many are opened or deleted before the loop may do something else: some milliseconds' worth."""

_NEVER_TOLD = (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY)


class Hosting:
    """Makes the hosted partitions what metadata says."""

    def __init__(
        self, config: NodeConfig, world: World, replicas: Replicas, log_config_of: Callable[[str], LogConfig]
    ) -> None:
        self.replicas = replicas
        self._config = config
        self._world = world
        self._node_id = NodeId(config.node_id)
        self._log_config_of = log_config_of
        self._unopened = Unopened(self._open_again)
        self.on_opened: Callable[[HostedPartition], None] = lambda hosted: None
        """Told when a partition is there for which there was no room when the cluster gave it to this node."""

    def close(self) -> None:
        """Nothing is opened any more."""
        self._unopened.close()

    async def apply(self, image: Image, changes: Changes) -> None:
        """Make the hosted partitions what the newest image says, at the cost of what changed.

        A partition whose registration and settings change together takes both over in one step. With one before the
        other a leader could acknowledge alone: under the new ISR and the old min.insync.replicas, or the other way
        round, though the controller made others eligible on the ground that nobody can.
        """
        self.replicas.learn(image)
        topics = changes.topics
        if topics.created or topics.changed or topics.deleted:
            await self.apply_topics_gradually(topics, changes.configs)
        new = {created.topic.name: None for created in topics.created if created.before is None}
        containment = self.replicas.containment
        for resource_type, name in changes.configs:
            if resource_type == TOPIC_RESOURCE and name in image.topics.by_name and name not in new:
                with containment.at_most(Cost.TASK, f"other settings of {name}"):
                    self.apply_topic_config(name)
            elif resource_type == BROKER_RESOURCE:
                with containment.at_most(Cost.TASK, "other settings of brokers"):
                    self.apply_broker_config()

    def apply_topics(self, changes: TopicChanges) -> None:
        """Carry out what one metadata delta did to partitions, all at once: at the start nobody waits for anything."""
        for _ in self._topic_steps(changes):
            pass

    async def apply_topics_gradually(self, changes: TopicChanges, configured: Collection[Resource] = ()) -> None:
        """The same, with other work between: opening a thousand logs would make every client wait.

        Of partitions that change, those whose settings are among the `configured` take them over too.
        """
        for done, _ in enumerate(self._topic_steps(changes, configured), 1):
            if done % PARTITIONS_A_TURN == 0:
                await asyncio.sleep(0)

    def apply_topic_config(self, topic: str) -> None:
        for hosted in self.replicas.of_topic(topic):
            with self.replicas.containment.at_most(Cost.PARTITION, hosted):
                partition = hosted.partition
                partition.log.config = self._log_config_of(topic)
                if partition.leadership is not None and partition.advance(self._world.clock.monotonic_ms()):
                    hosted.on_high_watermark_advanced()  # Fewer have to be in sync than before.
        self._throttle(topic)

    def apply_broker_config(self) -> None:
        """The defaults of topics may be others now."""
        producers = self._config.producer_settings
        for directory in self.replicas.directories:
            directory.producers = producers
        for topic in self.replicas.topics:
            self.apply_topic_config(topic)
            for hosted in self.replicas.of_topic(topic):
                hosted.partition.log.producers.settings = producers

    def set_aside_strays(self) -> None:
        """Partitions on disk that the cluster does not know here were deleted while this node was away."""
        for directory in self.replicas.directories:
            for topic, index in directory.partitions if directory.online else ():
                if self._is_stray(directory, topic, index):
                    try:
                        directory.set_aside(topic, index)
                    except OSError as failure:
                        self.replicas.directory_error(directory, failure)
                        break

    def _is_stray(self, directory: LogDirectory, topic: str, index: int) -> bool:
        hosted = self.replicas.find(topic, index)
        return not self.replicas.is_offline(topic, index) if hosted is None else hosted.directory is not directory

    def _throttle(self, topic: str) -> None:
        throttled_anew = False
        for hosted in self.replicas.of_topic(topic):
            if self.replicas.throttles.apply_to(hosted, self.replicas.image.configs):
                throttled_anew = True
                hosted.let_followers_look()
        if throttled_anew:
            self.replicas.on_throttles()

    def _topic_steps(self, changes: TopicChanges, configured: Collection[Resource] = ()) -> Iterator[None]:
        for topic in changes.deleted:
            yield from self._delete(topic)
        for created in changes.created:
            for index in created.partitions:
                registration = created.topic.partitions[index]
                if self._node_id in registration.replicas:
                    self._host_if_well(created.topic, index, registration)
                    yield
        all_are = any(resource_type == BROKER_RESOURCE for resource_type, _ in configured)
        for changed in changes.changed:
            with_config = all_are or (TOPIC_RESOURCE, changed.topic.name) in configured
            for index in changed.partitions:
                registration = changed.topic.partitions[index]
                try:
                    self._change(changed.topic, index, registration, with_config=with_config)
                except Exception as failure:  # noqa: BLE001 - whatever it is, it costs this partition
                    self._lose(changed.topic, index, failure)
                yield

    def _host_if_well(self, topic: TopicImage, index: int, registration: PartitionRegistration) -> None:
        try:
            self._host(topic, index, registration)
        except Exception as failure:  # noqa: BLE001 - whatever it is, it costs this partition
            self._lose(topic, index, failure)

    def _lose(self, topic: TopicImage, index: int, failure: Exception) -> None:
        """Nobody knows what state it is in: it is not served until this node starts again.

        Its files stay as they are, and others may have it: who asks here is told to look elsewhere.
        """
        self.replicas.containment.note(Cost.PARTITION, f"{topic.name}-{index}", failure)
        hosted = self.replicas.find_by_id(topic.topic_id, index)
        if hosted is None:
            self.replicas.note_offline(topic.name, topic.topic_id, index)
            return
        with self.replicas.containment.at_most(Cost.PARTITION, hosted):
            self.replicas.lose(hosted)

    def _host(self, topic: TopicImage, index: int, registration: PartitionRegistration) -> None:
        strays = self._strays(topic, index, registration)
        if len(strays) > 1:
            told = ", ".join(path for _, path in strays)
            log.error("%s-%d is not served: several logs of it were set aside (%s)", topic.name, index, told)
            self.replicas.note_offline(topic.name, topic.topic_id, index)
            return
        for stray_in, path in strays:
            stray_in.bring_back(topic.name, index, path)
        directory = self._directory_for(topic, index, registration)
        if directory is None:
            log.error("No log directory is online for %s-%s", topic.name, index)
            self.replicas.note_offline(topic.name, topic.topic_id, index)
            return
        try:
            partition_log = directory.open_log(
                topic.name,
                index,
                topic_id=topic.topic_id,
                config=self._log_config_of(topic.name),
                now_ms=self._world.clock.now_ms(),
            )
        except OSError as failure:
            self.replicas.directory_error(directory, failure)
            self.replicas.note_offline(topic.name, topic.topic_id, index)
            if failure.errno in DISK_FULL:
                self._unopened.note(topic.topic_id, index)
            return
        hosted = HostedPartition(
            topic, index, Partition(self._node_id, partition_log, self.replicas.liveness), directory
        )
        self.replicas.throttles.apply_to(hosted, self.replicas.image.configs)
        hosted.partition.apply(_state(registration), now_ms=self._world.clock.monotonic_ms())
        self.replicas.add(hosted)
        if hosted.partition.leadership is not None:
            self.replicas.isr_check_due[hosted] = None  # A follower that never fetches is to leave the ISR in time.

    def _open_again(self, topic_id: Uuid, index: int) -> bool:
        """There may be room now for a partition there was none for; False if there is none."""
        topic = self.replicas.image.topics.by_id.get(topic_id)
        if topic is None or not self.replicas.is_offline(topic_id, index):
            return True
        self.replicas.note_online(topic.name, topic_id, index)
        registration = topic.partitions[index]
        if self._node_id in registration.replicas:
            self._host_if_well(topic, index, registration)
            hosted = self.replicas.find_by_id(topic_id, index)
            if hosted is None:
                return False
            log.info("%s is served: there is room for it now", hosted)
            self.on_opened(hosted)
        return True

    def _change(self, topic: TopicImage, index: int, registration: PartitionRegistration, *, with_config: bool) -> None:
        hosted = self.replicas.find_by_id(topic.topic_id, index)
        if hosted is None:
            if self._node_id not in registration.replicas:
                self._forget_offline(topic, index)
            elif not self.replicas.is_offline(topic.topic_id, index):
                self._host(topic, index, registration)
        elif self._node_id not in registration.replicas:
            self.replicas.remove(hosted)
            self.replicas.discard(hosted)
        else:
            if with_config:
                hosted.partition.log.config = self._log_config_of(topic.name)
            self._reconsider(hosted, registration)

    def _forget_offline(self, topic: TopicImage, index: int) -> None:
        """It is not this node's to serve any more: should it come back, it is a new replica.

        What is left of it in a directory that is well could not be opened, or broke while it was open.
        """
        if not self.replicas.is_offline(topic.topic_id, index):
            return
        self.replicas.note_online(topic.name, topic.topic_id, index)
        for directory in self.replicas.directories:
            is_here = directory.online and directory.holds(topic.name, index)
            if is_here and directory.topic_id_of(topic.name, index) == topic.topic_id:
                try:
                    directory.set_aside(topic.name, index)
                except OSError as failure:
                    self.replicas.directory_error(directory, failure)

    def _reconsider(self, hosted: HostedPartition, registration: PartitionRegistration) -> None:
        partition = hosted.partition
        before = partition.state
        led = partition.is_leader
        watermark = partition.log.high_watermark
        partition.apply(_state(registration), now_ms=self._world.clock.monotonic_ms())
        if led and not partition.is_leader:
            hosted.on_leadership_lost()
            self.replicas.isr_check_due.pop(hosted, None)
        elif partition.log.high_watermark != watermark:
            hosted.on_high_watermark_advanced()
        if partition.state.leader_epoch != before.leader_epoch or partition.is_leader != led:
            hosted.tell_all(ALL_BYTES)  # What they were promised may not hold any more: let them ask again.
            self.replicas.on_role(hosted)
        if partition.leadership is not None:
            self.replicas.recheck_isr(hosted)

    def _delete(self, topic: TopicImage) -> Iterator[None]:
        for index in range(len(topic.partitions)):
            self.replicas.note_online(topic.name, topic.topic_id, index)
        for hosted in self.replicas.remove_topic(topic.name, topic.topic_id):
            with self.replicas.containment.at_most(Cost.PARTITION, hosted):
                self.replicas.discard(hosted)
            yield

    def _directory_for(self, topic: TopicImage, index: int, registration: PartitionRegistration) -> LogDirectory | None:
        """Where the partition is already, or is said to be; a new one goes where the fewest are.

        None if it may be in a directory that has failed: an empty log elsewhere would look as if all was deleted.
        """
        online = [directory for directory in self.replicas.directories if directory.online]
        registered = registration.directory(self._node_id)
        # A deleted topic's of that name is none: to open, and set aside, that one would hide the right one elsewhere.
        its_own = (topic.topic_id, None)
        holders = [
            each for each in online if each.holds(topic.name, index) and each.topic_id_of(topic.name, index) in its_own
        ]
        for directory in holders or online:
            if directory.directory_id == registered:
                return directory
        if holders:
            if registered not in (each.directory_id for each in self.replicas.directories):
                self._tell_elsewhere(topic, index, registered, holders[0])
            return holders[0]
        if len(online) < len(self._config.log_dirs) and self._may_have_a_log(registration, registered):
            return None
        # One that gets nothing new (KIP-1066) gets it all the same where there is no other.
        is_cordoned = self._config.is_cordoned
        return min(online, key=lambda each: (is_cordoned(each.path), each.partition_count), default=None)

    def _tell_elsewhere(self, topic: TopicImage, index: int, registered: Uuid, holder: LogDirectory) -> None:
        """An older copy, perhaps, on a disk that was away: nobody could tell by the log alone."""
        if registered not in (*_NEVER_TOLD, LOST_DIRECTORY):
            log.warning(
                "%s-%d was last in a log directory that is missing (directory.id %s), and is served from %s: what was "
                "written to the other one since is not here",
                topic.name,
                index,
                uuid_text(registered),
                holder.path,
            )

    def _strays(
        self, topic: TopicImage, index: int, registration: PartitionRegistration
    ) -> list[tuple[LogDirectory, str]]:
        """Where the partition's log was set aside, if the cluster counts on it and there is no other.

        Releases before this one set everything aside where a metadata log of another cluster, or an empty one, was
        found first. An empty log in its stead would look as if all had been deleted, and would be believed.
        """
        counted_on = (*registration.isr, *registration.elr, *registration.last_known_elr)
        online = [directory for directory in self.replicas.directories if directory.online]
        if self._node_id not in counted_on or any(each.holds(topic.name, index) for each in online):
            return []
        return [(each, path) for each in online for path in each.strays_of(topic.name, index, topic.topic_id)]

    def _may_have_a_log(self, registration: PartitionRegistration, registered: Uuid) -> bool:
        """Also one whose directory the cluster was not told in time, if it counts on this replica."""
        if registered in _NEVER_TOLD:
            counted_on = self._node_id in registration.isr or self._node_id in registration.elr
            return counted_on and registration.partition_epoch > 0
        return registered != LOST_DIRECTORY


def _state(registration: PartitionRegistration) -> PartitionState:
    return PartitionState(
        leader=registration.leader,
        leader_epoch=registration.leader_epoch,
        partition_epoch=registration.partition_epoch,
        replicas=registration.replicas,
        isr=registration.isr,
        is_recovering=registration.leader_recovery_state == RECOVERING,
        directories=registration.directories,
    )


def whole_image(image: Image) -> TopicChanges:
    """An image as if all of it were new: what a node that starts has to open."""
    created = [
        PartitionsOf(topic, tuple(range(len(topic.partitions))), None) for topic in image.topics.by_name.values()
    ]
    return TopicChanges(created=tuple(created), changed=(), deleted=())
