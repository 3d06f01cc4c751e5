"""What other people's clients leave behind in this process."""

from __future__ import annotations

import gc
import warnings

PASSES = 5
"""As many as pytest makes at its end: what is found in one may let go of more."""


def forget_sockets() -> None:
    """kafka-python leaves sockets open whose connections failed; whoever finds them later would be told off for it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        for _ in range(PASSES):
            gc.collect()
