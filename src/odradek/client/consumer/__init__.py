"""The consumer: reads partitions it was given, or shares topics with the other members of its group.

`positions` says what is read and how far, `locator` where to begin, `fetcher` reads ahead, `records` decodes what came.
`subscription` knows the topics, `membership` keeps the place in the group (classic protocol), and `assignors` divide
partitions when this member leads it. Whatever waits for the network is a task, so that a poll always returns in time.
"""

from __future__ import annotations

from odradek.client.consumer.consumer import Consumer
from odradek.client.consumer.records import ConsumerRecord

__all__ = ["Consumer", "ConsumerRecord"]
