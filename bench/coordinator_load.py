"""How long a node needs to take a coordinator's log up, and for how long it keeps its event loop by that.

    python -m bench.coordinator_load [keys] [records a batch]

A node in this process writes committed offsets of distinct keys, is stopped and started again. What a step of the loop
takes is told in CPU time, which others on the machine do not lengthen, and in time on the clock.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from odradek.adapters.world import real_world
from odradek.apps.cli.start import GC_THRESHOLDS
from odradek.coordinator.group.offsets import VALUE_VERSION, offset_value
from odradek.coordinator.group.records import OffsetCommitKey
from odradek.coordinator.record_format import encode_batch
from odradek.coordinator.shard import CoordinatorRecord
from odradek.ids import ZERO_UUID
from odradek.protocol.errors import ErrorCode
from odradek.protocol.records.native import in_use
from odradek.server.configs.node_config import load
from odradek.server.node import Node
from odradek.storage.validation import Origin

KEYS = 500_000
PER_BATCH = 100
PARTITIONS_PER_TOPIC = 100
NOW_MS = 1_700_000_000_000


def main() -> None:
    keys, per_batch = (*(int(each) for each in sys.argv[1:]), *(KEYS, PER_BATCH)[len(sys.argv) - 1 :])
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(_with_node(directory, lambda node: _write(node, keys, per_batch)))
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        asyncio.run(_load(directory, keys, per_batch))


async def _with_node(directory: str, then: Callable[[Node], object]) -> None:
    node = _node(directory)
    await node.start()
    await node.rooms.groups.create_topic(node.rooms.image)
    while node.rooms.groups.runner("g") is None:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.01)
    then(node)
    await node.stop()


def _node(directory: str) -> Node:
    properties = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "log.dirs": directory,
        "offsets.topic.num.partitions": "1",
    }
    return Node(load(properties), real_world(durable=False))


def _write(node: Node, keys: int, per_batch: int) -> None:
    runner = node.rooms.groups.runner("g")
    assert runner is not None
    content = offset_value(12_345, 3, "", ZERO_UUID, now_ms=NOW_MS)
    for first in range(0, keys, per_batch):
        records = [
            CoordinatorRecord(
                OffsetCommitKey(
                    group=f"group-{number // 1_000}",
                    topic=f"some-topic-{number // PARTITIONS_PER_TOPIC % 10}",
                    partition=number % PARTITIONS_PER_TOPIC,
                ),
                content,
                VALUE_VERSION,
            )
            for number in range(first, min(first + per_batch, keys))
        ]
        batch = memoryview(encode_batch(records, timestamp_ms=NOW_MS))
        node.rooms.replicas.append(runner.hosted, batch, now_ms=NOW_MS, origin=Origin.COORDINATOR, acks_all=True)


async def _load(directory: str, keys: int, per_batch: int) -> None:
    node = _node(directory)
    node.on_loaded = gc.freeze
    await node.start()
    runner = node.rooms.groups.runner("g")
    assert runner is not None
    began, began_cpu = time.perf_counter(), time.thread_time()
    with _steps_measured() as longest:
        while runner.state is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:  # noqa: ASYNC110 - a turn of the loop each time
            await asyncio.sleep(0)
    took, took_cpu = time.perf_counter() - began, time.thread_time() - began_cpu
    assert node.rooms.groups.counts()[1] == keys
    print(
        f"{in_use()}; {keys:,} keys, {per_batch} a batch: loaded in {took:.2f} s ({took_cpu:.2f} s of CPU); "
        f"the longest step {longest[0] * 1_000:.1f} ms ({longest[1] * 1_000:.1f} ms of CPU)"
    )
    await node.stop()


@contextmanager
def _steps_measured() -> Iterator[list[float]]:
    """The longest step of the loop from here on: on the clock, and in CPU time."""
    longest = [0.0, 0.0]
    run = asyncio.Handle._run

    def measured(self: asyncio.Handle) -> None:
        began, began_cpu = time.perf_counter(), time.thread_time()
        run(self)
        longest[:] = max(longest[0], time.perf_counter() - began), max(longest[1], time.thread_time() - began_cpu)

    asyncio.Handle._run = measured  # type: ignore[method-assign]
    try:
        yield longest
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
