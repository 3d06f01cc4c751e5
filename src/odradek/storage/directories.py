"""One of `log.dirs`: the checkpoints, and a directory for each partition.

A partition's directory is called `topic-partition`. To delete it, it is renamed to `topic-partition.<hex>-delete`,
which no crash can undo, and removed later; `-stray` is one that the cluster does not know here, `-future` one that was
on the move.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from odradek.ids import Uuid
from odradek.ports import Disk, Entropy
from odradek.storage.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    TopicPartition,
    read_offsets,
    read_partition_metadata,
    write_offsets,
)
from odradek.storage.config import LogConfig
from odradek.storage.file_names import LOG_SUFFIX, PARTITION_METADATA
from odradek.storage.last_life import (
    CLEAN_SHUTDOWN_FILE,
    NOBODY,
    LastLife,
    clean_life,
    forget_running,
    mark_clean,
    mark_running,
    running_life,
)
from odradek.storage.log import Log
from odradek.storage.producer_state import ProducerSettings

METADATA_TOPIC = "__cluster_metadata"

DELETE_SUFFIX = "-delete"
FUTURE_SUFFIX = "-future"
STRAY_SUFFIX = "-stray"

_MAX_NAME_LENGTH = 255

_CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)

logger = logging.getLogger(__name__)


class LogDirectory:
    """The logs in one directory of this node."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        directory_id: Uuid,
        entropy: Entropy,
        *,
        producers: ProducerSettings | None = None,
        trusts_kills: bool = True,
    ) -> None:
        """Look what is in a directory that this process has locked.

        `trusts_kills` says whether a process that was killed can have lost nothing of it (ADR 12); else only a clean
        stop says so.
        """
        self._disk = disk
        self._entropy = entropy
        self.producers = producers
        """What logs that are opened from now on are told of their producers."""
        self.path = path
        self.directory_id = directory_id
        self.online = True
        self.was_clean = disk.exists(f"{path}/{CLEAN_SHUTDOWN_FILE}")
        """Whether the last shutdown was. The mark is gone by now: from the first append on it would be a lie."""
        self._trusts_kills = trusts_kills
        self.last_life = self._read_last_life()
        """Of the broker whose logs are here whole, if there is one: what it had acknowledged is here (KIP-966)."""
        self.on_damage: Callable[[], None] = lambda: None
        """Told when something is missing here that neither a clean stop nor a killed process leaves out.

        That is before anything of it is mended: a process that is started after that would not see it any more.
        """
        self._written = {name: read_offsets(disk, f"{path}/{name}") for name in _CHECKPOINTS}
        """What each checkpoint on disk says: of partitions by their names, whichever topic had that name then."""
        self._on_disk: dict[TopicPartition, None] = {}
        self._open: dict[TopicPartition, Log] = {}
        self._doomed: list[tuple[int, str, Log | None]] = []
        self._set_aside: dict[TopicPartition, None] = {}
        """Partitions that were deleted here, or are no more this node's: checkpoints may still speak of them."""
        self._strays: dict[TopicPartition, list[str]] = {}
        """Directories that an earlier start had set aside, by the partition they were of."""
        self._brought_back: dict[TopicPartition, None] = {}
        self._look_around()

    @property
    def partition_count(self) -> int:
        return len(self._on_disk)

    @property
    def partitions(self) -> list[TopicPartition]:
        """All partitions that have a directory here, opened or not, sorted."""
        return sorted(self._on_disk)

    def holds(self, topic: str, partition: int) -> bool:
        return (topic, partition) in self._on_disk

    def topic_id_of(self, topic: str, partition: int) -> Uuid | None:
        """The id that the partition's directory was made for; None if it does not say."""
        return read_partition_metadata(self._disk, f"{self._directory_of(topic, partition)}/{PARTITION_METADATA}")

    def open_log(self, topic: str, partition: int, *, topic_id: Uuid, config: LogConfig, now_ms: int) -> Log:
        """The partition's log, opened or made.

        A directory that was made for another topic of this name is set aside: the cluster has deleted that one. So is
        one with records that does not say for which it was made, as in Kafka: they may be that other one's.
        """
        key = (topic, partition)
        if key in self._on_disk:
            found_id = self.topic_id_of(topic, partition)
            if found_id is None and self._has_records(topic, partition):
                self._found_damage(f"{self._directory_of(topic, partition)} does not say which topic it is of")
                self.set_aside(topic, partition)
            elif found_id is not None and found_id != topic_id:
                self.set_aside(topic, partition)
        existed = key in self._on_disk
        if existed and key not in self._brought_back:
            for stray in self.strays_of(topic, partition, topic_id):
                logger.warning("%s is an earlier log of %s-%d, which is not used", stray, topic, partition)
        path = self._directory_of(topic, partition)
        high_watermark = self._written[HIGH_WATERMARK_CHECKPOINT].get(key, 0)
        if not existed:
            if high_watermark and key not in self._set_aside:
                self._found_damage(f"{path} is gone")
            self._forget_predecessor(key)
        is_brought_back = key in self._brought_back
        noted_start = self._written[LOG_START_OFFSET_CHECKPOINT].get(key, 0)
        try:
            log = Log.open(
                self._disk,
                path,
                topic=topic,
                partition=partition,
                topic_id=topic_id,
                config=config,
                now_ms=now_ms,
                recovery_point=0 if is_brought_back else self._written[RECOVERY_POINT_CHECKPOINT].get(key, 0),
                log_start_offset=noted_start,
                high_watermark=self._written[HIGH_WATERMARK_CHECKPOINT].get(key),
                clean=self.was_clean and not is_brought_back,
                on_damage=self._found_damage,
                producers=self.producers,
                draw=self._entropy.below,
            )
        except OSError:
            if not existed:  # What is half made would look like a log to whoever tries again.
                with suppress(OSError):
                    self._disk.remove_directory(path)
            raise
        if existed and high_watermark > log.log_end_offset:
            what = f"{path} ends at {log.log_end_offset}, below its high watermark of {high_watermark}"
            if noted_start > log.log_end_offset:
                what += " (unless both were noted by an earlier release, of a topic of that name that is deleted)"
            self._found_damage(what)
        log.keep_recovery_point = lambda: self.checkpoint_recovery_points(durable=True)
        log.keep_log_start = lambda: self.checkpoint_log_starts(durable=True)
        log.cleaned_offset = 0 if is_brought_back else self._written[CLEANER_OFFSET_CHECKPOINT].get(key, 0)
        log.keep_cleaned_offset = self.checkpoint_cleaned
        self._brought_back.pop(key, None)
        self._on_disk[key] = None
        self._open[key] = log
        return log

    def delete_log(self, log: Log, *, now_ms: int) -> None:
        """Rename the log's directory at once; its files go after `file.delete.delay.ms`."""
        key = (log.topic, log.partition)
        renamed = self._rename(log.topic, log.partition, DELETE_SUFFIX)
        log.moved(renamed)
        del self._open[key]
        self._doomed.append((now_ms + log.config.file_delete_delay_ms, renamed, log))
        self._doomed.sort(key=lambda doomed: doomed[0])

    def set_aside(self, topic: str, partition: int) -> None:
        """Rename the directory of a partition that the cluster does not have here.

        Like Kafka, nobody removes it then: if it is the cluster that is wrong, the records are still there.
        """
        renamed = self._rename(topic, partition, STRAY_SUFFIX)
        log = self._open.pop((topic, partition), None)
        if log is not None:
            log.let_go()
        logger.warning("Set aside %s, which this node does not hold any more, as %s", f"{topic}-{partition}", renamed)

    def strays_of(self, topic: str, partition: int, topic_id: Uuid) -> list[str]:
        """What an earlier start had set aside that is a log of this very topic."""
        paths = [f"{self.path}/{name}" for name in self._strays.get((topic, partition), ())]
        ids = [read_partition_metadata(self._disk, f"{path}/{PARTITION_METADATA}") for path in paths]
        return [path for path, found_id in zip(paths, ids, strict=True) if found_id == topic_id]

    def bring_back(self, topic: str, partition: int, stray: str) -> None:
        """Take a log that was set aside for the partition's: nobody knows how that start, or the one before, ended."""
        logger.warning("Brought back %s-%d from %s: the cluster counts on it", topic, partition, stray)
        key = (topic, partition)
        self._disk.rename(stray, self._directory_of(topic, partition))
        self._disk.sync_directory(self.path)
        self._strays[key].remove(stray.rpartition("/")[2])
        self._set_aside.pop(key, None)
        self._brought_back[key] = None
        self._on_disk[key] = None

    def purge_deleted(self, now_ms: int) -> int | None:
        """Remove directories whose delay is over; when the next one is due."""
        while self._doomed and self._doomed[0][0] <= now_ms:
            _, path, log = self._doomed.pop(0)
            if log is not None:
                log.let_go()
            self._disk.remove_directory(path)
        return self._doomed[0][0] if self._doomed else None

    def checkpoint_recovery_points(self, *, durable: bool = False) -> None:
        """Write down up to where each log is on the device, if that has changed; likewise the next two."""
        self._write(
            RECOVERY_POINT_CHECKPOINT, {key: log.recovery_point for key, log in self._open.items()}, durable=durable
        )

    def checkpoint_log_starts(self, *, durable: bool = False) -> None:
        """A log that starts where its first segment does needs no entry: its files say so."""
        logs = self._open.items()
        starts = {
            key: int(log.log_start_offset) for key, log in logs if log.log_start_offset > log.segments[0].base_offset
        }
        self._write(LOG_START_OFFSET_CHECKPOINT, starts, durable=durable)

    def checkpoint_high_watermarks(self, *, durable: bool = False) -> None:
        watermarks = {key: int(log.high_watermark) for key, log in self._open.items()}
        self._write(HIGH_WATERMARK_CHECKPOINT, watermarks, durable=durable)

    def checkpoint_cleaned(self) -> None:
        """Only those that were ever cleaned; a cleaning that is forgotten is merely done again."""
        cleaned = {key: log.cleaned_offset for key, log in self._open.items() if log.cleaned_offset}
        self._write(CLEANER_OFFSET_CHECKPOINT, cleaned, durable=False)

    def give_back_room(self) -> None:
        """There is none left: let go of what is reserved for logs that may grow."""
        for log in self._open.values():
            log.give_back_room()

    def go_offline(self) -> None:
        """Use the directory no more, as it has failed; nothing is written, so the next start recovers what is there."""
        self.online = False
        with suppress(OSError):
            self._let_go()

    def close(self) -> None:
        """Close all logs and write the checkpoints."""
        if self.online:
            for log in self._open.values():
                log.close()
            self.checkpoint_recovery_points(durable=True)
            self.checkpoint_log_starts(durable=True)
            self.checkpoint_high_watermarks(durable=True)
            self._let_go()

    def mark_running(self, life: LastLife) -> None:
        """Say whose logs these are from now on, for a start after this process was killed; where such are trusted."""
        if self.online and self._trusts_kills:
            mark_running(self._disk, self.path, life)

    def mark_clean_shutdown(self, *, broker_epoch: int = -1) -> None:
        """Say that everything in the directory is as `close` leaves it; the last thing a node does with it."""
        if self.online:
            mark_clean(self._disk, self.path, broker_epoch)
            forget_running(self._disk, self.path)

    def doubt(self) -> None:
        """The next start must not take what is here for all there was, unless a clean stop says so."""
        self.last_life = NOBODY
        with suppress(OSError):
            forget_running(self._disk, self.path)

    def _read_last_life(self) -> LastLife:
        if self.was_clean:
            return clean_life(self._disk, self.path)
        return running_life(self._disk, self.path) if self._trusts_kills else NOBODY

    def _found_damage(self, what: str) -> None:
        logger.warning("Data was lost in %s: %s", self.path, what)
        self.on_damage()

    def _let_go(self) -> None:
        for log in self._open.values():
            log.let_go()
        for _, _, doomed in self._doomed:
            if doomed is not None:
                doomed.let_go()
        self._open.clear()

    def _look_around(self) -> None:
        """Find the partitions; what was being deleted when the node stopped goes with the first purge."""
        for name in self._disk.list(self.path):
            if name.endswith((DELETE_SUFFIX, STRAY_SUFFIX)):
                key = parse_directory_name(name.rpartition(".")[0])
                if key is not None:
                    self._set_aside[key] = None
                    if name.endswith(STRAY_SUFFIX):
                        self._strays.setdefault(key, []).append(name)
                if name.endswith(DELETE_SUFFIX):
                    self._doomed.append((0, f"{self.path}/{name}", None))
            elif not name.endswith(FUTURE_SUFFIX):
                key = parse_directory_name(name)
                if key is not None and key[0] != METADATA_TOPIC:
                    self._on_disk[key] = None
        if self.was_clean:
            with suppress(OSError):  # A full disk, perhaps: then it is not known that nothing is lost by a kill.
                self.mark_running(self.last_life)
            self._disk.unlink(f"{self.path}/{CLEAN_SHUTDOWN_FILE}")
            self._disk.sync_directory(self.path)  # A power loss must not bring it back: torn logs would be trusted.
            return
        if self.last_life == NOBODY:
            forget_running(self._disk, self.path)
        if self._on_disk:
            logger.info("Recovering the logs in %s, since no clean shutdown was found", self.path)

    def _has_records(self, topic: str, partition: int) -> bool:
        path = self._directory_of(topic, partition)
        names = [name for name in self._disk.list(path) if name.endswith(LOG_SUFFIX)]
        return any(self._disk.file_size(f"{path}/{name}") for name in names)

    def _rename(self, topic: str, partition: int, suffix: str) -> str:
        ending = f".{self._entropy.random_bytes(16).hex()}{suffix}"
        name = f"{topic}-{partition}"[: _MAX_NAME_LENGTH - len(ending)] + ending
        renamed = f"{self.path}/{name}"
        self._disk.rename(self._directory_of(topic, partition), renamed)
        del self._on_disk[(topic, partition)]
        self._set_aside[(topic, partition)] = None
        return renamed

    def _directory_of(self, topic: str, partition: int) -> str:
        return f"{self.path}/{topic}-{partition}"

    def _forget_predecessor(self, key: TopicPartition) -> None:
        """A log is about to be made: what checkpoints say of this name is about another one, which is gone.

        It has to be off the device before the first batch is taken. Believed at a start after that, it would cut off
        the new topic's records, pass over what no sync has kept, or call a log damaged that is merely shorter. All
        others that were deleted go as well, so that a topic of many partitions made anew pays for it once.
        """
        gone = {key, *(each for each in self._set_aside if each not in self._on_disk)}
        for name, offsets in self._written.items():
            if key in offsets:
                self._replace(name, {each: at for each, at in offsets.items() if each not in gone}, durable=True)

    def _write(self, name: str, offsets: dict[TopicPartition, int], *, durable: bool) -> None:
        """What is here and could not be opened, for want of room perhaps, keeps what was said of it."""
        unopened = self._on_disk.keys() - self._open.keys()
        if unopened:
            offsets |= {key: at for key, at in self._written[name].items() if key in unopened}
        if durable or self._written[name] != offsets:
            self._replace(name, offsets, durable=durable)

    def _replace(self, name: str, offsets: dict[TopicPartition, int], *, durable: bool) -> None:
        write_offsets(self._disk, f"{self.path}/{name}", offsets, durable=durable)
        self._written[name] = offsets


def parse_directory_name(name: str) -> TopicPartition | None:
    """Topic and partition of a directory's name; None if it is not a partition's."""
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not (number.isascii() and number.isdecimal()):
        return None
    return topic, int(number)
