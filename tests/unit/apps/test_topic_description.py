"""`odradek topic describe` where brokers tell less than all."""

from __future__ import annotations

from odradek.apps.cli.topic_description import topic_data, topic_lines
from odradek.client.cluster import PartitionInfo, TopicInfo, TopicPartition
from odradek.client.leaders import Answers, FoundOffset
from odradek.ids import ZERO_UUID
from odradek.protocol.errors import ErrorCode, KafkaError

TOPIC = TopicInfo(
    "t",
    ZERO_UUID,
    False,
    (
        PartitionInfo(0, leader=1, leader_epoch=4, replicas=(1, 2), isr=(1,)),
        PartitionInfo(1, leader=-1, leader_epoch=2, replicas=(2, 1), isr=(2,), offline=(2,)),
        PartitionInfo(2, leader=2, leader_epoch=0, replicas=(2, 1), isr=(2, 1)),
    ),
)
STARTS: Answers[FoundOffset] = {
    TopicPartition("t", 0): FoundOffset(10, -1, 4),
    TopicPartition("t", 1): KafkaError(ErrorCode.LEADER_NOT_AVAILABLE),
    TopicPartition("t", 2): FoundOffset(0, -1, 0),
}
ENDS: Answers[FoundOffset] = {
    **STARTS,
    TopicPartition("t", 0): FoundOffset(40, -1, 4),
    TopicPartition("t", 2): FoundOffset(10, -1, 0),
}


def test_without_sizes_the_records_show_the_skew() -> None:
    data = topic_data(TOPIC, STARTS, ENDS, None, None)
    assert (data["size_bytes"], data["size_skew"], data["records_skew"]) == (None, None, 1.5)
    assert topic_lines(data) == [
        "Topic       t",
        "Id          AAAAAAAAAAAAAAAAAAAAAA",
        "Partitions  3, 2 replicas each",
        "Skew        the largest partition has 1.50 times the mean",
        "PARTITION  LEADER  EPOCH  REPLICAS  ISR  START  END  SIZE  SHARE",
        "        0  1           4  1,2       1       10   40  -     ##########",
        "        1  none        2  2,1       2        -    -  -",
        "        2  2           0  2,1       2,1      0   10  -     ###",
    ]


def test_sizes_are_those_of_the_leaders() -> None:
    sizes = {
        (TopicPartition("t", 0), 1): 3000,
        (TopicPartition("t", 0), 2): 1,
        (TopicPartition("t", 2), 2): 1000,
        (TopicPartition("t", 2), 1): 9,
    }
    data = topic_data(TOPIC, STARTS, ENDS, sizes, {"retention.ms": "1"})
    assert [each["size_bytes"] for each in data["partitions"]] == [3000, None, 1000]
    assert (data["size_bytes"], data["size_skew"]) == (4000, 1.5)
    lines = topic_lines(data)
    assert "Settings    retention.ms=1" in lines
    assert "Size        3.9 KiB" in lines
