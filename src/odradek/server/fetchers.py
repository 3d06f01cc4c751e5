"""Followers at work: one fetcher for each broker that leads partitions which this node follows.

A fetcher has one Fetch under way, in a session, so a request names only what moved. It waits at the leader for records
that are not there yet. Partitions that come in meanwhile do not wait for its answer: the next request goes by a second
connection, and the leader lets the first one go. What a partition has to wait for on its own (a sync, a leader that
does not know yet that it leads) keeps no other one waiting.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias

from odradek import __version__
from odradek.client.connection import Connection
from odradek.client.errors import ClientError, ConnectionLost
from odradek.ids import LeaderEpoch, NodeId, Offset, Uuid
from odradek.ports import World
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.replication import follower
from odradek.replication.fetch_plan import FULL_EPOCH, FetchPlan
from odradek.server.config import NodeConfig
from odradek.server.fetch_sessions import ALL_BYTES
from odradek.server.hosted import Hosted
from odradek.server.replicas import Replicas
from odradek.storage.leader_epochs import EpochEnd

log = logging.getLogger(__name__)

Key: TypeAlias = tuple[Uuid, int]

TOGETHER_S = 0.003
"""Partitions come in by the dozen when a leader goes: so long the first of them wait for the others."""

FIRST_PAUSE_MS = 10
"""After a first failure; doubled with each further one, up to `replica.fetch.backoff.ms`."""

DOUBT_MS = 300
"""So long a leader that has hung up and not come back is taken to be gone, if nobody says otherwise."""

CONNECT_TIMEOUT_MS = 10_000
UNKNOWN_LAG = -1
_LATEST, _EARLIEST = -1, -2
_REPLICA_STATE_VERSION = 15
_SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


class Followed:
    """One partition as its fetcher sees it."""

    __slots__ = ("asked_offset", "failures", "hosted", "key", "lag", "leader_epoch", "since", "timer")

    def __init__(self, hosted: Hosted) -> None:
        self.hosted = hosted
        self.key: Key = (hosted.topic_id, hosted.index)
        self.leader_epoch = hosted.partition.state.leader_epoch
        self.asked_offset = Offset(-1)
        self.since = -1
        """The request that asked for it from where it stands now; what answers an earlier one is out of date."""
        self.lag = UNKNOWN_LAG
        """Committed records that the leader had and this node had not, as of the last answer."""
        self.failures = 0
        self.timer: asyncio.TimerHandle | None = None


class Fetcher:
    """Pulls everything that one broker leads and this node follows."""

    def __init__(self, fetchers: Fetchers, leader_id: NodeId) -> None:
        self._fetchers = fetchers
        self._config = fetchers.config
        self._replicas = fetchers.replicas
        self._leader_id = leader_id
        self._plan: FetchPlan[Key] = FetchPlan()
        self._followed: dict[Key, Followed] = {}
        self._serial = 0
        self._session_since = 0
        """The request that asked for the present session: what answers an earlier one speaks of another."""
        self._connections: list[Connection] = []
        """The one in use first; the second for what cannot wait behind it."""
        self._nudged: asyncio.Future[None] | None = None
        self._nudge_timer: asyncio.TimerHandle | None = None
        self._throttled: dict[Key, Followed] = {}
        """Those that a replication throttle bounds while they are not in sync,"""
        self._held_back: dict[Key, Followed] = {}
        """and those that are left out for it at present."""
        self._release_timer: asyncio.TimerHandle | None = None
        self._failures = 0
        self._errands: dict[asyncio.Task[None], None] = {}
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._followed)

    def max_lag(self) -> int:
        return max((0, *(followed.lag for followed in self._followed.values())))

    def start(self) -> None:
        if self._task is None:
            self._task = self._fetchers.spawn(self._run())

    def follow(self, hosted: Hosted) -> None:
        """Begin with a partition, or begin anew: its leader epoch is another one."""
        self.forget((hosted.topic_id, hosted.index))
        followed = Followed(hosted)
        self._followed[followed.key] = followed
        if hosted.follower_throttle is not None:
            self._throttled[followed.key] = followed
        self._want(followed)

    def forget(self, key: Key) -> None:
        followed = self._followed.pop(key, None)
        if followed is not None:
            self._plan.leave_out(key)
            self._throttled.pop(key, None)
            self._held_back.pop(key, None)
            if followed.timer is not None:
                followed.timer.cancel()

    def leader_moved(self) -> None:
        """The broker may be elsewhere, or be back: no need to wait any longer."""
        self._failures = 0
        self._nudge()

    def close(self) -> None:
        """Stop at once; answers that come later are not looked at."""
        for key in list(self._followed):
            self.forget(key)
        self._release()
        for task in (*self._errands, *([] if self._task is None else [self._task])):
            task.cancel()
        self._hang_up()

    # The loop.

    async def _run(self) -> None:
        while True:
            try:
                await self._pull()
            except (ClientError, KafkaError) as failure:
                if self._connections:
                    self._fetchers.doubt(self._leader_id)
                self._hang_up()
                self._plan.lost()
                level = logging.DEBUG if self._failures else logging.INFO
                log.log(level, "Broker %s cannot be fetched from: %s", self._leader_id, failure)
                await self._rest(self._pause_s(self._failures))
                self._failures += 1

    async def _pull(self) -> None:
        connection = await self._connection(0)
        self._fetchers.trust(self._leader_id)
        while True:
            if self._throttled:
                self._hold_back()
            if not len(self._plan):
                await self._rest(None)
                continue
            serial, full, request = self._next_request(connection)
            answer = connection.ask(
                request,
                FetchResponse,
                _fetch_version(connection),
                timeout_ms=self._config.replica_socket_timeout_ms + request.max_wait_ms,
            )
            answer.add_done_callback(lambda _: self._nudge())
            while not answer.done() and not (self._plan.has_news() and not full):
                await self._rest(None)
            if answer.done():
                self._handle(answer.result(), serial, full=full)
                self._failures = 0
            else:
                answer.add_done_callback(partial(self._handle_late, serial))
                connection = await self._connection(1)
                self._connections.reverse()

    def _next_request(self, connection: Connection) -> tuple[int, bool, FetchRequest]:
        self._serial += 1
        config, me = self._config, self._fetchers.node_id
        epoch = self._replicas.surroundings.broker_epoch
        opens_session = self._plan.opens_session
        planned = self._plan.next_fetch()
        request = FetchRequest(
            replica_id=me,
            replica_state=ReplicaState(replica_id=me, replica_epoch=epoch),
            # The first answer opens a session; until it is there, nothing can overtake it.
            max_wait_ms=0 if opens_session else config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=planned.session_id,
            session_epoch=planned.session_epoch,
            topics=[],
            forgotten_topics_data=_forgotten(planned.forgotten),
        )
        if _fetch_version(connection) >= _REPLICA_STATE_VERSION:
            request.replica_id = -1
        topics: dict[Uuid, FetchTopic] = {}
        for key in planned.mentioned:
            followed = self._followed[key]
            position = follower.position_of(followed.hosted.partition.log)
            followed.asked_offset = position.fetch_offset
            followed.since = self._serial
            topic = topics.get(key[0])
            if topic is None:
                topic = topics[key[0]] = FetchTopic(topic_id=key[0], partitions=[])
                request.topics.append(topic)
            topic.partitions.append(
                FetchPartition(
                    partition=key[1],
                    current_leader_epoch=followed.leader_epoch,
                    fetch_offset=position.fetch_offset,
                    last_fetched_epoch=position.last_fetched_epoch,
                    log_start_offset=position.log_start_offset,
                    partition_max_bytes=config.replica_fetch_max_bytes,
                    replica_directory_id=followed.hosted.directory.directory_id,
                )
            )
        full = planned.session_epoch == FULL_EPOCH
        if full:
            self._session_since = self._serial
        return self._serial, full, request

    # Answers.

    def _handle_late(self, serial: int, answer: asyncio.Future[FetchResponse]) -> None:
        """Of a request that was overtaken by another one."""
        if answer.cancelled() or answer.exception() is not None or not self._connections:
            return
        try:
            self._handle(answer.result(), serial, full=False)
        except KafkaError:
            self._plan.lost()
        except Exception as failure:
            self._fetchers.on_failure(failure)
            raise
        self._nudge()

    def _handle(self, response: FetchResponse, serial: int, *, full: bool) -> None:
        if response.error_code:
            if response.error_code in _SESSION_ERRORS:
                if serial >= self._session_since:
                    self._plan.lost()
                return
            raise KafkaError(ErrorCode(response.error_code))
        if full:
            self._plan.opened(response.session_id)
        for topic in response.responses:
            for data in topic.partitions:
                followed = self._followed.get((topic.topic_id, data.partition_index))
                if followed is not None and 0 <= followed.since <= serial:
                    self._handle_partition(followed, data)

    def _handle_partition(self, followed: Followed, data: PartitionData) -> None:
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._pause(followed)
            self._send_off(self._find_place(followed))
        elif data.error_code:
            self._try_later(followed, ErrorCode(data.error_code))
        else:
            try:
                with self._replicas.minding_the_disk(followed.hosted):
                    if data.diverging_epoch.epoch >= 0:
                        told = data.diverging_epoch
                        end = EpochEnd(LeaderEpoch(told.epoch), Offset(told.end_offset))
                        self._cut(followed, lambda: follower.cut_diverged(followed.hosted.partition.log, end))
                        self._want(followed)
                    else:
                        self._take(followed, data)
            except KafkaError as refused:
                self._try_later(followed, refused.code, refused.message)
            else:
                followed.failures = 0

    def _take(self, followed: Followed, data: PartitionData) -> None:
        hosted = followed.hosted
        partition_log = hosted.partition.log
        before = partition_log.log_end_offset, partition_log.log_start_offset
        records = data.records if isinstance(data.records, memoryview) else memoryview(b"")
        now_ms = self._fetchers.world.clock.now_ms()
        hosted.held_bytes += len(records)
        moved = follower.take(
            partition_log,
            records,
            fetch_offset=followed.asked_offset,
            high_watermark=data.high_watermark,
            log_start_offset=data.log_start_offset,
            now_ms=now_ms,
        )
        followed.lag = max(data.high_watermark - partition_log.log_end_offset, 0)
        hosted.replication_bytes_in += len(records)
        if hosted.follower_throttle is not None:
            self._replicas.throttles.taken(len(records))
        hosted.first_offset = Offset(hosted.first_offset + partition_log.log_end_offset - before[0])
        if moved:
            hosted.committed()
        if before == (partition_log.log_end_offset, partition_log.log_start_offset):
            return
        if partition_log.flushes_on_append and partition_log.flush_due(now_ms):
            self._pause(followed)
            self._send_off(self._sync(followed))
        else:
            self._plan.want(followed.key)

    def _cut(self, followed: Followed, cut: Callable[[], bool]) -> None:
        hosted = followed.hosted
        before = hosted.partition.log.log_end_offset
        if cut():
            after = hosted.partition.log.log_end_offset
            log.info("Cut %s from %s to %s, as broker %s has it", hosted, before, after, self._leader_id)
            hosted.first_offset = Offset(hosted.first_offset + after - before)
            hosted.tell_all(ALL_BYTES)

    # Throttles.

    def throttles_changed(self) -> None:
        """Others are bounded now, or by another rate: the next request finds out who is to be left out."""
        self._throttled = {
            key: followed for key, followed in self._followed.items() if followed.hosted.follower_throttle is not None
        }
        self._release()

    def _hold_back(self) -> None:
        """Leave out of the session, for a while, what would exceed the quota; never what is in sync (KIP-73)."""
        if self._replicas.throttles.taking_excess_ms():
            for key, followed in self._throttled.items():
                if followed.lag != 0 and self._plan.wants(key):
                    self._pause(followed)
                    self._held_back[key] = followed
            if self._held_back and self._release_timer is None:
                self._release_in_time()

    def _release_in_time(self) -> None:
        """As soon as there is room; then all at once, so that nobody is always the last."""
        self._release_timer = None
        excess_ms = self._replicas.throttles.taking_excess_ms()
        if excess_ms:
            self._release_timer = asyncio.get_running_loop().call_later(excess_ms / 1000, self._release_in_time)
        else:
            self._release()

    def _release(self) -> None:
        if self._release_timer is not None:
            self._release_timer.cancel()
            self._release_timer = None
        held_back, self._held_back = self._held_back, {}
        for key in held_back:
            self._plan.want(key)
        if held_back:
            self._nudge()

    # What a partition does on its own.

    def _want(self, followed: Followed) -> None:
        followed.timer = None
        self._plan.want(followed.key)
        if self._nudge_timer is None:
            self._nudge_timer = asyncio.get_running_loop().call_later(TOGETHER_S, self._nudge)

    def _pause(self, followed: Followed) -> None:
        followed.since = -1
        self._plan.leave_out(followed.key)

    def _try_later(self, followed: Followed, code: ErrorCode, message: str = "") -> None:
        self._pause(followed)
        level = logging.WARNING if followed.failures % _EVERY == _WORTH_A_WORD else logging.DEBUG
        why = message or code.name
        log.log(level, "%s cannot be fetched from broker %s: %s", followed.hosted, self._leader_id, why)
        pause_s = self._pause_s(followed.failures)
        followed.failures += 1
        followed.timer = asyncio.get_running_loop().call_later(pause_s, self._want, followed)

    def _send_off(self, errand: Coroutine[Any, Any, None]) -> None:
        task = self._fetchers.spawn(errand)
        self._errands[task] = None
        task.add_done_callback(lambda done: self._errands.pop(done, None))

    def _is_current(self, followed: Followed) -> bool:
        return self._followed.get(followed.key) is followed

    async def _sync(self, followed: Followed) -> None:
        """Do not say that it is here before it is on the device."""
        try:
            await self._replicas.flush([followed.hosted])
        except KafkaError as failure:
            if self._is_current(followed):
                self._try_later(followed, failure.code, failure.message)
            return
        if self._is_current(followed):
            self._want(followed)

    async def _find_place(self, followed: Followed) -> None:
        """The leader does not have the offset: it ends before (an unclean election), or starts behind it."""
        partition_log = followed.hosted.partition.log
        try:
            end = await self._list_offset(followed, _LATEST)
            start = Offset(-1) if end < partition_log.log_end_offset else await self._list_offset(followed, _EARLIEST)
            if not self._is_current(followed):
                return
            with self._replicas.minding_the_disk(followed.hosted):
                if end < partition_log.log_end_offset:
                    self._cut(followed, lambda: follower.cut_to_leader_end(partition_log, end))
                else:
                    self._cut(followed, lambda: follower.start_at_leader_start(partition_log, start))
        except (ClientError, KafkaError) as failure:
            if self._is_current(followed):
                code = failure.code if isinstance(failure, KafkaError) else ErrorCode.NETWORK_EXCEPTION
                self._try_later(followed, code, str(failure))
            return
        followed.failures = 0
        self._want(followed)

    async def _list_offset(self, followed: Followed, timestamp: int) -> Offset:
        connection = await self._connection(1)
        partition = ListOffsetsPartition(
            partition_index=followed.key[1], current_leader_epoch=followed.leader_epoch, timestamp=timestamp
        )
        request = ListOffsetsRequest(
            replica_id=self._fetchers.node_id,
            topics=[ListOffsetsTopic(name=followed.hosted.topic, partitions=[partition])],
        )
        version = min(connection.versions[ApiKey.LIST_OFFSETS][1], request.max_stable_version)
        answer = await connection.ask(
            request, ListOffsetsResponse, version, timeout_ms=self._config.replica_socket_timeout_ms
        )
        found = answer.topics[0].partitions[0]
        if found.error_code:
            raise KafkaError(ErrorCode(found.error_code))
        return Offset(found.offset)

    # Connections and pauses.

    async def _connection(self, number: int) -> Connection:
        """The first or the second one, made if need be."""
        while len(self._connections) <= number:
            self._connections.append(await self._open())
        connection = self._connections[number]
        if connection.is_lost:
            raise ConnectionLost("the connection is gone")
        return connection

    async def _open(self) -> Connection:
        address = self._fetchers.address_of(self._leader_id)
        if address is None:
            raise ConnectionLost("its address is not known")
        connection = await Connection.open(
            self._fetchers.world.network,
            host=address[0],
            port=address[1],
            client_id=f"broker-{self._fetchers.node_id}-fetcher-0",
            timeout_ms=CONNECT_TIMEOUT_MS,
        )
        try:
            request = ApiVersionsRequest(client_software_name="odradek", client_software_version=__version__)
            told = await connection.ask(
                request,
                ApiVersionsResponse,
                request.max_stable_version,
                timeout_ms=self._config.replica_socket_timeout_ms,
            )
        except BaseException:
            connection.close()
            raise
        connection.versions = {each.api_key: (each.min_version, each.max_version) for each in told.api_keys}
        return connection

    def _hang_up(self) -> None:
        connections, self._connections = self._connections, []
        for connection in connections:
            connection.close()

    def _pause_s(self, failures: int) -> float:
        longest_ms = self._config.replica_fetch_backoff_ms
        return float(min(FIRST_PAUSE_MS << min(failures, 20), longest_ms)) / 1000

    async def _rest(self, longest_s: float | None) -> None:
        """Until something happens."""
        loop = asyncio.get_running_loop()
        self._nudged = loop.create_future()
        timer = None if longest_s is None else loop.call_later(longest_s, self._nudge)
        try:
            await self._nudged
        finally:
            if timer is not None:
                timer.cancel()

    def _nudge(self) -> None:
        if self._nudge_timer is not None:
            self._nudge_timer.cancel()
            self._nudge_timer = None
        if self._nudged is not None and not self._nudged.done():
            self._nudged.set_result(None)


_WORTH_A_WORD = 5
"""A new leader may need a moment to hear that it leads: only who fails again and again gets into the log."""
_EVERY = 60
"""Of its failures; about one a minute."""


class Fetchers:
    """All fetchers of a node."""

    def __init__(self, config: NodeConfig, world: World, replicas: Replicas) -> None:
        self.config = config
        self.world = world
        self.replicas = replicas
        self.node_id = NodeId(config.node_id)
        self.on_failure: Callable[[BaseException], None] = lambda failure: None
        """Told when an invariant is broken: the node must stop."""
        self._by_leader: dict[NodeId, Fetcher] = {}
        self._leader_of: dict[Key, NodeId] = {}
        self._started = False
        self._doubts: dict[NodeId, int] = {}
        """Leaders to whom the connection was lost, and until when it is likely that they are gone."""
        replicas.on_role = self.settle
        replicas.on_cluster = self._cluster_changed
        replicas.on_throttles = self._throttles_changed

    def start(self) -> None:
        """Begin to fetch: this node is registered, so leaders know it."""
        self._started = True
        for fetcher in self._by_leader.values():
            fetcher.start()

    def close(self) -> None:
        for fetcher in self._by_leader.values():
            fetcher.close()
        self._by_leader.clear()
        self._leader_of.clear()
        self._started = False

    def settle(self, hosted: Hosted) -> None:
        """Let the right fetcher pull a partition, or none: it is led here, by nobody, or is gone."""
        key = (hosted.topic_id, hosted.index)
        state = hosted.partition.state
        leader = state.leader if state.leader != self.node_id and self.replicas.hosts(hosted) else NodeId(-1)
        before = self._leader_of.pop(key, None)
        if before is not None and before != leader:
            fetcher = self._by_leader[before]
            fetcher.forget(key)
            if not len(fetcher):
                fetcher.close()
                del self._by_leader[before]
        if leader >= 0:
            self._leader_of[key] = leader
            if leader not in self._by_leader:
                self._by_leader[leader] = Fetcher(self, leader)
                if self._started:
                    self._by_leader[leader].start()
            self._by_leader[leader].follow(hosted)

    def max_lag(self) -> int:
        return max((fetcher.max_lag() for fetcher in self._by_leader.values()), default=0)

    def doubt(self, leader_id: NodeId) -> None:
        self._doubts[leader_id] = self.world.clock.monotonic_ms() + DOUBT_MS

    def trust(self, leader_id: NodeId) -> None:
        self._doubts.pop(leader_id, None)

    def doubt_left_ms(self) -> int:
        """How long it is worth waiting for the word of who leads instead; 0 if there is no doubt about who does.

        A client that loses a leader asks at once who leads now, and if it is told the dead one, it does not ask again
        for a second. The controller needs some milliseconds to know better.
        """
        if not self._doubts:
            return 0
        now_ms = self.world.clock.monotonic_ms()
        self._doubts = {
            leader: end for leader, end in self._doubts.items() if end > now_ms and leader in self._by_leader
        }
        return max((end - now_ms for end in self._doubts.values()), default=0)

    def address_of(self, broker_id: NodeId) -> tuple[str, int] | None:
        broker = self.replicas.image.cluster.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoint(self.config.inter_broker_listener_name)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        failure = None if task.cancelled() else task.exception()
        if failure is not None:
            self.on_failure(failure)

    def _throttles_changed(self) -> None:
        for fetcher in self._by_leader.values():
            fetcher.throttles_changed()

    def _cluster_changed(self) -> None:
        for fetcher in self._by_leader.values():
            fetcher.leader_moved()


def _fetch_version(connection: Connection) -> int:
    return min(connection.versions[ApiKey.FETCH][1], FetchRequest.max_stable_version)


def _forgotten(keys: tuple[Key, ...]) -> list[ForgottenTopic]:
    topics: dict[Uuid, ForgottenTopic] = {}
    for topic_id, index in keys:
        topics.setdefault(topic_id, ForgottenTopic(topic_id=topic_id, partitions=[])).partitions.append(index)
    return list(topics.values())
