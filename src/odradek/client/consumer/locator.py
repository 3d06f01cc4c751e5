"""Finds out where to begin: what was asked for, what is committed, or what `auto.offset.reset` says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

from odradek.client.cluster import Cluster, TopicPartition
from odradek.client.consumer.fetcher import RESETS
from odradek.client.consumer.positions import NOWHERE, PartitionState, Positions
from odradek.client.errors import ClientError, Misused, NoOffsetForPartition, may_pass
from odradek.client.leaders import Answers, FoundOffset, list_offsets
from odradek.client.offsets import CommittedOffset, fetch_offsets
from odradek.protocol.errors import KafkaError


class Locator:
    """Gives partitions their positions, in a task that outlives the poll it began in."""

    def __init__(self, cluster: Cluster, positions: Positions, wake: Callable[[], None]) -> None:
        settings = cluster.settings
        self._cluster = cluster
        self._positions = positions
        self._wake = wake
        self._group_id = settings.optional_text("group.id")
        self._policy = RESETS.get(settings.text("auto.offset.reset"))
        self._read_committed = settings.text("isolation.level") == "read_committed"
        self._timeout_ms = settings.number("default.api.timeout.ms")
        self._running: asyncio.Task[None] | None = None

    def step(self) -> bool:
        """Whether any partition has a position; begins to look for missing ones, and raises why none can be found."""
        if self._running is not None and self._running.done():
            done, self._running = self._running, None
            done.result()
        missing = [partition for partition, state in self._positions.items() if state.position == NOWHERE]
        if missing and self._running is None:
            self._running = asyncio.ensure_future(self._locate_sometime())
            self._running.add_done_callback(lambda _: self._wake())
        return len(missing) < len(self._positions) or not missing

    async def _locate_sometime(self) -> None:
        """As long as a failure may pass, a poll returns nothing, and a later one finds the place."""
        try:
            await self.locate()
        except (KafkaError, ClientError) as failure:
            if not may_pass(failure):
                raise
            await asyncio.sleep(self._cluster.backoff_ms(0) / 1000)

    async def locate(self) -> None:
        """Give every partition that has none a position; one whose topic is not there yet is left for next time."""
        for partition, state in (await self._take_committed()).items():
            if self._positions.get(partition) is state and _is_fresh(state):
                if self._policy is None:
                    raise NoOffsetForPartition(f"{partition} has no committed offset, and auto.offset.reset is none")
                state.reset(self._policy)
        wanted = {
            partition: state.reset_to for partition, state in self._positions.items() if state.reset_to is not None
        }
        for partition, answer in (await self._ask(wanted)).items():
            held = self._positions.get(partition)
            if isinstance(answer, KafkaError):
                if not may_pass(answer):
                    raise answer
                await asyncio.sleep(self._cluster.backoff_ms(0) / 1000)
            elif held is not None and held.reset_to == wanted[partition]:
                held.move_to(answer.offset)

    async def found(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, FoundOffset]:
        """What ListOffsets answers for all of these; raises the first error there is."""
        found: dict[TopicPartition, FoundOffset] = {}
        for partition, answer in (await self._ask(wanted)).items():
            if isinstance(answer, KafkaError):
                raise answer
            found[partition] = answer
        return found

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset | None]:
        """What the group has committed for these."""
        group_id = self.group_id()

        async def attempt() -> dict[TopicPartition, CommittedOffset | None]:
            found = await fetch_offsets(self._cluster, group_id, partitions, require_stable=self._read_committed)
            answers: dict[TopicPartition, CommittedOffset | None] = {}
            for partition in partitions:
                answer = found.get(partition)
                if isinstance(answer, KafkaError):
                    raise answer
                answers[partition] = answer
            return answers

        return await self._cluster.retrying(attempt)

    def group_id(self) -> str:
        """Whose offsets are committed; raises Misused without a group."""
        if self._group_id is None:
            raise Misused("offsets are committed for a group: give a group.id")
        return self._group_id

    async def close(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])

    async def _take_committed(self) -> dict[TopicPartition, PartitionState]:
        """Whose offsets were asked for: partitions that were assigned meanwhile, be it again, are for the next time."""
        fresh = {partition: state for partition, state in self._positions.items() if _is_fresh(state)}
        if fresh and self._group_id is not None:
            for partition, committed in (await self.committed(fresh)).items():
                state = fresh[partition]
                if committed is not None and self._positions.get(partition) is state and _is_fresh(state):
                    state.move_to(committed.offset)
                    state.leader_epoch = committed.leader_epoch
        return fresh

    async def _ask(self, wanted: Mapping[TopicPartition, int]) -> Answers[FoundOffset]:
        return await list_offsets(
            self._cluster, wanted, timeout_ms=self._timeout_ms, read_committed=self._read_committed
        )


def _is_fresh(state: PartitionState) -> bool:
    return state.position == NOWHERE and state.reset_to is None
