"""What happened, one readable line each, and one number for all of it."""

from __future__ import annotations

import hashlib

from odradek.sim.loop import SimulatedLoop

OPERATION = "client operation"
"""The mark of something that a client asked for and got: records written or read, bounds told, an offset committed."""


class Trace:
    """Two runs are the same run when their digests are equal; where not, their lines show the first difference."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.marks: dict[str, int] = {}
        self._loop = loop
        self._notes: list[int | str] = []
        """When, who and what of one after another: were each an object of its own, the garbage collector would have to
        look at all of them after every run."""
        self.keep = self._notes.extend
        """For what happens all the time: when, who, and so many bytes that arrived."""

    def note(self, who: str, what: str) -> None:
        """Cheap: lines are made of it only when somebody wants to read them."""
        self.keep((self._loop.now_us, who, what))

    def mark(self, state: str) -> None:
        """Count that an interesting state was reached: a set of seeds that never reaches one proves too little."""
        self.marks[state] = self.marks.get(state, 0) + 1

    @property
    def lines(self) -> list[str]:
        return [
            f"{at_us / 1_000_000:12.6f}  {who:<12} {what if isinstance(what, str) else f'{what} bytes'}"
            for at_us, who, what in zip(*[iter(self._notes)] * 3, strict=True)
        ]

    def digest(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for line in self.lines:
            digest.update(line.encode() + b"\n")
        return digest.hexdigest()
