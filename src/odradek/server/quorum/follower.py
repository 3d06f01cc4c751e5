"""How a node follows the metadata log: it finds the leader, fetches from it, and notices when it is gone.

A connection that is reset and cannot be made again means a leader that died: voters doubt it at once. One that says
nothing for longer than a fetch may wait is doubted soon after. Doubting only starts a pre-vote. Where early elections
are switched off (ADR 10), the core's own time for fetches is waited for.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.client.connection import Awaiting, Connection
from odradek.client.errors import ConnectionLost, RequestTimedOut
from odradek.ids import NO_NODE, LeaderEpoch, NodeId, Offset
from odradek.metadata.raft import wire
from odradek.metadata.raft.fetch_forms import RequestForm
from odradek.metadata.raft.snapshot import BadSnapshot, SnapshotId, read_snapshot
from odradek.metadata.raft.state import Role
from odradek.metadata.raft.wire import Address
from odradek.ports import World
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages import fetch
from odradek.protocol.messages.fetch_snapshot import FetchSnapshotResponse
from odradek.server.peers.peers import Peers, version_for
from odradek.server.quorum.log import BadMetadataLog
from odradek.server.quorum.routine_fetches import RoutineFetches
from odradek.server.quorum.voter_place import VoterPlace
from odradek.storage.leader_epochs import EpochEnd
from odradek.values import value

if TYPE_CHECKING:
    from odradek.server.quorum.quorum import Quorum

log = logging.getLogger(__name__)

ResponseT = TypeVar("ResponseT", bound=Message)

MAX_SNAPSHOT_BYTES = 1 << 31
"""More than any image; a leader that claims more is not believed."""

_LONGEST_PAUSE_MS = 200
_USUAL_ELECTIONS = 3
"""So many within five fetch timeouts are nothing out of the ordinary: a start, a crash and another one."""
_MOST_ELECTIONS = 20
_COMPLAINTS_EVERY_MS = 10_000


class _LeaderChanged(Exception):
    """Another leader is known before the one that was asked has answered."""


@value
class Asked:
    """What an answer is to."""

    epoch: LeaderEpoch
    fetch_offset: Offset


class MetadataFollower:
    """One task, for as long as the node runs; it rests while the node leads."""

    def __init__(self, quorum: Quorum, world: World, bootstrap_servers: tuple[Address, ...]) -> None:
        self._quorum = quorum
        self._world = world
        self._bootstrap_servers = bootstrap_servers
        self._peers = Peers(world.network, client_id=f"raft-client-{quorum.me.node_id}")
        self._place = VoterPlace(quorum, world)
        self._tried = 0
        self._elections_ms: list[int] = []
        """When the newest of them began, as far as this node has noticed."""
        self._strangers: dict[Address, None] = {}
        """Who has said that this node is of another cluster, since somebody said something else."""
        self._failures = 0
        self._shunned_until_ms = 0
        """An observer's leader that did not answer is left alone for a while: the others know who follows it."""
        self._followed = (LeaderEpoch(-1), NO_NODE)
        self._closed_there: Address | None = None
        """Who closed the connection that this node had, as long as there is no other."""
        self._complained_ms = -_COMPLAINTS_EVERY_MS
        self._asked: Awaiting | None = None
        """The answer that is waited for."""
        self._routine: RoutineFetches | None = None
        self._silent_ms = 0
        """When whoever was asked has been silent for too long."""
        self._silence: asyncio.TimerHandle | None = None
        self._silence_ms = 0
        """When that timer looks; it may be earlier than it has to."""

    def close(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
        self._peers.close()
        self._place.close()

    async def run(self) -> None:
        """Until cancelled."""
        quorum = self._quorum
        while True:
            if quorum.raft.is_leader:
                await quorum.leader_changed()
                continue
            address = self._whom_to_ask()
            if address is None:
                await self._pause()
                continue
            held = self._peers.connected(address) is not None
            try:
                fine = await self._fetch(address)
            except (ConnectionLost, RequestTimedOut) as lost:
                if self._peers.was_closed_there(address):
                    self._closed_there = address
                self._peers.drop(address)
                self._complain("Cannot fetch the metadata log from %s:%d: %s", *address, lost)
                if held and isinstance(lost, ConnectionLost):
                    continue  # Connect again at once: a leader that died refuses.
                if address == quorum.raft.leader_address:
                    if address == self._closed_there and isinstance(lost, ConnectionLost):
                        quorum.on_leader_ended(quorum.raft.leader_id)
                    self._shunned_until_ms = self._world.clock.monotonic_ms() + quorum.settings.fetch_timeout_ms
                    if quorum.settings.early_elections:
                        await quorum.step(quorum.raft.doubt_leader)
                fine = False
            except KafkaError as refused:
                self._complain("What %s:%d sent cannot be taken: %s", *address, refused)
                fine = False
            if fine:
                self._closed_there = None
            self._failures = 0 if fine else self._failures + 1
            if fine:
                self._place.maybe_ask()
            else:
                await self._pause()

    # Whom to ask.

    def _whom_to_ask(self) -> Address | None:
        """The leader, if it is known, can be reached and is of this cluster; else all who may know it, by turns."""
        raft = self._quorum.raft
        if (raft.epoch, raft.leader_id) != self._followed:
            if raft.epoch != self._followed[0]:
                self._note_election()
            self._followed = (raft.epoch, raft.leader_id)
            self._failures = 0
            self._shunned_until_ms = 0
        shunned = self._world.clock.monotonic_ms() < self._shunned_until_ms
        follows = raft.role in (Role.FOLLOWER, Role.PROSPECTIVE) and raft.leader_address is not None
        if follows and (raft.is_voter or not shunned) and raft.leader_address not in self._strangers:
            return raft.leader_address
        known = self._known()
        if shunned:
            known = [address for address in known if address != raft.leader_address]
        if not known:
            return None
        self._tried += 1
        return known[self._tried % len(known)]

    def _known(self) -> list[Address]:
        """Everybody who may know the leader."""
        raft = self._quorum.raft
        known = [(voter.host, voter.port) for voter in raft.membership.voters if voter.node_id != raft.me.node_id]
        known += [server for server in self._bootstrap_servers if server not in known]
        if raft.leader_address is not None and raft.leader_address not in known:
            known.append(raft.leader_address)
        return [address for address in known if address != (raft.me.host, raft.me.port)]

    async def _pause(self) -> None:
        """Wait a little before the next try, the longer the more have failed; less if the leader changes."""
        first_ms = self._quorum.settings.retry_backoff_ms
        longest_ms = min(first_ms << min(max(self._failures - 1, 0), 6), _LONGEST_PAUSE_MS)
        pause_ms = longest_ms // 2 + self._world.entropy.below(longest_ms // 2 + 1)
        await asyncio.wait([self._quorum.leader_changed()], timeout=pause_ms / 1000)

    def _complain(self, text: str, *about: object) -> None:
        """Say what is wrong, but not all the time."""
        now_ms = self._world.clock.monotonic_ms()
        if now_ms - self._complained_ms >= _COMPLAINTS_EVERY_MS:
            self._complained_ms = now_ms
            log.warning(text, *about)

    # Fetching.

    async def _fetch(self, address: Address) -> bool:
        """Fetch until something has to be looked at, and do; whether to go on at once."""
        quorum = self._quorum
        changed = quorum.leader_changed()
        connection = await self._connect(address, changed)
        if connection is None:
            return True
        routine = self._routine_over(connection)
        if routine is not None and not changed.done():
            try:
                unusual = await self._follow(routine)
            except _LeaderChanged:
                self._peers.drop(address)
                return True
            asked = Asked(LeaderEpoch(routine.asked_epoch), Offset(routine.asked_offset))
            return unusual is None or await self._take(address, asked, unusual)
        request = self._request()
        asked = Asked(quorum.raft.epoch, quorum.log.log_end_offset)
        response = await self._ask(connection, request, fetch.FetchResponse, changed)
        if response is None:
            self._peers.drop(address)
            return True
        return await self._take(address, asked, response)

    def _routine_over(self, connection: Connection) -> RoutineFetches | None:
        """None where the leader knows only older versions of the request."""
        routine = self._routine
        if routine is None or routine.connection is not connection:
            version = version_for(connection, fetch.FetchRequest)
            form = RequestForm.of(self._request(), version, self._peers.client_id)
            if form is None:
                return None
            self._routine = routine = RoutineFetches(
                self._quorum, connection, form, on_asked=self._await_word, on_taken=self._place.maybe_ask
            )
        return routine

    async def _follow(self, routine: RoutineFetches) -> fetch.FetchResponse | None:
        self._asked = routine
        try:
            return await routine.run()
        finally:
            self._asked = None

    def _request(self) -> fetch.FetchRequest:
        quorum = self._quorum
        return wire.fetch_request(
            quorum.cluster_id,
            me=quorum.key,
            epoch=quorum.raft.epoch,
            end_offset=quorum.log.log_end_offset,
            last_epoch=quorum.log.last_epoch,
            high_watermark=quorum.raft.high_watermark,
            max_wait_ms=self.longest_wait_ms,
            max_bytes=quorum.settings.fetch_max_bytes,
        )

    @property
    def longest_wait_ms(self) -> int:
        """How long the leader may hold a fetch: short enough that its silence is noticed early."""
        return max(self._quorum.settings.fetch_timeout_ms // 8, 1)

    @property
    def longest_silence_ms(self) -> int:
        """After which the leader is doubted: longer while elections follow each other closely.

        Where every machine is too busy to answer in time, another leader is no better than the one there is.
        """
        usual_ms = 2 * self.longest_wait_ms
        many = len(self._elections_ms) - _USUAL_ELECTIONS
        if many <= 0:
            return usual_ms
        return min(usual_ms << min(many, 10), max(self._quorum.settings.fetch_timeout_ms, usual_ms))

    def _note_election(self) -> None:
        now_ms = self._world.clock.monotonic_ms()
        since_ms = now_ms - 5 * self._quorum.settings.fetch_timeout_ms
        self._elections_ms = [at_ms for at_ms in self._elections_ms if at_ms >= since_ms][-_MOST_ELECTIONS:]
        self._elections_ms.append(now_ms)

    async def _connect(self, address: Address, changed: asyncio.Future[None]) -> Connection | None:
        """The connection; None if another leader is known before it is made: one that is silent takes connections."""
        connection = self._peers.connected(address)
        if connection is not None:
            return connection
        connecting = asyncio.ensure_future(self._peers.connect(address, timeout_ms=self.longest_silence_ms))
        either: list[asyncio.Future[Any]] = [connecting, changed]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not connecting.done():
                connecting.cancel()
            elif not connecting.cancelled():
                connecting.exception()  # Seen, also where this node stops and nobody asks for the result.
        return connecting.result() if connecting.done() and not connecting.cancelled() else None

    async def _ask(
        self, connection: Connection, request: Message, kind: type[ResponseT], changed: asyncio.Future[None]
    ) -> ResponseT | None:
        """The answer; None if another leader is known before it comes."""
        if changed.done():
            return None
        answer = connection.ask(
            request, kind, version_for(connection, type(request)), timeout_ms=self._quorum.settings.request_timeout_ms
        )
        self._asked = answer
        self._await_word()
        try:
            return await answer
        except _LeaderChanged:
            return None
        finally:
            self._asked = None

    def leader_changed(self) -> None:
        """Whoever was asked does not lead any more: its answer is not waited for."""
        self._give_up_on_answer(_LeaderChanged())

    def _give_up_on_answer(self, why: Exception) -> None:
        if self._asked is not None and not self._asked.done():
            self._asked.set_exception(why)
            self._asked.exception()  # Nobody looks if this node stops before it comes to that.

    def _await_word(self) -> None:
        """Have it noticed if whoever is asked now stays silent; one timer, which is hardly ever set anew."""
        self._silent_ms = self._world.clock.monotonic_ms() + self.longest_silence_ms
        if self._silence is None or self._silent_ms < self._silence_ms:
            self._listen_until(self._silent_ms)

    def _listen_until(self, silent_ms: int) -> None:
        if self._silence is not None:
            self._silence.cancel()
        self._silence_ms = silent_ms
        wait_ms = silent_ms - self._world.clock.monotonic_ms()
        self._silence = asyncio.get_running_loop().call_later(wait_ms / 1000, self._notice_silence)

    def _notice_silence(self) -> None:
        self._silence = None
        if self._asked is None or self._asked.done():
            return
        if self._silent_ms > self._world.clock.monotonic_ms():
            self._listen_until(self._silent_ms)
        elif self._quorum.raft.is_voter:
            if self._quorum.settings.early_elections:
                self._quorum.soon(self._quorum.raft.doubt_leader)
        else:
            self._give_up_on_answer(RequestTimedOut("it is silent"))

    async def _take(self, address: Address, asked: Asked, response: fetch.FetchResponse) -> bool:
        quorum, raft = self._quorum, self._quorum.raft
        if response.error_code:
            self._complain("%s:%d answers: %s", *address, ErrorCode(response.error_code).name)
            if response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID:
                self._note_stranger(address)
            return False
        self._strangers.clear()
        partition = wire.only_partition(response.responses)
        if partition is None:
            self._complain("%s:%d answers for another partition", *address)
            return False
        leader = partition.current_leader
        async with quorum.turn:
            if partition.error_code or raft.leader_id != leader.leader_id or raft.epoch != leader.leader_epoch:
                news = wire.leader_news(leader, response.node_endpoints, partition.error_code)
                settled = raft.heard(news, self._world.clock.monotonic_ms())
                await quorum.carry_out()
                if settled or raft.leader_id != news.leader_id or raft.epoch != news.epoch:
                    return news.error == ErrorCode.NONE
            if raft.is_leader:
                return True
            if asked.epoch != raft.epoch or asked.fetch_offset != quorum.log.log_end_offset:
                return True
            if partition.diverging_epoch.epoch >= 0:
                diverging = partition.diverging_epoch
                end = EpochEnd(LeaderEpoch(diverging.epoch), Offset(diverging.end_offset))
                await quorum.truncate(raft.truncation_point(end))
                return True
            if partition.snapshot_id.epoch < 0 or partition.snapshot_id.end_offset < 0:
                await quorum.take_records(memoryview(partition.records or b""), partition.high_watermark)
                return True
            wanted = SnapshotId(Offset(partition.snapshot_id.end_offset), LeaderEpoch(partition.snapshot_id.epoch))
        return await self._load_snapshot(address, wanted)

    def _note_stranger(self, address: Address) -> None:
        """A node that nobody knows, and that has never followed anybody, stands in the wrong cluster: it should say so.

        One peer alone may be the one that is wrong, unless there is no other.
        """
        quorum = self._quorum
        self._strangers[address] = None
        if quorum.raft.high_watermark < 0 and len(self._strangers) >= min(2, len(self._known())):
            quorum.on_failure(
                BadMetadataLog(
                    f"This node's directories belong to cluster {quorum.cluster_id}, and {address[0]}:{address[1]} is "
                    "of another one (INCONSISTENT_CLUSTER_ID)."
                )
            )

    # Snapshots.

    async def _load_snapshot(self, address: Address, snapshot_id: SnapshotId) -> bool:
        """Fetch a snapshot piece by piece; nothing is changed before all of it is there and whole."""
        quorum, raft = self._quorum, self._quorum.raft
        log.info("Fetching the metadata snapshot %s from %s:%d", snapshot_id.file_name, *address)
        content = bytearray()
        epoch = raft.epoch
        while True:
            changed = quorum.leader_changed()
            connection = await self._connect(address, changed)
            if connection is None:
                return True
            request = wire.fetch_snapshot_request(
                quorum.cluster_id,
                me=quorum.key,
                epoch=epoch,
                snapshot_id=snapshot_id,
                position=len(content),
                max_bytes=quorum.settings.fetch_snapshot_max_bytes,
            )
            response = await self._ask(connection, request, FetchSnapshotResponse, changed)
            if response is None:
                self._peers.drop(address)
                return True
            piece = await self._take_piece(address, response, position=len(content))
            if piece is None:
                return False
            size, records = piece
            content += records
            if len(content) >= size:
                break
        try:
            snapshot = read_snapshot(bytes(content))
        except BadSnapshot as damaged:
            self._complain("The snapshot %s from %s:%d is damaged: %s", snapshot_id.file_name, *address, damaged)
            return False
        async with quorum.turn:
            if raft.epoch == epoch and raft.role in (Role.FOLLOWER, Role.PROSPECTIVE):
                await quorum.take_snapshot(snapshot_id, snapshot, content)
        return True

    async def _take_piece(
        self, address: Address, response: FetchSnapshotResponse, *, position: int
    ) -> tuple[int, memoryview] | None:
        """Size of the whole and this piece of it; None if it cannot be had."""
        quorum, raft = self._quorum, self._quorum.raft
        partition = wire.only_partition(response.topics)
        if response.error_code or partition is None:
            self._complain("%s:%d refuses its snapshot: %s", *address, ErrorCode(response.error_code).name)
            return None
        leader = partition.current_leader
        news = wire.LeaderNews(
            partition.error_code,
            NodeId(leader.leader_id),
            LeaderEpoch(leader.leader_epoch),
            wire.address_of(NodeId(leader.leader_id), response.node_endpoints),
        )
        settled = await quorum.step(lambda now_ms: raft.heard(news, now_ms))
        if settled or raft.epoch != news.epoch:
            return None
        records = memoryview(partition.unaligned_records)
        if partition.position != position or not len(records) or not 0 < partition.size <= MAX_SNAPSHOT_BYTES:
            self._complain("%s:%d sends pieces of a snapshot that do not fit together", *address)
            return None
        await quorum.step(lambda now_ms: raft.fetch_accepted(-1, now_ms))
        return partition.size, records
