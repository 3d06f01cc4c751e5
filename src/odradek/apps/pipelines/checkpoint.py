"""The directory where a pipeline remembers how far it is, and what keeps another pipeline's hands off it.

Spark keeps one directory a query in it. Beside them a file says whose they are and what the queries looked like: a
query that reads other topics than the one that wrote its checkpoint would silently go on from the wrong place.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from odradek.apps.pipelines import locks
from odradek.apps.pipelines.pipeline import Pipeline
from odradek.apps.pipelines.queries import query_names, shape
from odradek.apps.terminal.sentence import Sentence
from odradek.client.cluster import TopicPartition

OWNER = "odradek-pipeline.json"
LOCK = "odradek-pipeline.lock"
LOG = "spark.log"
FORMAT = 1


class Checkpoint:
    """One pipeline's checkpoint."""

    def __init__(self, place: str, pipeline: Pipeline, *, options: str = "") -> None:
        """`options` are those of the command line that lead here again."""
        self.place = place
        self.options = options
        self.pipeline = pipeline
        self.is_local = "://" not in place
        self.writer_id = ""
        self.lock: int | None = None
        """The file that is locked while it is `taken`. Spark's JVM is given it as well, since that may still be writing
        when the process that started it has been killed."""

    @property
    def log_file(self) -> Path | None:
        return Path(self.place, LOG) if self.is_local else None

    def query(self, name: str) -> str:
        """Where a query keeps its own."""
        return f"{self.place.rstrip('/')}/{name}"

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """While this holds, nobody else runs on it; a Sentence if somebody does, or if it belongs to another pipeline.

        On other file systems than a local one Spark itself finds out, later and less kindly.
        """
        if not self.is_local:
            self.writer_id = f"{self.pipeline.name}@{self.place}"
            yield
            return
        with self._locked():
            self._claim()
            yield

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            Path(self.place).mkdir(parents=True, exist_ok=True)
            self.lock = locks.take(Path(self.place, LOCK))
        except OSError as failure:
            raise Sentence(
                f"cannot use the checkpoint {self.place} ({failure.strerror}): name another with --checkpoint."
            ) from failure
        if self.lock is None:
            raise Sentence(
                f"somebody runs on the checkpoint {self.place} already: stop that run, or name another place "
                "with --checkpoint."
            )
        try:
            yield
        finally:
            locks.release(self.lock)
            self.lock = None

    def committed(self) -> dict[str, dict[TopicPartition, int]]:
        """By query, how far its last finished batch had read; nothing where Spark has written nothing yet."""
        if not self.is_local:
            return {}
        found = {}
        for query in query_names(self.pipeline):
            offsets = finished_offsets(Path(self.query(query)))
            if offsets:
                found[query] = offsets
        return found

    def furthest(self) -> dict[TopicPartition, int]:
        """How far the query that has read most has begun to read each partition."""
        found: dict[TopicPartition, int] = {}
        if self.is_local:
            for query in query_names(self.pipeline):
                begun = self.begun(query)
                for at, offset in batch_offsets(Path(self.query(query)), begun).items():
                    found[at] = max(found.get(at, offset), offset)
        return found

    def topics(self) -> dict[str, dict[str, Any]] | None:
        """The topics that its offsets belong to; None where that was not noted yet."""
        owner = self._owner() if self.is_local else None
        return None if owner is None else owner.get("topics")

    def note_topics(self, topics: dict[str, dict[str, Any]]) -> None:
        """Keep them for the next run; only while it is `taken`."""
        if self.is_local:
            self._write_owner({**(self._owner() or {}), "topics": topics})

    def columns(self) -> dict[str, dict[str, Any]]:
        """Of every query what columns its sink was given so far, as far as that was noted."""
        owner = self._owner() if self.is_local else None
        return {} if owner is None else owner.get("columns", {})

    def note_columns(self, columns: dict[str, dict[str, Any]]) -> None:
        """Keep them for the next run; only while it is `taken`."""
        if self.is_local:
            self._write_owner({**(self._owner() or {}), "columns": columns})

    def reset_command(self, *, sink: str | None = None, delete_files: bool = False) -> str:
        """What to type in order to start over, as a whole or with one sink."""
        words = ["odradek pipeline reset", self.pipeline.file or "FILE", self.options]
        words += [f"--sink {sink}"] if sink else []
        words += ["--delete-files"] if delete_files else []
        return " ".join(each for each in (*words, "--yes") if each)

    def begun(self, query: str) -> int:
        """The newest batch of a query that was begun; -1 where there is none."""
        return max(_numbers(Path(self.query(query), "offsets")), default=-1)

    def remove(self) -> None:
        """Forget everything; a Sentence if the directory is not this pipeline's to forget."""
        with self._mine() as there:
            if there:
                shutil.rmtree(self.place)

    def remove_query(self, query: str) -> None:
        """Forget one query, which then reads everything again; the others go on where they are."""
        with self._mine() as there:
            if there:
                # First what is in the way of others: without its directory a query begins anew, whatever is noted.
                shutil.rmtree(self.query(query), ignore_errors=True)
                owner = self._owner() or {}
                for part in ("shape", "columns"):
                    owner.get(part, {}).pop(query, None)
                self._write_owner(owner)

    @contextlib.contextmanager
    def _mine(self) -> Iterator[bool]:
        """Nobody runs on it while this holds; whether there is anything to forget."""
        if not Path(self.place).exists():
            yield False
            return
        with self._locked():
            owner = self._owner()
            if self._strangers() if owner is None else owner["pipeline"] != self.pipeline.name:
                raise Sentence(f"{self.place} is not the checkpoint of {self.pipeline.name}, so it stays as it is.")
            yield owner is not None or not self._strangers()

    def _owner(self) -> dict[str, Any] | None:
        file = Path(self.place, OWNER)
        try:
            held: dict[str, Any] = json.loads(file.read_text())
        except FileNotFoundError:
            return None
        except ValueError as wrong:
            raise Sentence(f"{file} is damaged: name another --checkpoint, or delete {self.place}.") from wrong
        return held

    def _strangers(self) -> list[str]:
        """What is in the directory and nobody here has put there."""
        return sorted(each for each in os.listdir(self.place) if each not in (LOCK, LOG))

    def _claim(self) -> None:
        file = Path(self.place, OWNER)
        held = self._owner()
        # Queries of sinks that are not declared any more stay known: they may come back, and their offsets are here.
        forms = {**(held or {}).get("shape", {}), **shape(self.pipeline)}
        mine = {"format": FORMAT, "pipeline": self.pipeline.name, "shape": forms}
        if held is None:
            strangers = self._strangers()
            if strangers:
                raise Sentence(
                    f"{self.place} holds other things already ({strangers[0]}): name a directory of the pipeline's own "
                    "with --checkpoint."
                )
            held = {**mine, "id": uuid.uuid4().hex}
        else:
            self._compare(held)
        self.writer_id = held["id"]
        if held.get("shape") != mine["shape"] or not file.exists():
            self._write_owner({**held, **mine})

    def _anew(self, sink: str) -> str:
        return f"let that sink alone start over (`{self.reset_command(sink=sink)}`), give it another name, "

    def _write_owner(self, owner: dict[str, Any]) -> None:
        file = Path(self.place, OWNER)
        fresh = file.with_suffix(".new")
        fresh.write_text(json.dumps(owner, indent=2))
        fresh.replace(file)

    def _compare(self, held: dict[str, Any]) -> None:
        """New sinks are welcome; one whose query reads or writes something else is not."""
        advice = f"name another --checkpoint, or start over: `{self.reset_command()}`"
        if held.get("pipeline") != self.pipeline.name:
            raise Sentence(
                f"the checkpoint {self.place} is that of pipeline {held.get('pipeline')}, not of "
                f"{self.pipeline.name}: name another with --checkpoint."
            )
        if held.get("format") != FORMAT:
            raise Sentence(f"the checkpoint {self.place} was written by another version of Odradek: {advice}.")
        before, now = held["shape"], shape(self.pipeline)
        for query, form in now.items():
            if query in before and before[query] != form:
                what = next(part for part in form if form[part] != before[query].get(part))
                anew = "" if query.startswith("dead-letters-") else self._anew(query.removeprefix("sink-"))
                raise Sentence(
                    f"{query} has changed since the checkpoint {self.place} was written "
                    f"({what} was {_words(before[query].get(what))}, is {_words(form[what])}), and Spark would go on "
                    f"from offsets of what it was: {anew}{advice}."
                )


def finished_offsets(query: Path) -> dict[TopicPartition, int]:
    """From Spark's own files: where the last batch ended that is known to be in the sink."""
    return batch_offsets(query, max(_numbers(query / "commits"), default=-1))


def batch_offsets(query: Path, number: int) -> dict[TopicPartition, int]:
    """Where a batch ends, be it finished or not; nothing if there is none."""
    try:
        lines = (query / "offsets" / str(number)).read_text().splitlines()
    except OSError:
        return {}
    found: dict[TopicPartition, int] = {}
    for line in lines[2:]:
        merge_offsets(found, parse_offsets(line))
    return found


def _numbers(directory: Path) -> list[int]:
    return [int(each.name) for each in directory.glob("[0-9]*") if each.name.isdecimal()]


def parse_offsets(text: str | None) -> dict[TopicPartition, int]:
    """Offsets as Spark's Kafka source writes them: `{"orders": {"0": 12}}`."""
    try:
        held = json.loads(text) if text else {}
    except ValueError:
        return {}
    if not isinstance(held, dict):
        return {}
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in held.items()
        if isinstance(partitions, dict)
        for partition, offset in partitions.items()
    }


def merge_offsets(into: dict[TopicPartition, int], offsets: dict[TopicPartition, int]) -> None:
    """A partition that is read twice is as far as the reader that is behind."""
    for partition, offset in offsets.items():
        into[partition] = min(into.get(partition, offset), offset)


def _words(held: object) -> str:
    return ", ".join(map(str, held)) if isinstance(held, list) else str(held)
