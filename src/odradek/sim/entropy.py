"""Made-up randomness."""

from __future__ import annotations

import random


class SimulatedEntropy:
    """Drawn from the seed, so that ids and jitter are the same in every replay."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw

    def random_bytes(self, count: int) -> bytes:
        return self._draw.randbytes(count)

    def below(self, bound: int) -> int:
        return self._draw.randrange(bound)
