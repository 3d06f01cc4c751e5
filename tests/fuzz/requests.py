"""Valid requests of every API and version, drawn from the declarations.

Fields that name something get names of things that exist, mostly, so that handlers do real work.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

from tests.fuzz.batches import sound_batches, strange_batches

from odradek.protocol.api import ApiKey, request_class
from odradek.protocol.codec import Message
from odradek.protocol.declare import FieldLayout, Struct, layout
from odradek.protocol.messages.unregister_broker import UnregisterBrokerRequest
from odradek.protocol.primitives import WireType
from odradek.server.node import Node

TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
    "gzip": {"compression.type": "gzip"},
    "zstd-compacted": {"compression.type": "zstd", "cleanup.policy": "compact,delete"},
    "uncompressed": {"compression.type": "uncompressed"},
    "not-too-old": {"message.timestamp.before.max.ms": "1000000", "segment.bytes": "1048576"},
    "flushed": {"flush.messages": "1"},
}
"""What the fuzzer works on; each but the first makes the node look inside of batches, or wait for the disk."""

PARTITIONS = 2
STRANGE_NAMES = (
    "",
    ".",
    "..",
    "/",
    "a/b",
    "../plain",
    "x" * 249,
    "x" * 250,
    "ünïcode",
    "nul\0nul",
    "plain\n",
    "X" * 9000,
)
_VICTIMS = tuple(f"victim.{number}" for number in range(8))
_EXTREMES: dict[str, tuple[float, ...]] = {
    "int8": (0, 1, -1, -128, 127),
    "int16": (0, 1, -1, -(2**15), 2**15 - 1),
    "int32": (0, 1, -1, -(2**31), 2**31 - 1),
    "int64": (0, 1, -1, -(2**63), 2**63 - 1),
    "uint16": (0, 1, 2**16 - 1),
    "uint32": (0, 1, 2**32 - 1),
    "float64": (0.0, 1.5, -1.0, 1e300, math.inf, math.nan),
}
_NUMBERS: dict[str, tuple[int, ...]] = {
    "acks": (-1, -1, 1, 1, 0, 2),
    "max_wait_ms": (0, 0, 0, 1, 20, 500),
    "min_bytes": (0, 1, 1, 1000),
    "max_bytes": (0, 1, 100, 50_000_000, 50_000_000, 2**31 - 1),
    "partition_max_bytes": (0, 1, 100, 1_000_000, 1_000_000),
    "isolation_level": (0, 0, 1),
    "session_epoch": (-1, -1, 0, 1),
    "index": (0, 0, 1, 2),
    "partition": (0, 0, 1, 2),
    "partitions": (0, 0, 1, 2),
    "partition_index": (0, 0, 1, 2),
    "current_leader_epoch": (-1, -1, 0, 0, 1),
    "last_fetched_epoch": (-1, -1, 0, 1),
    "leader_epoch": (-1, 0, 0, 1),
    "fetch_offset": (0, 0, 1, 5, 50, -1),
    "timestamp": (-1, -2, -3, -4, -5, -6, -7, 0, 1_700_000_000_000),
    "offset": (-1, 0, 1, 2, 1000),
    "num_partitions": (-1, 1, 2, 3),
    "replication_factor": (-1, -1, 1, 2),
    "broker_ids": (1, 1, 1, 2),
    "count": (1, 2, 3, 4),
    "producer_id": (-1, -1, 7),
    "producer_epoch": (-1, -1, 0),
    "replica_id": (-1, -1, -1, -2, 1),
    "response_partition_limit": (1, 3, 2000),
    "endpoint_type": (1, 1, 2, 0),
    "partition_indexes": (0, 0, 1, 2),
    "resource_type": (2, 2, 4, 8, 16, 32, 0),
    "resource_types": (2, 4, 32, 7),
    "config_operation": (0, 1, 2, 3, 4),
    "generation_id": (-1, 0, 1, 2),
    "generation_id_or_member_epoch": (-1, 0, 1, 2),
    "member_epoch": (0, 0, 0, 1, 2, 3, -1, -2),
    "session_timeout_ms": (6_000, 10_000, 45_000),
    "rebalance_timeout_ms": (0, 1, 100, 10_000),
    "key_type": (0, 0, 1, 2),
    "mechanism": (0, 1, 2, 3),
    "match_type": (0, 1, 2, 3),
    "iterations": (4096, 16_384, 1),
}
_TEXTS: dict[str, tuple[str, ...]] = {
    "resource_name": (*TOPICS, "1", "", "2", "one-group", "odradek.server", *STRANGE_NAMES),
    "feature": ("metadata.version", "kraft.version", "transaction.version", "no.such.feature"),
    "entity_type": ("user", "client-id", "ip", "nobody"),
    "protocol_type": ("consumer", "consumer", "connect", ""),
    "member_id": ("", "", "a-member"),
    "key": ("one-group", "producer_byte_rate", "consumer_byte_rate"),
    "coordinator_keys": ("one-group", "two-groups"),
    "subscribed_topic_regex": ("", "plain|gzip", ".*", "[", "x" * 5000, "(a{1000}){1000}"),
    "server_assignor": ("uniform", "range", "no-such-assignor"),
    "states_filter": ("Stable", "empty", "nonsense"),
    "types_filter": ("classic", "consumer", "nonsense"),
}
_CONFIGS = {
    "cleanup.policy": ("compact", "delete", "nonsense"),
    "retention.ms": ("1", "-1", "x", "9" * 30),
    "segment.bytes": ("1048576", "1"),
    "no.such.config": ("1",),
    "min.insync.replicas": ("1", "2"),
}


class RequestMaker:
    """Draws requests for one node."""

    def __init__(self, draw: random.Random, node: Node, now_ms: int) -> None:
        self._draw = draw
        self._node = node
        self._sound = sound_batches(draw, now_ms)
        self._strange = strange_batches(draw, now_ms)
        self._names = tuple(TOPICS)

    def make(self, key: ApiKey, version: int) -> Message:
        changes_topics = key in (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS)
        names = _VICTIMS if changes_topics else self._names
        request: Message = self._struct(request_class(key), version, names)
        if isinstance(request, UnregisterBrokerRequest) and request.broker_id == self._node.node_id:
            request.broker_id = 2  # An operator who has the node forgotten gets what was asked for.
        return request

    def _struct(self, cls: type[Struct], version: int, names: tuple[str, ...]) -> Any:
        values: dict[str, Any] = {}
        for each in layout(cls):
            if version in each.versions:
                values[each.name] = self._value(each, version, names)
            elif each.declared.required:
                values[each.name] = [] if each.is_array else None
        make: Callable[..., Struct] = cls
        return make(**values)

    def _value(self, each: FieldLayout, version: int, names: tuple[str, ...]) -> Any:
        draw = self._draw
        if each.tag is not None and draw.random() < 0.7:
            return each.default()
        if version in each.nullable and draw.random() < (0.9 if each.name == "transactional_id" else 0.1):
            return None
        if each.is_array:
            count = draw.choice((0, 1, 1, 1, 1, 2, 3))
            if each.name in ("assignments", "topic_partitions") and draw.random() < 0.8:
                count = 0
            return [self._one(each, version, names) for _ in range(count)]
        return self._one(each, version, names)

    def _one(self, each: FieldLayout, version: int, names: tuple[str, ...]) -> Any:
        kind = each.type
        if not isinstance(kind, WireType):
            return self._struct(kind, version, names)
        draw = self._draw
        match kind.name:
            case "records":
                return draw.choice(self._sound if draw.random() < 0.6 else self._strange)
            case "string":
                return self._text(each, names)
            case "uuid":
                return self._uuid(names)
            case "bool":
                return draw.random() < 0.5
            case "bytes":
                return draw.randbytes(draw.randrange(20))
            case name:
                return self._number(each.name, name)

    def _number(self, field: str, kind: str) -> float:
        draw = self._draw
        if field == "session_id" and draw.random() < 0.5:
            return next((session.id for session in self._node.rooms.fetch_sessions), 0)
        if draw.random() < 0.1:
            return draw.choice(_EXTREMES[kind])
        return draw.choice(_NUMBERS.get(field, _EXTREMES[kind]))

    def _text(self, each: FieldLayout, names: tuple[str, ...]) -> str:
        draw = self._draw
        assert isinstance(each.type, WireType)
        if each.type.entity == "topicName":
            chance = draw.random()
            if chance < 0.04:
                return draw.choice(STRANGE_NAMES)
            return draw.choice(_VICTIMS if chance < 0.1 else names)
        if each.type.entity == "groupId":
            return draw.choice(("one-group", "two-groups", ""))
        if each.name in _TEXTS:
            return draw.choice(_TEXTS[each.name])
        if each.name == "name":
            return draw.choice(tuple(_CONFIGS))
        if each.name == "value":
            return draw.choice(draw.choice(tuple(_CONFIGS.values())))
        return draw.choice(("", "text", "0.1-x", "é" * 40))

    def _uuid(self, names: tuple[str, ...]) -> bytes:
        topic = self._node.rooms.image.topics.by_name.get(self._draw.choice(names))
        if topic is None or self._draw.random() < 0.1:
            return self._draw.choice((bytes(16), self._draw.randbytes(16)))
        return topic.topic_id
