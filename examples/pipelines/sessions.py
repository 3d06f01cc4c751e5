"""Sessions per user, by a state machine of one's own: `transformWithStateInPandas`.

A session is a user's clicks with no more than half an hour between two of them. It is told when the watermark says that
no click of it can come any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from odradek.pipelines import Pipeline, schemas, sinks, sources

GAP_MS = 30 * 60 * 1000
SESSION = "user string, started timestamp, ended timestamp, clicks int"

pipeline = Pipeline("sessions")
pipeline.source(
    "clicks",
    sources.topic("clicks", value=schemas.json("user string, page string, at timestamp", required=["user", "at"])),
)


class Sessions(StatefulProcessor):
    """Keeps a user's open session: when it began, its last click, how many there were."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._open = handle.getValueState("open", "started bigint, ended bigint, clicks int")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        clicks = sorted(at for part in rows for at in part["ms"].tolist())
        held = self._open.get() if self._open.exists() else None
        told = []
        for at in clicks:
            if held is not None and at - held[1] <= GAP_MS:
                held = (min(held[0], at), max(held[1], at), held[2] + 1)
            else:
                if held is not None:
                    told.append(held)
                held = (at, at, 1)
        assert held is not None
        self._open.update(held)
        for timer in self._handle.listTimers():
            self._handle.deleteTimer(timer)
        self._handle.registerTimer(held[1] + GAP_MS + 1)
        yield _frame(key[0], told)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        held = self._open.get()
        self._open.clear()
        yield _frame(key[0], [held])

    def close(self) -> None:
        """There is nothing to close."""


def _frame(user: str, sessions: list[tuple[int, int, int]]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "user": [user] * len(sessions),
            "started": pd.to_datetime([each[0] for each in sessions], unit="ms"),
            "ended": pd.to_datetime([each[1] for each in sessions], unit="ms"),
            "clicks": pd.array([each[2] for each in sessions], dtype="int32"),
        }
    )


@pipeline.dataset
def sessions(clicks: DataFrame) -> DataFrame:
    """One row a session that is over."""
    return (
        clicks.select("user", "at", F.unix_millis("at").alias("ms"))
        .withWatermark("at", "1 minute")
        .groupBy("user")
        .transformWithStateInPandas(Sessions(), SESSION, "Append", "EventTime")
    )


pipeline.sink("lake", sessions, sinks.parquet("lake/sessions", files=1))

if __name__ == "__main__":
    pipeline.main()
