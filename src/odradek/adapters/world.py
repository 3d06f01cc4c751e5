"""All of the real world at once."""

from __future__ import annotations

from odradek.adapters.clock import SystemClock
from odradek.adapters.disk import RealDisk
from odradek.adapters.entropy import SystemEntropy
from odradek.adapters.network import SocketNetwork
from odradek.adapters.workers import RealWorkers
from odradek.ports import World


def real_world(*, max_open_files: int | None = None, durable: bool = True) -> World:
    """What a node is started with outside simulations; each node gets one of its own.

    Without `durable`, data survives the process but not a power loss: tests need no more.
    """
    return World(
        clock=SystemClock(),
        entropy=SystemEntropy(),
        disk=RealDisk(max_open_files, durable=durable),
        network=SocketNetwork(),
        workers=RealWorkers(),
    )
