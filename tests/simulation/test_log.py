"""One log on a made-up disk: hundreds of short lives that end in the middle of something."""

from __future__ import annotations

import random

import pytest

from odradek.ids import Uuid
from odradek.protocol.records.batch import build_batch, decode_records, iter_batches
from odradek.protocol.records.record import Record
from odradek.sim.disk import Device, Keep
from odradek.sim.loop import Crashed, Life, SimulatedLoop
from odradek.sim.trace import Trace
from odradek.storage.config import LogConfig
from odradek.storage.log import Log

CONFIG = LogConfig(segment_bytes=3_000, index_interval_bytes=200, file_delete_delay_ms=0)
FIRST_MS = 1_700_000_000_000


class Story:
    """A log, and what it owes."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.trace = Trace(SimulatedLoop())
        self.device = Device(self.draw, self.trace)
        self.now_ms = FIRST_MS
        self.written: dict[int, bytes] = {}
        self.pending: dict[int, bytes] = {}
        self.flushed = 0
        self.checkpoint = 0
        self.producer_id = 7
        self.sequence = 0
        self.last: tuple[bytes, int] | None = None
        self.life = Life("first")
        self.prepare()
        self.open()

    def prepare(self) -> None:
        disk = self.device.attach(self.life)
        disk.make_directory("/data/t-0")
        disk.sync_directory("/")
        disk.sync_directory("/data")

    def open(self) -> None:
        self.log = Log.open(
            self.device.attach(self.life),
            "/data/t-0",
            topic="t",
            partition=0,
            topic_id=Uuid(bytes(range(16))),
            config=CONFIG,
            now_ms=self.now_ms,
            recovery_point=self.checkpoint if self.draw.random() < 0.7 else 0,
        )
        self.checkpoint = self.log.recovery_point
        self.log.advance_high_watermark(self.log.log_end_offset)

    def append(self) -> None:
        self.now_ms += self.draw.randrange(50)
        base = self.log.log_end_offset
        values = [
            b"%d/" % (base + n) + self.draw.randbytes(self.draw.randrange(300))
            for n in range(self.draw.randrange(1, 4))
        ]
        batch = build_batch(
            [Record(value=each) for each in values],
            timestamp=self.now_ms,
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=self.sequence,
        )
        self.pending = dict(enumerate(values, base))
        copy = bytes(batch)
        info = self.log.append_as_leader(memoryview(batch), leader_epoch=0, now_ms=self.now_ms)
        assert not info.duplicate
        assert info.base_offset == base
        self.written |= self.pending
        self.sequence += len(values)
        self.last = copy, base
        self.pending = {}

    def append_again(self) -> None:
        """A producer that has not heard of its success sends the same batch once more."""
        if self.last is not None:
            batch, offset = self.last
            info = self.log.append_as_leader(memoryview(bytearray(batch)), leader_epoch=0, now_ms=self.now_ms)
            assert (info.duplicate, info.base_offset) == (True, offset)
            self.trace.mark("duplicate known")

    def flush(self) -> None:
        work = self.log.flush_work()
        end = self.log.log_end_offset
        work()
        self.log.flushed(end)
        self.flushed = self.checkpoint = end

    def read_all(self) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        offset = 0
        while offset < self.log.log_end_offset:
            read = self.log.read(offset, max_bytes=700, end_offset=self.log.log_end_offset, minimum_one=True)
            data = read.records if isinstance(read.records, bytes) else read.records.read()
            records = [record for batch in iter_batches(data) for record in decode_records(batch)]
            if not records:  # A power loss took what lay before the last segment, which is empty yet.
                break
            found |= {record.offset: record.value or b"" for record in records}
            offset = records[-1].offset + 1
        return found

    def run_and_crash(self, steps: int) -> None:
        """Work until struck, or until all steps are done."""
        left = [self.draw.randrange(1, steps * 2)]

        def strike(path: str, length: int) -> int | None:
            left[0] -= 1
            return None if left[0] else self.draw.randrange(length + 1)

        self.device.on_change = strike
        try:
            for _ in range(steps):
                if self.draw.random() < 0.1:
                    self.flush()
                else:
                    self.append()
        except Crashed:
            self.trace.mark("struck")
        self.device.on_change = None

    def come_back(self, keep: Keep) -> None:
        self.life.end()
        self.device.crash(keep)
        self.life = Life("next")
        self.open()
        found = self.read_all()
        owed = {offset: value for offset, value in self.written.items() if keep == "process" or offset < self.flushed}
        assert owed.items() <= found.items(), "what was owed is not there"
        assert found.items() <= (self.written | self.pending).items(), "something was read that nobody wrote there"
        if found.keys() - self.written.keys():
            self.trace.mark("unacknowledged batch survived")
        if self.written.keys() - found.keys():
            self.trace.mark("unflushed batches lost")
        if keep == "process":
            self.sequence += len(self.pending.keys() & found.keys())
            if self.pending.keys() & found.keys():
                self.last = None
            self.append_again()
        else:
            self.producer_id, self.sequence, self.last = self.producer_id + 1, 0, None
        self.written = found
        self.pending = {}
        self.flushed = min(self.flushed, self.log.log_end_offset)


def tell(seed: int) -> dict[str, int]:
    story = Story(seed)
    for _ in range(4):
        story.run_and_crash(steps=25)
        story.come_back(story.draw.choice(("process", "power")))
    story.append()
    assert story.read_all() == story.written
    return story.trace.marks


@pytest.mark.parametrize("first_seed", range(0, 200, 20))
def test_a_log_keeps_what_it_owes_through_crashes(first_seed: int) -> None:
    marks: dict[str, int] = {}
    for seed in range(first_seed, first_seed + 20):
        for state, count in tell(seed).items():
            marks[state] = marks.get(state, 0) + count
    assert marks.keys() >= {"struck", "log tail cut", "unflushed batches lost", "duplicate known"}
