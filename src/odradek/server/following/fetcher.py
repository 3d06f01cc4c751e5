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
from typing import TYPE_CHECKING, Any

from odradek.client.errors import ClientError
from odradek.ids import LeaderEpoch, NodeId, Offset
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.fetch import FetchResponse, PartitionData
from odradek.protocol.messages.list_offsets import EARLIEST, LATEST
from odradek.replication import follower
from odradek.replication.fetch_forms import read_answer
from odradek.replication.fetch_plan import FULL_EPOCH, FetchPlan
from odradek.server.containment import Cost
from odradek.server.following.fetch_answer import FetchAnswer
from odradek.server.following.fetch_requests import FetchRequests, Followed, Key
from odradek.server.following.leader_connections import LeaderConnections
from odradek.server.partitions.fetch_sessions import ALL_BYTES
from odradek.server.partitions.hosted_partition import HostedPartition
from odradek.storage.leader_epochs import EpochEnd

if TYPE_CHECKING:
    from odradek.server.following.fetchers import Fetchers

log = logging.getLogger(__name__)

BROKEN_PAUSE_S = 5.0
"""Before a leader is asked again after something nobody expected."""

TOGETHER_S = 0.003
"""Partitions come in by the dozen when a leader goes: so long the first of them wait for the others."""

FIRST_PAUSE_MS = 10
"""After a first failure; doubled with each further one, up to `replica.fetch.backoff.ms`."""

_WORTH_A_WORD = 5
"""A new leader may need a moment to hear that it leads: only who fails again and again gets into the log."""
_EVERY = 60
"""Of its failures; about one a minute."""
_SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


class Fetcher:
    """Pulls everything that one broker leads and this node follows."""

    def __init__(self, fetchers: Fetchers, leader_id: NodeId) -> None:
        self._fetchers = fetchers
        self._config = fetchers.config
        self._clock = fetchers.world.clock
        self._replicas = fetchers.replicas
        self._containment = fetchers.replicas.containment
        self._leader_id = leader_id
        self._plan: FetchPlan[Key] = FetchPlan()
        self._followed: dict[Key, Followed] = {}
        self._serial = 0
        self._session_since = 0
        """The request that asked for the present session: what answers an earlier one speaks of another."""
        self._requests = FetchRequests(fetchers.config, fetchers.client_id, self._replicas.liveness)
        self._leader = LeaderConnections(fetchers, leader_id)
        self._asked: FetchAnswer
        """Of the request that is under way."""
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

    def follow(self, hosted: HostedPartition) -> None:
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
            except Exception as failure:  # noqa: BLE001 - whatever it is, it costs a request and a pause
                self._containment.note(Cost.TASK, f"fetching from broker {self._leader_id}", failure)
                self._leader.hang_up()
                self._plan.lost()
                await self._rest(BROKEN_PAUSE_S)

    async def _pull(self) -> None:
        connection = await self._leader.connection(0)
        self._fetchers.trust(self._leader_id)
        while True:
            if self._throttled:
                self._hold_back()
            if not self._plan.wanted:
                await self._rest(None)
                continue
            self._asked = asked = FetchAnswer(connection, self._heard, self._nudge)
            self._ask(asked)
            while not asked.done() and not (self._plan.has_news() and not asked.full):
                await self._rest(None)
            if not asked.done():
                asked.overtaken(partial(asyncio.get_running_loop().call_soon, self._handle_late, asked))
                connection = await self._leader.connection(1)
                self._leader.opened.reverse()
            elif not asked.is_taken:
                self._handle(asked.result(), asked)
                self._failures = 0

    def _ask(self, asked: FetchAnswer) -> None:
        """Send the next request."""
        self._serial = asked.serial = serial = self._serial + 1
        requests, connection = self._requests, asked.connection
        usual = self._plan.next_usual() if asked.in_forms else None
        if usual is not None:
            asked.full = False
            frame = requests.frame(connection.next_correlation_id, usual, self._followed, serial)
            connection.ask_with(frame, asked, requests.timeout_ms, True)
            return
        # The first answer opens a session; until it is there, nothing can overtake it.
        max_wait_ms = 0 if self._plan.opens_session else self._config.replica_fetch_wait_max_ms
        planned = self._plan.next_fetch()
        asked.full = planned.session_epoch == FULL_EPOCH
        if asked.full:
            self._session_since = serial
        mentioned = [self._followed[key] for key in planned.mentioned]
        request = requests.message(planned, mentioned, asked.version, serial=serial, max_wait_ms=max_wait_ms)
        timeout_ms = self._config.replica_socket_timeout_ms + max_wait_ms
        connection.ask_for(asked, request, FetchResponse, asked.version, timeout_ms=timeout_ms)

    # Answers.

    def _heard(self, response: FetchResponse | memoryview) -> None:
        """Where the answer says nothing that has to be thought over, the next request goes out at once. (Hot.)"""
        asked = self._asked
        answered = None if self._throttled or type(response) is not memoryview else read_answer(response)
        if answered is None:
            asked.keep(response)
            return
        try:
            serial, now_ms = asked.serial, self._clock.now_ms()
            for topic_id, index, high_watermark, log_start_offset, records in answered:
                followed = self._followed.get((topic_id, index))
                if followed is not None and 0 <= followed.since <= serial:
                    self._take_in(followed, records, high_watermark, log_start_offset, now_ms)
            self._failures = 0
            if self._plan.wanted:
                self._ask(asked)
            else:
                asked.is_taken = True
                self._nudge()
        except Exception as failure:  # noqa: BLE001 - for the loop, which sees to it
            asked.set_exception(failure)

    def _handle_late(self, asked: FetchAnswer) -> None:
        """Of a request that was overtaken by another one."""
        if asked.exception() is not None or not self._leader.opened:
            return
        try:
            self._handle(asked.result(), asked)
        except (ClientError, KafkaError):
            self._plan.lost()
        except Exception as failure:  # noqa: BLE001 - whatever it is, it costs the session
            self._containment.note(Cost.TASK, f"fetching from broker {self._leader_id}", failure)
            self._plan.lost()
        self._nudge()

    def _handle(self, response: FetchResponse, asked: FetchAnswer) -> None:
        serial = asked.serial
        if response.error_code:
            if response.error_code in _SESSION_ERRORS:
                if serial >= self._session_since:
                    self._plan.lost()
                return
            raise KafkaError(ErrorCode(response.error_code))
        if asked.full:
            self._plan.opened(response.session_id)
        for topic in response.responses:
            for data in topic.partitions:
                followed = self._followed.get((topic.topic_id, data.partition_index))
                if followed is not None and 0 <= followed.since <= serial:
                    try:
                        self._handle_partition(followed, data)
                    except Exception as failure:  # noqa: BLE001 - whatever it is, it costs this partition
                        self._give_up(followed, failure)

    def _handle_partition(self, followed: Followed, data: PartitionData) -> None:
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._pause(followed)
            self._send_off(followed, self._find_place(followed))
        elif data.error_code:
            self._try_later(followed, ErrorCode(data.error_code))
        elif data.diverging_epoch.epoch >= 0:
            told = data.diverging_epoch
            end = EpochEnd(LeaderEpoch(told.epoch), Offset(told.end_offset))
            try:
                self._cut(followed, lambda: follower.cut_diverged(followed.hosted.partition.log, end))
            except (OSError, KafkaError) as failure:
                self._failed(followed, failure)
            else:
                followed.failures = 0
                self._want(followed)
        else:
            records = data.records if isinstance(data.records, memoryview) else memoryview(b"")
            self._take_in(followed, records, data.high_watermark, data.log_start_offset, self._clock.now_ms())

    def _take_in(
        self, followed: Followed, records: memoryview, high_watermark: int, log_start_offset: int, now_ms: int
    ) -> None:
        hosted = followed.hosted
        partition_log = hosted.partition.log
        end_before, start_before = partition_log.log_end_offset, partition_log.log_start_offset
        size = len(records)
        hosted.held_bytes += size
        try:
            moved = follower.take(
                partition_log, records, followed.asked_offset, high_watermark, log_start_offset, now_ms
            )
            end = partition_log.log_end_offset
            followed.lag = high_watermark - end if high_watermark > end else 0
            hosted.replication_bytes_in += size
            if hosted.follower_throttle is not None:
                self._replicas.throttles.taken(size)
            hosted.first_offset = Offset(hosted.first_offset + end - end_before)
            if moved:
                hosted.on_high_watermark_advanced()
            if end == end_before and partition_log.log_start_offset == start_before:
                pass  # The leader knows already from where.
            elif partition_log.flushes_on_append and partition_log.flush_due(now_ms):
                self._pause(followed)
                self._send_off(followed, self._sync(followed))
            else:
                self._plan.want(followed.key)
            followed.failures = 0
        except (OSError, KafkaError) as failure:
            self._failed(followed, failure)
        except Exception as failure:  # noqa: BLE001 - whatever it is, it costs this partition
            self._give_up(followed, failure)

    def _give_up(self, followed: Followed, failure: Exception) -> None:
        """Fetch it no more until it has another leader or epoch, as Kafka does: it would only break again."""
        self._containment.note(Cost.PARTITION, f"{followed.hosted}, which is not followed any more", failure)
        if self._is_current(followed):
            self._pause(followed)

    def _failed(self, followed: Followed, failure: OSError | KafkaError) -> None:
        if isinstance(failure, OSError):
            failure = self._replicas.storage_error(followed.hosted, failure)
        if self._is_current(followed):  # Else its log directory has failed, and it is followed no more.
            self._try_later(followed, failure.code, failure.message)

    def _cut(self, followed: Followed, cut: Callable[[], bool]) -> bool:
        hosted = followed.hosted
        before = hosted.partition.log.log_end_offset
        if not cut():
            return False
        after = hosted.partition.log.log_end_offset
        log.info("Cut %s from %s to %s, as broker %s has it", hosted, before, after, self._leader_id)
        hosted.first_offset = Offset(hosted.first_offset + after - before)
        hosted.tell_all(ALL_BYTES)
        return True

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
                if followed.lag != 0 and key in self._plan.wanted:
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

    def _send_off(self, followed: Followed, errand: Coroutine[Any, Any, None]) -> None:
        task = self._fetchers.spawn(self._run_errand(followed, errand))
        self._errands[task] = None
        task.add_done_callback(lambda done: self._errands.pop(done, None))

    async def _run_errand(self, followed: Followed, errand: Coroutine[Any, Any, None]) -> None:
        try:
            await errand
        except Exception as failure:  # noqa: BLE001 - whatever it is, it costs this partition
            self._give_up(followed, failure)

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
        """The leader does not have the offset: it ends before (an unclean election), or starts behind it.

        If it does neither, it either does by now, or never issued the epoch that this log ends with: nothing says then
        what of the log is true, so nothing is cut.
        """
        hosted, epoch = followed.hosted, followed.leader_epoch
        partition_log = hosted.partition.log
        start = Offset(-1)
        try:
            end = await self._leader.list_offset(hosted, LATEST, epoch)
            if end >= partition_log.log_end_offset:
                start = await self._leader.list_offset(hosted, EARLIEST, epoch)
            if not self._is_current(followed):
                return
            with self._replicas.storage_errors(hosted):
                if end < partition_log.log_end_offset:
                    has_place = self._cut(followed, lambda: follower.cut_to_leader_end(partition_log, end))
                else:
                    has_place = self._cut(followed, lambda: follower.start_at_leader_start(partition_log, start))
            if not has_place:
                end, epoch = partition_log.log_end_offset, partition_log.leader_epochs.latest
                what = (
                    f"it ends at {end} in epoch {epoch}, which the leader does not know: is the log another cluster's?"
                )
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, what)
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
