"""Requests to other brokers: one connection to each, made when it is first needed and again when it was lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from odradek.client.errors import ClientError, ConnectionLost
from odradek.ids import NodeId
from odradek.ports import World
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.server.peers.peers import Peers, UnsupportedByPeer, version_for

if TYPE_CHECKING:
    from odradek.metadata.image import Image

ResponseT = TypeVar("ResponseT", bound=Message)

Address = tuple[str, int]


class BrokerChannels:
    """Requests of one purpose: what waits there does not hold up what waits elsewhere."""

    def __init__(
        self, world: World, image: Callable[[], Image], *, client_id: str, listener_name: str, timeout_ms: int
    ) -> None:
        self._image = image
        self._listener_name = listener_name
        self._timeout_ms = timeout_ms
        self._peers = Peers(world.network, client_id=client_id)
        self._opening: dict[Address, asyncio.Lock] = {}

    async def ask(self, node_id: NodeId, request: Message, response: type[ResponseT], *, oldest: int = 0) -> ResponseT:
        """KafkaError: NETWORK_EXCEPTION if no answer came, UNSUPPORTED_VERSION if that broker is too old for it.

        A request that older versions cannot say names the `oldest` one that can.
        """
        broker = self._image().cluster.brokers.get(node_id)
        endpoint = None if broker is None else broker.endpoint(self._listener_name)
        if endpoint is None:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"the address of broker {node_id} is not known")
        address = endpoint.host, endpoint.port
        try:
            async with self._opening.setdefault(address, asyncio.Lock()):
                connection = await self._peers.connect(address, timeout_ms=self._timeout_ms)
            version = version_for(connection, type(request))
            if version < oldest:
                raise UnsupportedByPeer(f"it knows {type(request).__name__} up to version {version} only")
            return await connection.ask(request, response, version, timeout_ms=self._timeout_ms)
        except UnsupportedByPeer as too_old:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"broker {node_id}: {too_old}") from too_old
        except (ClientError, ConnectionLost) as failure:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"broker {node_id}: {failure}") from failure

    def close(self) -> None:
        self._peers.close()
