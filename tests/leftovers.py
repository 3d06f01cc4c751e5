"""What other people's clients leave behind in this process."""

from __future__ import annotations

import gc
import warnings

PASSES = 5
"""As many as pytest makes at its end: what is found in one may let go of more."""


QUIET = "kafka"
"""kafka-python's logger: what it logs names its connections, and keeps them for as long as pytest keeps that."""


def forget_sockets() -> None:
    """kafka-python leaves sockets open whose connections failed; whoever finds them later would be told off for it.

    The test has set the logger `QUIET` to CRITICAL.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        for _ in range(PASSES):
            gc.collect()
