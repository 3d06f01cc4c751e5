"""Clients in the real world: `connect("localhost:9092")`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.adapters.clock import SystemClock
from odradek.adapters.entropy import SystemEntropy
from odradek.adapters.network import SocketNetwork
from odradek.values import value

if TYPE_CHECKING:
    from odradek.client import Client
    from odradek.client.settings import Given


@value
class RealPorts:
    """What a client touches: sockets, the clock, randomness."""

    network: SocketNetwork
    clock: SystemClock
    entropy: SystemEntropy


def real_ports() -> RealPorts:
    return RealPorts(SocketNetwork(), SystemClock(), SystemEntropy())


def connect(bootstrap_servers: str, settings: Given | None = None) -> Client:
    """Clients of the cluster at these addresses; nothing is sent before one of them is used.

    `settings` hold for every client made from it; each may add its own.
    """
    from odradek.client import Client

    return Client(real_ports(), {**(settings or {}), "bootstrap.servers": bootstrap_servers})
