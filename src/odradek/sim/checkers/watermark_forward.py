"""A high watermark never goes back while one leader epoch lasts: what it has passed was told to consumers."""

from __future__ import annotations

from odradek.sim.history import History, Partition, WatermarkSeen


def check(history: History) -> list[str]:
    broken = []
    known: dict[tuple[str, int, Partition, int], int] = {}
    for event in history.events:
        if isinstance(event, WatermarkSeen):
            key = event.node, event.life, event.partition, event.leader_epoch
            before = known.get(key, 0)
            if event.high_watermark < before:
                broken.append(
                    f"{event.partition}: the watermark went back from {before} to {event.high_watermark} "
                    f"on {event.node}, which leads epoch {event.leader_epoch}"
                )
            known[key] = event.high_watermark
    return broken
