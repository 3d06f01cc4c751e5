"""What a broker does now and then: retention, removing what was deleted, checkpoints, flushes that are due, and
forgetting silent producers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from odradek.server.configs.node_config import NodeConfig
from odradek.server.containment import Containment, Cost
from odradek.server.partitions.log_chores import LogChores
from odradek.server.partitions.replicas import Replicas

SEALED_FLUSH_MS = 5_000
"""Kafka syncs a segment soon after it was rolled; without that the recovery point would never move."""

SOONEST_REMOVAL_MS = 5_000
"""Between two looks for deleted files whose time has come, however short `log.segment.delete.delay.ms` is."""

LONGEST_WAIT_MS = 86_400_000
"""An interval of centuries (Kafka's way to say never) is no sleep that a timer can take."""


class Housekeeping:
    """One task a chore, each with its own interval."""

    def __init__(self, config: NodeConfig, replicas: Replicas, chores: LogChores) -> None:
        self._config = config
        self._replicas = replicas
        self._chores = chores
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        config, chores = self._config, self._chores
        delay_ms = config.log_initial_task_delay_ms
        self._every(config.replica_lag_time_max_ms // 2, self._replicas.check_isrs, 0)
        self._every(config.log_retention_check_interval_ms, chores.retain, delay_ms)
        removal_ms = max(config.log_segment_delete_delay_ms, SOONEST_REMOVAL_MS)
        self._every(min(removal_ms, config.log_retention_check_interval_ms), chores.remove_deleted, delay_ms)
        self._every(config.replica_high_watermark_checkpoint_interval_ms, chores.checkpoint_high_watermarks, 0)
        self._every(config.log_flush_offset_checkpoint_interval_ms, chores.checkpoint_recovery_points, delay_ms)
        self._every(config.log_flush_start_offset_checkpoint_interval_ms, chores.checkpoint_log_starts, delay_ms)
        self._every(config.producer_id_expiration_check_interval_ms, chores.expire_producers, delay_ms)
        self._every(min(config.log_flush_scheduler_interval_ms, SEALED_FLUSH_MS), chores.flush_due, delay_ms)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _every(self, interval_ms: int, chore: Callable[[], Awaitable[None]], delay_ms: int) -> None:
        self._tasks.append(asyncio.create_task(_repeat(interval_ms, chore, delay_ms, self._replicas.containment)))


async def _repeat(
    interval_ms: int, chore: Callable[[], Awaitable[None]], delay_ms: int, containment: Containment
) -> None:
    await asyncio.sleep(min(delay_ms, LONGEST_WAIT_MS) / 1000)
    while True:
        await asyncio.sleep(min(interval_ms, LONGEST_WAIT_MS) / 1000)
        with containment.at_most(Cost.TASK, "a chore, which is tried again in time"):
            await chore()
