"""What happened, one readable line each, and one number for all of it."""

from __future__ import annotations

import hashlib

from odradek.sim.loop import SimulatedLoop


class Trace:
    """Two runs are the same run when their digests are equal; where not, their lines show the first difference."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.lines: list[str] = []
        self.marks: dict[str, int] = {}
        self._loop = loop
        self._digest = hashlib.blake2b(digest_size=16)

    def note(self, who: str, what: str) -> None:
        line = f"{self._loop.now_us / 1_000_000:12.6f}  {who:<12} {what}"
        self.lines.append(line)
        self._digest.update(line.encode() + b"\n")

    def mark(self, state: str) -> None:
        """Count that an interesting state was reached: a set of seeds that never reaches one proves too little."""
        self.marks[state] = self.marks.get(state, 0) + 1

    def digest(self) -> str:
        return self._digest.hexdigest()
