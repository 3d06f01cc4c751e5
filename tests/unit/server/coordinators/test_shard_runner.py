"""What a runner does for a shard of any kind: a toy that keeps numbers, some of which are written in transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import ClassVar

import pytest
from tests.unit.server.group_clients import give_a_follower
from tests.unit.server.rig import Rig
from tests.unit.server.transactions import UNVERIFIED

from odradek.coordinator.group.records import OffsetCommitKey, OffsetCommitValue
from odradek.coordinator.record_format import encode_batch
from odradek.coordinator.shard import (
    CoordinatorDecision,
    CoordinatorRecord,
    Effect,
    Moment,
    ProducerKey,
    RecordKinds,
)
from odradek.decisions import Ticket
from odradek.ids import NodeId
from odradek.metadata.image import Changes, Image
from odradek.ports import Clock
from odradek.protocol.codec import Struct
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.heartbeat import HeartbeatResponse
from odradek.server.coordinators.coordinator import LOAD_SLICE_MS, Coordinator, StateTopic
from odradek.server.coordinators.shard_runner import Decide, ShardRunner
from odradek.server.waiting.deferred import Deferred
from odradek.storage.validation import Origin
from odradek.values import value

PRODUCER, OTHER = ProducerKey(7, 1), ProducerKey(8, 0)
DONE = HeartbeatResponse()


@value
class Announce(Effect):
    """That a number was set."""

    name: str


class ToyShard:
    """Numbers by name. What a producer writes counts once its transaction is committed."""

    kinds: ClassVar[RecordKinds] = {1: (OffsetCommitKey, OffsetCommitValue)}
    next_deadline_ms: int | None = None

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.pending: dict[int, dict[str, int]] = {}
        self.image: Image | None = None
        self.unannounced: list[str] = []

    def replay(self, record: CoordinatorRecord, producer: ProducerKey | None) -> None:
        assert isinstance(record.key, OffsetCommitKey)
        assert isinstance(record.value, OffsetCommitValue)
        numbers = self.numbers if producer is None else self.pending.setdefault(producer.producer_id, {})
        numbers[record.key.group] = record.value.offset

    def replay_encoded(self, key: bytes, content: bytes) -> bool:
        return False

    def replay_marker(self, producer: ProducerKey, committed: bool) -> None:
        ended = self.pending.pop(producer.producer_id, {})
        if committed:
            self.numbers |= ended

    def loaded(self, now: Moment) -> CoordinatorDecision:
        return CoordinatorDecision((), effects=tuple(Announce(name) for name in self.numbers))

    def learn(self, image: Image, changes: Changes | None) -> None:
        self.image = image

    def expire(self, now: Moment) -> CoordinatorDecision:
        return CoordinatorDecision(())

    def refused(
        self, decision: CoordinatorDecision, code: ErrorCode, asker: Ticket | None, now: Moment
    ) -> CoordinatorDecision:
        return CoordinatorDecision(())

    def resign(self) -> CoordinatorDecision:
        return CoordinatorDecision(())

    def holds(self, ticket: Ticket) -> bool:
        return False


def setting(name: str, number: int, producer: ProducerKey | None = None) -> Decide[ToyShard]:
    def decide(shard: ToyShard, ticket: Ticket, now: Moment) -> CoordinatorDecision:
        record = CoordinatorRecord(
            OffsetCommitKey(group=name, topic="", partition=0),
            OffsetCommitValue(offset=number, metadata="", commit_timestamp=now.wall_ms),
        )
        return CoordinatorDecision((record,), ((ticket, DONE),), producer=producer, effects=(Announce(name),))

    return decide


class Toys(Coordinator[ToyShard]):
    """Their coordinator on this node."""

    commit_timeout_ms = 5_000

    def __init__(self, rig: Rig, **configs: str) -> None:
        rooms = rig.node.rooms
        topic = StateTopic("__toys", num_partitions=2, replication_factor=3, is_factor_given=False, configs=configs)
        super().__init__(rig.node.config, rig.world, rooms.replicas, rooms.controller, topic)
        self.announced: list[str] = []

    def new_shard(self) -> ToyShard:
        return ToyShard()

    def begin(self, runner: ShardRunner[ToyShard], effect: Effect) -> None:
        assert isinstance(effect, Announce)
        self.announced.append(effect.name)

    def of(self, key: str) -> ShardRunner[ToyShard]:
        runner = self.runner(key)
        assert runner is not None
        return runner


async def toys_of(rig: Rig) -> Toys:
    """A coordinator that has just taken up what is in the logs."""
    toys = Toys(rig, **{"min.insync.replicas": "1", "segment.bytes": "2000000"})
    await toys.create_topic(rig.node.rooms.image)
    await asyncio.sleep(0.1)
    toys.start(rig.node.rooms.image)
    await asyncio.sleep(0.1)
    return toys


def on_a_node(test: Callable[[Rig], Awaitable[None]]) -> None:
    rig = Rig(properties=UNVERIFIED)
    rig.run(lambda: test(rig))  # type: ignore[arg-type, return-value]


def test_a_lone_node_makes_the_topic_with_what_the_coordinator_wants_and_as_many_replicas_as_there_are() -> None:
    async def run(rig: Rig) -> None:
        toys = await toys_of(rig)
        topic = rig.node.rooms.image.topics.by_name["__toys"]
        assert [len(partition.replicas) for partition in topic.partitions] == [1, 1]
        assert toys.of("a").hosted.partition.log.config.segment_bytes == 2_000_000
        assert toys.of("a").hosted.index == toys.partition_of("a")
        assert toys.runner_behind(toys.of("a").hosted) is toys.of("a")
        assert toys.of("a").shard.image is not None

    on_a_node(run)


@pytest.mark.parametrize("committed", [True, False])
def test_an_open_transaction_is_handed_on_by_the_log_and_ends_with_its_marker(committed: bool) -> None:
    async def run(rig: Rig) -> None:
        toys = await toys_of(rig)
        await toys.ask("a", setting("a", 1))
        await toys.ask("a", setting("a", 2, PRODUCER))
        assert (toys.of("a").shard.numbers, toys.of("a").shard.pending) == ({"a": 1}, {PRODUCER.producer_id: {"a": 2}})
        assert toys.of("a").hosted.partition.log.last_stable_offset == 1
        await toys.close()
        toys = await toys_of(rig)
        assert (toys.of("a").shard.numbers, toys.of("a").shard.pending) == ({"a": 1}, {PRODUCER.producer_id: {"a": 2}})
        toys.of("a").write_marker(PRODUCER, committed=committed, coordinator_epoch=3).result()
        ended = {"a": 2 if committed else 1}
        assert (toys.of("a").shard.numbers, toys.of("a").shard.pending) == (ended, {})
        assert toys.of("a").hosted.partition.log.last_stable_offset == 3
        await toys.close()
        toys = await toys_of(rig)
        assert (toys.of("a").shard.numbers, toys.of("a").shard.pending) == (ended, {})
        assert toys.announced == ["a"], "as the shard decides once it is loaded"
        await toys.close()

    on_a_node(run)


def test_a_marker_of_a_coordinator_that_was_replaced_changes_nothing() -> None:
    async def run(rig: Rig) -> None:
        toys = await toys_of(rig)
        runner = toys.of("a")
        runner.write_marker(PRODUCER, committed=True, coordinator_epoch=3).result()
        await toys.ask("a", setting("a", 2, PRODUCER))
        with pytest.raises(KafkaError) as fenced:
            runner.write_marker(PRODUCER, committed=False, coordinator_epoch=2)
        assert fenced.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert runner.shard.pending == {PRODUCER.producer_id: {"a": 2}}
        with pytest.raises(KafkaError) as old:
            await toys.ask("a", setting("a", 3, ProducerKey(7, 0)))
        assert old.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
        assert runner.shard.pending == {PRODUCER.producer_id: {"a": 2}}
        await toys.close()

    on_a_node(run)


def test_a_late_marker_of_the_newer_kind_does_not_end_the_next_transaction() -> None:
    """From version 2 on, a marker has an epoch above that of what it ends."""

    async def run(rig: Rig) -> None:
        toys = await toys_of(rig)
        runner = toys.of("a")
        await toys.ask("a", setting("a", 2, PRODUCER))
        with pytest.raises(KafkaError) as late:
            runner.write_marker(PRODUCER, committed=True, coordinator_epoch=3, transaction_version=2)
        assert late.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
        assert runner.shard.pending == {PRODUCER.producer_id: {"a": 2}}
        ends = ProducerKey(PRODUCER.producer_id, PRODUCER.producer_epoch + 1)
        runner.write_marker(ends, committed=True, coordinator_epoch=3, transaction_version=2).result()
        assert (runner.shard.numbers, runner.shard.pending) == ({"a": 2}, {})
        await toys.close()

    on_a_node(run)


def test_answers_markers_and_effects_wait_until_what_they_rest_on_is_committed() -> None:
    async def run(rig: Rig) -> None:
        toys = await toys_of(rig)
        runner = toys.of("a")
        follow = give_a_follower(rig, runner.hosted)
        answer = runner.put(setting("a", 1, PRODUCER))
        marker = runner.write_marker(PRODUCER, committed=True, coordinator_epoch=0)
        assert isinstance(answer, Deferred)
        await asyncio.sleep(1)
        assert (answer.is_done, marker.is_done, toys.announced) == (False, False, [])
        follow()
        assert (answer.result(), marker.result()) == (DONE, None)
        await asyncio.sleep(0)
        assert toys.announced == ["a"]
        await toys.close()

    on_a_node(run)


def test_an_effect_begins_also_where_the_answer_has_become_too_late() -> None:
    async def run(rig: Rig) -> None:
        toys = await toys_of(rig)
        runner = toys.of("a")
        follow = give_a_follower(rig, runner.hosted)
        answer = runner.put(setting("a", 1))
        assert isinstance(answer, Deferred)
        await asyncio.sleep(6)
        with pytest.raises(KafkaError):
            answer.result()
        assert toys.announced == []
        follow()
        await asyncio.sleep(0)
        assert toys.announced == ["a"]
        await toys.close()

    on_a_node(run)


def test_a_shard_that_resigns_tells_everybody_and_begins_nothing_more() -> None:
    async def run(rig: Rig) -> None:
        toys = await toys_of(rig)
        runner = toys.of("a")
        follow = give_a_follower(rig, runner.hosted)
        waiting: list[Struct | Deferred[None]] = [
            runner.put(setting("a", 1)),
            runner.write_marker(OTHER, committed=True, coordinator_epoch=0),
        ]
        state = runner.hosted.partition.state
        await toys.close()
        for each in waiting:
            assert isinstance(each, Deferred)
            with pytest.raises(KafkaError) as told:
                each.result()
            assert told.value.code is ErrorCode.NOT_COORDINATOR
        follow()
        await asyncio.sleep(1)
        assert (toys.announced, state.leader) == ([], NodeId(1))
        for refused in (
            lambda: runner.put(setting("a", 1)),
            lambda: runner.write_marker(OTHER, committed=True, coordinator_epoch=0),
        ):
            with pytest.raises(KafkaError):
                refused()

    on_a_node(run)


class LaboriousClock:
    """Time passes where it is said to have been spent."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.spent_ms = 0.0

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms() + int(self.spent_ms)


def test_loads_keep_the_loop_for_a_slice_and_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many logs are loaded at once, and however large a batch of them is."""

    async def run(rig: Rig) -> None:
        toys = await toys_of(rig)
        for letter in "ab":
            record = setting(letter, 0)(toys.of(letter).shard, Ticket(1), toys.moment()).records[0]
            key = record.key
            assert isinstance(key, OffsetCommitKey)
            for first in range(0, 20_000, 10_000):
                keys = (
                    OffsetCommitKey(group=f"{letter}{number}", topic="", partition=0)
                    for number in range(first, first + 10_000)
                )
                batch = encode_batch([CoordinatorRecord(each, record.value) for each in keys], timestamp_ms=1)
                rig.node.rooms.replicas.append(
                    toys.of(letter).hosted, memoryview(batch), now_ms=1, origin=Origin.COORDINATOR, acks_all=True
                )
        assert toys.of("a").hosted is not toys.of("b").hosted
        await toys.close()

        clock = LaboriousClock(rig.world.clock)
        replay = ToyShard.replay

        def laborious(self: ToyShard, record: CoordinatorRecord, producer: ProducerKey | None) -> None:
            clock.spent_ms += 0.005
            replay(self, record, producer)

        monkeypatch.setattr(ToyShard, "replay", laborious)
        again = Toys(rig)
        again._clock = clock
        told = [0]
        again.on_loaded = lambda: told.append(told[-1] + 1)
        again.start(rig.node.rooms.image)
        turns_ms = []
        while ErrorCode.COORDINATOR_LOAD_IN_PROGRESS in (again.of("a").state, again.of("b").state):
            began_ms = clock.spent_ms
            await asyncio.sleep(0)
            turns_ms.append(clock.spent_ms - began_ms)
        assert len(again.of("a").shard.numbers) == len(again.of("b").shard.numbers) == 20_000
        assert clock.spent_ms == pytest.approx(200)
        assert max(turns_ms) < LOAD_SLICE_MS + 1 + 1
        assert told[-1] > 200 / (LOAD_SLICE_MS + 2)
        await again.close()

    on_a_node(run)


def test_a_shard_that_has_resigned_while_others_were_loaded_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(rig: Rig) -> None:
        toys = await toys_of(rig)
        for letter in "ab":
            await toys.of(letter).ask(setting(letter, 1))
        await toys.close()
        monkeypatch.setattr(Toys, "slice_is_over", lambda self: True)
        again = Toys(rig)
        again.start(rig.node.rooms.image)
        first, second = again._to_load
        second.resign()
        await asyncio.sleep(0.1)
        assert (first.state, second.state) == (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR)
        assert not second.shard.numbers
        await again.close()

    on_a_node(run)
