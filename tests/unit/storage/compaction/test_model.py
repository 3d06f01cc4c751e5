"""A compacted log against the simplest model of one: every record that was committed, and what they amount to."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.unit.storage.compaction.worlds import COMPACTED, Found, clean, committed, put, settle, table
from tests.unit.storage.transactions import end
from tests.unit.storage.worlds import NOW_MS, Machine, open_log

from odradek.protocol.records.batch import build_batch
from odradek.protocol.records.compression import Compression
from odradek.protocol.records.record import Record
from odradek.sim.loop import Crashed
from odradek.storage.compaction.choice import cleanable
from odradek.storage.compaction.offset_map import ENTRY_BYTES
from odradek.values import replace

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e"])
PAIRS = st.lists(st.tuples(KEYS, st.sampled_from([None, b"1", b"22", b"x" * 40])), min_size=1, max_size=4)
CODECS = st.sampled_from([Compression.NONE, Compression.NONE, Compression.GZIP, Compression.SNAPPY])
PRODUCERS = st.integers(1, 3)
RETENTION_MS = 1_000


class CompactedLogAndModel(RuleBasedStateMachine):
    """Producers 1 to 3 write transactions; whoever has none writes without an id."""

    @initialize(seed=st.integers(0, 1000), segment_bytes=st.integers(260, 1500))
    def start(self, seed: int, segment_bytes: int) -> None:
        self.machine = Machine(seed)
        self.config = replace(COMPACTED, segment_bytes=segment_bytes, delete_retention_ms=RETENTION_MS)
        self.now_ms = NOW_MS
        self.end = 0
        self.all: list[tuple[Found, int | None]] = []
        """Every record, with its producer where it is part of a transaction."""
        self.open: dict[int, list[int]] = {}
        """The offsets of the transaction that a producer has open."""
        self.aborted: set[int] = set()
        self.is_cut = False
        """Whether nothing was written since the last truncation, so that nothing has brought that to the device."""
        self.sequences = dict.fromkeys((1, 2, 3), 0)
        self.log = open_log(self.machine.disk, self.config)

    def _appended(self, pairs: list[tuple[bytes, bytes | None]], producer: int | None) -> None:
        self.is_cut = False
        for key, value in pairs:
            self.all.append(((self.end, key, value), producer))
            self.end += 1

    @rule(pairs=PAIRS, codec=CODECS)
    def append(self, pairs: list[tuple[bytes, bytes | None]], codec: Compression) -> None:
        self.now_ms += 1
        put(self.log, *pairs, timestamp=self.now_ms, now_ms=self.now_ms, compression=codec)
        self._appended(pairs, None)

    @rule(pairs=PAIRS, codec=CODECS, producer=PRODUCERS, transactional=st.booleans())
    def produce(
        self, pairs: list[tuple[bytes, bytes | None]], codec: Compression, producer: int, transactional: bool
    ) -> None:
        if producer in self.open:
            transactional = True
        self.now_ms += 1
        if transactional:
            self.open.setdefault(producer, []).extend(range(self.end, self.end + len(pairs)))
        put(
            self.log,
            *pairs,
            timestamp=self.now_ms,
            now_ms=self.now_ms,
            compression=codec,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=self.sequences[producer],
            transactional=transactional,
        )
        self.sequences[producer] += len(pairs)
        self._appended(pairs, producer if transactional else None)

    @rule(producer=PRODUCERS, commit=st.booleans())
    def end_transaction(self, producer: int, commit: bool) -> None:
        offsets = self.open.pop(producer, None)
        if offsets is not None:
            end(self.log, commit=commit, producer=producer)
            self.end += 1
            self.is_cut = False
            if not commit:
                self.aborted.update(offsets)

    @rule(offset_gap=st.integers(1, 3), pairs=PAIRS)
    def replicate(self, offset_gap: int, pairs: list[tuple[bytes, bytes | None]]) -> None:
        """As from a leader whose log was compacted: there are gaps."""
        self.end += offset_gap
        batch = build_batch([Record(*pair) for pair in pairs], base_offset=self.end, leader_epoch=0, timestamp=NOW_MS)
        self.log.append_as_follower(memoryview(batch), self.now_ms)
        self._appended(pairs, None)

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule()
    def settle(self) -> None:
        settle(self.log)

    @rule(
        later=st.integers(0, RETENTION_MS), keys=st.sampled_from([1, 3, 100]), slice_bytes=st.sampled_from([80, 5000])
    )
    def clean(self, later: int, keys: int, slice_bytes: int) -> None:
        self.now_ms += later
        what = cleanable(self.log, self.now_ms)
        done = clean(
            self.log, self.machine.disk, now_ms=self.now_ms, dedupe_bytes=keys * ENTRY_BYTES, slice_bytes=slice_bytes
        )
        assert done.end_offset <= what.end_offset
        assert done.end_offset > what.first_dirty_offset or not what.dirty_bytes
        if keys == 100:
            self._check_clean(done.end_offset)

    def _check_clean(self, end_offset: int) -> None:
        """One record a key, and what an earlier round has found of tombstones only for as long as they may stay."""
        keys = [key for offset, key, _ in committed(self.log) if offset < end_offset]
        assert len(keys) == len(set(keys))

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        """Never below the high watermark: what is committed stays."""
        target = self.log.high_watermark + int((self.log.log_end_offset - self.log.high_watermark) * share)
        if self.log.truncate_to(target):
            self.is_cut = True
            self.end = self.log.log_end_offset
            lost = [offset for (offset, _, _), _ in self.all if offset >= self.end]
            self.all = [each for each in self.all if each[0][0] < self.end]
            self.aborted.difference_update(lost)
            self._learn_producers()

    def _learn_producers(self) -> None:
        """What a truncation or a power loss has done to transactions is the log's word: it knows what is open."""
        self.open.clear()
        for producer_id, producer in self.log.producers:
            self.sequences[producer_id] = max(producer.last_sequence + 1, 0)
            if producer.txn_first_offset >= 0:
                first = producer.txn_first_offset
                self.open[producer_id] = [
                    offset for (offset, _, _), owner in self.all if owner == producer_id and offset >= first
                ]
                self.aborted.difference_update(self.open[producer_id])
        for producer_id in self.sequences:
            if self.log.producers.get(producer_id) is None:
                self.sequences[producer_id] = 0

    @rule(steps=st.integers(0, 60), power=st.booleans())
    def crash_in_a_cleaning(self, steps: int, power: bool) -> None:
        if power:  # What a cleaning has believed of a transaction must not be decided again.
            settle(self.log)
        watermark, point = self.log.high_watermark, self.log.recovery_point
        left = [steps]

        def strike(path: str, length: int) -> int | None:
            left[0] -= 1
            return 0 if left[0] < 0 else None

        self.machine.device.on_change = strike
        with suppress(Crashed):
            clean(self.log, self.machine.disk, now_ms=self.now_ms)
        self.machine.crash("power" if power else "process")
        self.log = open_log(
            self.machine.disk, self.config, recovery_point=point, high_watermark=watermark, now_ms=self.now_ms
        )
        if power and self.is_cut:  # The tail may be back, and whoever cut it finds that out as it did before.
            self.log.truncate_to(self.end)
        assert self.log.log_end_offset == self.end
        assert self.log.high_watermark == watermark
        self._learn_producers()

    @invariant()
    def same(self) -> None:
        log = self.log
        assert log.log_end_offset == self.end
        stable = log.last_stable_offset
        expected = [record for record, _ in self.all if record[0] < stable and record[0] not in self.aborted]
        found = committed(log)
        rest = iter(expected)
        assert all(each in rest for each in found), "nothing is new, and all in order"
        assert table(found) == table(expected)
        untouched = max(log.cleaned_offset, cleanable(log, self.now_ms).end_offset)
        assert [each for each in found if each[0] >= untouched] == [each for each in expected if each[0] >= untouched]
        assert log.size_bytes == sum(segment.size for segment in log.segments)


CompactedLogAndModel.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestCompactedLogAgainstModel = CompactedLogAndModel.TestCase
