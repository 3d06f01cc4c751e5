"""The queries that a pipeline becomes, and what each of them reads."""

from __future__ import annotations

from odradek.apps.pipelines.pipeline import Pipeline
from odradek.apps.pipelines.sinks import LakeTable, ToTopic
from odradek.apps.pipelines.sources import Topic


def query_names(pipeline: Pipeline) -> list[str]:
    """Every query of a run: the dead letters of each source that can have some, then the sinks."""
    letters = [f"dead-letters-{name}" for name in (*refusing(pipeline), *pipeline.doubted, *pipeline.sized)]
    return [*letters, *(f"sink-{name}" for name in pipeline.outputs)]


def refusing(pipeline: Pipeline) -> dict[str, Topic]:
    """Sources whose records can be bad, as the streams they are."""
    used = {each for output in pipeline.outputs.values() for each in pipeline.sources_of(output.dataset)}
    streams = {
        name: source if isinstance(source, Topic) else source.stream
        for name, source in pipeline.sources.items()
        if name in used
    }
    return {name: stream for name, stream in streams.items() if stream.can_refuse}


def shape(pipeline: Pipeline) -> dict[str, dict[str, object]]:
    """What of each query must stay as it is for its checkpoint to make sense."""
    found: dict[str, dict[str, object]] = {
        f"dead-letters-{name}": {"what it reads": [stream.text]} for name, stream in refusing(pipeline).items()
    }
    for name in pipeline.doubted:
        found[f"dead-letters-{name}"] = {
            "what it reads": [pipeline.sources[each].text for each in pipeline.streams(name)]
        }
    for name in pipeline.sized:
        dataset = pipeline.outputs[name.removeprefix("sink-")].dataset
        found[f"dead-letters-{name}"] = {
            "what it reads": [pipeline.sources[each].text for each in pipeline.streams(dataset)]
        }
    for name, output in pipeline.outputs.items():
        place = output.sink.name if isinstance(output.sink, ToTopic) else getattr(output.sink, "path", "")
        kind = output.sink.format if isinstance(output.sink, LakeTable) else type(output.sink).__name__
        found[f"sink-{name}"] = {
            "what it reads": [pipeline.sources[each].text for each in pipeline.streams(output.dataset)],
            "its kind": kind,
            "its place": place,
            "its mode": output.mode,
        }
    return found


def streams_of(pipeline: Pipeline) -> dict[str, tuple[Topic, ...]]:
    """Of every query the streams that it reads."""
    found: dict[str, tuple[Topic, ...]] = {f"dead-letters-{name}": (each,) for name, each in refusing(pipeline).items()}
    for name in pipeline.doubted:
        streams = [pipeline.sources[each] for each in pipeline.streams(name)]
        found[f"dead-letters-{name}"] = tuple(each for each in streams if isinstance(each, Topic))
    for name, output in pipeline.outputs.items():
        streams = [pipeline.sources[each] for each in pipeline.streams(output.dataset)]
        found[f"sink-{name}"] = tuple(each for each in streams if isinstance(each, Topic))
        if f"sink-{name}" in pipeline.sized:
            found[f"dead-letters-sink-{name}"] = found[f"sink-{name}"]
    return found


def every_stream(pipeline: Pipeline) -> list[Topic]:
    """What any of the queries reads; one that several read is there as often."""
    return [each for read in streams_of(pipeline).values() for each in read]


def read_committed(pipeline: Pipeline) -> bool:
    """Whether all that is read ends where transactions under way begin."""
    return all(each.read_committed for each in every_stream(pipeline))
