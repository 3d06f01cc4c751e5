"""A log against the simplest model of one: a list of batches, through restarts, crashes and retention."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.unit.storage.worlds import (
    DIRECTORY,
    NOW_MS,
    Machine,
    append,
    at_time,
    batch_of,
    content,
    open_log,
    read_all,
    values,
)

from odradek.protocol.records.batch import read_header
from odradek.storage.config import LogConfig
from odradek.storage.log import NOT_PLAIN


class LogAndModel(RuleBasedStateMachine):
    """The model holds (base offset, last offset, timestamp, value) of every batch."""

    @initialize(
        seed=st.integers(0, 1000),
        segment_bytes=st.integers(240, 1000),
        interval=st.integers(0, 500),
        index_bytes=st.integers(24, 400),
    )
    def start(self, seed: int, segment_bytes: int, interval: int, index_bytes: int) -> None:
        self.machine = Machine(seed)
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            segment_index_bytes=index_bytes,
            file_delete_delay_ms=10,
        )
        self.model: list[tuple[int, int, int, bytes]] = []
        self.end = self.start_offset = 0
        self.flushed = 0
        self.now_ms = NOW_MS
        self.log = open_log(self.machine.disk, self.config)

    @rule(count=st.integers(1, 3), size=st.integers(0, 40), late=st.integers(-5, 5), epoch=st.integers(0, 1))
    def append(self, count: int, size: int, late: int, epoch: int) -> None:
        self.now_ms += 1
        value = b"%d" % self.end + b"x" * size
        epoch = max(self.log.leader_epochs.latest, 0) + epoch
        info = append(self.log, *[value] * count, timestamp=self.now_ms + late, leader_epoch=epoch)
        assert info.base_offset == self.end
        self.model.append((self.end, self.end + count - 1, self.now_ms + late, value))
        self.end += count

    @rule(size=st.integers(0, 40), late=st.integers(-5, 5))
    def append_sole_replica(self, size: int, late: int) -> None:
        self.now_ms += 1
        value = b"%d" % self.end + b"x" * size
        batch = batch_of(value, timestamp=self.now_ms + late)
        base_offset = self.log.append_sole_replica(batch, max(self.log.leader_epochs.latest, 0), self.now_ms)
        if base_offset != NOT_PLAIN:
            assert base_offset == self.end
            self.model.append((self.end, self.end, self.now_ms + late, value))
            self.end += 1
            assert self.log.high_watermark == self.end

    @rule(share=st.floats(0, 1))
    def commit(self, share: float) -> None:
        self.log.advance_high_watermark(int(self.end * share))

    @rule(start=st.floats(0, 1), max_bytes=st.integers(0, 1000), minimum_one=st.booleans())
    def read(self, start: float, max_bytes: int, minimum_one: bool) -> None:
        offset = self.start_offset + int((self.end - self.start_offset) * start)
        end_offset = self.log.high_watermark
        read = self.log.read(offset, max_bytes=max_bytes, end_offset=end_offset, minimum_one=minimum_one)
        data = content(read.records)
        readable = [batch for batch in self.model if batch[1] >= offset and batch[1] < end_offset]
        if not readable:
            assert not data
        elif data:
            assert read_header(data).base_offset == readable[0][0]
            assert len(data) <= max_bytes or (minimum_one and len(data) == read_header(data).size)
        else:
            assert not minimum_one

    @rule()
    def flush(self) -> None:
        work = self.log.flush_work()
        work()
        self.log.flushed(work.offset)
        self.flushed = self.end

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        target = self.start_offset + int((self.end - self.start_offset) * share)
        if self.log.truncate_to(target):
            self.model = [batch for batch in self.model if batch[1] < target]
            # An offset inside a batch takes the batch with it.
            assert self.log.log_end_offset <= target
            self.end = self.log.log_end_offset
            self.flush()  # Or a power loss could bring back what was cut, as it may in Kafka.

    @rule()
    def delete_records(self) -> None:
        self.start_offset = self.log.delete_records_before(self.log.high_watermark)
        self.log.apply_retention(self.now_ms)
        self.model = [batch for batch in self.model if batch[1] >= self.start_offset]

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        if clean:
            self.log.close()
            self.flushed = self.end
        self.reopen(clean=clean, keep="process")

    @rule()
    def lose_power(self) -> None:
        self.reopen(clean=False, keep="power")
        assert self.log.log_end_offset >= self.flushed
        self.end = self.log.log_end_offset
        self.model = [batch for batch in self.model if batch[1] < self.end]
        if self.end < self.start_offset:  # What is left is all from before the start (ADR 15), and goes again.
            assert self.log.log_start_offset == self.log.segments[0].base_offset
            self.start_offset = self.log.delete_records_before(self.end)

    def reopen(self, *, clean: bool, keep: str) -> None:
        self.machine.crash("power" if keep == "power" else "process")
        self.log = open_log(
            self.machine.disk,
            self.config,
            clean=clean,
            recovery_point=self.flushed,
            log_start_offset=self.start_offset,
            high_watermark=self.log.high_watermark,
            now_ms=self.now_ms,
        )

    @rule(wait=st.integers(0, 20))
    def purge(self, wait: int) -> None:
        self.now_ms += wait
        due = self.log.purge_deleted(self.now_ms)
        left = [name for name in self.machine.disk.list(DIRECTORY) if name.endswith(".deleted")]
        assert bool(left) == (due is not None)

    @invariant()
    def same(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start_offset, self.end)
        assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
        batches = read_all(log, max_bytes=200)
        headers = [read_header(batch) for batch in batches]
        assert [(header.base_offset, header.last_offset) for header in headers] == [batch[:2] for batch in self.model]
        assert values(batches) == [value for first, last, _, value in self.model for _ in range(first, last + 1)]
        assert log.size_bytes == sum(segment.size for segment in log.segments)
        for wanted in {stamp for _, _, stamp, _ in self.model}:
            expected = next((max(b[0], self.start_offset) for b in self.model if b[2] >= wanted), None)
            found = at_time(log, wanted)
            assert (None if found is None else found.offset) == expected


LogAndModel.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestLogAgainstModel = LogAndModel.TestCase
