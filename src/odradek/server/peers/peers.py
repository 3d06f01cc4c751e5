"""Connections to other controllers, each made when it is first needed and again when it was lost.

A peer's answers come in the order of the requests, and a fetch may wait for half a second: so fetches have a connection
of their own, which no vote waits behind.
"""

from __future__ import annotations

from typing import TypeVar

from odradek.client.connection import Connection
from odradek.client.errors import ConnectionLost
from odradek.client.versions import connect
from odradek.ports import Network
from odradek.protocol.codec import Message

ResponseT = TypeVar("ResponseT", bound=Message)


class UnsupportedByPeer(ConnectionLost):
    """The peer does not serve the request at all."""


class Peers:
    """One connection an address, for one purpose."""

    def __init__(self, network: Network, *, client_id: str) -> None:
        self._network = network
        self.client_id = client_id
        self._connections: dict[tuple[str, int], Connection] = {}

    def connected(self, address: tuple[str, int]) -> Connection | None:
        """The connection to that address, if there is one."""
        connection = self._connections.get(address)
        return None if connection is None or connection.is_lost else connection

    async def connect(self, address: tuple[str, int], *, timeout_ms: int) -> Connection:
        """The connection to that address; ConnectionLost if nobody answers there."""
        connection = self.connected(address)
        if connection is not None:
            return connection
        host, port = address
        connection = await connect(
            self._network,
            host=host,
            port=port,
            client_id=self.client_id,
            connect_timeout_ms=timeout_ms,
            answer_timeout_ms=timeout_ms,
        )
        older = self._connections.get(address)
        if older is not None:
            older.close()
        self._connections[address] = connection
        return connection

    def was_closed_there(self, address: tuple[str, int]) -> bool:
        """Whether the process at that address has closed the last connection to it, or has ended."""
        connection = self._connections.get(address)
        return connection is not None and connection.closed_by_peer

    def drop(self, address: tuple[str, int]) -> None:
        """Close the connection to that address, with all that waits on it."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    def close(self) -> None:
        for address in list(self._connections):
            self.drop(address)


def version_for(connection: Connection, request: type[Message]) -> int:
    """The newest version of a request that both sides know."""
    assert request.api_key is not None
    served = connection.versions.get(request.api_key)
    if served is None or served[1] < request.min_version:
        raise UnsupportedByPeer(f"the peer does not serve {request.__name__}")
    return min(served[1], request.max_stable_version)
