"""DescribeLogDirs: a broker's log directories and the sizes of what lies in them."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import TopicName, boolean, int16, int32, int64, string


class DescribableLogDirTopic(Struct):
    topic: TopicName
    partitions: list[int32]


class DescribeLogDirsRequest(Message, api_key=35, versions="1-5", flexible="2+"):
    topics: list[DescribableLogDirTopic] | None = field(nullable="0+")


class DescribeLogDirsPartition(Struct):
    partition_index: int32
    partition_size: int64
    offset_lag: int64
    is_future_key: boolean


class DescribeLogDirsTopic(Struct):
    name: TopicName
    partitions: list[DescribeLogDirsPartition]


class DescribeLogDirsResult(Struct):
    error_code: int16 = 0
    log_dir: string
    topics: list[DescribeLogDirsTopic]
    total_bytes: int64 = field(versions="4+", default=-1)
    usable_bytes: int64 = field(versions="4+", default=-1)
    is_cordoned: boolean = field(versions="5+", default=False)


class DescribeLogDirsResponse(Message, api_key=35, versions="1-5", flexible="2+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = field(versions="3+", default=0)
    results: list[DescribeLogDirsResult] = field(default_factory=list)
