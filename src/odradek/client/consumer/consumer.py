"""The consumer as its user sees it."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import TypeAlias

from odradek.client.cluster import Cluster, TopicPartition
from odradek.client.consumer.fetcher import Fetcher
from odradek.client.consumer.locator import Locator
from odradek.client.consumer.membership import GroupMember
from odradek.client.consumer.positions import NOWHERE, Positions
from odradek.client.consumer.records import ConsumerRecord
from odradek.client.consumer.subscription import Subscription
from odradek.client.errors import ClientError, Misused, NoOffsetForPartition
from odradek.client.leaders import EARLIEST, LATEST, FoundOffset
from odradek.client.link import Ports
from odradek.client.offsets import NOBODY, CommittedOffset, GroupMetadata, Membership, commit_offsets, committable
from odradek.client.settings import CONSUMER_TABLE, Given, Settings
from odradek.protocol.errors import KafkaError

Listener: TypeAlias = Callable[[list[TopicPartition]], object]
"""What hears of partitions that come or go; what it returns is awaited if it can be."""


class Consumer:
    """Reads records, from partitions it was assigned or as a member of a group.

    Like the Java client it works while it is polled: rebalances, their callbacks and automatic commits happen inside
    `poll` (or `async for`), only heartbeats and fetches go on between. Not to be used by two tasks at once.
    """

    def __init__(self, ports: Ports, settings: Given) -> None:
        held = Settings(CONSUMER_TABLE, settings)
        self.cluster = Cluster(ports, held, auto_create=held.flag("allow.auto.create.topics"))
        self._settings = held
        self._clock = ports.clock
        self._positions = Positions()
        self._event = asyncio.Event()
        self._fetcher = Fetcher(self.cluster, self._positions, self._event.set)
        self._locator = Locator(self.cluster, self._positions, self._event.set)
        self._group_id = held.optional_text("group.id")
        self._timeout_ms = held.number("default.api.timeout.ms")
        self._read_committed = held.text("isolation.level") == "read_committed"
        self._auto_commit = held.flag("enable.auto.commit") and self._group_id is not None
        self._auto_commit_ms = held.number("auto.commit.interval.ms")
        self._commit_at_ms = 0
        self._committing: asyncio.Task[None] | None = None
        self._member: GroupMember | None = None
        self._subscription: Subscription | None = None
        self._listeners: tuple[Listener | None, Listener | None, Listener | None] = (None, None, None)
        self._polled: deque[ConsumerRecord] = deque()
        self._closed = False

    # What to read.

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these partitions, without being a member of the group."""
        if self._member is not None:
            raise Misused("subscribe and assign exclude each other: unsubscribe first")
        self._positions.replace(partitions)
        self._forget_polled()

    def subscribe(
        self,
        topics: Collection[str] | re.Pattern[str],
        *,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """Become a member of the group, for topics by name or for all whose whole name a pattern matches.

        Without `on_lost`, `on_revoked` hears of lost partitions too.
        """
        if self._group_id is None:
            raise Misused("subscribe needs a group.id; without one, assign partitions")
        if self._subscription is None:
            if len(self._positions):
                raise Misused("subscribe and assign exclude each other: unsubscribe first")
            self._member = GroupMember(self.cluster, self, self._event.set)
            self._subscription = Subscription(self.cluster, self._member, self._event.set)
            self._commit_at_ms = self._clock.monotonic_ms() + self._auto_commit_ms
        self._listeners = (on_assigned, on_revoked, on_lost or on_revoked)
        self._subscription.choose(topics)

    async def unsubscribe(self) -> None:
        """Leave the group and read nothing."""
        if self._member is not None and self._subscription is not None:
            await self.before_rejoin()
            await self.revoked(list(self._positions), lost=False)
            await self._subscription.close()
            member, self._member, self._subscription = self._member, None, None
            await member.leave()
        self._positions.replace(())
        self._forget_polled()

    @property
    def assignment(self) -> list[TopicPartition]:
        return list(self._positions)

    def group_membership(self) -> Membership:
        """As whom this consumer commits now; raises UNKNOWN_MEMBER_ID while it is no member of its group."""
        return NOBODY if self._member is None else self._member.membership()

    def group_metadata(self) -> GroupMetadata:
        """What a transaction needs that commits this consumer's offsets: a former member is refused (KIP-447)."""
        return GroupMetadata(self._locator.group_id(), self.group_membership())

    # Reading.

    async def poll(self, timeout_ms: int = 0, *, max_records: int | None = None) -> list[ConsumerRecord]:
        """The next records, at most `max.poll.records`; none if none came within the time.

        What it returned before counts as read: the position, and with it the next automatic commit, is behind it.
        """
        if self._polled:
            return [self._polled.popleft() for _ in range(min(len(self._polled), max_records or len(self._polled)))]
        count = self._settings.number("max.poll.records") if max_records is None else max_records
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while True:
            self._event.clear()
            self._maybe_auto_commit()
            if await self._is_assigned() and self._locator.step():
                records = self._take(count)
                self._fetcher.send()
                if records:
                    return records
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                await asyncio.sleep(0)
                return []
            await self._wait(left_ms)

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next record, however long it takes; a commit made now covers what was returned before it."""
        while not self._polled:
            if self._closed:
                raise StopAsyncIteration
            self._polled.extend(await self.poll(1_000))
        return self._polled.popleft()

    def pause(self, *partitions: TopicPartition) -> None:
        """Return nothing of these until they are resumed; the consumer stays their owner."""
        for partition in partitions:
            self._positions[partition].is_paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        for partition in partitions:
            self._positions[partition].is_paused = False

    @property
    def paused(self) -> list[TopicPartition]:
        return [partition for partition, state in self._positions.items() if state.is_paused]

    # Where.

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on reading there."""
        if offset < 0:
            raise Misused(f"an offset cannot be {offset}")
        self._positions[partition].move_to(offset)
        self._forget_polled(partition)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the first offset there is, of these partitions or of all."""
        self._seek_to(EARLIEST, partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on behind the last record, of these partitions or of all."""
        self._seek_to(LATEST, partitions)

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record, found out now if it is not known yet."""
        state = self._positions[partition]
        deadline_ms = self._clock.monotonic_ms() + self._timeout_ms
        while state.position == NOWHERE:
            if self._clock.monotonic_ms() >= deadline_ms:
                raise NoOffsetForPartition(f"{partition}: no position was found within {self._timeout_ms} ms")
            await self._locator.locate()
        for record in self._polled:
            if (record.topic, record.partition) == partition:
                return record.offset
        return state.position

    async def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offsets that are still there."""
        return {
            each: found.offset
            for each, found in (await self._locator.found(dict.fromkeys(partitions, EARLIEST))).items()
        }

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets behind the last records that this consumer may see."""
        return {
            each: found.offset for each, found in (await self._locator.found(dict.fromkeys(partitions, LATEST))).items()
        }

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, FoundOffset | None]:
        """The first record of each partition that is at least as young; None where there is none."""
        found = await self._locator.found(timestamps)
        return {partition: each if each.offset >= 0 else None for partition, each in found.items()}

    def lag(self, partition: TopicPartition) -> int | None:
        """How many records are behind the position, as of the last fetch; None before it."""
        state = self._positions[partition]
        end = state.last_stable_offset if self._read_committed else state.high_watermark
        return None if end == NOWHERE or state.position == NOWHERE else max(end - state.position, 0)

    # Committing.

    async def commit(self, offsets: Mapping[TopicPartition, CommittedOffset | int] | None = None) -> None:
        """Store positions (or these offsets) for the group, over retriable errors; raises if it cannot be done."""
        wanted = self._consumed() if offsets is None else committable(offsets)
        await self._commit(wanted)

    def commit_async(self, offsets: Mapping[TopicPartition, CommittedOffset | int] | None = None) -> asyncio.Task[None]:
        """Begin a commit of what is read now; await the task to hear how it ended."""
        wanted = self._consumed() if offsets is None else committable(offsets)
        return asyncio.ensure_future(self._commit(wanted))

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset | None]:
        """What the group has committed for these."""
        return await self._locator.committed(partitions)

    # The end.

    async def close(self) -> None:
        """Commit if commits are automatic, leave the group, close all connections."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._member is not None:
                await self.unsubscribe()
            elif self._auto_commit:
                await self.before_rejoin()
        finally:
            if self._committing is not None:
                self._committing.cancel()
                await asyncio.wait([self._committing])
            await self._locator.close()
            await self._fetcher.close()
            await self.cluster.close()

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # What the membership calls.

    def owned(self) -> Collection[TopicPartition]:
        return list(self._positions)

    async def before_rejoin(self) -> None:
        offsets = self._consumed()
        if self._auto_commit and offsets:
            try:
                async with asyncio.timeout(self._timeout_ms / 1000):
                    await self._commit(offsets)
            except (KafkaError, ClientError, TimeoutError):
                return  # What could not be committed is read again: at least once is what automatic commits promise.

    async def assigned(self, partitions: Sequence[TopicPartition], added: Sequence[TopicPartition]) -> None:
        self._positions.replace(partitions)
        if self._subscription is not None:
            self._subscription.note_assigned()
        await self._tell(self._listeners[0], list(added))

    async def revoked(self, partitions: Sequence[TopicPartition], *, lost: bool) -> None:
        if partitions:
            self._forget_polled(*partitions)
            await self._tell(self._listeners[2 if lost else 1], list(partitions))
            gone = frozenset(partitions)
            self._positions.replace([partition for partition in self._positions if partition not in gone])

    # Inside.

    async def _wait(self, left_ms: int) -> None:
        """Until something happened, a commit is due, or the time is up."""
        if self._auto_commit:
            left_ms = min(left_ms, max(self._commit_at_ms - self._clock.monotonic_ms(), 1))
        timer = asyncio.get_running_loop().call_later(left_ms / 1000, self._event.set)
        try:
            await self._event.wait()
        finally:
            timer.cancel()

    async def _is_assigned(self) -> bool:
        if self._member is None:
            if not len(self._positions):
                raise Misused("nothing to read: subscribe to topics or assign partitions first")
            return True
        assert self._subscription is not None
        return self._subscription.watch() and await self._member.step()

    def _take(self, count: int) -> list[ConsumerRecord]:
        failure, self._fetcher.failure = self._fetcher.failure, None
        if failure is not None:
            raise failure
        return self._fetcher.take(count)

    def _seek_to(self, end: int, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions or list(self._positions):
            self._positions[partition].reset(end)
            self._forget_polled(partition)

    def _consumed(self) -> dict[TopicPartition, CommittedOffset]:
        """Positions, but not beyond what `async for` has yet to return."""
        offsets = self._positions.consumed()
        for record in reversed(self._polled):
            offsets[TopicPartition(record.topic, record.partition)] = CommittedOffset(record.offset)
        return offsets

    def _maybe_auto_commit(self) -> None:
        if not self._auto_commit or self._clock.monotonic_ms() < self._commit_at_ms:
            return
        if self._committing is not None and not self._committing.done():
            return
        self._commit_at_ms = self._clock.monotonic_ms() + self._auto_commit_ms
        offsets = self._consumed()
        if offsets and (self._member is None or not self._member.needs_join):
            self._committing = asyncio.ensure_future(self._commit_quietly(offsets))

    async def _commit_quietly(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        try:
            await self._commit(offsets, timeout_ms=self._auto_commit_ms)
        except (KafkaError, ClientError):
            return  # The next one covers this one, too.

    async def _commit(
        self, offsets: Mapping[TopicPartition, CommittedOffset], *, timeout_ms: int | None = None
    ) -> None:
        group_id = self._locator.group_id()
        if not offsets:
            return

        member = NOBODY

        async def attempt() -> None:
            nonlocal member
            member = self.group_membership()
            for failure in (await commit_offsets(self.cluster, group_id, offsets, member)).values():
                if failure is not None:
                    raise failure

        try:
            await self.cluster.retrying(attempt, timeout_ms=timeout_ms)
        except KafkaError as refusal:
            if self._member is not None:
                self._member.note_commit_failure(refusal, member)
            raise

    def _forget_polled(self, *partitions: TopicPartition) -> None:
        """Drop what `async for` has not returned yet, of these partitions or of all."""
        self._polled = deque(
            record for record in self._polled if partitions and (record.topic, record.partition) not in partitions
        )

    async def _tell(self, listener: Listener | None, partitions: list[TopicPartition]) -> None:
        if listener is not None:
            told = listener(partitions)
            if isinstance(told, Awaitable):
                await told
