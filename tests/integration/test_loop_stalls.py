"""How long one batch may keep the loop, with the native module: five milliseconds, whatever is in it.

Counted in CPU time of the loop's own thread, and the best of some attempts, since others share the machine. What is
written to disk at once is as large as `max.message.bytes` allows; here that is the default.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from itertools import count

import pytest
from bench import wire
from tests.compat.brokers import wait_for_partitions

from odradek.protocol.records.batch import build_batch, update_crc
from odradek.protocol.records.compression import Compression
from odradek.protocol.records.native import NATIVE_VERSION
from odradek.protocol.records.record import Record
from odradek.testing import RunningNode, running_node

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(NATIVE_VERSION is None, reason="NOT TESTED: the native module is not in use"),
]

LONGEST_S = 0.005
NUMBERS = count()
ATTEMPTS = 6
NOW_MS = int(time.time() * 1000)
ALMOST_1_MIB = 1_020_000
SETTLED_S = 0.02
"""By then the loop is through with a request that was answered."""


@pytest.fixture(scope="module")
def node() -> Iterator[RunningNode]:
    with running_node() as running:
        yield running


@pytest.fixture
def longest_step_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The CPU time of the longest step of a loop in this process, since it was set to 0."""
    longest = [0.0]
    run = asyncio.Handle._run

    def measured(self: asyncio.Handle) -> None:
        began = time.thread_time()
        run(self)
        longest[0] = max(longest[0], time.thread_time() - began)

    monkeypatch.setattr(asyncio.Handle, "_run", measured)
    return longest


def lines(size: int) -> list[Record]:
    """As logs are: a third of them is left when they are packed."""
    records = []
    while size > 0:
        number = len(records)
        content = json.dumps({"user": number * 7919 % 10_007, "what": "a thing that happened", "when": number}).encode()
        records.append(Record(b"key%d" % number, content, timestamp=NOW_MS))
        size -= len(content) + 16
    return records


def zeros(size: int) -> list[Record]:
    return [Record(b"k", bytes(size // 10), timestamp=NOW_MS)] * 10


def nothing(size: int) -> list[Record]:
    return [Record(timestamp=NOW_MS)] * (size // 10)


def headers(size: int) -> list[Record]:
    return [Record(b"k", None, (("", None),) * (size // 20), timestamp=NOW_MS)] * 10


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("content", [lines, zeros, nothing, headers])
@pytest.mark.parametrize("size", [ALMOST_1_MIB, 8 * ALMOST_1_MIB])
def test_one_batch(
    node: RunningNode,
    longest_step_s: list[float],
    codec: Compression,
    content: Callable[[int], list[Record]],
    size: int,
) -> None:
    """Just what is looked at while others wait, and more, which a worker looks at."""
    batch = build_batch(content(size), compression=codec)
    assert_taken(node, longest_step_s, batch, {})


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.SNAPPY])
@pytest.mark.parametrize("wanted", ["gzip", "lz4", "zstd", "uncompressed"])
def test_one_batch_that_is_packed_anew(
    node: RunningNode, longest_step_s: list[float], codec: Compression, wanted: str
) -> None:
    batch = build_batch(lines(ALMOST_1_MIB), compression=codec)
    assert_taken(node, longest_step_s, batch, {"compression.type": wanted})


def test_one_batch_that_does_not_know_its_largest_timestamp(node: RunningNode, longest_step_s: list[float]) -> None:
    batch = build_batch(lines(ALMOST_1_MIB), compression=Compression.GZIP)
    batch[35:43] = (NOW_MS - 5).to_bytes(8)
    update_crc(batch)
    assert_taken(node, longest_step_s, batch, {})


def assert_taken(node: RunningNode, longest_step_s: list[float], batch: bytearray, settings: dict[str, str]) -> None:
    """Unless it is larger than a batch may be."""
    topic = f"topic-{next(NUMBERS)}"
    body = wire.produce_body(topic, [(0, bytes(batch))], acks=1)
    least_s = 1.0
    with wire.Connection(node.port) as connection:
        assert wire.create_topic(connection, topic, 1, settings) == 0
        wait_for_partitions(connection, topic, 1)
        for _ in range(ATTEMPTS):
            longest_step_s[0] = 0.0
            answer = connection.request(wire.PRODUCE, 7, body)
            time.sleep(SETTLED_S)
            ((_, code, _),) = wire.produce_errors(answer)
            assert code in (0, 10)  # MESSAGE_TOO_LARGE
            least_s = min(least_s, longest_step_s[0])
            if least_s < LONGEST_S:
                break
    assert least_s < LONGEST_S
