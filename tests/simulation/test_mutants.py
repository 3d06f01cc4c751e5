"""The checkers are worth something: nodes and disks with a planted fault are found out within a few seeds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from odradek.server.net.dispatch import Endpoint
from odradek.server.partitions.hosted_partition import HostedPartition
from odradek.server.partitions.replicas import Replicas
from odradek.sim.run import play
from odradek.storage.log import AppendInfo, Log
from odradek.storage.producer_state import Producers

SEEDS = range(500, 515)


def caught(expected: str, **options: Any) -> bool:
    """Whether some seed breaks a promise in these words."""
    return any(expected in broken for seed in SEEDS for broken in play(seed, **options).broken)


def test_a_disk_that_lies_about_its_syncs() -> None:
    assert caught("was acknowledged at", power=True, lies_about="/data/durable")


def test_a_node_that_acknowledges_before_the_sync_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    async def flush(self: Replicas, wanted: Iterable[HostedPartition]) -> None:
        for hosted in wanted:
            hosted.partition.log.flushed(hosted.partition.log.log_end_offset)

    monkeypatch.setattr(Replicas, "flush", flush)
    assert caught("was acknowledged at", power=True)


def test_a_node_that_loses_a_batch_it_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    append = Log.append_as_leader
    count = [0]

    def forgetful(self: Log, batch: memoryview, *given: Any, **options: Any) -> AppendInfo:
        info = append(self, batch, *given, **options)
        count[0] += 1
        if count[0] % 50 == 0 and not self.topic.startswith("__") and not info.duplicate:
            self.truncate_to(info.base_offset)
        return info

    monkeypatch.setattr(Log, "append_as_leader", forgetful)
    assert caught("was acknowledged at", power=False, deadline_s=60)


def test_a_node_that_gives_an_offset_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    append = Log.append_as_leader
    count = [0]

    def repeating(self: Log, batch: memoryview, *given: Any, **options: Any) -> AppendInfo:
        info = append(self, batch, *given, **options)
        count[0] += 1
        if count[0] % 50 == 0 and info.base_offset and not info.duplicate:
            return AppendInfo(info.base_offset - 1, info.last_offset - 1, -1, 0, False)
        return info

    monkeypatch.setattr(Log, "append_as_leader", repeating)
    assert caught(" and became ", power=False, deadline_s=60)


def test_a_node_that_forgets_its_producers_when_it_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Producers, "load", lambda self, snapshot, now_ms: self.clear())
    monkeypatch.setattr(Producers, "replay", lambda self, header, read_batch: None)
    assert caught("stands there twice", power=False)


def test_a_handler_that_waits_before_it_uses_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request's batches lie in the receive buffer, which is somebody else's after the first wait."""
    init: Callable[..., None] = Endpoint.__init__

    def slow_init(self: Endpoint, *arguments: Any) -> None:
        init(self, *arguments)
        handle = self.handle

        async def wait_first(*arguments: Any) -> Any:
            await asyncio.sleep(0.001)
            answer = handle(*arguments)
            return await answer if asyncio.iscoroutine(answer) else answer

        self.handle = wait_first
        self.fast_path = None

    monkeypatch.setattr(Endpoint, "__init__", slow_init)
    assert caught("not over", power=False, deadline_s=20)
