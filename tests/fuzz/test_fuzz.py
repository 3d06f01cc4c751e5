"""A hundred thousand spoilt requests, and a node that minds none of them.

`ODRADEK_FUZZ_SEED=7 pytest tests/fuzz` replays the round of one seed, `ODRADEK_FUZZ_ROUNDS` says how many rounds to run
from there (`make fuzz` runs many, from a seed drawn anew).
"""

from __future__ import annotations

import os
import tracemalloc

import pytest
from tests.fuzz.batches import BOMB_BYTES, bomb
from tests.fuzz.campaign import Round, Tally, WatchedRound
from tests.fuzz.requests import TOPICS
from tests.unit.server.rig import Rig

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.records.compression import MAX_DECOMPRESSED_BYTES, Compression
from odradek.server.net.connection import FULL_FRAME_BUFFER_BYTES
from odradek.server.net.routes import Role, routes_of
from odradek.storage.validation import DECOMPRESSED_PER_PACKED_BYTE

ROUNDS = 25
LARGEST_BATCH = MAX_DECOMPRESSED_BYTES // DECOMPRESSED_PER_PACKED_BYTE
"""With so much, what a batch may become is not more than the least that it may."""

REQUESTS_A_ROUND = 4_100
"""A little more than the 100,000 promised, since connections that get closed take requests behind them along."""


@pytest.mark.timeout(600, func_only=True)
def test_spoilt_requests_harm_nobody_but_their_sender() -> None:
    first = int(os.environ.get("ODRADEK_FUZZ_SEED", "1"))
    replaying = "ODRADEK_FUZZ_SEED" in os.environ
    rounds = int(os.environ.get("ODRADEK_FUZZ_ROUNDS", "1" if replaying else str(ROUNDS)))
    tally = Tally()
    for seed in range(first, first + rounds):
        try:
            tally.add(Round(seed, REQUESTS_A_ROUND).run())
        except AssertionError as wrong:
            raise AssertionError(f"replay with ODRADEK_FUZZ_SEED={seed}: {wrong}") from wrong
    print(tally)
    assert tally.decoded.total() >= tally.requests / 2, tally
    if rounds >= ROUNDS:
        assert tally.requests >= 100_000
        served = {
            (name, key, version)
            for name, role in (("PLAINTEXT", Role.BROKER), ("CONTROLLER", Role.CONTROLLER))
            for key, route in routes_of(role).items()
            for version in range(route.min_version, route.max_version + 1)
        }
        assert served - set(tally.decoded) == set()


def test_a_seed_is_a_run() -> None:
    """A replay sends the same requests and gets the same answers, or a failing seed would be worth little."""
    first, second = (Round(3, 400) for _ in range(2))
    assert str(first.run()) == str(second.run())
    assert first.lines.warnings == second.lines.warnings
    assert first.rig.trace.digest() == second.rig.trace.digest()


def test_memory_follows_what_was_sent() -> None:
    """No count, length or compressed batch makes the node hold more than a small multiple of what came or unpacks."""
    tracemalloc.start()
    try:
        watched = WatchedRound(11, 1_500)
        watched.run()
    finally:
        tracemalloc.stop()
    assert watched.largest_bytes < 4 * BOMB_BYTES, watched.largest
    # A length that is promised gets a buffer up to a bound (twice: what poisons it counts as well).
    assert watched.largest_without_bombs_bytes < 3 * FULL_FRAME_BUFFER_BYTES, watched.largest_without_bombs


@pytest.mark.parametrize("topic", ["compacted", "gzip", "append-time", "plain"])
@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])  # A byte of snappy becomes 22.
def test_a_bomb_beyond_the_limit_is_refused(topic: str, codec: Compression) -> None:
    rig = Rig()

    async def drop() -> None:
        (hosted,) = await rig.create_topic(topic, 1, TOPICS[topic] | {"max.message.bytes": str(LARGEST_BATCH)})
        client = rig.connect()
        request = ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData(
                    name=topic,
                    partition_data=[
                        PartitionProduceData(
                            index=0, records=bomb(codec, MAX_DECOMPRESSED_BYTES + 1, rig.clock.now_ms())
                        )
                    ],
                )
            ],
        )
        response = await client.ask(request, 9)
        (partition,) = response.responses[0].partition_responses
        assert (partition.error_code, "decompresses to more than" in (partition.error_message or "")) == (
            ErrorCode.INVALID_RECORD,
            True,
        )
        assert hosted.partition.log.log_end_offset == 0

    rig.run(drop)
