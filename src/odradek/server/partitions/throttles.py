"""The replication throttles of a node (KIP-73): what configuration says of them, as the fetching of followers needs it.

The rates are a broker's (`leader.replication.throttled.rate`, `follower.…`), the lists of replicas a topic's
(`leader.replication.throttled.replicas`, `follower.…`). A partition that is in a list knows the quota that bounds it;
one that is in none pays nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from odradek.configdef import ConfigError
from odradek.ids import NodeId
from odradek.metadata.image.configs import ALL_BROKERS, BROKER_RESOURCE, TOPIC_RESOURCE, ConfigsImage
from odradek.ports import Clock
from odradek.replication.throttle import (
    NOT_THROTTLED,
    UNLIMITED,
    ReplicationQuota,
    ThrottledPartitions,
    throttled_partitions,
)
from odradek.server.configs.dynamic import FOLLOWER_RATE, LEADER_RATE, RUN_TIME_KEYS
from odradek.server.configs.node_config import NodeConfig
from odradek.server.partitions.hosted_partition import HostedPartition
from odradek.storage.config import TOPIC_CONFIGS

log = logging.getLogger(__name__)

LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"


class Throttles:
    """Both quotas of a node, and which partitions they bound."""

    def __init__(self, config: NodeConfig, clock: Clock) -> None:
        self._node_id = NodeId(config.node_id)
        self._resource = str(config.node_id)
        self._clock = clock
        windows, window_ms = config.replication_quota_window_num, config.replication_quota_window_size_seconds * 1000
        self.leader = ReplicationQuota(windows=windows, window_ms=window_ms)
        self.follower = ReplicationQuota(windows=windows, window_ms=window_ms)
        self._parsed: dict[tuple[str, str], tuple[str, ThrottledPartitions]] = {}
        """By topic and key: the text, and what it means here. A topic's many partitions share it."""

    def learn_rates(self, configs: ConfigsImage) -> bool:
        """Take over the rates; whether one has changed. What the file says does not count, as in Kafka."""
        before = self.leader.limit, self.follower.limit
        own, everyones = configs.of(BROKER_RESOURCE, self._resource), configs.of(BROKER_RESOURCE, ALL_BROKERS)
        self.leader.limit = _rate(LEADER_RATE, own, everyones)
        self.follower.limit = _rate(FOLLOWER_RATE, own, everyones)
        return before != (self.leader.limit, self.follower.limit)

    def apply_to(self, hosted: HostedPartition, configs: ConfigsImage) -> bool:
        """Let a partition know what bounds it; whether that has changed."""
        overrides = configs.of(TOPIC_RESOURCE, hosted.topic)
        leader = self.leader if hosted.index in self._throttled(hosted.topic, LEADER_REPLICAS, overrides) else None
        follower = (
            self.follower if hosted.index in self._throttled(hosted.topic, FOLLOWER_REPLICAS, overrides) else None
        )
        changed = hosted.leader_throttle is not leader or hosted.follower_throttle is not follower
        hosted.leader_throttle, hosted.follower_throttle = leader, follower
        return changed

    def sent(self, size_bytes: int) -> None:
        """Note what a leader sent of a throttled partition."""
        self.leader.record(size_bytes, self._clock.monotonic_ms())

    def taken(self, size_bytes: int) -> None:
        """Note what a follower took of a throttled partition."""
        self.follower.record(size_bytes, self._clock.monotonic_ms())

    def sending_excess_ms(self) -> int:
        return self.leader.excess_ms(self._clock.monotonic_ms())

    def taking_excess_ms(self) -> int:
        return self.follower.excess_ms(self._clock.monotonic_ms())

    def rates(self) -> tuple[float, float]:
        """Bytes a second of throttled partitions at present: sent, and taken."""
        now_ms = self._clock.monotonic_ms()
        return self.leader.per_second(now_ms), self.follower.per_second(now_ms)

    def _throttled(self, topic: str, key: str, overrides: Mapping[str, str]) -> ThrottledPartitions:
        text = overrides.get(key)
        if not text:
            if self._parsed:
                self._parsed.pop((topic, key), None)
            return NOT_THROTTLED
        known = self._parsed.get((topic, key))
        if known is None or known[0] != text:
            known = self._parsed[topic, key] = (text, throttled_partitions(_parsed_list(key, text), self._node_id))
        return known[1]


def _rate(name: str, own: Mapping[str, str], everyones: Mapping[str, str]) -> int:
    text = own.get(name, everyones.get(name))
    if text is None:
        return UNLIMITED
    try:
        given = RUN_TIME_KEYS[name].parse(text)
    except ConfigError as wrong:
        log.error("%s on record is passed over: %s", name, wrong)
        return UNLIMITED
    assert isinstance(given, int)
    return given


def _parsed_list(key: str, text: str) -> tuple[str, ...]:
    given = TOPIC_CONFIGS[key].parse(text)
    assert isinstance(given, tuple)
    return given
