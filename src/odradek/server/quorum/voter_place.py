"""A controller's own place among the voters: it says where it has moved to, and may ask to be let in (KIP-853)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from odradek.client.errors import ConnectionLost, RequestTimedOut
from odradek.ids import NO_EPOCH, LeaderEpoch
from odradek.metadata.raft.state import Role
from odradek.ports import World
from odradek.protocol.api import ApiKey, response_class
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_raft_voter import AddRaftVoterRequest
from odradek.protocol.messages.add_raft_voter import Listener as AddedListener
from odradek.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from odradek.protocol.messages.update_raft_voter import KRaftVersionFeature, UpdateRaftVoterRequest
from odradek.protocol.messages.update_raft_voter import Listener as UpdatedListener
from odradek.server.peers.peers import Peers, version_for
from odradek.values import replace

if TYPE_CHECKING:
    from odradek.server.quorum.quorum import Quorum

log = logging.getLogger(__name__)


class VoterPlace:
    """Asks at most once a fetch timeout, and never twice at a time."""

    def __init__(self, quorum: Quorum, world: World) -> None:
        self._quorum = quorum
        self._world = world
        self._peers = Peers(world.network, client_id=f"raft-client-{quorum.me.node_id}")
        self._next_ms = 0
        self._asking = False
        self._told_epoch = NO_EPOCH

    def close(self) -> None:
        self._peers.close()

    def maybe_ask(self) -> None:
        """Called after every fetch that went well."""
        now_ms = self._world.clock.monotonic_ms()
        if self._asking or now_ms < self._next_ms:
            return
        self._next_ms = now_ms + self._quorum.settings.fetch_timeout_ms
        request = self._needed()
        if request is not None:
            self._asking = True
            self._quorum.spawn(self._ask(request))

    def _needed(self) -> Message | None:
        """What this node has to tell the leader, if anything."""
        quorum, raft = self._quorum, self._quorum.raft
        if raft.role is not Role.FOLLOWER or not raft.may_vote:
            return None
        if not raft.membership.is_dynamic:
            # Static voters tell their directories too: the leader needs them should they ever stand in the log.
            return self._update() if raft.is_voter and self._told_epoch != raft.epoch else None
        recorded = raft.membership.voter(raft.me.node_id)
        if recorded is not None and recorded.key == raft.me.key:
            same = replace(recorded, listeners=()) == raft.me
            return None if same else self._update()
        if not quorum.settings.auto_join:
            return None
        if recorded is not None:
            # The directory that voted under this id is gone, and this one cannot stand in for it (KIP-853).
            return RemoveRaftVoterRequest(
                cluster_id=quorum.cluster_id,
                voter_id=recorded.node_id,
                voter_directory_id=recorded.directory_id,
            )
        return AddRaftVoterRequest(
            cluster_id=quorum.cluster_id,
            timeout_ms=quorum.settings.request_timeout_ms,
            voter_id=raft.me.node_id,
            voter_directory_id=raft.me.directory_id,
            listeners=[AddedListener(name=quorum.listener_name, host=raft.me.host, port=raft.me.port)],
            ack_when_committed=False,
        )

    def _update(self) -> UpdateRaftVoterRequest:
        quorum, me = self._quorum, self._quorum.raft.me
        lowest, highest = me.kraft_versions
        return UpdateRaftVoterRequest(
            cluster_id=quorum.cluster_id,
            current_leader_epoch=quorum.epoch,
            voter_id=me.node_id,
            voter_directory_id=me.directory_id,
            listeners=[UpdatedListener(name=quorum.listener_name, host=me.host, port=me.port)],
            kraft_version_feature=KRaftVersionFeature(min_supported_version=lowest, max_supported_version=highest),
        )

    async def _ask(self, request: Message) -> None:
        """Best effort: whatever goes wrong, the next time is soon."""
        address = self._quorum.raft.leader_address
        try:
            if address is not None:
                await self._ask_at(address, request)
        except (ConnectionLost, RequestTimedOut) as lost:
            log.info("%s could not be sent to the leader: %s", type(request).__name__, lost)
        finally:
            self._asking = False

    async def _ask_at(self, address: tuple[str, int], request: Message) -> None:
        timeout_ms = self._quorum.settings.request_timeout_ms
        connection = await self._peers.connect(address, timeout_ms=timeout_ms)
        assert request.api_key is not None
        kind = response_class(ApiKey(request.api_key))
        version = version_for(connection, type(request))
        response = await connection.ask(request, kind, version, timeout_ms=2 * timeout_ms)
        code: int = getattr(response, "error_code", 0)
        if not code and isinstance(request, UpdateRaftVoterRequest):
            self._told_epoch = LeaderEpoch(request.current_leader_epoch)
        elif code:
            log.warning("The leader refuses %s: %s", type(request).__name__, ErrorCode(code).name)
