"""Which topics a member is subscribed to: by name, or by a pattern that is looked at again now and then."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection

from odradek.client.cluster import Cluster
from odradek.client.consumer.membership import GroupMember
from odradek.client.errors import ClientError
from odradek.protocol.errors import KafkaError

_LONG_AGO_MS = -(1 << 40)


class Subscription:
    """Keeps a member's topics right, and lets it join again when they have changed."""

    def __init__(self, cluster: Cluster, member: GroupMember, wake: Callable[[], None]) -> None:
        self._cluster = cluster
        self._member = member
        self._wake = wake
        self._pattern: re.Pattern[str] | None = None
        self._max_age_ms = cluster.settings.number("metadata.max.age.ms")
        self._hides_internal = cluster.settings.flag("exclude.internal.topics")
        self._matched_ms = _LONG_AGO_MS
        self._matching: asyncio.Task[None] | None = None
        self._counts: dict[str, int] = {}

    def choose(self, topics: Collection[str] | re.Pattern[str]) -> None:
        """Be subscribed to these from now on."""
        self._matched_ms = _LONG_AGO_MS
        if isinstance(topics, re.Pattern):
            self._pattern = topics
        else:
            self._pattern = None
            self._member.topics = tuple(sorted(dict.fromkeys(topics)))
        self._member.rejoin()

    def note_assigned(self) -> None:
        """What was assigned was divided by what is known of the topics now."""
        self._counts = self._partition_counts()

    def watch(self) -> bool:
        """Whether the topics are known; joins again when they have changed, or, as leader, when one has grown."""
        if self._pattern is not None:
            now_ms = self._cluster.ports.clock.monotonic_ms()
            if self._matching is None and now_ms - self._matched_ms > self._max_age_ms:
                self._matching = asyncio.ensure_future(self._match(self._pattern))
            if self._matched_ms == _LONG_AGO_MS:
                return False
        if self._member.is_leader and self._member.is_stable and self._counts != self._partition_counts():
            self._counts = self._partition_counts()
            self._member.rejoin()
        return True

    async def close(self) -> None:
        if self._matching is not None:
            self._matching.cancel()
            await asyncio.wait([self._matching])

    async def _match(self, pattern: re.Pattern[str]) -> None:
        try:
            await self._cluster.refresh(None)
            if pattern is self._pattern:
                self._matched_ms = self._cluster.ports.clock.monotonic_ms()
                names = tuple(
                    name
                    for name, topic in sorted(self._cluster.topics.items())
                    if pattern.fullmatch(name) and not (topic.internal and self._hides_internal)
                )
                if names != self._member.topics:
                    self._member.topics = names
                    self._member.rejoin()
        except (ClientError, KafkaError):
            await asyncio.sleep(self._cluster.backoff_ms(1) / 1000)
        finally:
            self._matching = None
            self._wake()

    def _partition_counts(self) -> dict[str, int]:
        topics = self._cluster.topics
        return {name: len(topics[name].partitions) for name in self._member.topics if name in topics}
