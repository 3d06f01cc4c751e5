"""The operating system's randomness.

`secrets` and `random` would pull hashing libraries into a start that is meant to take milliseconds.
"""

from __future__ import annotations

import os


class SystemEntropy:
    """Fit for ids that must never meet twice and for jitter alike."""

    __slots__ = ()

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def below(self, bound: int) -> int:
        if bound < 1:
            raise ValueError(f"no number is from 0 to {bound - 1}")
        bits = (bound - 1).bit_length()
        size = (bits + 7) // 8
        while True:  # Drawing again instead of folding keeps every number equally likely; two draws suffice on average.
            drawn = int.from_bytes(os.urandom(size), "big") >> (size * 8 - bits)
            if drawn < bound:
                return drawn
