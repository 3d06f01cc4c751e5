"""Files that Apache Kafka 4.3.1 wrote: read, rebuilt from their batches, and written again, byte for byte.

`kafka_4_3_1/golden-0` comes from a broker that got five producers' batches under the five codecs and four transactions,
two of them aborted, with `index.interval.bytes=200` and `segment.ms=60000`, and was stopped in order.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.storage.worlds import at_time, read_all

from odradek.adapters.disk import RealDisk
from odradek.ids import Uuid
from odradek.protocol.records.batch import decode_records, iter_batches, read_header
from odradek.storage.checkpoints import read_partition_metadata
from odradek.storage.config import LogConfig
from odradek.storage.log import Log
from odradek.storage.producer_state import ProducerSettings
from odradek.storage.validation import Origin

GOLDEN = Path(__file__).parent / "kafka_4_3_1" / "golden-0"
CONFIG = LogConfig(index_interval_bytes=200, segment_ms=60_000)


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def copy(to: Path, *suffixes: str) -> Path:
    to.mkdir()
    for name, data in files(GOLDEN).items():
        if name.endswith(suffixes):
            (to / name).write_bytes(data)
    return to


def golden_batches() -> list[bytes]:
    logs = [data for name, data in files(GOLDEN).items() if name.endswith(".log")]
    return [bytes(batch) for data in logs for batch in iter_batches(data)]


def open_golden(directory: Path, *, clean: bool) -> Log:
    disk = RealDisk()
    topic_id = read_partition_metadata(disk, str(GOLDEN / "partition.metadata"))
    assert topic_id is not None
    return Log.open(
        disk,
        str(directory),
        topic="golden",
        partition=0,
        topic_id=topic_id,
        config=CONFIG,
        now_ms=max(read_header(batch).max_timestamp for batch in golden_batches()),
        recovery_point=1 << 40 if clean else 0,
        high_watermark=1 << 40,
        clean=clean,
        producers=ProducerSettings(expiration_ms=1 << 62),
    )


def test_kafkas_directory_is_served(tmp_path: Path) -> None:
    log = open_golden(copy(tmp_path / "golden-0", ""), clean=True)
    assert (log.log_start_offset, log.log_end_offset, log.last_stable_offset) == (0, 106, 106)
    records = [record for batch in read_all(log) for record in decode_records(batch)]
    assert [record.offset for record in records] == list(range(106))
    assert records[45].value == b"value-46 " * 4
    assert records[45].headers == (("h", b"1"),)
    assert len(log.aborted_transactions(0, 106)) == 2
    found = at_time(log, 1_700_000_000_000 + 50 * 1500)
    assert found is not None
    assert found.timestamp >= 1_700_000_000_000 + 50 * 1500
    log.close()
    assert files(tmp_path / "golden-0") == files(GOLDEN), "looking at it has changed nothing"


@pytest.mark.parametrize("clean", [True, False])
def test_everything_follows_from_the_batches(tmp_path: Path, clean: bool) -> None:
    log = open_golden(copy(tmp_path / "golden-0", ".log"), clean=clean)
    log.close()
    rebuilt, golden = files(tmp_path / "golden-0"), files(GOLDEN)
    older_snapshots = [name for name in golden if name.endswith(".snapshot")][:-1]
    assert rebuilt == {name: data for name, data in golden.items() if name not in older_snapshots}


def test_the_same_batches_make_the_same_files(tmp_path: Path) -> None:
    log = open_golden(tmp_path / "golden-0", clean=False)
    log.begin_epoch(read_header(golden_batches()[0]).leader_epoch)  # type: ignore[arg-type]
    for batch in golden_batches():
        header = read_header(batch)
        log.append_as_leader(
            memoryview(bytearray(bytes(8) + batch[8:])),
            leader_epoch=header.leader_epoch,
            now_ms=header.max_timestamp,
            origin=Origin.COORDINATOR if header.is_control else Origin.CLIENT,
        )
    log.close()
    assert files(tmp_path / "golden-0") == files(GOLDEN)


def test_a_follower_makes_them_too(tmp_path: Path) -> None:
    log = open_golden(tmp_path / "golden-0", clean=False)
    for batch in golden_batches():
        log.append_as_follower(memoryview(bytearray(batch)), now_ms=read_header(batch).max_timestamp)
    log.close()
    assert files(tmp_path / "golden-0") == files(GOLDEN)


def test_the_topic_id_is_read() -> None:
    found = read_partition_metadata(RealDisk(), str(GOLDEN / "partition.metadata"))
    assert found is not None
    assert found != Uuid(bytes(16))
