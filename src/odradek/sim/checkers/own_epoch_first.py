"""A leader counts what older epochs left behind as committed only together with a record of its own epoch.

Without one, a majority may have the older records and still lose them to somebody who was elected in between (figure
8 of the Raft paper). What somebody knew to be committed before is no news and may be told at any time.
"""

from __future__ import annotations

from odradek.sim.history import Committed, History, LeaderKnown


def check(history: History) -> list[str]:
    leading: dict[int, int] = {}
    highest = -1
    broken = []
    for event in history.events:
        if isinstance(event, LeaderKnown):
            leading[event.node_id] = event.epoch if event.leader_id == event.node_id else -1
        elif isinstance(event, Committed):
            newest = event.image.provenance
            epoch = leading.get(event.node_id, -1)
            if newest.offset > highest and newest.epoch < epoch:
                broken.append(
                    f"node {event.node_id}, which leads epoch {epoch}, commits up to offset {newest.offset} "
                    f"with nothing newer than epoch {newest.epoch}"
                )
            highest = max(highest, newest.offset)
    return broken
