"""`odradek log compaction`: what the cleaner would do now to compacted partitions, found out by doing it."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from odradek.adapters.clock import SystemClock
from odradek.adapters.untouched_disk import UntouchedDisk
from odradek.apps.cli.log_files import base_offsets, partition_directories, size_of
from odradek.apps.cli.log_settings import image_of
from odradek.apps.cli.progress import Progress
from odradek.apps.terminal.options import pairs
from odradek.apps.terminal.output import complain, emit, size_text, table
from odradek.apps.terminal.sentence import Sentence
from odradek.ids import ZERO_UUID
from odradek.metadata.image.configs import ALL_BROKERS, BROKER_RESOURCE
from odradek.ports import Disk
from odradek.protocol.errors import KafkaError
from odradek.protocol.records.batch import HEADER_SIZE, read_header
from odradek.protocol.records.columns import read_columns
from odradek.protocol.records.pure import HAS_KEY, HAS_VALUE
from odradek.server.configs.settings import NODE_CONFIGS
from odradek.storage.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    TopicPartition,
    read_offsets,
    read_partition_metadata,
)
from odradek.storage.compaction.batches import hashes_of
from odradek.storage.compaction.choice import cleanable
from odradek.storage.compaction.cleaned_segment import discard_cleaned
from odradek.storage.compaction.cleaning import Uncleanable, clean
from odradek.storage.compaction.round import CleaningRound
from odradek.storage.config import LogConfig, broker_log_defaults, log_config
from odradek.storage.directories import METADATA_TOPIC, parse_directory_name
from odradek.storage.file_names import CLEANED_SUFFIX, LOG_SUFFIX, PARTITION_METADATA, offset_name
from odradek.storage.last_life import CLEAN_SHUTDOWN_FILE
from odradek.storage.log import Log

_LOOKS = 3
"""At a partition whose segments are replaced meanwhile: by a cleaner, most likely, which is then done with it."""


def compaction(options: argparse.Namespace) -> int:
    """Every compacted partition below some paths; 1 if one of them could not be cleaned."""
    given = pairs(options.config, "--config")
    partitions = [found for path in options.paths for found in _compacted(path, given)]
    data: list[dict[str, Any]] = []
    size = sum(size_of(_segment_path(path, base)) for path, _, _ in partitions for base in base_offsets(path))
    with Progress("looking at", size, unit="byte") as progress, _quiet():
        for path, key, config in partitions:
            data.append(_looked_at(path, key, config, progress))
    rows = [_row(each) for each in data]
    emit(options, data, table(_HEADINGS, rows) if rows else ["No compacted partitions."])
    if options.format == "table":
        for each in data:
            if each["problem"] is not None:
                complain(f"{each['directory']}: {each['problem']}.")
    return 1 if any(each["problem"] is not None for each in data) else 0


_HEADINGS = (
    "PARTITION",
    "SIZE",
    "CLEAN",
    "DIRTY",
    "DIRTY RATIO",
    "UP TO",
    "KEYS",
    "RECORDS",
    "STAY",
    "GO",
    "TOMBSTONES",
    "KEYLESS",
    "DUE",
)


def _row(each: Mapping[str, Any]) -> tuple[object, ...]:
    would = each["round"]
    numbers = (
        (
            _change(would["keys_before"], would["keys_after"]),
            would["records_before"],
            would["records_after"],
            would["records_before"] - would["records_after"],
            _change(would["tombstones_before"], would["tombstones_after"]),
            would["keyless"],
        )
        if would is not None
        else (None,) * 6
    )
    return (
        f"{each['topic']}-{each['partition']}",
        size_text(each["size_bytes"]),
        None if each["clean_bytes"] is None else size_text(each["clean_bytes"]),
        None if each["dirty_bytes"] is None else size_text(each["dirty_bytes"]),
        each["dirty_ratio"],
        each["first_uncleanable_offset"],
        *numbers,
        each["due"],
    )


def _change(before: int, after: int) -> str:
    return str(before) if before == after else f"{before} → {after}"


# Which partitions, and with what settings.


def _compacted(path: str, given: Mapping[str, str]) -> Iterator[tuple[str, TopicPartition, LogConfig]]:
    """The compacted ones of a data directory, or the one whose directory it is."""
    path = os.path.abspath(path)
    directories = partition_directories(path)
    data_directory = path if directories != [path] else os.path.dirname(path)
    image = image_of(data_directory)
    defaults = LogConfig(cleanup_policy=("compact",))
    if image is None:
        complain(f"nothing in {data_directory} says how topics are configured: all count as compacted.")
    else:
        for_brokers = image.configs.of(BROKER_RESOURCE, ALL_BROKERS).items()
        defaults = broker_log_defaults(
            {name: NODE_CONFIGS[name].parse(text) for name, text in for_brokers if name in NODE_CONFIGS}
        )
    for directory in directories:
        key = parse_directory_name(os.path.basename(directory))
        if key is None or key[0] == METADATA_TOPIC:
            continue
        own = image.configs.of_topic(key[0]) if image is not None else {}
        try:
            config = log_config({**own, **given}, defaults)
        except KafkaError as wrong:
            raise Sentence(f"{wrong.message}.", 2) from wrong
        if config.compacted:
            yield directory, key, config
        elif directory == path:
            with_it = "--config cleanup.policy=compact"
            raise Sentence(f"{key[0]} is not compacted; {with_it} shows what would be left if it were.")


# What would be done.


def _looked_at(path: str, key: TopicPartition, config: LogConfig, progress: Progress) -> dict[str, Any]:
    for _ in range(_LOOKS):
        data: dict[str, Any] = {
            "directory": path,
            "topic": key[0],
            "partition": key[1],
            "cleanup_policy": list(config.cleanup_policy),
            "size_bytes": 0,
            "log_start_offset": None,
            "log_end_offset": None,
            "clean_bytes": None,
            "dirty_bytes": None,
            "dirty_ratio": None,
            "min_cleanable_dirty_ratio": config.min_cleanable_dirty_ratio,
            "first_dirty_offset": None,
            "first_uncleanable_offset": None,
            "overdue_ms": None,
            "due": None,
            "round": None,
            "problem": None,
        }
        before = _segments(path)
        try:
            _look(UntouchedDisk(), path, key, config, data, progress)
        except (KafkaError, Uncleanable) as wrong:
            data["problem"] = str(wrong)
        except OSError as wrong:
            data["problem"] = (wrong.strerror or str(wrong)).lower()
        if before and before.items() <= _segments(path).items():
            return data
    data["problem"] = "its segments were replaced or removed while they were looked at"
    return data


def _segments(path: str) -> dict[int, int]:
    """Which file each of them is; none if the partition is gone."""
    found: dict[int, int] = {}
    with suppress(Sentence, FileNotFoundError):
        for base in base_offsets(path):
            found[base] = os.stat(_segment_path(path, base)).st_ino
    return found


def _look(
    disk: Disk, path: str, key: TopicPartition, config: LogConfig, data: dict[str, Any], progress: Progress
) -> None:
    now_ms = SystemClock().now_ms()
    log = _opened(disk, path, key, config, now_ms)
    try:
        what = cleanable(log, now_ms)
        data["size_bytes"] = log.size_bytes
        data["log_start_offset"], data["log_end_offset"] = log.log_start_offset, log.log_end_offset
        data["clean_bytes"], data["dirty_bytes"] = what.clean_bytes, what.dirty_bytes
        data["dirty_ratio"] = round(what.dirty_ratio, 4)
        data["first_dirty_offset"], data["first_uncleanable_offset"] = what.first_dirty_offset, what.end_offset
        data["overdue_ms"] = what.overdue_ms
        data["due"] = what.is_due(config.min_cleanable_dirty_ratio)
        data["round"] = _round(disk, CleaningRound(log, what, now_ms), progress) if what.dirty_bytes else None
    finally:
        log.let_go()


def _opened(disk: Disk, path: str, key: TopicPartition, config: LogConfig, now_ms: int) -> Log:
    """As a node would open it; what no checkpoint speaks of, as in a copy of a partition alone, counts as committed and
    synced."""
    above = os.path.dirname(path)
    recovery_point, high_watermark, log_start, cleaned = (
        read_offsets(disk, f"{above}/{name}").get(key)
        for name in (
            RECOVERY_POINT_CHECKPOINT,
            HIGH_WATERMARK_CHECKPOINT,
            LOG_START_OFFSET_CHECKPOINT,
            CLEANER_OFFSET_CHECKPOINT,
        )
    )
    log = Log.open(
        disk,
        path,
        topic=key[0],
        partition=key[1],
        topic_id=read_partition_metadata(disk, f"{path}/{PARTITION_METADATA}") or ZERO_UUID,
        config=config,
        now_ms=now_ms,
        recovery_point=recovery_point or 0,
        log_start_offset=log_start or 0,
        high_watermark=high_watermark,
        clean=disk.exists(f"{above}/{CLEAN_SHUTDOWN_FILE}"),
    )
    log.cleaned_offset = cleaned or 0
    if recovery_point is None:
        log.flushed(log.log_end_offset)
    if high_watermark is None:
        log.advance_high_watermark(log.log_end_offset)
    return log


def _round(disk: Disk, cleaning_round: CleaningRound, progress: Progress) -> dict[str, int]:
    """Do it, count what went in and what came out, and throw that away."""
    plan = cleaning_round.plan
    paths = {source.base_offset: source.path for source in plan.sources}
    before, after = _Counted(), _Counted()
    data: dict[str, int] = {}
    slices = clean(
        disk,
        plan=plan,
        dedupe_bytes=int(NODE_CONFIGS["log.cleaner.dedupe.buffer.size"].default),  # type: ignore[arg-type]
        load_factor=float(NODE_CONFIGS["log.cleaner.io.buffer.load.factor"].default),  # type: ignore[arg-type]
        slice_bytes=int(NODE_CONFIGS["log.cleaner.io.buffer.size"].default),  # type: ignore[arg-type]
    )
    for each in slices:
        if each.group is not None:
            for base in each.group.replaced:
                before.add(disk, paths[base])
                progress.advance(disk.file_size(paths[base]))
            after.add(disk, _segment_path(plan.directory, each.group.base_offset) + CLEANED_SUFFIX)
            discard_cleaned(disk, plan.directory, each.group.base_offset)
        if each.round is not None:
            data = {
                "end_offset": each.round.end_offset,
                "bytes_before": before.bytes,
                "bytes_after": after.bytes,
                "keys_before": len(before.keys),
                "keys_after": len(after.keys),
                "records_before": before.records,
                "records_after": after.records,
                "tombstones_before": before.tombstones,
                "tombstones_after": after.tombstones,
                "keyless": each.round.keyless,
            }
    return data


class _Counted:
    """What some segments hold; ends of transactions are no records here."""

    def __init__(self) -> None:
        self.bytes = 0
        self.records = 0
        self.tombstones = 0
        self.keys: set[bytes] = set()

    def add(self, disk: Disk, path: str) -> None:
        file = disk.open(path)
        position, size = 0, file.size()
        while position < size:
            header = read_header(file.read(position, HEADER_SIZE))
            if not header.is_control and header.records_count:
                for _, columns in read_columns(file.read(position, header.size), header):
                    self.records += len(columns[0])
                    self.tombstones += sum(flags & (HAS_KEY | HAS_VALUE) == HAS_KEY for flags in columns[3])
                    hashes = zip(hashes_of(columns), columns[3], strict=True)
                    self.keys.update(each for each, flags in hashes if flags & HAS_KEY)
            position += header.size
        self.bytes += size
        file.close()


def _segment_path(directory: str, base_offset: int) -> str:
    return f"{directory}/{offset_name(base_offset)}{LOG_SUFFIX}"


@contextmanager
def _quiet() -> Iterator[None]:
    """What opening a log says of mending it is not for here, where nothing is mended."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
