"""Any timer and any record of a coordinator that raises harms nothing beside it."""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.server.group_clients import QUICK, commit, heartbeat, node_with_topic, stable_member
from tests.unit.server.rig import Client, Rig
from tests.unit.server.test_containment import surprise

from odradek.coordinator.group.kinds import GROUP_RECORDS
from odradek.coordinator.group.records import OffsetCommitKey
from odradek.coordinator.group.shard import GroupShard
from odradek.coordinator.record_format import decode_record
from odradek.coordinator.shard import CoordinatorRecord
from odradek.ports import FileSlice
from odradek.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.join_group import JoinGroupResponse
from odradek.protocol.records.batch import decode_records, iter_batches
from odradek.server.containment import Cost


def test_any_timer_of_a_coordinator_that_raises_costs_its_turn() -> None:
    """All that there are: each is due and raises, and whoever shares the shard notices nothing."""
    rig = Rig(properties=QUICK)
    draw = random.Random(2)

    def raising(*given: object) -> None:
        raise surprise(draw)

    async def test() -> None:
        client = await node_with_topic(rig)
        joined = await stable_member(client)
        running = rig.node.rooms.groups.runner("g")
        assert running is not None
        timeouts = running.shard._timeouts
        for planted, (kind, kept) in enumerate(list(timeouts.items()), start=1):
            timeouts[kind] = raising
            now_ms = rig.clock.monotonic_ms()
            running.shard.timers.set((kind, "planted"), now_ms)
            running._arm(now_ms)
            await asyncio.sleep(0.1)
            assert rig.node.rooms.containment.counts[Cost.REQUEST] == planted, kind
            assert (await client.ask(heartbeat(joined), 4)).error_code == 0
            assert rig.node.rooms.groups.runner("g") is running
            timeouts[kind] = kept
            running.shard.timers.cancel((kind, "planted"))
        await rig.restart()
        assert await _is_known(rig.connect(), joined)

    rig.run(test)


def test_any_record_of_a_coordinator_whose_replay_raises_costs_its_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind of record that groups write, when it is read at a start: the other shards are there, and the node is.

    What is mended is there again at the next start.
    """
    rig = Rig(properties=QUICK)
    draw = random.Random(3)
    poison: list[type] = []
    make = GroupShard.__init__

    def fragile(self: GroupShard, *given: Any) -> None:
        make(self, *given)

        def replay(key: Any, content: Any, kept: Callable[[Any, Any], None]) -> None:
            if type(key) in poison and key.group in ("g", "new"):
                raise surprise(draw)
            kept(key, content)

        self._replays = {kind: functools.partial(replay, kept=kept) for kind, kept in self._replays.items()}

    async def test() -> None:
        client = await node_with_topic(rig)
        elsewhere = next(f"other {number}" for number in range(100) if _is_elsewhere(rig, f"other {number}"))
        joined, beside = await stable_member(client), await stable_member(client, elsewhere)
        await client.ask(commit("alone", "t", {0: 4}), 9)
        request = ConsumerGroupHeartbeatRequest(group_id="new", member_id="m", member_epoch=0)
        request.rebalance_timeout_ms, request.topic_partitions, request.subscribed_topic_names = 60_000, [], ["t"]
        assert (await client.ask(request, 1)).error_code == 0
        kinds = {type(record.key) for record in _written(rig)}
        assert len(kinds) >= 7
        for kind in sorted(kinds - {OffsetCommitKey}, key=str):
            poison[:] = [kind]
            for _ in range(2):
                await rig.restart()
                assert rig.node.failed is None
                assert rig.node.rooms.containment.counts[Cost.SHARD] == 1, kind
                assert await _is_known(rig.connect(), beside, elsewhere)
        poison.clear()
        await rig.restart()
        assert await _is_known(rig.connect(), joined)
        assert rig.node.rooms.containment.total == 0

    monkeypatch.setattr(GroupShard, "__init__", fragile)
    rig.run(test)


async def _is_known(client: Client, joined: JoinGroupResponse, group_id: str = "g") -> bool:
    await asyncio.sleep(1)  # Its shard is loaded.
    return bool((await client.ask(heartbeat(joined, group_id), 4)).error_code == 0)


def _is_elsewhere(rig: Rig, group_id: str) -> bool:
    coordinators = rig.node.rooms.groups
    return coordinators.partition_of(group_id) not in map(coordinators.partition_of, ("g", "new"))


def _written(rig: Rig) -> Iterator[CoordinatorRecord]:
    for index in range(3):
        log = rig.node.rooms.replicas.require("__consumer_offsets", index).partition.log
        read = log.read(
            log.log_start_offset, max_bytes=1 << 20, end_offset=log.log_end_offset, minimum_one=True
        ).records
        for batch in iter_batches(memoryview(read.read() if isinstance(read, FileSlice) else read)):
            for record in decode_records(batch):
                decoded = decode_record(GROUP_RECORDS, record.key or b"", record.value)
                if decoded is not None:
                    yield decoded
