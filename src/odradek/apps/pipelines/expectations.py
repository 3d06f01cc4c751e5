"""What must be true of a dataset's rows: how it is declared, what becomes of rows of which it is not, and the counts.

A condition that is NULL is not true, so the row does not meet it: as with WHERE, and with a filter of the same words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from odradek.apps.pipelines import schemas
from odradek.apps.terminal.sentence import Sentence
from odradek.values import value

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ON_FAIL = ("warn", "drop", "dead-letter", "stop")
OBSERVED = "expectations:"
"""How Spark's reports name the counts of a dataset."""

ORIGIN = ("_topic", "_partition", "_offset", "_timestamp")
NOT_MET = "is not met"
TOLD_CHARACTERS = 200


@value
class Expectation:
    """A condition in SQL, and what becomes of rows of which it is not true."""

    name: str
    condition: str
    on_fail: str

    @property
    def told(self) -> str:
        return f"expectation {self.name} {NOT_MET} ({self.condition})"


def met(rows: DataFrame, dataset: str, expected: Sequence[Expectation]) -> DataFrame:
    """The rows that go on, all of them counted on the way."""
    from pyspark.sql import functions as F

    if not expected:
        return rows
    if dead_lettered(expected):
        need_origin(rows, dataset, "on_fail='drop'")
    held = {each.name: _holds(each) for each in expected}
    counts = [F.count(F.when(~held[each.name], F.lit(1))).alias(each.name) for each in expected]
    rows = rows.observe(f"{OBSERVED}{dataset}", *counts)
    for each in expected:
        if each.on_fail == "stop":
            message = F.concat(F.lit(f"{each.told} in {dataset} by "), _told(rows))
            rows = rows.where(F.when(held[each.name], F.lit(True)).otherwise(F.raise_error(message).cast("boolean")))
    for each in expected:
        if each.on_fail in ("drop", "dead-letter"):
            rows = rows.where(held[each.name])
    return rows


def failing(rows: DataFrame, expected: Sequence[Expectation]) -> DataFrame:
    """Those that are to become dead letters, with the reason."""
    from pyspark.sql import functions as F

    reasons = [F.when(~_holds(each), F.lit(each.told)) for each in dead_lettered(expected)]
    told = rows.withColumn(schemas.REASON, F.concat_ws("; ", *reasons))
    return told.where(F.col(schemas.REASON) != "")


def dead_lettered(expected: Iterable[Expectation]) -> list[Expectation]:
    return [each for each in expected if each.on_fail == "dead-letter"]


def counted(report: Mapping[str, Any]) -> dict[tuple[str, str], int]:
    """By dataset and expectation, how many rows of a batch did not meet it, from Spark's report."""
    return {
        (name.removeprefix(OBSERVED), expectation): int(count or 0)
        for name, counts in (report.get("observedMetrics") or {}).items()
        if name.startswith(OBSERVED)
        for expectation, count in counts.items()
    }


def _holds(each: Expectation) -> Column:
    from pyspark.sql import functions as F

    return F.coalesce(F.expr(each.condition).cast("boolean"), F.lit(False))


def _told(rows: DataFrame) -> Column:
    """Which row it was: where its record is, or its beginning."""
    from pyspark.sql import functions as F

    if {"_topic", "_partition", "_offset"} <= {*rows.columns}:
        return F.concat("_topic", F.lit("-"), F.col("_partition").cast("string"), F.lit("@"), F.col("_offset"))
    text = F.to_json(F.struct(*[F.col(f"`{name}`") for name in rows.columns]))
    return F.substring(text, 1, TOLD_CHARACTERS)


def need_origin(rows: DataFrame, dataset: str, otherwise: str) -> None:
    """A Sentence if rows that may become dead letters do not say where they are from."""
    missing = [name for name in ORIGIN if name not in rows.columns]
    if missing:
        raise Sentence(
            f"dataset {dataset}: rows that become dead letters must say where they are from, but it has no "
            f"{', '.join(missing)}: keep these columns, or say {otherwise}."
        )
