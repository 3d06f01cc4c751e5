"""What the log itself costs: microseconds per append and per read, without sockets, protocol or sync.

    python -m bench.storage_append

Printed beside the bare write of the same bytes, so that what Python adds can be seen.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable

from odradek.adapters.disk import RealDisk
from odradek.ids import Uuid
from odradek.protocol.records.batch import build_batch
from odradek.protocol.records.record import Record
from odradek.storage.config import LogConfig
from odradek.storage.log import Log
from odradek.storage.segment import MOST_RESERVED_BYTES

ROUNDS = 7
ROWS = (
    "write alone",
    "write alone, room reserved",
    "append",
    "append, idempotent",
    "read at the tail",
    "read from the start",
)
TOPIC_ID = Uuid(bytes(range(16)))
NOW_MS = 1_700_000_000_000


def main() -> None:
    print(f"{'':34}{'100 B':>10}{'16 KiB':>10}{'256 KiB':>10}   microseconds, median of {ROUNDS}")
    with tempfile.TemporaryDirectory() as directory:
        benches = [
            Bench(f"{directory}/{size}-0", size, count) for size, count in ((100, 4000), (16_384, 800), (262_144, 100))
        ]
        for name in ROWS:
            print(f"{name:34}" + "".join(f"{bench.measure(name):10.2f}" for bench in benches))


class Bench:
    """A log that gets batches of one record of this size."""

    def __init__(self, directory: str, size: int, count: int) -> None:
        self._record = Record(value=b"x" * size)
        self._count = count
        self._sequence = 0
        self._log = Log.open(
            RealDisk(), directory, topic="t", partition=0, topic_id=TOPIC_ID, config=LogConfig(), now_ms=NOW_MS
        )
        self._bare = RealDisk().open(f"{directory}/bare", create=True)
        self._bare_position = 0
        self._append(producer_id=-1)

    def measure(self, name: str) -> float:
        """Microseconds for one of these."""
        run: Callable[[], float] = {
            "write alone": lambda: self._write_alone(reserved_bytes=0),
            "write alone, room reserved": lambda: self._write_alone(reserved_bytes=MOST_RESERVED_BYTES),
            "append": lambda: self._append(producer_id=-1),
            "append, idempotent": lambda: self._append(producer_id=7),
            "read at the tail": lambda: self._read(behind=1),
            "read from the start": lambda: self._read(behind=self._log.log_end_offset),
        }[name]
        return statistics.median(run() for _ in range(ROUNDS)) / self._count * 1e6

    def _batches(self, producer_id: int) -> list[memoryview]:
        batches = []
        for _ in range(self._count):
            sequence = -1
            if producer_id >= 0:
                sequence, self._sequence = self._sequence, self._sequence + 1
            batch = build_batch(
                [self._record],
                timestamp=NOW_MS,
                producer_id=producer_id,
                producer_epoch=min(producer_id, 0),
                base_sequence=sequence,
            )
            batches.append(memoryview(batch))
        return batches

    def _write_alone(self, *, reserved_bytes: int) -> float:
        batches = self._batches(producer_id=-1)
        self._bare.truncate(self._bare_position)  # Of what others have reserved, nothing is left.

        def run() -> None:
            reserved_size = self._bare_position
            for batch in batches:
                position = self._bare_position
                if reserved_bytes and position + len(batch) > reserved_size:
                    self._bare.reserve(position, reserved_bytes)
                    reserved_size = position + reserved_bytes
                self._bare.write(batch, position)
                self._bare_position += len(batch)

        return _seconds(run)

    def _append(self, producer_id: int) -> float:
        batches = self._batches(producer_id)

        def run() -> None:
            for batch in batches:
                self._log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
                self._log.advance_high_watermark(self._log.log_end_offset)

        return _seconds(run)

    def _read(self, behind: int) -> float:
        offset = self._log.log_end_offset - behind

        def run() -> None:
            for number in range(self._count):
                self._log.read(
                    offset + number % behind,
                    max_bytes=1 << 20,
                    end_offset=self._log.high_watermark,
                    minimum_one=True,
                )

        return _seconds(run)


def _seconds(run: Callable[[], None]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
