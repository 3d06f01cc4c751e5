"""`odradek log`: what is in segment files and their indexes, read from the disk without a broker."""

from __future__ import annotations

import argparse
import os
import struct
from typing import Any

from odradek.apps.cli.internal_records import (
    RECORD_KINDS,
    Decoder,
    decode_control,
    decoded_data,
    decoded_lines,
    decoder_for,
)
from odradek.apps.cli.log_files import (
    base_offsets,
    cannot_read,
    partition_directories,
    read_batches,
    read_entries,
    size_of,
)
from odradek.apps.cli.log_verify import verify
from odradek.apps.cli.record_text import record_data, record_lines
from odradek.apps.terminal.options import add_actions, add_format_option, add_many, natural
from odradek.apps.terminal.output import emit, emit_one_of_many, size_text, table, time_text
from odradek.apps.terminal.sentence import Sentence
from odradek.protocol.errors import KafkaError
from odradek.protocol.records.batch import TIMESTAMP_TYPE_BIT, BatchHeader, crc_matches, decode_records
from odradek.protocol.records.control import ControlType
from odradek.storage import offset_index, time_index, txn_index
from odradek.storage.file_names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    offset_name,
    offset_of,
)
from odradek.storage.producer_state import Producers, ProducerSettings

_HERE = "odradek.apps.cli.log"

CHECKPOINT_SUFFIX = ".checkpoint"
NOT_DECODED = "none"
_MARKERS = (ControlType.COMMIT.name, ControlType.ABORT.name)
_NEVER_MS = 1 << 62
"""For producers that expired long ago to be shown as well."""


def declare(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(parser, "Look into log files without a broker. Nothing is changed, whoever uses them.")
    dumping = actions.add_parser(
        "dump",
        help="show segments of a directory, or batches, records or index entries of a file",
        description="Show what is in a data directory (its partitions), in a partition's directory (its segments) or "
        "in a file: the batches of a .log, the entries of an .index, .timeindex or .txnindex.",
    )
    dumping.add_argument("path", metavar="FILE|DIR")
    dumping.add_argument("--records", action="store_true", help="of a .log, also the records in each batch")
    dumping.add_argument(
        "--decode",
        choices=(*RECORD_KINDS, NOT_DECODED),
        help="what the records are (default: by the name of the partition's directory)",
    )
    dumping.add_argument("--from-offset", type=natural, metavar="OFFSET", help="of a .log, leave out what is before")
    dumping.set_defaults(run=f"{_HERE}:dump")
    verifying = actions.add_parser(
        "verify",
        help="check batches, checksums, offsets and indexes",
        description="Check a partition's directory or a data directory: every batch and its checksum, the order of "
        "offsets, and that indexes point to where they should. The exit code is 1 if something is wrong.",
    )
    verifying.add_argument("path", metavar="DIR")
    verifying.set_defaults(run=f"{_HERE}:verify_directory")
    looking = actions.add_parser(
        "compaction",
        help="show what compaction would leave of partitions, and whether it is due",
        description="Show for each compacted partition of a data directory, or for a partition's directory, what the "
        "cleaner would do if it came now: how many keys and records stay, and how many go. How topics are configured "
        "is read from the metadata log beside the partitions.",
    )
    add_many(looking, "paths", at_least=1, metavar="DIR")
    looking.add_argument(
        "--config", action="append", default=[], metavar="KEY=VALUE", help="as if the topics had this setting"
    )
    looking.set_defaults(run="odradek.apps.cli.log_compaction:compaction")
    for action in (dumping, verifying, looking):
        add_format_option(action)


def dump(options: argparse.Namespace) -> int:
    if os.path.isdir(options.path):
        if options.records or options.from_offset is not None:
            raise Sentence("--records and --from-offset are for a .log file: name one of the directory's.", 2)
        return _dump_directory(options)
    if options.path.endswith((LOG_SUFFIX, CHECKPOINT_SUFFIX)):
        return _dump_log(options)
    if options.path.endswith(SNAPSHOT_SUFFIX):
        return _dump_producers(options)
    return _dump_index(options)


def verify_directory(options: argparse.Namespace) -> int:
    return verify(options, options.path)


def _dump_directory(options: argparse.Namespace) -> int:
    directories = partition_directories(options.path)
    data = [
        {"directory": path, "segments": [_segment(path, base) for base in base_offsets(path)]} for path in directories
    ]
    lines: list[str] = []
    for each in data:
        rows = [
            (
                one["base_offset"],
                one["last_offset"],
                one["batches"],
                one["records"],
                size_text(one["size_bytes"]),
                None if one["max_timestamp"] is None else time_text(one["max_timestamp"]),
                one["index_entries"],
                one["time_index_entries"],
                one["txn_index_entries"],
                one["problem"] or "",
            )
            for one in _dicts(each["segments"])
        ]
        lines += [""] if lines else []
        headings = ("BASE", "LAST", "BATCHES", "RECORDS", "SIZE", "LATEST", "INDEX", "TIMEINDEX", "TXNINDEX", "")
        lines += [str(each["directory"]), *table(headings, rows)]
    emit(options, data, lines)
    return 0


def _dicts(held: object) -> list[dict[str, Any]]:
    assert isinstance(held, list)
    return held


def _segment(directory: str, base_offset: int) -> dict[str, Any]:
    """A segment in numbers; a problem stops the counting."""
    stem = os.path.join(directory, offset_name(base_offset))
    data: dict[str, Any] = {
        "base_offset": base_offset,
        "last_offset": None,
        "batches": 0,
        "records": 0,
        "size_bytes": size_of(stem + LOG_SUFFIX),
        "max_timestamp": None,
        "index_entries": _count(stem + OFFSET_INDEX_SUFFIX, offset_index.ENTRY),
        "time_index_entries": _count(stem + TIME_INDEX_SUFFIX, time_index.ENTRY),
        "txn_index_entries": _count(stem + TXN_INDEX_SUFFIX, txn_index.ENTRY),
        "problem": None,
    }
    try:
        for _, header, _ in read_batches(stem + LOG_SUFFIX):
            data["last_offset"] = header.last_offset
            data["batches"] += 1
            data["records"] += header.records_count
            data["max_timestamp"] = max(data["max_timestamp"] or header.max_timestamp, header.max_timestamp)
    except KafkaError as wrong:
        data["problem"] = wrong.message
    return data


def _count(path: str, entry: struct.Struct) -> int | None:
    return len(read_entries(path, entry)[0]) if os.path.exists(path) else None


def _dump_log(options: argparse.Namespace) -> int:
    """Batch by batch as they are read, so that a large file needs little memory."""
    decode = _decoder(options) if options.records else None
    try:
        for position, header, batch in read_batches(options.path):
            if header.last_offset < (options.from_offset or 0):
                continue
            data = _batch_data(position, header, batch)
            lines = [_batch_line(data)]
            if options.records:
                records = list(decode_records(batch)) if data["crc_valid"] else []
                of_batch = decode_control if header.is_control else decode
                if of_batch is None:
                    data["records"] = [record_data(None, None, record) for record in records]
                    lines += [f"  {line}" for record in records for line in record_lines(None, record)]
                else:
                    data["records"] = [decoded_data(record, of_batch) for record in records]
                    lines += [f"  {line}" for decoded in data["records"] for line in decoded_lines(decoded)]
            emit_one_of_many(options, data, lines)
    except KafkaError as wrong:
        raise Sentence(f"{options.path}: {wrong.message}.") from wrong
    return 0


def _decoder(options: argparse.Namespace) -> Decoder | None:
    if options.decode is not None:
        return RECORD_KINDS.get(options.decode)
    return RECORD_KINDS["metadata"] if options.path.endswith(CHECKPOINT_SUFFIX) else decoder_for(options.path)


def _batch_data(position: int, header: BatchHeader, batch: bytes) -> dict[str, Any]:
    crc_valid = crc_matches(batch)
    control = next(decode_records(batch), None) if header.is_control and crc_valid else None
    said = decoded_data(control, decode_control) if control is not None else {}
    marker = said.get("kind") in _MARKERS
    return {
        "position": position,
        "size_bytes": header.size,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records_count": header.records_count,
        "leader_epoch": header.leader_epoch,
        "magic": header.magic,
        "compression": header.compression.name.lower(),
        "timestamp_type": "LogAppendTime" if header.attributes & TIMESTAMP_TYPE_BIT else "CreateTime",
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "control_type": said.get("kind"),
        "coordinator_epoch": said["value"]["coordinator_epoch"] if marker else None,
        "crc": header.crc,
        "crc_valid": crc_valid,
    }


def _batch_line(batch: dict[str, Any]) -> str:
    kinds = [word for word in ("transactional", "control") if batch[word]]
    if batch["control_type"] is not None:
        kinds[-1] += f" {batch['control_type']}"
    if batch["coordinator_epoch"] is not None:
        kinds.append(f"coordinator epoch {batch['coordinator_epoch']}")
    kinds += [] if batch["crc_valid"] else ["BAD CHECKSUM"]
    producer = f"  producer {batch['producer_id']}:{batch['producer_epoch']}" if batch["producer_id"] >= 0 else ""
    sequence = f" sequence {batch['base_sequence']}" if batch["base_sequence"] >= 0 else ""
    return (
        f"position {batch['position']}  offsets {batch['base_offset']}-{batch['last_offset']}  "
        f"records {batch['records_count']}  {batch['size_bytes']} bytes  epoch {batch['leader_epoch']}  "
        f"{batch['compression']}  {time_text(batch['max_timestamp'])}{producer}{sequence}"
        + "".join(f"  {kind}" for kind in kinds)
    )


def _dump_producers(options: argparse.Namespace) -> int:
    """What a partition knew of its producers when a segment began, or at a clean end."""
    producers = Producers(ProducerSettings(expiration_ms=_NEVER_MS))
    try:
        with open(options.path, "rb") as opened:
            producers.load(opened.read(), 0)
    except OSError as wrong:
        raise cannot_read(options.path, wrong) from wrong
    except ValueError as wrong:
        raise Sentence(f"{options.path}: {wrong}.") from wrong
    data: list[dict[str, Any]] = [
        {
            "producer_id": producer_id,
            "producer_epoch": producer.epoch,
            "coordinator_epoch": producer.coordinator_epoch,
            "last_sequence": producer.last_sequence,
            "last_offset": producer.batches[-1].last_offset if producer.kept else -1,
            "last_timestamp": producer.last_timestamp,
            "transaction_first_offset": producer.txn_first_offset if producer.txn_first_offset >= 0 else None,
        }
        for producer_id, producer in producers
    ]
    rows = [tuple((each | {"last_timestamp": time_text(each["last_timestamp"])}).values()) for each in data]
    headings = ("PRODUCER", "EPOCH", "COORDINATOR EPOCH", "SEQUENCE", "OFFSET", "LATEST", "TRANSACTION FROM")
    emit(options, data, table(headings, rows) if data else ["No producers."])
    return 0


_INDEXES: dict[str, tuple[struct.Struct, tuple[str, ...]]] = {
    OFFSET_INDEX_SUFFIX: (offset_index.ENTRY, ("offset", "position")),
    TIME_INDEX_SUFFIX: (time_index.ENTRY, ("timestamp", "offset")),
    TXN_INDEX_SUFFIX: (
        txn_index.ENTRY,
        ("version", "producer_id", "first_offset", "last_offset", "last_stable_offset"),
    ),
}


def _dump_index(options: argparse.Namespace) -> int:
    name = os.path.basename(options.path)
    suffix = next((each for each in _INDEXES if offset_of(name, each) is not None), None)
    if suffix is None:
        example = f"{offset_name(0)}{LOG_SUFFIX}"
        raise Sentence(f"{options.path} is none of a log's files: name a directory, or a file such as {example}.")
    entry, names = _INDEXES[suffix]
    base = offset_of(name, suffix) or 0
    found, torn = read_entries(options.path, entry)
    entries = []
    for values in found:
        held = dict(zip(names, values, strict=True))
        if suffix != TXN_INDEX_SUFFIX:
            held["offset"] += base
        entries.append(held)
    emit(options, entries, table([name.upper() for name in names], [tuple(each.values()) for each in entries]))
    if torn:
        raise Sentence(f"{options.path}: {torn} bytes at the end are no entry.")
    return 0
