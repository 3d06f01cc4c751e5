"""What a handler is handed beside its request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.security.principal import ANONYMOUS

if TYPE_CHECKING:
    from odradek.server.net.listener import ListenerScope
    from odradek.server.node import Node


class Context:
    """One request's surroundings. Slots and no defaults: it is built once per request."""

    __slots__ = ("api_version", "client_id", "connection_id", "listener", "node")

    def __init__(
        self, node: Node, listener: ListenerScope, api_version: int, client_id: str | None, connection_id: int
    ) -> None:
        self.node = node
        self.listener = listener
        self.api_version = api_version
        self.client_id = client_id
        self.connection_id = connection_id

    @property
    def now_ms(self) -> int:
        return self.node.world.clock.now_ms()

    @property
    def client_address(self) -> str:
        return self.listener.connections[self.connection_id].peer_host

    @property
    def client_host(self) -> str:
        """As Java writes an address whose name nobody looked up."""
        return f"/{self.client_address}"

    @property
    def principal(self) -> str:
        """Whom the client is taken for; nobody has a name on a listener without authentication."""
        return ANONYMOUS

    @property
    def user(self) -> str:
        """The principal's name, without its type."""
        return self.principal.partition(":")[2]

    @property
    def listener_name(self) -> str:
        return self.listener.name

    @property
    def is_peer(self) -> bool:
        """Whether another node of the cluster asks for itself: only those use the controller's listeners."""
        return self.listener.name in self.node.config.controller_listener_names


class ForwardedContext(Context):
    """The surroundings of a request that a broker forwarded: who asked, and from where, is what the broker says."""

    __slots__ = ("_forwarded_address", "_forwarded_principal")

    def __init__(
        self,
        node: Node,
        listener: ListenerScope,
        api_version: int,
        client_id: str | None,
        connection_id: int,
        *,
        forwarded_principal: str,
        forwarded_address: str,
    ) -> None:
        super().__init__(node, listener, api_version, client_id, connection_id)
        self._forwarded_principal = forwarded_principal
        self._forwarded_address = forwarded_address

    @property
    def client_address(self) -> str:
        return self._forwarded_address

    @property
    def principal(self) -> str:
        return self._forwarded_principal

    @property
    def is_peer(self) -> bool:
        return False
