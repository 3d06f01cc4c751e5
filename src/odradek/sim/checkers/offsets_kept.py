"""No commit that was acknowledged, or that somebody was shown, is lost.

Every commit has a name, so whoever reads an offset tells which commit it is from. It must not be one that was surely
overwritten: acknowledged before another was sent, which was in force before the question was asked.
"""

from __future__ import annotations

from odradek.sim.history import GROUPS, CommitAcknowledged, CommitSent, History, OffsetRead, Partition


class _Commit:
    """One commit: when it was sent, and since when it is surely in force, as places in the history."""

    def __init__(self, sent: CommitSent, sent_at: int) -> None:
        self.name = sent.name
        self.offset = sent.offset
        self.sent_at = sent_at
        self.in_force_at: int | None = None

    def note(self, at: int) -> None:
        if self.in_force_at is None:
            self.in_force_at = at


def check(history: History) -> list[str]:
    commits: dict[tuple[str, Partition], dict[str, _Commit]] = {}
    broken = []
    for index, event in enumerate(history.events):
        if history.may_lose(GROUPS, event):
            for known in commits.values():
                for commit in known.values():
                    commit.in_force_at = None
        elif isinstance(event, CommitSent):
            commits.setdefault((event.group, event.partition), {})[event.name] = _Commit(event, index)
        elif isinstance(event, CommitAcknowledged):
            commits[event.group, event.partition][event.name].note(index)
        elif isinstance(event, OffsetRead):
            broken += _judge(event, commits.get((event.group, event.partition), {}), index)
    return broken


def _judge(read: OffsetRead, commits: dict[str, _Commit], index: int) -> list[str]:
    where = f"{read.group}: {read.partition}"
    seen = commits.get(read.name)
    if read.offset >= 0 and (seen is None or seen.offset != read.offset):
        return [f"{where} has the offset {read.offset} of {read.name!r}, which nobody committed"]
    before = -1 if seen is None else seen.in_force_at
    lost = [
        commit
        for commit in commits.values()
        if commit.in_force_at is not None
        and commit.in_force_at < read.asked_at
        and before is not None
        and commit.sent_at > before
    ]
    if seen is not None:
        seen.note(index)
    shown = "nothing" if seen is None else f"{seen.offset} of {seen.name}"
    return [f"{where}: the commit {each.name} of {each.offset} is lost, {shown} is there" for each in lost[-1:]]
