"""Speaking to brokers: producer, consumer and administration, small, typed and asynchronous.

May await, and touch the `Network`, `Clock` and `Entropy` ports it is handed and nothing else, so the same code runs on
sockets and under simulation. Settings carry Kafka's own names (`settings.py` has the tables). It is a client of the
protocol, not of Odradek: it speaks to Apache Kafka as well. `odradek.clients` hands it the real world.

Each part is imported when it is first asked for: a program that lists topics never reads the consumer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.client.cluster import TopicPartition
    from odradek.client.consumer import Consumer, ConsumerRecord
    from odradek.client.facade import Client
    from odradek.client.offsets import GroupMetadata
    from odradek.client.producer import Producer, ProducerIdentity, RecordMetadata

__all__ = [
    "Admin",
    "Client",
    "Consumer",
    "ConsumerRecord",
    "GroupMetadata",
    "Producer",
    "ProducerIdentity",
    "RecordMetadata",
    "TopicPartition",
]

_HOMES = {
    "Admin": "odradek.client.admin",
    "Client": "odradek.client.facade",
    "Consumer": "odradek.client.consumer",
    "ConsumerRecord": "odradek.client.consumer",
    "GroupMetadata": "odradek.client.offsets",
    "Producer": "odradek.client.producer",
    "ProducerIdentity": "odradek.client.producer",
    "RecordMetadata": "odradek.client.producer",
    "TopicPartition": "odradek.client.cluster",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
