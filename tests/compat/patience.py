"""Waiting for what a broker does a moment later: metadata reaches clients after the change is made, on any broker."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

ResultT = TypeVar("ResultT")


def eventually(ask: Callable[[], ResultT], wanted: ResultT, timeout_s: float = 15.0) -> None:
    """Ask until the answer is the wanted one; fails with the last answer."""
    deadline = time.monotonic() + timeout_s
    answer = ask()
    while answer != wanted and time.monotonic() < deadline:
        time.sleep(0.02)
        answer = ask()
    assert answer == wanted
