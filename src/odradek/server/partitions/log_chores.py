"""What a broker does to its logs now and then, wanted by nobody in particular; `Housekeeping` says when."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from odradek.ports import Clock
from odradek.protocol.errors import KafkaError
from odradek.server.containment import Cost
from odradek.server.partitions.replicas import Replicas
from odradek.storage.directories import LogDirectory


class LogChores:
    """Each of them for all hosted partitions, or all directories that are well; one that is broken stops no other."""

    def __init__(self, clock: Clock, replicas: Replicas) -> None:
        self._clock = clock
        self._replicas = replicas

    async def retain(self) -> None:
        """Let old segments go; their files stay for those who still read them."""
        now_ms = self._clock.now_ms()
        for hosted in list(self._replicas):
            partition_log = hosted.partition.log
            before = partition_log.log_start_offset
            # Each for itself: on a full disk there is no room to roll, and there will be if old segments go.
            for chore in (partition_log.maybe_roll, partition_log.apply_retention):
                with self._minding(hosted.directory, Cost.PARTITION, hosted):
                    if hosted.directory.online:
                        chore(now_ms)
            with self._minding(hosted.directory, Cost.PARTITION, hosted):
                if partition_log.log_start_offset != before:
                    hosted.tell_all(0)

    async def remove_deleted(self) -> None:
        """Remove the files of segments and topics that went long enough ago."""
        now_ms = self._clock.now_ms()
        for hosted in list(self._replicas):
            with self._minding(hosted.directory, Cost.PARTITION, hosted):
                hosted.partition.log.purge_deleted(now_ms)
        for directory in self._online():
            with self._minding(directory, Cost.TASK, directory.path):
                directory.purge_deleted(now_ms)

    async def checkpoint_high_watermarks(self) -> None:
        self._checkpoint(LogDirectory.checkpoint_high_watermarks)

    async def checkpoint_recovery_points(self) -> None:
        self._checkpoint(LogDirectory.checkpoint_recovery_points)

    async def checkpoint_log_starts(self) -> None:
        self._checkpoint(LogDirectory.checkpoint_log_starts)

    def _checkpoint(self, write: Callable[[LogDirectory], None]) -> None:
        for directory in self._online():
            with self._minding(directory, Cost.TASK, directory.path):
                write(directory)

    async def flush_due(self) -> None:
        """Sync the logs whose `flush.ms` has passed, and sealed segments that nobody has synced yet."""
        now_ms = self._clock.now_ms()
        for hosted in list(self._replicas):
            with self._replicas.containment.at_most(Cost.PARTITION, hosted):
                if hosted.partition.log.needs_flush(now_ms):
                    try:
                        await self._replicas.flush([hosted])
                    except KafkaError:
                        continue  # Told, and the directory is offline, or full.

    async def expire_producers(self) -> None:
        now_ms = self._clock.now_ms()
        for hosted in list(self._replicas):
            with self._replicas.containment.at_most(Cost.PARTITION, hosted):
                hosted.partition.log.producers.expire(now_ms)

    def _online(self) -> Iterator[LogDirectory]:
        """Those that are when their turn comes."""
        return (directory for directory in self._replicas.directories if directory.online)

    @contextmanager
    def _minding(self, directory: LogDirectory, cost: Cost, what: object) -> Iterator[None]:
        with self._replicas.containment.at_most(cost, what):
            try:
                yield
            except OSError as failure:
                self._replicas.directory_error(directory, failure)
