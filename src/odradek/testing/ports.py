"""Free ports for nodes whose neighbours must know them before they listen."""

from __future__ import annotations

import atexit
import collections
import socket

HOST = "127.0.0.1"
MOST_HELD = 256
"""Whoever was given a port long listens on it by the time that many more were given."""

_held: collections.deque[socket.socket] = collections.deque()


@atexit.register
def _let_go() -> None:
    while _held:
        _held.pop().close()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, and that nobody else is given before their node does.

    Each stays bound here without listening: the system then gives it to no other process, neither as a free port nor as
    the near end of a connection, and a node, which binds with SO_REUSEADDR as all servers do, may still listen on it.
    """
    return [free_port() for _ in range(count)]


def free_port() -> int:
    """One of them."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind((HOST, 0))
    _held.append(holder)
    if len(_held) > MOST_HELD:
        _held.popleft().close()
    port: int = holder.getsockname()[1]
    return port
