"""A follower's connections to one leader: one with its fetch under way, a second for what cannot wait behind that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.client.connection import Connection
from odradek.client.errors import ConnectionLost
from odradek.client.versions import connect
from odradek.ids import LeaderEpoch, NodeId, Offset
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.server.partitions.hosted_partition import HostedPartition

if TYPE_CHECKING:
    from odradek.server.following.fetchers import Fetchers

CONNECT_TIMEOUT_MS = 10_000


class LeaderConnections:
    """Each is made when it is first needed."""

    def __init__(self, fetchers: Fetchers, leader_id: NodeId) -> None:
        self._fetchers = fetchers
        self._leader_id = leader_id
        self.opened: list[Connection] = []
        """The one in use first."""

    async def connection(self, number: int) -> Connection:
        """The first or the second one, made if need be.

        That the first is gone costs the session of what is fetched over it. The second is made again: it is idle for
        most of the time, and a leader closes such connections.
        """
        if number and len(self.opened) > number and self.opened[number].is_lost:
            self.opened.pop(number).close()
        while len(self.opened) <= number:
            self.opened.append(await self._open())
        connection = self.opened[number]
        if connection.is_lost:
            raise ConnectionLost("the connection is gone")
        return connection

    async def _open(self) -> Connection:
        address = self._fetchers.address_of(self._leader_id)
        if address is None:
            raise ConnectionLost("its address is not known")
        return await connect(
            self._fetchers.world.network,
            host=address[0],
            port=address[1],
            client_id=self._fetchers.client_id,
            connect_timeout_ms=CONNECT_TIMEOUT_MS,
            answer_timeout_ms=self._fetchers.config.replica_socket_timeout_ms,
        )

    async def list_offset(self, hosted: HostedPartition, timestamp: int, leader_epoch: LeaderEpoch) -> Offset:
        """Where the leader's log begins or ends (EARLIEST, LATEST); KafkaError or ClientError if it does not say."""
        connection = await self.connection(1)
        partition = ListOffsetsPartition(
            partition_index=hosted.index, current_leader_epoch=leader_epoch, timestamp=timestamp
        )
        request = ListOffsetsRequest(
            replica_id=self._fetchers.node_id,
            topics=[ListOffsetsTopic(name=hosted.topic, partitions=[partition])],
        )
        version = min(connection.versions[ApiKey.LIST_OFFSETS][1], request.max_stable_version)
        answer = await connection.ask(
            request, ListOffsetsResponse, version, timeout_ms=self._fetchers.config.replica_socket_timeout_ms
        )
        found = answer.topics[0].partitions[0]
        if found.error_code:
            raise KafkaError(ErrorCode(found.error_code))
        return Offset(found.offset)

    def hang_up(self) -> None:
        opened, self.opened = self.opened, []
        for connection in opened:
            connection.close()
