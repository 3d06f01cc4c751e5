"""Whether what a pipeline is about to write goes together with what its sinks hold, before anything is written."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.apps.pipelines import columns, lakes, sinks, tables
from odradek.apps.pipelines.checkpoint import Checkpoint
from odradek.apps.pipelines.compaction import read_log
from odradek.apps.pipelines.pipeline import Output, Pipeline
from odradek.apps.terminal.sentence import Sentence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


OWNER = "_odradek_checkpoint"
"""A file in a lake; readers pass over names that begin like this."""


@contextlib.contextmanager
def owned(places: Mapping[str, Path], checkpoint: Checkpoint) -> Iterator[None]:
    """While this holds, nobody else writes these lakes, and afterwards they say whose they are; a Sentence if somebody
    does. Two pipelines with checkpoints of their own could write one lake at once, and then each would take the
    other's batches for its own."""
    with contextlib.ExitStack() as held:
        for name, place in places.items():
            place.mkdir(parents=True, exist_ok=True)
            file = held.enter_context((place / OWNER).open("a+"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Sentence(
                    f"sink {name}: another pipeline writes {place} at the same time: give each its own."
                ) from None
            file.truncate(0)
            file.write(checkpoint.writer_id)
            file.flush()
        yield


def owner_of(place: Path) -> str | None:
    """The checkpoint whose pipeline writes a lake, or did last; None where that is not known."""
    try:
        return (place / OWNER).read_text() or None
    except FileNotFoundError:
        return None


def check_lakes(pipeline: Pipeline, checkpoint: Checkpoint, base: str) -> None:
    """A Sentence if files of a sink were written under another checkpoint: Spark knows by a batch's number whether it
    is in the sink already, and would pass over the first ones of this checkpoint without a word."""
    if not checkpoint.is_local:
        return
    for name, place in parquet_places(pipeline, base).items():
        held = read_log(place).latest
        owner = owner_of(place)
        if held > checkpoint.begun(f"sink-{name}") or (held >= 0 and owner not in (None, checkpoint.writer_id)):
            raise Sentence(
                f"sink {name}: {place} was written under another checkpoint (up to batch {held}), and Spark would take "
                "new batches for those: move it away, give the sink another path, or write it anew: "
                f"`{checkpoint.reset_command(sink=name, delete_files=True)}`."
            )


def parquet_places(pipeline: Pipeline, base: str) -> dict[str, Path]:
    """Where sinks write that are plain Parquet files on a local disk."""
    places = {
        name: sinks.located(base, output.sink.path)
        for name, output in pipeline.outputs.items()
        if isinstance(output.sink, sinks.Parquet)
    }
    return {name: Path(place) for name, place in places.items() if "://" not in place}


def check_columns(
    spark: SparkSession, pipeline: Pipeline, checkpoint: Checkpoint, frames: Mapping[str, DataFrame], base: str
) -> None:
    """Columns may come and go; a Sentence if one has changed so that readers could not take old and new ones together.

    `frames` are those that sinks are about to write, by the sinks' names.
    """
    held = checkpoint.columns()
    noted = dict(held)
    for name, rows in frames.items():
        output = pipeline.outputs[name]
        if not isinstance(output.sink, sinks.Parquet | sinks.LakeTable | sinks.ParquetTable):
            continue
        if isinstance(output.sink, sinks.LakeTable):
            _check_names(name, output.sink.format, rows.columns)
        query = f"sink-{name}"
        now: dict[str, Any] = {
            "columns": rows.schema.jsonValue(),
            "partition_by": list(getattr(output.sink, "partition_by", ())),
        }
        before = _before(spark, checkpoint, output, base, held.get(query))
        if before is not None:
            place = sinks.located(base, output.sink.path)
            told = _apart(before, now, output)
            if told:
                raise Sentence(
                    f"sink {name}: {told}, and {place} holds rows as they were, which nobody could read together with "
                    "these: let the dataset cast it to what it was or give it another name, give the sink another "
                    f"path, or write all anew: `{checkpoint.reset_command(sink=name, delete_files=True)}`."
                )
            now["columns"] = columns.together(before["columns"], now["columns"])
        noted[query] = now
    if noted != held:
        checkpoint.note_columns(noted)


def _check_names(sink: str, form: str, names: Sequence[str]) -> None:
    """Iceberg writes columns of any name, and then refuses to read some."""
    taken = [each for each in names if form == "iceberg" and each in lakes.ICEBERG_NAMES]
    if taken:
        raise Sentence(
            f"sink {sink}: Iceberg keeps the names {', '.join(taken)} for itself and would not read the table: let the "
            "dataset leave these columns out, or rename them."
        )


def _before(
    spark: SparkSession, checkpoint: Checkpoint, output: Output, base: str, noted: dict[str, Any] | None
) -> dict[str, Any] | None:
    """What the sink holds already; None if that is nothing."""
    sink = output.sink
    assert isinstance(sink, sinks.Parquet | sinks.LakeTable | sinks.ParquetTable)
    place = sinks.located(base, sink.path)
    if isinstance(sink, sinks.ParquetTable):  # It knows itself, and may outlive a checkpoint.
        current = tables.read_current(Path(place)) if "://" not in place else None
        if current is None:
            return None
        found = sinks.read_table(spark, place).schema.jsonValue()
        return {"columns": found, "partition_by": []}
    if not checkpoint.is_local or checkpoint.begun(f"sink-{output.name}") < 0:
        return None
    if noted is None and isinstance(sink, sinks.Parquet) and "://" not in place and any(Path(place).rglob("*.parquet")):
        # The checkpoint is older than the habit of noting columns.
        return {"columns": sinks.read(spark, sink, base).schema.jsonValue(), "partition_by": None}
    return noted


def _apart(before: Mapping[str, Any], now: Mapping[str, Any], output: Output) -> str:
    """Why they do not go together, or nothing."""
    fresh = now["columns"]
    inside: tuple[str, ...] = columns.EVERYWHERE
    if isinstance(output.sink, sinks.LakeTable) and output.sink.format == "iceberg":
        inside = ()
    elif isinstance(output.sink, sinks.ParquetTable):
        inside = ("struct",)
        # Deleted rows are not in the table, and neither is the column that says so.
        fields = [each for each in fresh["fields"] if each["name"] != output.sink.deleted]
        fresh = {**fresh, "fields": fields}
    if before["partition_by"] is not None and before["partition_by"] != now["partition_by"]:
        was, is_now = (", ".join(each["partition_by"]) or "nothing" for each in (before, now))
        return f"it was partitioned by {was} and is by {is_now} now"
    try:
        columns.together(before["columns"], fresh, inside=inside)
    except ValueError as wrong:
        return str(wrong)
    return ""
