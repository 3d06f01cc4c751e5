"""The partitions this node hosts: opened, fed, watched, kept tidy and closed.

Cores decide (`replication.partition`, `storage.log`); this shell finds the right one, tells those who wait, keeps the
checkpoints and takes a log directory offline when its disk fails.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from odradek.ids import NodeId, Offset, Uuid
from odradek.metadata.image import EMPTY_IMAGE, Image
from odradek.ports import DISK_FULL, World
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.replication.broker_liveness import BrokerLiveness
from odradek.replication.isr import IsrProposal
from odradek.replication.read_replica import nearest_replica
from odradek.server.configs.node_config import NodeConfig
from odradek.server.configs.settings import RACK_AWARE_SELECTOR
from odradek.server.containment import Containment, Cost
from odradek.server.partitions.departures import Departures
from odradek.server.partitions.full_disks import FullDisks
from odradek.server.partitions.hosted_partition import NO_TRAFFIC, HostedPartition, Traffic
from odradek.server.partitions.refused_batches import REMEMBERED_MS, RefusedBatches, check_is_first
from odradek.server.partitions.throttles import Throttles
from odradek.storage.directories import LogDirectory
from odradek.storage.log import AppendInfo, Transaction
from odradek.storage.validation import Examined, Origin

log = logging.getLogger(__name__)


class Replicas:
    """All hosted partitions, by topic name and by topic id."""

    def __init__(
        self,
        config: NodeConfig,
        world: World,
        directories: Sequence[LogDirectory],
        containment: Containment,
    ) -> None:
        self._config = config
        self.containment = containment
        self._world = world
        self._node_id = NodeId(config.node_id)
        self.directories = directories
        self._by_name: dict[str, dict[int, HostedPartition]] = {}
        self._by_id: dict[Uuid, dict[int, HostedPartition]] = {}
        self._traffic_of_the_gone = NO_TRAFFIC
        self._offline: dict[tuple[str | Uuid, int], None] = {}
        """Partitions, under both names, that are this node's to serve and whose log directory has failed."""
        self.image = EMPTY_IMAGE
        """What the cluster agreed on, as far as this node has heard."""
        self.liveness = BrokerLiveness(max_lag_ms=config.replica_lag_time_max_ms)
        self.departures = Departures(world.clock)
        self.throttles = Throttles(config, world.clock)
        self.isr_check_due: dict[HostedPartition, None] = {}
        """Led partitions with followers that may be behind: those whose ISR is worth a look."""
        self.on_offline: Callable[[], None] = lambda: None
        """Told when a log directory has failed."""
        self.on_all_offline: Callable[[], None] = lambda: None
        self.on_damage: Callable[[], None] = lambda: None
        """Told when a log has less than it must have had, before it is mended."""
        self.watch_damage()
        self.on_role: Callable[[HostedPartition], None] = lambda hosted: None
        """Told when a partition is there, has another leader or epoch, or is gone (`hosts` says which)."""
        self.full_disks = FullDisks(world.disk)
        self.refused_batches = RefusedBatches(world.clock, is_wanted=self._are_producers_ordered)
        self.on_throttles: Callable[[], None] = lambda: None
        """Told when other partitions are throttled than before, or at another rate."""
        self.on_cluster: Callable[[], None] = lambda: None
        """Told when brokers have come, gone or moved."""
        self.on_proposal: Callable[[HostedPartition, IsrProposal], None] = lambda hosted, proposal: None
        """Told to ask the controller for another ISR."""

    def watch_damage(self) -> None:
        """Be told of it by all directories, those that have come since as well."""
        for directory in self.directories:
            directory.on_damage = lambda: self.on_damage()

    def __iter__(self) -> Iterator[HostedPartition]:
        for topic in self._by_name.values():
            yield from topic.values()

    # Finding.

    def find(self, topic: str, index: int) -> HostedPartition | None:
        partitions = self._by_name.get(topic)
        return None if partitions is None else partitions.get(index)

    def find_by_id(self, topic_id: Uuid, index: int) -> HostedPartition | None:
        partitions = self._by_id.get(topic_id)
        return None if partitions is None else partitions.get(index)

    def find_all(self, topic: str | Uuid, indexes: Sequence[int]) -> list[HostedPartition | None]:
        """Those partitions of a topic, by its name or its id, that are here."""
        partitions = self._by_id.get(topic) if isinstance(topic, bytes) else self._by_name.get(topic)
        return [None] * len(indexes) if partitions is None else list(map(partitions.get, indexes))

    def why_missing(self, topic: str | Uuid, index: int) -> ErrorCode:
        """What to answer where nothing was found, by the name or the id that was looked for."""
        if (topic, index) in self._offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        topics = self.image.topics
        if isinstance(topic, bytes):
            known = topics.by_id.get(Uuid(topic))
            if known is None:
                return ErrorCode.UNKNOWN_TOPIC_ID
        else:
            known = topics.by_name.get(topic)
        if known is None or not 0 <= index < len(known.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def hosts(self, hosted: HostedPartition) -> bool:
        """Whether it is still here: not deleted, not given away, its directory well."""
        return self.find_by_id(hosted.topic_id, hosted.index) is hosted

    def require(self, topic: str, index: int) -> HostedPartition:
        hosted = self.find(topic, index)
        if hosted is None:
            raise KafkaError(self.why_missing(topic, index))
        return hosted

    @property
    def topics(self) -> Iterable[str]:
        return self._by_name

    def of_topic(self, topic: str) -> Iterable[HostedPartition]:
        return self._by_name.get(topic, {}).values()

    # What is here; `Hosting` says.

    def add(self, hosted: HostedPartition) -> None:
        """It is served from now on."""
        self._by_name.setdefault(hosted.topic, {})[hosted.index] = hosted
        self._by_id.setdefault(hosted.topic_id, {})[hosted.index] = hosted
        self.on_role(hosted)

    def remove(self, hosted: HostedPartition) -> None:
        """Nobody finds it any more."""
        del self._by_name[hosted.topic][hosted.index]
        del self._by_id[hosted.topic_id][hosted.index]

    def remove_topic(self, topic: str, topic_id: Uuid) -> Iterable[HostedPartition]:
        """Nobody finds its partitions any more, which are returned."""
        self._by_name.pop(topic, None)
        return self._by_id.pop(topic_id, {}).values()

    def is_offline(self, topic: str | Uuid, index: int) -> bool:
        """Whether the partition is this node's to serve, and its log directory has failed."""
        return (topic, index) in self._offline

    def note_offline(self, topic: str, topic_id: Uuid, index: int) -> None:
        self._by_id.setdefault(topic_id, {})
        self._offline[topic, index] = self._offline[topic_id, index] = None

    def note_online(self, topic: str, topic_id: Uuid, index: int) -> None:
        """Or gone: its directory is no reason any more not to serve it."""
        self._offline.pop((topic, index), None)
        self._offline.pop((topic_id, index), None)

    # Using.

    def append(
        self,
        hosted: HostedPartition,
        batch: memoryview,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        acks_all: bool = False,
        examined: Examined | None = None,
        transaction: Transaction = None,
    ) -> AppendInfo:
        """As `Partition.append`, and whoever waits for it is told."""
        partition = hosted.partition
        leadership = partition.leadership
        try:
            if self.refused_batches.first:
                self.refused_batches.check(hosted.topic, hosted.topic_id, hosted.index, batch)
            if (
                leadership is not None
                and leadership.inherits
                and origin is Origin.CLIENT
                and self._are_producers_ordered()
            ):
                check_is_first(leadership, partition.log, batch, self._world.clock)
            info = partition.append(batch, now_ms, origin, acks_all, examined, transaction)
        except OSError as failure:
            raise self.failed_append(hosted, batch, failure) from failure
        except KafkaError as refused:
            hosted.failed_appends += 1
            refusal = self._out_of_order_here(hosted, refused)
            self.refused_batches.note(hosted.topic_id, hosted.index, batch, refusal)
            raise refusal from None
        hosted.appends += 1
        hosted.bytes_in += len(batch)
        if leadership is not None:
            self._appended_for_others(hosted, info, len(batch), now_ms)
        elif partition.log.high_watermark != partition.log.log_end_offset:
            hosted.on_appended(len(batch))
        elif hosted.is_read:
            hosted.on_committed(len(batch))
        return info

    def _are_producers_ordered(self) -> bool:
        return self._config.odradek_ordered_producers_enable

    def _out_of_order_here(self, hosted: HostedPartition, refused: KafkaError) -> KafkaError:
        """What a leader says that took over a moment ago, or may have been replaced without having heard of it: the
        batch before may have been refused, lost or taken elsewhere."""
        leadership = hosted.partition.leadership
        if refused.code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER or leadership is None:
            return refused
        if not self._are_producers_ordered():
            return refused
        now_ms = self._world.clock.monotonic_ms()
        took_over = leadership.inherits and now_ms - leadership.began_ms < REMEMBERED_MS
        if took_over or leadership.may_be_deposed(hosted.partition.log.log_end_offset, now_ms):
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, refused.message)
        return refused

    def failed_append(self, hosted: HostedPartition, batch: memoryview, failure: OSError) -> KafkaError:
        """What to answer to a batch that could not be written."""
        hosted.failed_appends += 1
        refusal = self.storage_error(hosted, failure)
        self.refused_batches.note(hosted.topic_id, hosted.index, batch, refusal)
        return refusal

    def _appended_for_others(self, hosted: HostedPartition, info: AppendInfo, size: int, wall_ms: int) -> None:
        if info.duplicate:
            return
        self.isr_check_due[hosted] = None
        now_ms = self._world.clock.monotonic_ms()
        moved = hosted.partition.note_append(info.base_offset, now_ms, wall_ms)
        hosted.on_appended(size)
        if moved:
            hosted.on_high_watermark_advanced()

    def update_follower_fetch_state(
        self,
        hosted: HostedPartition,
        replica_id: NodeId,
        fetch_offset: Offset,
        log_start_offset: Offset,
        broker_epoch: int,
    ) -> None:
        """A follower has everything below that offset; who waited for that is told."""
        now_ms = self._world.clock.monotonic_ms()
        self.update_follower_fetch_state_at(now_ms, hosted, replica_id, fetch_offset, log_start_offset, broker_epoch)

    def update_follower_fetch_state_at(
        self,
        now_ms: int,
        hosted: HostedPartition,
        replica_id: NodeId,
        fetch_offset: Offset,
        log_start_offset: Offset,
        broker_epoch: int,
    ) -> None:
        """The same for who knows the time: one request speaks of several partitions. (Hot.)"""
        noted = hosted.partition.update_follower_fetch_state(
            replica_id, fetch_offset, log_start_offset, broker_epoch, now_ms
        )
        if noted.proposal is not None:
            self.on_proposal(hosted, noted.proposal)
        if noted.high_watermark_moved:
            hosted.on_high_watermark_advanced()
        if hosted.deletions:
            hosted.on_start_advanced()

    def nearest_replica(
        self, hosted: HostedPartition, *, client_rack: str, fetch_offset: Offset, listener: str
    ) -> NodeId | None:
        """Where a consumer in that rack should read instead, if `replica.selector.class` wants that."""
        leadership = hosted.partition.leadership
        if leadership is None or self._config.replica_selector_class != RACK_AWARE_SELECTOR:
            return None
        racks = {
            broker_id: broker.rack
            for broker_id, broker in self.image.cluster.brokers.items()
            if not broker.fenced and broker.endpoint(listener) is not None
        }
        return nearest_replica(leadership, racks, client_rack=client_rack, fetch_offset=fetch_offset)

    def delete_records(self, hosted: HostedPartition, before: Offset) -> None:
        with self.storage_errors(hosted):
            hosted.partition.log.delete_records_before(before)
        hosted.on_records_deleted()

    @contextmanager
    def storage_errors(self, hosted: HostedPartition) -> Iterator[None]:
        """Around work on a partition's files that is not in a hurry."""
        try:
            yield
        except OSError as failure:
            raise self.storage_error(hosted, failure) from failure

    async def flush(self, wanted: Iterable[HostedPartition]) -> None:
        """Come back once all that is in these logs now survives a power loss."""
        for hosted in wanted:
            # Readers wait for it as well, so it goes on when the producer that asked for it has gone.
            failure = await asyncio.shield(asyncio.ensure_future(self._flush(hosted)))
            if failure is not None:
                raise failure

    async def _flush(self, hosted: HostedPartition) -> KafkaError | None:
        """Returns what went wrong instead of raising it: nobody may be left to hear it."""
        work = hosted.partition.log.flush_work()
        try:
            await self._world.workers.run(work)
        except OSError as failure:
            return self.storage_error(hosted, failure)
        if hosted.partition.flushed(work.offset, now_ms=self._world.clock.monotonic_ms()):
            hosted.on_high_watermark_advanced()
        return None

    # Counting.

    @property
    def offline_count(self) -> int:
        """Partitions on directories that have failed, each of which is known by name and by id."""
        return len(self._offline) // 2

    def traffic(self) -> dict[str, Traffic]:
        """By topic, those that were used."""
        counted: dict[str, Traffic] = {}
        for hosted in self:
            if hosted.appends or hosted.failed_appends or hosted.reads:
                counted[hosted.topic] = counted.get(hosted.topic, NO_TRAFFIC).plus(hosted.traffic)
        return counted

    def total_traffic(self) -> Traffic:
        """Of all topics, also of those that are gone: a counter never goes back."""
        total = self._traffic_of_the_gone
        for counted in self.traffic().values():
            total = total.plus(counted)
        return total

    # What the cluster agreed on.

    def learn(self, image: Image) -> None:
        """Look at a new image before its changes are applied: who is there, and what exists elsewhere."""
        before, self.image = self.image, image
        if image.configs is not before.configs:
            with self.containment.at_most(Cost.TASK, "other rates of replication"):
                if self.throttles.learn_rates(image.configs):
                    self.on_throttles()
        if image.cluster is not before.cluster:
            with self.containment.at_most(Cost.TASK, "who has left"):
                self.departures.note(before.cluster, image.cluster)
            with self.containment.at_most(Cost.TASK, "who is alive"):
                self.liveness.learn(image.cluster.brokers)
            for hosted in list(self.isr_check_due):
                with self.containment.at_most(Cost.PARTITION, hosted):
                    self.recheck_isr(hosted)
            with self.containment.at_most(Cost.TASK, "fetchers hear of other brokers"):
                self.on_cluster()

    def recheck_isr(self, hosted: HostedPartition) -> None:
        """Somebody who was waited for may not be expected any more; somebody who was kept out may come in."""
        partition = hosted.partition
        if partition.leadership is None:
            self.isr_check_due.pop(hosted, None)
            return
        self.isr_check_due[hosted] = None
        if partition.advance(self._world.clock.monotonic_ms()):
            hosted.on_high_watermark_advanced()
        hosted.on_start_advanced()
        self.maybe_expand_isr(hosted)

    def maybe_expand_isr(self, hosted: HostedPartition) -> None:
        """Ask for an ISR with the followers that have caught up."""
        proposal = hosted.partition.catching_up(self._world.clock.monotonic_ms())
        if proposal is not None:
            self.on_proposal(hosted, proposal)

    def discard(self, hosted: HostedPartition) -> None:
        """It is no longer this node's: nobody finds it any more, and its log goes."""
        self._traffic_of_the_gone = self._traffic_of_the_gone.plus(hosted.traffic)
        self._retire(hosted)
        try:
            hosted.directory.delete_log(hosted.partition.log, now_ms=self._world.clock.now_ms())
        except OSError as failure:
            self.directory_error(hosted.directory, failure)

    def _retire(self, hosted: HostedPartition) -> None:
        self.isr_check_due.pop(hosted, None)
        hosted.partition.stop_leading()
        hosted.close()
        self.on_role(hosted)

    # Failing disks.

    def storage_error(self, hosted: HostedPartition, failure: OSError) -> KafkaError:
        """What to answer when a partition's files fail; that of one deleted meanwhile does not speak of the disk."""
        if not self.hosts(hosted):
            return KafkaError(self.why_missing(hosted.topic, hosted.index))
        isr = hosted.partition.state.isr
        others_wait = self._node_id in isr and len(isr) > 1
        return self.directory_error(hosted.directory, failure, others_wait=others_wait)

    def directory_error(self, directory: LogDirectory, failure: OSError, *, others_wait: bool = False) -> KafkaError:
        """What to answer. A full disk refuses writes and goes on serving reads; any other error ends its use."""
        if failure.errno in DISK_FULL:
            self.full_disks.refused(directory, others_wait=others_wait)
        elif directory.online:
            log.error("Log directory %s is offline: %s", directory.path, failure)
            self._take_offline(directory)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))

    def _take_offline(self, directory: LogDirectory) -> None:
        for each in self.directories:  # What it had is not there any more, and the others cannot make up for it.
            each.doubt()
        directory.go_offline()
        for hosted in list(self):
            if hosted.directory is directory:
                self.lose(hosted)
        self.on_offline()
        if not any(each.online for each in self.directories):
            log.critical("All log directories have failed")
            self.on_all_offline()

    def lose(self, hosted: HostedPartition) -> None:
        """It is this node's to serve, and cannot be."""
        self.remove(hosted)
        self.note_offline(hosted.topic, hosted.topic_id, hosted.index)
        self._retire(hosted)

    # Housekeeping.

    async def check_isrs(self) -> None:
        """Ask for an ISR without the followers that lag; only partitions that are new here or were written to can have
        any."""
        now_ms = self._world.clock.monotonic_ms()
        for hosted in list(self.isr_check_due):
            with self.containment.at_most(Cost.PARTITION, hosted):
                self._check_isr(hosted, now_ms)

    def _check_isr(self, hosted: HostedPartition, now_ms: int) -> None:
        partition = hosted.partition
        if partition.leadership is None or partition.leadership.is_fully_in_sync(partition.log.log_end_offset):
            del self.isr_check_due[hosted]
            return
        proposal = partition.lagging(now_ms)
        if proposal is not None:
            self.on_proposal(hosted, proposal)
        self.recheck_isr(hosted)

    def close(self, *, broker_epoch: int) -> None:
        """Leave every directory as a clean shutdown leaves it, with the epoch in which nothing was missing, or -1."""
        self.full_disks.close()
        for directory in self.directories:
            if directory.online:
                try:
                    directory.close()
                    directory.mark_clean_shutdown(broker_epoch=broker_epoch)
                except OSError as failure:
                    self.directory_error(directory, failure)
        self._by_name.clear()
        self._by_id.clear()
