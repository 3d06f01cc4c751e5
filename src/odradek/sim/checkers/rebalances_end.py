"""Every rebalance ends: once nothing goes wrong any more, a group is stable and its members own every partition."""

from __future__ import annotations

from odradek.sim.history import History, Settled


def check(history: History) -> list[str]:
    broken = []
    for event in history.events:
        if isinstance(event, Settled):
            owned = sorted(str(partition) for _, partitions in event.owned for partition in partitions)
            if event.state != "Stable" or owned != sorted(map(str, event.partitions)):
                views = "; ".join(f"{member} owns {', '.join(map(str, some))}" for member, some in event.owned)
                broken.append(f"{event.group} is {event.state} after {event.waited_s:.0f} quiet seconds: {views}")
    return broken
