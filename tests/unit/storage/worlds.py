"""What the storage tests share: a made-up machine, logs on it, and batches."""

from __future__ import annotations

import random
from typing import Any

from odradek.ids import Uuid
from odradek.ports import Disk, FileSlice
from odradek.protocol.records.batch import build_batch, decode_records, iter_batches, read_header
from odradek.protocol.records.check import TakesLong
from odradek.protocol.records.record import Record
from odradek.sim.disk import Device, Keep, SimulatedDisk
from odradek.sim.loop import Life, SimulatedLoop
from odradek.sim.trace import Trace
from odradek.storage.config import LogConfig
from odradek.storage.log import AppendInfo, Log
from odradek.storage.timestamps import TimestampOffset

TOPIC_ID = Uuid(bytes(range(16)))
DIRECTORY = "/data/t-0"
NOW_MS = 1_700_000_000_000


class Machine:
    """A device and the disk of the life that uses it now."""

    def __init__(self, seed: int = 0, *, capacity: int = 1 << 40) -> None:
        self.device = Device(random.Random(seed), Trace(SimulatedLoop()), capacity=capacity)
        self.boot()
        self.disk.make_directory("/data")
        self.disk.sync_directory("/")

    def boot(self) -> SimulatedDisk:
        self.life = Life("node")
        self.disk = self.device.attach(self.life)
        return self.disk

    def crash(self, keep: Keep) -> SimulatedDisk:
        self.device.on_change = None
        self.life.end()
        self.device.crash(keep)
        return self.boot()


def open_log(disk: Disk, config: LogConfig | None = None, **options: Any) -> Log:
    options = {"now_ms": NOW_MS, "topic": "t", "partition": 0, "topic_id": TOPIC_ID, **options}
    return Log.open(disk, options.pop("directory", DIRECTORY), config=config or LogConfig(), **options)


def batch_of(*values: bytes, timestamp: int = NOW_MS, **options: Any) -> memoryview:
    return memoryview(build_batch([Record(value=value) for value in values], timestamp=timestamp, **options))


def append_as_leader(log: Log, batch: memoryview, *, now_ms: int = NOW_MS, **options: Any) -> AppendInfo:
    """As whoever has time for what takes long."""
    try:
        return log.append_as_leader(batch, leader_epoch=0, now_ms=now_ms, **options)
    except TakesLong:
        examined = log.examine(batch, now_ms)
        return log.append_as_leader(batch, leader_epoch=0, now_ms=now_ms, examined=examined, **options)


def append(log: Log, *values: bytes, now_ms: int = NOW_MS, leader_epoch: int = 0, **options: Any) -> AppendInfo:
    return log.append_as_leader(batch_of(*values, **options), leader_epoch=leader_epoch, now_ms=now_ms)


def content(records: FileSlice | bytes) -> bytes:
    return records if isinstance(records, bytes) else records.read()


def read_all(log: Log, start: int | None = None, *, end: int | None = None, max_bytes: int = 1 << 20) -> list[bytes]:
    """Every batch from an offset to the end, read as a consumer does."""
    offset = log.log_start_offset if start is None else start
    end_offset = log.log_end_offset if end is None else end
    batches: list[bytes] = []
    while offset < end_offset:
        read = log.read(offset, max_bytes=max_bytes, end_offset=end_offset, minimum_one=True)
        found = [bytes(batch) for batch in iter_batches(content(read.records))]
        assert sum(map(len, found)) == len(read.records), "only whole batches are read"
        if not found:
            break
        batches += found
        offset = read_header(found[-1]).last_offset + 1
    return batches


def values(batches: list[bytes]) -> list[bytes | None]:
    return [record.value for batch in batches for record in decode_records(batch)]


def offsets(batches: list[bytes]) -> list[int]:
    return [record.offset for batch in batches for record in decode_records(batch)]


def at_time(log: Log, timestamp: int) -> TimestampOffset | None:
    """The first record that is as late, searched for segment by segment."""
    search = log.search_by_time(timestamp, log.log_start_offset)
    while search is not None:
        found = search()
        if found is not None:
            return found
        search = log.search_by_time(timestamp, search.end_offset)
    return None
