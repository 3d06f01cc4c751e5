"""What all of administration shares: the cluster, retries, and outcomes of many things asked at once."""

from __future__ import annotations

from collections.abc import Collection
from types import TracebackType
from typing import TypeAlias, TypeVar

from odradek.client.cluster import Cluster
from odradek.client.link import Ports
from odradek.client.settings import ADMIN_TABLE, Given, Settings
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError

ResponseT = TypeVar("ResponseT", bound=Message)
KeyT = TypeVar("KeyT")

Outcomes: TypeAlias = "dict[KeyT, KafkaError | None]"
"""For each thing asked: None where it was done, else why it was not. Nothing is raised for a part of a request."""


class AdminBase:
    """Owns the cluster's connections; used as an asynchronous context manager or closed by hand."""

    def __init__(self, ports: Ports, settings: Given) -> None:
        self.cluster = Cluster(ports, Settings(ADMIN_TABLE, settings))

    async def close(self) -> None:
        await self.cluster.close()

    async def __aenter__(self) -> AdminBase:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def _timeout_ms(self) -> int:
        return self.cluster.settings.number("default.api.timeout.ms")

    async def _ask(self, request: Message, response: type[ResponseT], *, node_id: int | None = None) -> ResponseT:
        """Any broker's answer (or one broker's), over lost connections: brokers pass on what the controller decides."""
        if node_id is not None and node_id not in self.cluster.brokers:
            await self.cluster.retrying(lambda: self.cluster.refresh(()))
            if node_id not in self.cluster.brokers:
                raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"there is no broker {node_id}")
        return await self.cluster.retrying(lambda: self.cluster.ask(request, response, node_id=node_id))

    async def _broker_ids(self, wanted: Collection[int] | None) -> list[int]:
        await self.cluster.retrying(lambda: self.cluster.refresh(()))
        return sorted(self.cluster.brokers) if wanted is None else list(wanted)


def outcome(code: int, message: str | None = None) -> KafkaError | None:
    """None, or the error that an item of a response carries."""
    return KafkaError(ErrorCode(code), message or "") if code else None
