"""The cleaner: compacts the logs of topics with `cleanup.policy=compact`, the dirtiest first, beside everything else.

Workers do the work in slices, so that it can be slowed down to `log.cleaner.io.max.bytes.per.second` and given up
between any two: a log that is cut, deleted or moved meanwhile takes nothing in (`CleaningRound`), and a node that stops
waits for one slice. Here is chosen, swapped and noted.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from odradek.ids import Uuid
from odradek.ports import Steps, WorkerLost, World
from odradek.protocol.errors import KafkaError
from odradek.server.configs.node_config import NodeConfig
from odradek.server.containment import Cost
from odradek.server.partitions.hosted_partition import HostedPartition
from odradek.server.partitions.replicas import Replicas
from odradek.storage.compaction.choice import Cleanable, cleanable
from odradek.storage.compaction.cleaning import Cleaned, Slice, Uncleanable, clean
from odradek.storage.compaction.round import CleaningRound
from odradek.storage.directories import LogDirectory
from odradek.values import value

log = logging.getLogger(__name__)

LOOKED_AT_A_TURN = 100
"""Logs, while the dirtiest is looked for, before the loop may do something else."""

LEAST_SLICE_BYTES = 4096

LONGEST_PAUSE_MS = 86_400_000
"""No timer can sleep for centuries."""

MILLIS_PER_SECOND = 1000


@value
class LastCleaning:
    """How the last round of one of the cleaners went; what the metrics tell."""

    bytes_read: int
    bytes_written: int
    buffer_utilization: float
    duration_ms: int


class LogCleaner:
    """As many cleanings at a time as `log.cleaner.threads` says, each of another log."""

    def __init__(self, config: NodeConfig, world: World, replicas: Replicas) -> None:
        self._config = config
        self._world = world
        self._replicas = replicas
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self._under_way: dict[tuple[str, int], None] = {}
        self._uncleanable: dict[tuple[Uuid, int], str] = {}
        """Why; until the node starts again, since nobody can mend a log while it is served."""
        self._paid_until_ms = 0
        """What was read and written is paid for with the time up to here."""
        self._last: dict[int, LastCleaning] = {}
        self._looked_ms: int | None = None
        self.max_dirty_ratio = 0.0
        """Of the logs that may be cleaned, when they were looked at last."""
        self.max_overdue_ms = 0
        """By how much a record has outlived `max.compaction.lag.ms`, likewise."""

    def start(self) -> None:
        if self._config.log_cleaner_enable:
            self._looked_ms = self._world.clock.monotonic_ms()
            self._begin_more()

    async def stop(self) -> None:
        """Come back once no slice is under way."""
        self._stopping.set()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # What the metrics tell.

    @property
    def last_cleanings(self) -> list[LastCleaning]:
        return list(self._last.values())

    @property
    def dead_count(self) -> int:
        """Cleaners that have ended, though nobody stopped them."""
        return 0 if self._stopping.is_set() else sum(task.done() for task in self._tasks)

    @property
    def idle_ms(self) -> int:
        """Since the logs were looked at last; 0 where nobody ever does."""
        return 0 if self._looked_ms is None else self._world.clock.monotonic_ms() - self._looked_ms

    def uncleanable(self) -> dict[str, list[HostedPartition]]:
        """By the path of their directory, those that are left as they are; a list for each directory."""
        found: dict[str, list[HostedPartition]] = {each.path: [] for each in self._replicas.directories}
        for topic_id, index in self._uncleanable:
            hosted = self._replicas.find_by_id(topic_id, index)
            if hosted is not None:
                found[hosted.directory.path].append(hosted)
        return found

    # The loop of each cleaner.

    def _begin_more(self) -> None:
        """`log.cleaner.threads` may be raised at any time; those that are too many rest."""
        while len(self._tasks) < self._config.log_cleaner_threads:
            self._tasks.append(asyncio.create_task(self._run(len(self._tasks))))

    async def _run(self, number: int) -> None:
        while not self._stopping.is_set():
            cleaned = False
            with self._replicas.containment.at_most(Cost.TASK, "a cleaning, which is tried again in time"):
                self._begin_more()
                if number < self._config.log_cleaner_threads:
                    chosen = await self._dirtiest()
                    cleaned = chosen is not None and await self._clean(number, *chosen)
            if not cleaned:
                await self._pause(self._config.log_cleaner_backoff_ms)

    async def _pause(self, duration_ms: float) -> None:
        """Shorter if the node stops."""
        try:
            async with asyncio.timeout(min(duration_ms, LONGEST_PAUSE_MS) / MILLIS_PER_SECOND):
                await self._stopping.wait()
        except TimeoutError:
            return

    # Which log.

    async def _dirtiest(self) -> tuple[HostedPartition, Cleanable] | None:
        """Of the logs that are due the one with the largest dirty ratio."""
        now_ms = self._world.clock.now_ms()
        self._looked_ms = self._world.clock.monotonic_ms()
        best: tuple[HostedPartition, Cleanable] | None = None
        max_ratio, max_overdue_ms = 0.0, 0
        for looked_at, hosted in enumerate([each for each in self._replicas if self._may_be_cleaned(each)], 1):
            if looked_at % LOOKED_AT_A_TURN == 0:
                await asyncio.sleep(0)
            if not self._may_be_cleaned(hosted):
                continue
            what = self._look_at(hosted, now_ms)
            if what is None:
                continue
            max_ratio = max(max_ratio, what.dirty_ratio)
            max_overdue_ms = max(max_overdue_ms, what.overdue_ms)
            is_due = what.is_due(hosted.partition.log.config.min_cleanable_dirty_ratio)
            if is_due and (best is None or what.dirty_ratio > best[1].dirty_ratio):
                best = (hosted, what)
        self.max_dirty_ratio, self.max_overdue_ms = max_ratio, max_overdue_ms
        if best is None or not self._may_be_cleaned(best[0]):
            return None
        return best

    def _may_be_cleaned(self, hosted: HostedPartition) -> bool:
        return (
            hosted.partition.log.config.compacted
            and hosted.directory.online
            and (hosted.topic, hosted.index) not in self._under_way
            and (hosted.topic_id, hosted.index) not in self._uncleanable
            and self._replicas.hosts(hosted)
        )

    def _look_at(self, hosted: HostedPartition, now_ms: int) -> Cleanable | None:
        try:
            return cleanable(hosted.partition.log, now_ms)
        except KafkaError as wrong:
            self._give_up_on(hosted, wrong)
        except OSError as failure:
            self._replicas.directory_error(hosted.directory, failure)
        return None

    # One round.

    async def _clean(self, number: int, hosted: HostedPartition, what: Cleanable) -> bool:
        """Whether it was carried through."""
        key = (hosted.topic, hosted.index)
        self._under_way[key] = None
        try:
            return await self._carry_out(number, hosted, what)
        finally:
            del self._under_way[key]

    async def _carry_out(self, number: int, hosted: HostedPartition, what: Cleanable) -> bool:
        began_ms = self._world.clock.monotonic_ms()
        config = self._config
        share = max(config.log_cleaner_threads, 1)
        cleaning_round = CleaningRound(hosted.partition.log, what, self._world.clock.now_ms())
        job = partial(
            clean,
            plan=cleaning_round.plan,
            dedupe_bytes=config.log_cleaner_dedupe_buffer_size // share,
            load_factor=config.log_cleaner_io_buffer_load_factor,
            slice_bytes=max(config.log_cleaner_io_buffer_size // share, LEAST_SLICE_BYTES),
        )
        steps = self._world.workers.apart(self._world.disk, job)
        done: Cleaned | None = None
        try:
            done = await self._drive(hosted, cleaning_round, steps)
        except Uncleanable as wrong:
            if self._is_wanted(hosted, cleaning_round):
                self._give_up_on(hosted, wrong)
        except OSError as failure:
            if self._is_wanted(hosted, cleaning_round):  # Else its files may be gone, and need not be there.
                self._replicas.directory_error(hosted.directory, failure)
        except WorkerLost as lost:
            log.warning("%s is compacted another time: %s", hosted, lost)
        await steps.close()
        if done is None:
            return False
        hosted.partition.log.cleaned_offset = done.end_offset
        self._keep_checkpoint(hosted.directory)
        self._tell(number, hosted, done, self._world.clock.monotonic_ms() - began_ms)
        return True

    async def _drive(
        self, hosted: HostedPartition, cleaning_round: CleaningRound, steps: Steps[Slice]
    ) -> Cleaned | None:
        """Slice after slice, until there are no more; None if nobody wants the rest."""
        while (done := await steps.next()) is not None:
            if self._stopping.is_set() or not self._is_wanted(hosted, cleaning_round):
                return None
            if done.round is not None:
                return done.round
            if done.group is not None:
                if not cleaning_round.replace(self._world.disk, done.group, self._world.clock.now_ms()):
                    return None
                directory = hosted.partition.log.directory
                # Or a power loss could bring back what the checkpoint is about to call clean.
                await self._world.workers.run(lambda: self._world.disk.sync_directory(directory))  # noqa: B023
            await self._pay_for(done.bytes_read + done.bytes_written)
        return None

    def _is_wanted(self, hosted: HostedPartition, cleaning_round: CleaningRound) -> bool:
        return self._replicas.hosts(hosted) and not cleaning_round.is_void

    async def _pay_for(self, count: int) -> None:
        """Wait as long as all cleaners together must, to read and write no more than they may."""
        rate = self._config.log_cleaner_io_max_bytes_per_second
        now_ms = self._world.clock.monotonic_ms()
        self._paid_until_ms = max(self._paid_until_ms, now_ms) + int(count * MILLIS_PER_SECOND / max(rate, 1.0))
        if self._paid_until_ms > now_ms:
            await self._pause(self._paid_until_ms - now_ms)

    def _keep_checkpoint(self, directory: LogDirectory) -> None:
        try:
            directory.checkpoint_cleaned()
        except OSError as failure:
            self._replicas.directory_error(directory, failure)

    def _give_up_on(self, hosted: HostedPartition, wrong: Exception) -> None:
        self._uncleanable[hosted.topic_id, hosted.index] = str(wrong)
        log.error("%s is not compacted any more: %s", hosted, wrong)

    def _tell(self, number: int, hosted: HostedPartition, done: Cleaned, duration_ms: int) -> None:
        self._last[number] = LastCleaning(
            bytes_read=done.bytes_read,
            bytes_written=done.bytes_written,
            buffer_utilization=done.buffer_utilization,
            duration_ms=duration_ms,
        )
        log.info(
            "Compacted %s up to offset %d in %d ms: %d of %d bytes are left, and %d of %d records",
            hosted,
            done.end_offset,
            duration_ms,
            done.bytes_written,
            done.bytes_read,
            done.records_kept,
            done.records_read,
        )
        if done.keyless:
            log.warning(
                "%d records of %s went because they had no key: they were from before it was compacted",
                done.keyless,
                hosted,
            )
