"""WriteTxnMarkers: the coordinator tells partition leaders how a transaction ended."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import ProducerId, TopicName, boolean, int8, int16, int32


class WritableTxnMarkerTopic(Struct):
    name: TopicName
    partition_indexes: list[int32]


class WritableTxnMarker(Struct):
    producer_id: ProducerId
    producer_epoch: int16
    transaction_result: boolean
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: int32
    transaction_version: int8 = field(versions="2+", default=0)


class WriteTxnMarkersRequest(Message, api_key=27, versions="1-2", flexible="1+"):
    markers: list[WritableTxnMarker]


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: int32
    error_code: int16 = 0


class WritableTxnMarkerTopicResult(Struct):
    name: TopicName
    partitions: list[WritableTxnMarkerPartitionResult]


class WritableTxnMarkerResult(Struct):
    producer_id: ProducerId
    topics: list[WritableTxnMarkerTopicResult]


class WriteTxnMarkersResponse(Message, api_key=27, versions="1-2", flexible="1+"):
    markers: list[WritableTxnMarkerResult] = field(default_factory=list)
