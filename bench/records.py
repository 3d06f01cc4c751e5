"""What is done record by record: nanoseconds a record, with the native module and without it.

    python -m bench.records

Checking is what a leader does with each producer's batch, unpacking included; reading and writing is what the client
and the command line do; columns with hashes of keys are for compaction.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from odradek.protocol.records import batch, native, pure
from odradek.protocol.records.batch import HEADER_SIZE, build_batch, decode_records, read_header
from odradek.protocol.records.check import check_records
from odradek.protocol.records.columns import read_columns
from odradek.protocol.records.compression import Compression
from odradek.protocol.records.record import Record, encode_in_python

ROUNDS = 7
SIZES = (10, 100, 1024)
BATCH_BYTES = 64 * 1024
NOW_MS = 1_700_000_000_000


def main() -> None:
    print(f"{native.in_use()}; batches of {BATCH_BYTES // 1024} KiB, median of {ROUNDS}")
    print(
        f"{'nanoseconds a record of':34}" + "".join(f"{f'{size} B':>12}" for size in SIZES) + f"{'GB/s at 1 KiB':>16}"
    )
    ways = {"native": _as_it_is, "Python": _without_module} if native.NATIVE_VERSION else {"Python": _without_module}
    for way, within in ways.items():
        with within():
            for codec in Compression:
                _row(f"check, {codec.name.lower()}, {way}", codec, _check)
            _row(f"read, {way}", Compression.NONE, lambda batch: len(list(decode_records(batch))))
            _row(f"write, {way}", Compression.NONE, _write)
            _row(f"columns, {way}", Compression.NONE, _columns)


def _row(name: str, codec: Compression, work: Callable[[bytes], object]) -> None:
    costs = []
    for size in SIZES:
        count = max(BATCH_BYTES // size, 1)
        records = [
            Record(b"key%08d" % index, _content(size, index), timestamp=NOW_MS + index) for index in range(count)
        ]
        batch = bytes(build_batch(records, compression=codec))
        costs.append(statistics.median(_seconds(work, batch) for _ in range(ROUNDS)) / count * 1e9)
    print(f"{name:34}" + "".join(f"{cost:12.1f}" for cost in costs) + f"{SIZES[-1] / costs[-1]:16.2f}")


def _content(size: int, index: int) -> bytes:
    """Compresses to about a third, as logs and JSON do."""
    return (b'{"user": %d, "what": "a thing that happened", "when": %d}' % (index * 7919, index) * (size // 40 + 1))[
        :size
    ]


def _check(batch: bytes) -> int:
    header = read_header(batch)
    return check_records(
        memoryview(batch)[HEADER_SIZE:],
        header.compression,
        base_timestamp=header.base_timestamp,
        count=header.records_count,
        flags=0,
        lowest=0,
        highest=NOW_MS * 2,
        limit=1 << 30,
    )


def _columns(batch: bytes) -> int:
    return sum(len(columns[0]) for _, columns in read_columns(batch, read_header(batch)))


def _write(batch: bytes) -> int:
    header = read_header(batch)
    written = _WRITTEN.get(batch)
    if written is None:
        written = _WRITTEN[batch] = list(decode_records(batch))
    return len(build_batch(written)) + header.records_count


_WRITTEN: dict[bytes, list[Record]] = {}


def _seconds(work: Callable[[bytes], object], batch: bytes) -> float:
    work(batch)
    started = time.perf_counter()
    work(batch)
    return time.perf_counter() - started


@contextmanager
def _as_it_is() -> Iterator[None]:
    yield


@contextmanager
def _without_module() -> Iterator[None]:
    twins: dict[str, Any] = {
        "check": pure.check,
        "Check": pure.Check,
        "decode": None,
        "offsets_keys_hashes": pure.offsets_keys_hashes,
    }
    with patch.multiple(native, **twins), patch.object(batch, "encode_record", encode_in_python):
        yield


if __name__ == "__main__":
    main()
