"""One place that holds what all clients of a program share: the world and the settings they have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.client.link import Ports
from odradek.client.settings import Given

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.client.consumer import Consumer
    from odradek.client.producer import Producer, ProducerIdentity
    from odradek.client.producer.partitioners import Partitioner


class Client:
    """Makes producers, consumers and admins; each has connections of its own and is closed on its own."""

    def __init__(self, ports: Ports, settings: Given) -> None:
        self._ports = ports
        self._settings = dict(settings)

    def admin(self, settings: Given | None = None) -> Admin:
        from odradek.client.admin import Admin

        return Admin(self._ports, {**self._settings, **(settings or {})})

    def producer(
        self,
        settings: Given | None = None,
        *,
        partitioner: Partitioner | None = None,
        guest_of: ProducerIdentity | None = None,
    ) -> Producer:
        from odradek.client.producer import Producer

        given = {**self._settings, **(settings or {})}
        return Producer(self._ports, given, partitioner=partitioner, guest_of=guest_of)

    def consumer(self, settings: Given | None = None) -> Consumer:
        from odradek.client.consumer import Consumer

        return Consumer(self._ports, {**self._settings, **(settings or {})})
