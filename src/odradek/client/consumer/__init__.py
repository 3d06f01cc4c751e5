"""The consumer: reads partitions it was given, or shares topics with the other members of its group.

`positions` says what is read and how far, `fetcher` reads ahead, `records` decodes what came, `membership` keeps the
place in the group (classic protocol), `assignors` divide partitions when this member leads it.
"""

from __future__ import annotations

from odradek.client.consumer.consumer import Consumer
from odradek.client.consumer.records import ConsumerRecord

__all__ = ["Consumer", "ConsumerRecord"]
