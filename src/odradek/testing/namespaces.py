"""Hosts of their own for the nodes of a test, on one machine: network namespaces on a bridge, and ways to cut them off.

Needs root and `ip`. A cut is silent and has a direction: the sender believes the receiver to be at a hardware address
that nobody has, so its packets go nowhere and nothing says so; connections that exist stall as they do when a cable is
pulled. It needs no packet filter in the kernel.

The clients of such nodes have to be inside, too: whoever makes an `Archipelago` must run in a namespace of its own
(`unshare --net`), and becomes the host that all nodes can be reached from.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator

from odradek.testing.cluster import Place

NOBODYS_ADDRESS = "02:00:00:00:00:99"
_BRIDGE = "bridge"
_DEVICE = "shore"


def can_make_namespaces() -> bool:
    """Whether this user on this machine may."""
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode == 0


@contextlib.contextmanager
def archipelago(islands: int) -> Iterator[Archipelago]:
    """That many hosts, taken away again at the end."""
    made = Archipelago(islands)
    try:
        made.make()
        yield made
    finally:
        made.remove()


class Archipelago:
    """Hosts numbered from 1, and this process's own namespace as the host that sees them all."""

    def __init__(self, islands: int) -> None:
        self._names = {number: f"odradek-{os.getpid()}-{number}" for number in range(1, islands + 1)}

    @property
    def places(self) -> list[Place]:
        """For `running_cluster`."""
        return [Place(address_of(number), ("ip", "netns", "exec", name)) for number, name in self._names.items()]

    def make(self) -> None:
        _ip("link set lo up")
        _ip(f"link add {_BRIDGE} type bridge")
        _ip(f"addr add {address_of(254)}/24 dev {_BRIDGE}")
        _ip(f"link set {_BRIDGE} up")
        for number, name in self._names.items():
            _ip(f"netns add {name}")
            _ip(f"link add sea{number} type veth peer name {_DEVICE} netns {name}")
            _ip(f"link set sea{number} master {_BRIDGE} up")
            _ip(f"-n {name} addr add {address_of(number)}/24 dev {_DEVICE}")
            _ip(f"-n {name} link set {_DEVICE} up")
            _ip(f"-n {name} link set lo up")

    def remove(self) -> None:
        for name in self._names.values():
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def cut(self, sender: int, receiver: int) -> None:
        """Nothing that one host sends reaches the other any more; the other way is open."""
        _ip(
            f"-n {self._names[sender]} neigh replace {address_of(receiver)} lladdr {NOBODYS_ADDRESS} "
            f"dev {_DEVICE} nud permanent"
        )

    def heal(self, sender: int, receiver: int) -> None:
        _ip(f"-n {self._names[sender]} neigh del {address_of(receiver)} dev {_DEVICE}")

    def isolate(self, island: int) -> None:
        """Cut it off from all others, both ways; this process still reaches it."""
        for other in self._others(island):
            self.cut(island, other)
            self.cut(other, island)

    def rejoin(self, island: int) -> None:
        for other in self._others(island):
            self.heal(island, other)
            self.heal(other, island)

    def _others(self, island: int) -> list[int]:
        return [number for number in self._names if number != island]


def address_of(number: int) -> str:
    return f"10.77.0.{number}"


def _ip(arguments: str) -> None:
    subprocess.run(["ip", *arguments.split()], check=True, capture_output=True)
