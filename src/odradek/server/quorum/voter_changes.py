"""Voters that come, go and move, as the leader of the quorum carries it out: one change at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from odradek.client.errors import ConnectionLost, RequestTimedOut
from odradek.ids import NO_EPOCH, NodeId, Offset
from odradek.metadata.raft import reconfiguration
from odradek.metadata.raft.control_records import voters_record
from odradek.metadata.raft.voters import ReplicaKey, Voter
from odradek.ports import World
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.add_raft_voter import AddRaftVoterRequest
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.control_records import KRaftVersionRecord
from odradek.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from odradek.protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from odradek.server.peers.peers import Peers
from odradek.values import replace

if TYPE_CHECKING:
    from odradek.server.quorum.quorum import Quorum

log = logging.getLogger(__name__)

KRAFT_VERSION = "kraft.version"


class VoterChanges:
    """The one change that may be under way."""

    def __init__(self, world: World, quorum: Quorum) -> None:
        self._world = world
        self._quorum = quorum
        self._peers = Peers(world.network, client_id=f"raft-client-{quorum.me.node_id}")
        self._pending = False
        self._announced: dict[NodeId, Voter] = {}
        self._announced_epoch = NO_EPOCH

    def close(self) -> None:
        self._peers.close()

    async def add(self, request: AddRaftVoterRequest) -> None:
        """KafkaError unless the voter is added: committed, or only in the log if that is all that was asked for."""
        await _apart(self._add(request))

    async def remove(self, request: RemoveRaftVoterRequest) -> None:
        """KafkaError unless the voter is removed; a leader that removed itself resigns."""
        await _apart(self._remove(request))

    async def _add(self, request: AddRaftVoterRequest) -> None:
        quorum, raft = self._quorum, self._quorum.raft
        reconfiguration.check_leads(raft, request.cluster_id, quorum.cluster_id)
        new = reconfiguration.requested_voter(
            request.voter_id,
            request.voter_directory_id,
            request.listeners,
            listener_name=quorum.listener_name,
            action="Add",
        )
        self._begin()
        try:
            reconfiguration.check_may_change(raft)
            reconfiguration.check_is_new(raft, new)
            epoch = raft.epoch
            kraft_versions = await self._kraft_versions(new)
            reconfiguration.check_leads(raft, None, quorum.cluster_id, epoch=epoch)
            reconfiguration.check_may_change(raft)
            reconfiguration.check_can_join(raft, new, kraft_versions, self._world.clock.monotonic_ms())
            joined = replace(new, kraft_versions=kraft_versions or new.kraft_versions)
            end_offset = self._append(reconfiguration.voters_with(raft, joined))
            log.info("Adding voter %s to the metadata quorum", new.key)
            if request.ack_when_committed:
                await self._committed(end_offset, request.timeout_ms)
        finally:
            self._pending = False

    async def _remove(self, request: RemoveRaftVoterRequest) -> None:
        quorum, raft = self._quorum, self._quorum.raft
        reconfiguration.check_leads(raft, request.cluster_id, quorum.cluster_id)
        if request.voter_id < 0 or not any(request.voter_directory_id):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Remove voter request didn't include a valid voter")
        self._begin()
        try:
            reconfiguration.check_may_change(raft)
            key = ReplicaKey(NodeId(request.voter_id), request.voter_directory_id)
            end_offset = self._append(reconfiguration.voters_without(raft, key))
            log.info("Removing voter %s from the metadata quorum", key)
            await self._committed(end_offset, quorum.settings.request_timeout_ms)
        finally:
            self._pending = False
        if raft.is_leader and not raft.is_voter:
            await quorum.step(raft.resign)

    def update(self, request: UpdateRaftVoterRequest) -> None:
        """KafkaError unless the voter's new address is in the log; static voters have nothing there."""
        quorum, raft = self._quorum, self._quorum.raft
        reconfiguration.check_leads(raft, request.cluster_id, quorum.cluster_id, epoch=request.current_leader_epoch)
        versions = request.kraft_version_feature
        if not 0 <= versions.min_supported_version <= versions.max_supported_version:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        changed = reconfiguration.requested_voter(
            request.voter_id,
            request.voter_directory_id,
            request.listeners,
            listener_name=quorum.listener_name,
            action="Update",
        )
        changed = replace(changed, kraft_versions=(versions.min_supported_version, versions.max_supported_version))
        if not raft.membership.is_dynamic:
            self._note_static(changed)
            return
        self._begin()
        self._pending = False
        reconfiguration.check_may_change(raft)
        voters = reconfiguration.voters_updated(raft, changed)
        if voters != raft.membership.voters:
            self._append(voters)
            log.info("Voter %s of the metadata quorum is at %s:%d now", changed.key, changed.host, changed.port)

    async def raise_kraft_version(self, level: int, *, validate_only: bool) -> None:
        """From static to dynamic voters: from then on they stand in the log. KafkaError if one was not heard of."""
        await _apart(self._raise_kraft_version(level, validate_only=validate_only))

    async def _raise_kraft_version(self, level: int, *, validate_only: bool) -> None:
        quorum, raft = self._quorum, self._quorum.raft
        reconfiguration.check_leads(raft, None, quorum.cluster_id)
        voters = reconfiguration.voters_in_log(raft, self._static_announced(), level)
        if validate_only:
            return
        self._begin()
        try:
            records = (KRaftVersionRecord(version=0, kraft_version=level), voters_record(voters, quorum.listener_name))
            if not quorum.is_active:
                raise KafkaError(ErrorCode.NOT_CONTROLLER)
            end_offset = quorum.append_membership(records)
            log.info("Raising kraft.version to %d: the voters stand in the log from now on", level)
            await self._committed(end_offset, quorum.settings.request_timeout_ms)
        finally:
            self._pending = False

    def _note_static(self, voter: Voter) -> None:
        """Static voters tell their directories, so that one day they can stand in the log."""
        self._static_announced()[voter.node_id] = voter

    def _static_announced(self) -> dict[NodeId, Voter]:
        """What was told in this epoch: who was told of in an older one may have lost its disk since."""
        if self._announced_epoch != self._quorum.epoch:
            self._announced_epoch = self._quorum.epoch
            self._announced = {}
        return self._announced

    def _begin(self) -> None:
        if self._pending:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                "Request timed out waiting for leader to handle previous voter change request",
            )
        self._pending = True

    def _append(self, voters: tuple[Voter, ...]) -> Offset:
        if not self._quorum.is_active:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self._quorum.append_membership([voters_record(voters, self._quorum.listener_name)])

    async def _committed(self, end_offset: Offset, timeout_ms: int) -> None:
        try:
            async with asyncio.timeout(max(timeout_ms, 1) / 1000):
                await self._quorum.commits.until(end_offset, self._quorum.epoch)
        except TimeoutError:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT) from None
        except KafkaError as lost:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER) from lost

    async def _kraft_versions(self, new: Voter) -> tuple[int, int] | None:
        """Which levels of kraft.version the new voter says it knows."""
        timeout_ms = self._quorum.settings.request_timeout_ms
        address = (new.host, new.port)
        try:
            connection = await self._peers.connect(address, timeout_ms=timeout_ms)
            request = ApiVersionsRequest(client_software_name="odradek", client_software_version="raft")
            version = min(connection.versions[request.api_key or 0][1], request.max_stable_version)
            response = await connection.ask(request, ApiVersionsResponse, version, timeout_ms=timeout_ms)
        except (ConnectionLost, RequestTimedOut) as lost:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"New voter {new.key} is not ready to receive requests: {lost}"
            ) from lost
        finally:
            self._peers.drop(address)
        for feature in response.supported_features:
            if feature.name == KRAFT_VERSION:
                return feature.min_version, feature.max_version
        return None


async def _apart(work: Coroutine[Any, Any, None]) -> None:
    """A task of its own: a change that was begun is carried through though whoever asked for it is gone."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda done: None if done.cancelled() else done.exception())
    await asyncio.wait([task])  # Not `shield`: its own future would complain of a refusal that nobody waits for.
    task.result()
