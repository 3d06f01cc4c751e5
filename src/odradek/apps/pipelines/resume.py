"""Where a run takes up what earlier ones did, and how much there is to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from odradek.apps.pipelines.brokers import Brokers, lost_by_query
from odradek.apps.pipelines.checkpoint import Checkpoint
from odradek.apps.pipelines.pipeline import Pipeline
from odradek.apps.pipelines.progress import Run
from odradek.apps.pipelines.queries import every_stream, read_committed, streams_of
from odradek.apps.pipelines.recreated import TopicWatch
from odradek.apps.pipelines.wishes import Wishes
from odradek.apps.terminal.sentence import Sentence
from odradek.client.cluster import TopicPartition


def look_back(running: Run, pipeline: Pipeline, checkpoint: Checkpoint, brokers: Brokers, wishes: Wishes) -> None:
    """Take up where the checkpoint says that each query is, say what was lost since, and see how much is to be done."""
    for name, offsets in checkpoint.committed().items():
        running.queries[name].offsets = dict(offsets)
    behind = {name: each.offsets for name, each in running.queries.items() if each.offsets}
    topics = {at.topic for offsets in behind.values() for at in offsets} | brokers.names(every_stream(pipeline))
    begins, ends = brokers.spans(topics, read_committed=read_committed(pipeline))
    _see_beginnings(running, pipeline, begins, ends)
    running.ends = ends
    if wishes.available_now:
        running.aim(ends)
    gone = lost_by_query(behind, begins, ends)
    if gone and not wishes.allow_data_loss:
        raise Sentence(
            f"{'; '.join(gone)}: run it with --allow-data-loss to go on with what is there, or start over: "
            f"`{checkpoint.reset_command()}`."
        )
    positions = running.positions()
    if positions and not gone:
        brokers.commit(pipeline.group, positions)  # The run before may have been killed before it could.


def topic_watch(pipeline: Pipeline, checkpoint: Checkpoint, brokers: Brokers, say: Callable[[str], None]) -> TopicWatch:
    """Who sees to it that topics stay those that the checkpoint knows."""
    streams = every_stream(pipeline)
    return TopicWatch(
        checkpoint,
        brokers,
        names={name for each in streams for name in each.topics},
        patterns={each.pattern for each in streams if each.pattern},
        say=say,
    )


def _see_beginnings(
    running: Run, pipeline: Pipeline, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> None:
    """Where queries begin with partitions of which they have finished no batch. One that is new to a checkpoint is read
    from its beginning."""
    for name, streams in streams_of(pipeline).items():
        count = running.queries[name]
        for at, begin in begins.items():
            starting = {each.starting for each in streams if each.reads(at.topic)}
            if count.offsets or starting == {"earliest"}:
                count.begins[at] = begin
            elif starting == {"latest"} and at in ends:
                count.begins[at] = ends[at]
