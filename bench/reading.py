"""Records read by the client and the command line: records a second on the clock, and of CPU time.

    python -m bench.reading [records]

Of 100 bytes, in batches of 16 KiB: `odradek.client` beside aiokafka with its compiled part, `odradek consume` into a
pipe, and `odradek log verify` over the files that they were read from. Each in a process of its own, in turns; the best
turn counts, and CPU time does so where others share the machine.
"""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time

from bench import replay, wire
from odradek.client import TopicPartition
from odradek.clients import connect
from odradek.protocol.records.native import in_use
from odradek.testing import running_node

RECORDS = 1_000_000
TURNS = 3
SIZE = 100
PER_BATCH = 150
TOPIC = "records"
CLI = (sys.executable, "-m", "odradek")
WAYS = ("odradek.client", "aiokafka", "odradek consume", "odradek consume --format json", "odradek log verify")


def main() -> None:
    if len(sys.argv) == 4:
        asyncio.run(
            {"odradek.client": _by_odradek, "aiokafka": _by_aiokafka}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
        )
        return
    count = int(sys.argv[1]) if len(sys.argv) > 1 else RECORDS
    requests = count // PER_BATCH
    count = requests * PER_BATCH
    with tempfile.TemporaryDirectory() as directory, running_node(in_process=False, data_directory=directory) as node:
        with wire.Connection(node.port) as connection:
            assert wire.create_topic(connection, TOPIC, 1, {}) == 0
        values = [os.urandom(SIZE // 2).hex().encode() for _ in range(PER_BATCH)]
        batch = wire.record_batch(values, timestamp_ms=int(time.time() * 1000))
        replay.produce(node.port, replay.produce_frame(TOPIC, batch, partitions=1), requests=requests, in_flight=5)
        files = f"{directory}/{TOPIC}-0"
        megabytes = sum(os.path.getsize(f"{files}/{name}") for name in os.listdir(files) if name.endswith(".log")) / 1e6
        ports = node.bootstrap_servers
        commands = {
            "odradek.client": (sys.executable, "-m", "bench.reading", "odradek.client", ports, str(count)),
            "aiokafka": (sys.executable, "-m", "bench.reading", "aiokafka", ports, str(count)),
            "odradek consume": (*CLI, "consume", TOPIC, "-b", ports),
            "odradek consume --format json": (*CLI, "consume", TOPIC, "-b", ports, "--format", "json"),
            "odradek log verify": (*CLI, "log", "verify", files),
        }
        best = dict.fromkeys(WAYS, (1000000000.0, 1000000000.0))
        for _ in range(TURNS):
            for way, command in commands.items():
                took, cpu = _timed(command)
                best[way] = min(best[way][0], took), min(best[way][1], cpu)
    print(f"{in_use()}; {count:,} records of {SIZE} B, {megabytes:.0f} MB, best of {TURNS}; start of Python included")
    for way, (took, cpu) in best.items():
        rates = f"{count / took / 1e3:8.0f} k/s {count / cpu / 1e3:8.0f} k a second of CPU"
        print(f"{way:32}{rates} {megabytes / took:8.0f} MB/s {megabytes / cpu:8.0f} MB a second of CPU")


def _timed(command: tuple[str, ...]) -> tuple[float, float]:
    """Seconds on the clock and of CPU, its reader's not among them."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        while os.read(process.stdout.fileno(), 1 << 20):
            pass
    took, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


async def _by_odradek(servers: str, count: int) -> None:
    async with connect(servers).consumer() as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        consumer.seek_to_beginning(TopicPartition(TOPIC, 0))
        seen = 0
        while seen < count:
            seen += len(await consumer.poll(1_000, max_records=10_000))


async def _by_aiokafka(servers: str, count: int) -> None:
    import aiokafka  # type: ignore[import-untyped]

    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    consumer.assign([aiokafka.TopicPartition(TOPIC, 0)])
    await consumer.start()
    try:
        seen = 0
        while seen < count:
            polled = await consumer.getmany(timeout_ms=1_000, max_records=10_000)
            seen += sum(map(len, polled.values()))
    finally:
        await consumer.stop()


if __name__ == "__main__":
    main()
