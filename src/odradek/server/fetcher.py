"""A follower at work: one fetcher pulls what one broker leads and this node follows.

It has one Fetch under way, in a session, so a request names only what moved, and waits at the leader for records
that are not there yet. Partitions that come in meanwhile do not wait for its answer: the next request goes by a second
connection, and the leader lets the first one go. What a partition has to wait for on its own (a sync, a leader that
does not know yet that it leads) keeps no other one waiting.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from odradek.client.connection import Connection
from odradek.client.errors import ClientError
from odradek.ids import LeaderEpoch, NodeId, Offset, Uuid
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from odradek.protocol.messages.list_offsets import EARLIEST, LATEST
from odradek.replication import follower
from odradek.replication.fetch_plan import FULL_EPOCH, FetchPlan
from odradek.server.fetch_answer import FetchAnswer
from odradek.server.fetch_sessions import ALL_BYTES
from odradek.server.hosted import Hosted
from odradek.server.leader_connections import LeaderConnections
from odradek.storage.leader_epochs import EpochEnd

if TYPE_CHECKING:
    from odradek.server.fetchers import Fetchers

log = logging.getLogger(__name__)

Key: TypeAlias = tuple[Uuid, int]

TOGETHER_S = 0.003
"""Partitions come in by the dozen when a leader goes: so long the first of them wait for the others."""

FIRST_PAUSE_MS = 10
"""After a first failure; doubled with each further one, up to `replica.fetch.backoff.ms`."""

UNKNOWN_LAG = -1
_REPLICA_STATE_VERSION = 15
_WORTH_A_WORD = 5
"""A new leader may need a moment to hear that it leads: only who fails again and again gets into the log."""
_EVERY = 60
"""Of its failures; about one a minute."""
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
        self._leader = LeaderConnections(fetchers, leader_id)
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
        self._leader.hang_up()

    # The loop.

    async def _run(self) -> None:
        while True:
            try:
                await self._pull()
            except (ClientError, KafkaError) as failure:
                if self._leader.opened:
                    self._fetchers.doubt(self._leader_id)
                self._leader.hang_up()
                self._plan.lost()
                level = logging.DEBUG if self._failures else logging.INFO
                log.log(level, "Broker %s cannot be fetched from: %s", self._leader_id, failure)
                await self._rest(self._pause_s(self._failures))
                self._failures += 1

    async def _pull(self) -> None:
        connection = await self._leader.connection(0)
        self._fetchers.trust(self._leader_id)
        while True:
            if self._throttled:
                self._hold_back()
            if not len(self._plan):
                await self._rest(None)
                continue
            version = _fetch_version(connection)
            serial, full, request = self._next_request(version)
            answer = FetchAnswer(self._nudge)
            timeout_ms = self._config.replica_socket_timeout_ms + request.max_wait_ms
            connection.ask_for(answer, request, FetchResponse, version, timeout_ms=timeout_ms)
            while not answer.done() and not (self._plan.has_news() and not full):
                await self._rest(None)
            if answer.done():
                self._handle(answer.result(), serial, full=full)
                self._failures = 0
            else:
                answer.on_arrival = partial(asyncio.get_running_loop().call_soon, self._handle_late, serial, answer)
                connection = await self._leader.connection(1)
                self._leader.opened.reverse()

    def _next_request(self, version: int) -> tuple[int, bool, FetchRequest]:
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
        if version >= _REPLICA_STATE_VERSION:
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

    def _handle_late(self, serial: int, answer: FetchAnswer) -> None:
        """Of a request that was overtaken by another one."""
        if answer.exception() is not None or not self._leader.opened:
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
                if data.diverging_epoch.epoch >= 0:
                    told = data.diverging_epoch
                    end = EpochEnd(LeaderEpoch(told.epoch), Offset(told.end_offset))
                    self._cut(followed, lambda: follower.cut_diverged(followed.hosted.partition.log, end))
                    self._want(followed)
                else:
                    self._take(followed, data)
            except OSError as failure:
                broken = self._replicas.storage_error(followed.hosted, failure)
                self._try_later(followed, broken.code, broken.message)
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
        hosted, epoch = followed.hosted, followed.leader_epoch
        partition_log = hosted.partition.log
        start = Offset(-1)
        try:
            end = await self._leader.list_offset(hosted, LATEST, epoch)
            if end >= partition_log.log_end_offset:
                start = await self._leader.list_offset(hosted, EARLIEST, epoch)
            if not self._is_current(followed):
                return
            with self._replicas.minding_the_disk(hosted):
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

    # Pauses.

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


def _fetch_version(connection: Connection) -> int:
    return min(connection.versions[ApiKey.FETCH][1], FetchRequest.max_stable_version)


def _forgotten(keys: tuple[Key, ...]) -> list[ForgottenTopic]:
    topics: dict[Uuid, ForgottenTopic] = {}
    for topic_id, index in keys:
        topics.setdefault(topic_id, ForgottenTopic(topic_id=topic_id, partitions=[])).partitions.append(index)
    return list(topics.values())
