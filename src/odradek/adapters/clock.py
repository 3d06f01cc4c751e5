"""The machine's clocks."""

from __future__ import annotations

from time import monotonic_ns, time_ns


class SystemClock:
    """Wall time and monotonic time; the latter is what asyncio's and uvloop's timers run on as well."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return monotonic_ns() // 1_000_000
