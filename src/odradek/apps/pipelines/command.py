"""What `odradek pipeline` does, and what the end of a pipeline's own file does under `python` and `spark-submit`."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.apps.pipelines import compaction, lakes, scaffold, sinks, sources, tables
from odradek.apps.pipelines.agreement import check_lakes
from odradek.apps.pipelines.brokers import Brokers
from odradek.apps.pipelines.compaction import read_log
from odradek.apps.pipelines.definition import load
from odradek.apps.pipelines.launch import frames_of, resolved
from odradek.apps.pipelines.options import add_run_options
from odradek.apps.pipelines.pipeline import Output, Pipeline
from odradek.apps.pipelines.queries import refusing
from odradek.apps.pipelines.registry import Registries
from odradek.apps.pipelines.runner import run as run_pipeline
from odradek.apps.pipelines.session import open_session
from odradek.apps.pipelines.teller import Teller
from odradek.apps.pipelines.timings import Timings
from odradek.apps.pipelines.wishes import Wishes
from odradek.apps.terminal.options import pairs
from odradek.apps.terminal.output import emit, plural, table
from odradek.apps.terminal.sentence import Sentence
from odradek.apps.terminal.session import Session, gather_settings, one_sentence
from odradek.configdef import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def run(options: argparse.Namespace) -> int:
    timings = Timings()
    with timings.phase(f"reading {options.file}"):
        pipeline = load(options.file)
    return _run(pipeline, options, timings)


def main(pipeline: Pipeline, arguments: list[str] | None = None) -> int:
    """The end of a pipeline's file: the same options, without the file."""
    from odradek.apps.terminal.parser import Parser

    pipeline.file = sys.argv[0]
    parser = Parser(prog=Path(sys.argv[0]).name, description=f"Run the pipeline {pipeline.name}.")
    add_run_options(parser)
    try:
        pipeline.check()
        return _run(pipeline, parser.parse_args(arguments), Timings())
    except Sentence as wrong:
        print(f"odradek: {wrong}", file=sys.stderr)
        return wrong.exit_code


def validate(options: argparse.Namespace) -> int:
    """Everything that can be found out before a run: the file, the columns, and the topics unless --offline."""
    pipeline = load(options.file)
    if not options.offline:
        session = _session(options)
        with Brokers(session) as brokers:
            brokers.prepare(pipeline, needs_dead_letters=False)
        registries = Registries(session.registry)
        for name, source in pipeline.sources.items():
            resolved(registries, name, source)
    with_empty_sources(pipeline, _spark(pipeline, options, brief=True))
    print(f"{options.file} is in order: {_counted(pipeline)}.")
    return 0


def explain(options: argparse.Namespace) -> int:
    """The graph, and the plan that Spark makes of every sink."""
    pipeline = load(options.file)
    _session(options)  # Explaining asks nobody, but options that are wrong are said here as well.
    frames = with_empty_sources(pipeline, _spark(pipeline, options, brief=True))
    for line in describe(pipeline):
        print(line)
    for name, frame in frames.items():
        print(f"\nsink {name}:")
        frame.explain(extended=options.extended)
    return 0


def listing(options: argparse.Namespace) -> int:
    """What files declare, without Spark."""
    files = [str(each) for file in options.files for each in _files(Path(file))]
    found = []
    for file in files:
        pipeline = load(file)
        found.append(
            {
                "file": file,
                "pipeline": pipeline.name,
                "group": pipeline.group,
                "sources": [each.text for each in pipeline.sources.values()],
                "sinks": [each.sink.text for each in pipeline.outputs.values()],
            }
        )
    rows = [(each["pipeline"], each["file"], "; ".join(each["sources"]), "; ".join(each["sinks"])) for each in found]
    emit(options, found, table(("PIPELINE", "FILE", "SOURCES", "SINKS"), rows) if found else ["No pipelines."])
    return 0


def reset(options: argparse.Namespace) -> int:
    """Forget how far a pipeline, or one sink of it, is. What sinks hold stays, but for files if asked."""
    pipeline = load(options.file)
    wishes = _wishes(options)
    checkpoint = wishes.checkpoint_for(pipeline)
    if not checkpoint.is_local:
        raise Sentence(f"delete {checkpoint.place} with the tools of its file system.")
    one = options.sink
    if one is not None and one not in pipeline.outputs:
        raise Sentence(f"{pipeline.name} has no sink {one}.{did_you_mean(one, list(pipeline.outputs))}")
    if not options.yes:
        what = f"how far sink {one} is" if one else f"{checkpoint.place} and what group {pipeline.group} has committed"
        raise Sentence(
            f"this forgets {what}, so that the next run reads everything again, into the same "
            f"{'sink (Parquet files' if one else 'sinks (those of Parquet files'} must be empty: --delete-files): "
            "say --yes if that is what you want.",
            2,
        )
    chosen = {one: pipeline.outputs[one]} if one else pipeline.outputs
    doomed = _written_places(chosen, wishes.data) if options.delete_files else []
    if one:
        checkpoint.remove_query(f"sink-{one}")  # The group follows: it is never ahead of any sink.
    else:
        with Brokers(_session(options)) as brokers:
            checkpoint.remove()
            brokers.forget(pipeline.group)
    for place in doomed:
        shutil.rmtree(place)
    print(f"{f'sink {one} of {pipeline.name}' if one else pipeline.name} starts over at the next run.")
    return 0


def _written_places(outputs: Mapping[str, Output], base: str) -> list[Path]:
    """Directories of sinks in which a pipeline has written: Spark's log of a sink, or a table's pointer, says so."""
    found = []
    for output in outputs.values():
        if isinstance(output.sink, sinks.Parquet | sinks.ParquetTable):
            place = sinks.located(base, output.sink.path)
            if "://" not in place and (read_log(Path(place)).latest >= 0 or tables.read_current(Path(place))):
                found.append(Path(place))
    return found


def compact(options: argparse.Namespace) -> int:
    """Put small files of the lake together, while nobody runs."""
    pipeline = load(options.file)
    wishes = _wishes(options)
    chosen = compactable(pipeline, options.sink)
    _session(options)  # It asks nobody, but options that are wrong are said here as well.
    checkpoint = wishes.checkpoint_for(pipeline)
    done = {}
    with checkpoint.taken():
        check_lakes(pipeline, checkpoint, wishes.data)
        spark = _spark(pipeline, options, formats=pipeline.formats, brief=False, held=checkpoint.lock)
        for name, sink in chosen.items():
            place = sinks.located(wishes.data, sink.path)
            if isinstance(sink, sinks.LakeTable):
                before, after = lakes.compact(spark, sink.format, place)
                done[name] = compaction.Compacted(before, after, 0, 0)
            elif "://" in place:
                raise Sentence(
                    f"sink {name}: Parquet files are compacted on a local disk, not in {place}: see sinks.delta."
                )
            else:
                target, keep = options.target_mb << 20, options.keep_minutes * 60.0
                done[name] = compaction.compact(spark, Path(place), target_bytes=target, keep_s=keep)
    data = [{"sink": name, **asdict(each)} for name, each in done.items()]
    emit(options, data, [each.sentence(name) for name, each in done.items()])
    return 0


def compactable(pipeline: Pipeline, wanted: str | None) -> dict[str, sinks.Parquet | sinks.LakeTable]:
    """The sinks that are made of files, or the one that is wanted; a Sentence if it is none."""
    found = {
        name: output.sink
        for name, output in pipeline.outputs.items()
        if isinstance(output.sink, sinks.Parquet | sinks.LakeTable)
    }
    if wanted is None and not found:
        raise Sentence(f"{pipeline.name} has no sink that is made of files.")
    if wanted is not None and wanted not in found:
        raise Sentence(
            f"{pipeline.name} has no sink {wanted} that is made of files.{did_you_mean(wanted, list(found))}"
        )
    return found if wanted is None else {wanted: found[wanted]}


def new(options: argparse.Namespace) -> int:
    """A project that runs at once."""
    made = scaffold.create(options.name, Path(options.directory or options.name))
    for line in made:
        print(line)
    return 0


def replay_dead_letters(options: argparse.Namespace) -> int:
    """Send them back, each once."""
    from odradek.apps.pipelines.dead_letters import read_dead_letters, replay

    pipeline = load(options.file)
    session = _session(options)

    async def work() -> int:
        with one_sentence():
            if options.list:
                letters, _ = await read_dead_letters(session, pipeline.dead_letters)
                data = [
                    {"topic": each.topic, "partition": each.partition, "offset": each.offset, "reason": each.reason}
                    for each in letters
                ]
                rows = [tuple(each.values()) for each in data]
                emit(options, data, table(("TOPIC", "PARTITION", "OFFSET", "REASON"), rows) if rows else ["None."])
                return 0
            sent, left = await replay(
                session,
                pipeline.dead_letters,
                group=f"{pipeline.group}.replay",
                to=options.to,
                reasons=options.reason,
                dry_run=options.dry_run,
            )
        verb = "would be sent" if options.dry_run else "sent"
        others = f"; {plural(left, 'other')} left" if left else ""
        print(f"{plural(sent, 'dead letter')} {verb} back{f' to {options.to}' if options.to else ''}{others}.")
        return 0

    return asyncio.run(work())


def describe(pipeline: Pipeline) -> list[str]:
    """The graph, for people."""
    lines = [f"pipeline {pipeline.name}, group {pipeline.group}"]
    refused = refusing(pipeline)
    for name, source in pipeline.sources.items():
        letters = f", dead letters to {pipeline.dead_letters}" if name in refused else ""
        lines.append(f"  source {name}: {source.text}{letters}")
    for dataset in pipeline.datasets.values():
        lines.append(f"  dataset {dataset.name} of {', '.join(dataset.inputs)}")
        for each in pipeline.expectations.get(dataset.name, ()):
            lines.append(f"    expects {each.name}: {each.condition} (or {each.on_fail})")
    for output in pipeline.outputs.values():
        lines.append(f"  sink {output.name}: {output.dataset} to {output.sink.text} ({output.mode})")
    return lines


def with_empty_sources(pipeline: Pipeline, spark: SparkSession) -> dict[str, DataFrame]:
    """Every sink's frame over sources without rows: Spark then says which columns do not exist."""
    frames: dict[str, DataFrame] = {}
    return {
        output.name: frames_of(
            pipeline, lambda name: sources.empty(spark, pipeline.sources[name]), output.dataset, frames
        )
        for output in pipeline.outputs.values()
    }


def _run(pipeline: Pipeline, options: argparse.Namespace, timings: Timings) -> int:
    run_pipeline(pipeline, _session(options), _wishes(options), timings=timings)
    return 0


def _session(options: argparse.Namespace) -> Session:
    with one_sentence():
        return Session(gather_settings(options, os.environ))


def _wishes(options: argparse.Namespace) -> Wishes:
    chosen = vars(options)
    return Wishes(
        data=chosen.get("data") or ".",
        checkpoint=chosen.get("checkpoint"),
        available_now=chosen.get("available_now", False),
        master=chosen.get("master"),
        conf=tuple(pairs(chosen.get("conf") or [], "--conf").items()),
        allow_data_loss=chosen.get("allow_data_loss", False),
        topic_recreated=chosen.get("topic_recreated"),
        form=chosen.get("format", "table"),
        quiet=chosen.get("quiet", False),
        metrics_port=chosen.get("metrics_port"),
        timings=chosen.get("timings", False),
    )


def _spark(
    pipeline: Pipeline,
    options: argparse.Namespace,
    *,
    formats: Sequence[str] = (),
    brief: bool,
    held: int | None = None,
) -> SparkSession:
    """A session for everything but runs: without topics, so that nothing is fetched for it but what Avro needs."""
    import tempfile

    log_file = Path(tempfile.mkstemp(prefix="odradek-spark-", suffix=".log")[1])
    wishes = _wishes(options)
    streams = [each if isinstance(each, sources.Topic) else each.stream for each in pipeline.sources.values()]
    with Teller(pipeline.name, quiet=not sys.stderr.isatty()) as teller:
        return open_session(
            f"odradek {pipeline.name}",
            master=wishes.master,
            conf=dict(wishes.conf),
            log_file=log_file,
            formats=formats,
            brief=brief,
            topics=any(each.schema.kind == "avro" for each in streams),
            held=held,
            during=teller.during,
        )


def _counted(pipeline: Pipeline) -> str:
    return ", ".join(
        (
            plural(len(pipeline.sources), "source"),
            plural(len(pipeline.datasets), "dataset"),
            plural(len(pipeline.outputs), "sink"),
        )
    )


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    candidates = sorted(each for each in path.iterdir() if each.suffix in (".py", ".yaml", ".yml"))
    return [each for each in candidates if each.suffix != ".py" or "Pipeline(" in each.read_text(errors="replace")]
