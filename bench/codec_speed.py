"""Microseconds to decode and encode what the hot path sees, by the codecs alone: `python bench/codec_speed.py`."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from odradek.ids import Uuid
from odradek.protocol.codec import decoder, encode, parts_encoder
from odradek.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

CALLS = 20_000
REPEATS = 7
TOPIC_ID = Uuid(bytes(range(16)))
BATCH = memoryview(bytearray(16 * 1024))


def produce_request() -> ProduceRequest:
    partition = PartitionProduceData(index=3, records=BATCH)
    topic = TopicProduceData(name="a-usual-topic", topic_id=TOPIC_ID, partition_data=[partition])
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def produce_response() -> ProduceResponse:
    partition = PartitionProduceResponse(index=3, base_offset=1234, log_append_time_ms=-1, log_start_offset=0)
    return ProduceResponse(
        responses=[TopicProduceResponse(name="a-usual-topic", topic_id=TOPIC_ID, partition_responses=[partition])]
    )


def fetch_request(partitions: int) -> FetchRequest:
    wanted = [FetchPartition(partition=3, fetch_offset=1234, partition_max_bytes=1 << 20) for _ in range(partitions)]
    topics = [FetchTopic(topic_id=TOPIC_ID, partitions=wanted)] if wanted else []
    return FetchRequest(max_wait_ms=500, min_bytes=1, session_id=7, session_epoch=9, topics=topics)


def fetch_response() -> FetchResponse:
    partition = PartitionData(
        partition_index=3,
        high_watermark=1234,
        last_stable_offset=1234,
        log_start_offset=0,
        aborted_transactions=None,
        records=BATCH,
    )
    return FetchResponse(session_id=7, responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[partition])])


def microseconds(call: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(REPEATS):
        began = time.perf_counter()
        for _ in range(CALLS):
            call()
        best = min(best, time.perf_counter() - began)
    return best / CALLS * 1e6


def main() -> None:
    for version in (9, 13):
        request = memoryview(encode(produce_request(), version))
        report(
            f"decode ProduceRequest v{version}, one partition", partial(decoder(ProduceRequest, version), request, 0)
        )
        encode_parts = partial(parts_encoder(ProduceResponse, version), produce_response())
        report(f"encode ProduceResponse v{version}, one partition", encode_parts)
    for partitions in (0, 1):
        request = memoryview(encode(fetch_request(partitions), 17))
        report(f"decode FetchRequest v17, {partitions} partitions", partial(decoder(FetchRequest, 17), request, 0))
    report(
        "encode FetchResponse v17 in parts, one partition", partial(parts_encoder(FetchResponse, 17), fetch_response())
    )
    report("build ProduceResponse, one partition", produce_response)
    report("build FetchResponse, one partition", fetch_response)


def report(what: str, call: Callable[[], object]) -> None:
    print(f"{what:52} {microseconds(call):5.2f} µs")


if __name__ == "__main__":
    main()
