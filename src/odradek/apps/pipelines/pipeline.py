"""A pipeline's declaration: sources, datasets that are functions of them, and sinks."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

from odradek.apps.pipelines import expectations
from odradek.apps.pipelines.expectations import ON_FAIL, Expectation
from odradek.apps.pipelines.sinks import MODES, LakeTable, ParquetTable, Sink, ToTopic
from odradek.apps.pipelines.sources import Source, Table, Topic
from odradek.apps.terminal.sentence import Sentence
from odradek.configdef import did_you_mean
from odradek.values import value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COMMAND = "odradek.apps.pipelines.command"
"""What runs a pipeline. It is named, not imported, as `odradek` names what does each of its commands: whoever declares
a pipeline needs none of that, and what runs one needs this module."""

FunctionT = TypeVar("FunctionT", bound=Callable[..., object])
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GROUP = re.compile(r"[A-Za-z0-9._-]{1,200}")


@value
class Dataset:
    """A function and the names of what it is a function of."""

    name: str
    function: Callable[..., DataFrame]
    inputs: tuple[str, ...]
    doc: str = ""


@value
class Output:
    """A dataset on its way into a sink."""

    name: str
    dataset: str
    sink: Sink
    mode: str


class Pipeline:
    """Declared by a file, run by `odradek pipeline run FILE` or by `spark-submit FILE`."""

    def __init__(
        self,
        name: str,
        *,
        group: str | None = None,
        dead_letters: str | None = None,
        dead_letter_options: Mapping[str, str] | None = None,
        trigger: str | None = None,
    ) -> None:
        """`group` is where offsets are committed, `dead_letters` the topic for bad records; both follow the name.

        `dead_letter_options` are Spark's for writing that topic, `kafka.*` for its producers. `trigger` is how often a
        micro-batch begins (`10 seconds`); without it, whenever the one before has ended.
        """
        for given, what in ((name, "name"), (group, "group"), (dead_letters, "dead-letter topic")):
            if given is not None and not _GROUP.fullmatch(given):
                raise Sentence(
                    f"a pipeline's {what} is made of letters, digits, dots, dashes and underscores: {given!r}."
                )
        self.name = name
        self.group = group or name
        self.dead_letters = dead_letters or f"{name}.dead-letters"
        self.dead_letter_options = dict(dead_letter_options or {})
        self.trigger = trigger
        self.file = ""
        """Where it is declared, as somebody has typed it; nothing if it was made on the way."""
        self.sources: dict[str, Source] = {}
        self.datasets: dict[str, Dataset] = {}
        self.outputs: dict[str, Output] = {}
        self.expectations: dict[str, list[Expectation]] = {}

    def source(self, name: str, source: Source) -> None:
        """Let datasets take this source as a parameter of that name."""
        self._claim(name)
        if not isinstance(source, Topic | Table):
            raise Sentence(f"source {name}: give it sources.topic(…) or sources.table(…).")
        self.sources[name] = source

    def dataset(self, function: FunctionT) -> FunctionT:
        """A decorator: the function's parameters name sources and other datasets, and it returns a DataFrame."""
        name = function.__name__
        parameters = inspect.signature(function).parameters.values()
        unnamed = [each.name for each in parameters if each.kind not in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
        if unnamed:
            raise Sentence(f"dataset {name}: parameters are names of sources and datasets, not {', '.join(unnamed)}.")
        inputs = tuple(each.name for each in parameters if each.default is each.empty)
        self.add_dataset(name, function, inputs, inspect.getdoc(function) or "")
        return function

    def add_dataset(self, name: str, function: Callable[..., object], inputs: Sequence[str], doc: str = "") -> None:
        """As the decorator, for functions that are made rather than written."""
        self._claim(name)
        self.datasets[name] = Dataset(name, function, tuple(inputs), doc)  # type: ignore[arg-type]

    def expect(self, name: str, condition: str, *, on_fail: str = "warn") -> Callable[[FunctionT], FunctionT]:
        """A decorator beside `dataset`: a condition in SQL that must be true of every row; NULL is not.

        `on_fail`: `warn` counts rows of which it is not, `drop` leaves them out as well, `dead-letter` sends them to
        the dead letters instead, `stop` ends the run before the batch is in its sink.
        """

        def expecting(function: FunctionT) -> FunctionT:
            self.add_expectation(function.__name__, name, condition, on_fail=on_fail)
            return function

        return expecting

    def add_expectation(self, dataset: str, name: str, condition: str, *, on_fail: str = "warn") -> None:
        """As the decorator, for datasets that are made rather than written."""
        if not _NAME.fullmatch(name):
            raise Sentence(f"expectation {name!r} of {dataset}: use letters, digits and underscores for its name.")
        if on_fail not in ON_FAIL:
            raise Sentence(f"expectation {name} of {dataset}: on_fail may be {', '.join(ON_FAIL)}, not {on_fail!r}.")
        expected = self.expectations.setdefault(dataset, [])
        if any(each.name == name for each in expected):
            raise Sentence(f"there are two expectations called {name} of {dataset}.")
        expected.append(Expectation(name, condition, on_fail))

    def sink(self, name: str, dataset: str | Callable[..., object], sink: Sink, *, mode: str = "append") -> None:
        """Write a dataset (or a source as it is) to a sink.

        `mode` is Spark's: `append` for rows that stay as they are, `update` for those that changed, `complete` for all.
        """
        if not _NAME.fullmatch(name) or name in self.outputs:
            raise Sentence(f"sink {name!r}: a sink needs a name of letters, digits and underscores that no other has.")
        if mode not in MODES:
            raise Sentence(f"sink {name}: mode may be {', '.join(MODES)}, not {mode!r}.")
        wanted = dataset if isinstance(dataset, str) else dataset.__name__
        self.outputs[name] = Output(name, wanted, sink, mode)

    def check(self) -> None:
        """A Sentence about the first thing that cannot work, as far as that can be told without Spark."""
        if not self.sources:
            raise Sentence(f"pipeline {self.name} has no source: add pipeline.source(name, sources.topic(…)).")
        if not self.outputs:
            raise Sentence(f"pipeline {self.name} has no sink: add pipeline.sink(name, dataset, sinks.parquet(…)).")
        known = [*self.sources, *self.datasets]
        for dataset in self.datasets.values():
            for name in dataset.inputs:
                if name not in known:
                    raise Sentence(f"dataset {dataset.name} takes {name}, which is none.{did_you_mean(name, known)}")
        for name in self.expectations:
            if name not in self.datasets:
                near = did_you_mean(name, list(self.datasets))
                raise Sentence(f"there are expectations of {name}, which is no dataset.{near}")
        for output in self.outputs.values():
            if output.dataset not in known:
                raise Sentence(
                    f"sink {output.name} writes {output.dataset}, which is none.{did_you_mean(output.dataset, known)}"
                )
            self.order(output.dataset)
            if not self.streams(output.dataset):
                raise Sentence(
                    f"sink {output.name}: {output.dataset} depends on no topic, so there is no stream to run."
                )
            if isinstance(output.sink, ParquetTable) and output.mode != "append":
                raise Sentence(f"sink {output.name}: a parquet table takes mode append only.")
        self._check_places()

    @property
    def formats(self) -> tuple[str, ...]:
        """The table formats of its sinks that Spark does not bring."""
        return tuple(sorted({each.sink.format for each in self.outputs.values() if isinstance(each.sink, LakeTable)}))

    @property
    def sized(self) -> dict[str, ToTopic]:
        """By the names of their sinks, the topics whose rows become dead letters where they are too large."""
        return {
            f"sink-{name}": output.sink
            for name, output in self.outputs.items()
            if isinstance(output.sink, ToTopic) and output.sink.too_large == "dead-letter"
        }

    @property
    def has_letters_of_rows(self) -> bool:
        """Whether rows of datasets can become dead letters."""
        return bool(self.doubted or self.sized)

    @property
    def doubted(self) -> dict[str, list[Expectation]]:
        """Datasets of which rows can become dead letters, as far as some sink depends on them."""
        used = {name for output in self.outputs.values() for name in self.order(output.dataset)}
        return {
            name: expected
            for name, expected in self.expectations.items()
            if name in used and expectations.dead_lettered(expected)
        }

    def order(self, wanted: str) -> list[str]:
        """The datasets that one needs, each behind those it takes, itself last; sources are not among them."""
        ordered: list[str] = []

        def visit(name: str, on_the_way: tuple[str, ...]) -> None:
            if name in on_the_way:
                raise Sentence(f"datasets go in a circle: {' -> '.join([*on_the_way, name])}.")
            if name in self.sources or name in ordered:
                return
            for each in self.datasets[name].inputs:
                visit(each, (*on_the_way, name))
            ordered.append(name)

        visit(wanted, ())
        return ordered

    def sources_of(self, wanted: str) -> list[str]:
        """The sources that a dataset depends on."""
        if wanted in self.sources:
            return [wanted]
        needed = {name for each in self.order(wanted) for name in self.datasets[each].inputs}
        return [name for name in self.sources if name in needed]

    def streams(self, wanted: str) -> list[str]:
        """Those of them that are read as streams."""
        return [name for name in self.sources_of(wanted) if isinstance(self.sources[name], Topic)]

    def build(self, wanted: str, frames: dict[str, DataFrame]) -> DataFrame:
        """The frame of a dataset, given those of the sources; `frames` gets all on the way."""
        for name in self.order(wanted):
            if name not in frames:
                frames[name] = expectations.met(self.unchecked(name, frames), name, self.expectations.get(name, ()))
        return frames[wanted]

    def unchecked(self, name: str, frames: Mapping[str, DataFrame]) -> DataFrame:
        """The frame of a dataset with all its rows, also those that do not meet what is expected."""
        dataset = self.datasets[name]
        frame = dataset.function(**{each: frames[each] for each in dataset.inputs})
        if not hasattr(frame, "isStreaming"):
            raise Sentence(f"dataset {name} returned {type(frame).__name__}, not a DataFrame: is a return missing?")
        return frame

    def main(self) -> None:
        """For the end of a file that `python` or `spark-submit` runs; takes the options of `odradek pipeline run`."""
        raise SystemExit(import_module(COMMAND).main(self))

    def _claim(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise Sentence(f"{name!r} cannot be the name of a parameter: use letters, digits and underscores.")
        if name in self.sources or name in self.datasets:
            raise Sentence(f"there are two sources or datasets called {name}.")

    def _check_places(self) -> None:
        places: dict[str, str] = {}
        for output in self.outputs.values():
            place = output.sink.name if isinstance(output.sink, ToTopic) else getattr(output.sink, "path", "")
            if place and places.setdefault(place, output.name) != output.name:
                raise Sentence(f"sinks {places[place]} and {output.name} both write to {place}: give each its own.")
