"""Topics that were deleted and created again, told by their ids: without Spark and without brokers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.apps.pipelines.checkpoint import Checkpoint, finished_offsets
from odradek.apps.pipelines.recreated import TopicWatch, move_query
from odradek.apps.terminal.sentence import Sentence
from odradek.client.cluster import TopicPartition
from odradek.pipelines import Pipeline, schemas, sinks, sources

QUERIES = ("dead-letters-t", "sink-lake", "sink-that-was-taken-out")


class Cluster:
    """What brokers say, changed at will: of every topic its id, and where its partitions begin and end."""

    def __init__(self, **topics: tuple[str, list[tuple[int, int]]]) -> None:
        self.topics = topics

    def topic_ids(self, names: set[str], patterns: set[str]) -> dict[str, str]:
        return {name: topic_id for name, (topic_id, _) in self.topics.items()}

    def spans(self, topics: set[str]) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        return self._bounds(topics, 0), self._bounds(topics, 1)

    def _bounds(self, topics: set[str], which: int) -> dict[TopicPartition, int]:
        return {
            TopicPartition(name, number): bounds[which]
            for name, (_, partitions) in self.topics.items()
            if name in topics
            for number, bounds in enumerate(partitions)
        }


@pytest.fixture
def checkpoint(tmp_path: Path) -> Iterator[Checkpoint]:
    made = Pipeline("p")
    made.source("t", sources.topic("t", "u", value=schemas.text()))
    made.sink("lake", "t", sinks.parquet("lake"))
    held = Checkpoint(str(tmp_path / "checkpoint"), made)
    with held.taken():
        yield held


def batch(checkpoint: Checkpoint, number: int, ends: dict[str, dict[str, int]], *, finished: bool = True) -> None:
    """What Spark leaves behind of a batch, with its checksums."""
    for query in QUERIES:
        place = Path(checkpoint.query(query))
        for part in ("offsets", "commits"):
            (place / part).mkdir(parents=True, exist_ok=True)
        (place / "offsets" / str(number)).write_text("\n".join(["v1", '{"batchWatermarkMs":7}', json.dumps(ends), "-"]))
        (place / "offsets" / f".{number}.crc").write_bytes(b"crc")
        if finished:
            (place / "commits" / str(number)).write_text("v1\n{}")


def watch(checkpoint: Checkpoint, cluster: Cluster) -> tuple[TopicWatch, list[str]]:
    said: list[str] = []
    return TopicWatch(checkpoint, cluster, names={"t", "u"}, patterns=set(), say=said.append), said


def offsets(checkpoint: Checkpoint, query: str = "sink-lake") -> dict[str, int]:
    return {str(at): offset for at, offset in finished_offsets(Path(checkpoint.query(query))).items()}


def test_a_topic_with_another_id_is_not_read_on(checkpoint: Checkpoint) -> None:
    cluster = Cluster(t=("A", [(0, 5)]), u=("U", [(0, 3)]))
    first, said = watch(checkpoint, cluster)
    first.begin(None)
    assert not said
    batch(checkpoint, 0, {"t": {"0": 5}, "u": {"0": 3}})
    watch(checkpoint, cluster)[0].begin(None)

    cluster.topics["t"] = ("B", [(2, 9), (0, 4)])  # Longer than before: offsets tell nothing.
    with pytest.raises(Sentence) as refused:
        watch(checkpoint, cluster)[0].begin(None)
    assert str(refused.value) == (
        "topic t was deleted and recreated since it was read (its id was A, is B): say --topic-recreated start-over to "
        "read it from the beginning, or --topic-recreated skip to go on at the end."
    )
    assert offsets(checkpoint) == {"t-0": 5, "u-0": 3}
    with pytest.raises(Sentence, match="its id was A, is B"):
        watch(checkpoint, cluster)[0].begin(None)

    again, _ = watch(checkpoint, cluster)
    again.begin("start-over")
    for query in QUERIES:
        assert offsets(checkpoint, query) == {"t-0": 2, "t-1": 0, "u-0": 3}
    assert not list(Path(checkpoint.place).rglob("offsets/.0.crc")), "Spark would find its checksum wrong"
    assert again.incarnations == again.topic_ids == {"t": "B", "u": "U"}
    watch(checkpoint, cluster)[0].begin(None)

    cluster.topics["t"] = ("C", [(0, 1)])
    watch(checkpoint, cluster)[0].begin("skip")
    assert offsets(checkpoint) == {"t-0": 1, "u-0": 3}


def test_a_batch_that_was_not_finished_has_nothing_of_the_topic_any_more(checkpoint: Checkpoint) -> None:
    cluster = Cluster(t=("A", [(0, 9)]), u=("U", [(0, 9)]))
    watch(checkpoint, cluster)[0].begin(None)
    batch(checkpoint, 0, {"t": {"0": 5}, "u": {"0": 3}})
    batch(checkpoint, 1, {"t": {"0": 8}, "u": {"0": 7}}, finished=False)
    cluster.topics["t"] = ("B", [(0, 20)])
    watch(checkpoint, cluster)[0].begin("start-over")
    place = Path(checkpoint.query("sink-lake"), "offsets")
    ends = [json.loads((place / str(number)).read_text().split("\n")[2]) for number in range(2)]
    assert ends == [{"t": {"0": 0}, "u": {"0": 3}}, {"t": {"0": 0}, "u": {"0": 7}}]
    assert (place / "1").read_text().split("\n")[1::2] == ['{"batchWatermarkMs":7}', "-"]


def test_where_a_source_began_is_moved_too(tmp_path: Path) -> None:
    """A query that was killed in its first batch does that batch again from there."""
    file = tmp_path / "sources" / "0" / "0"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"\0v1\n" + b'{"t":{"0":7},"u":{"0":1}}')
    move_query(tmp_path, {"t": {0: 0, 1: 0}})
    assert file.read_bytes() == b"\0v1\n" + b'{"t":{"0":0,"1":0},"u":{"0":1}}'


def test_a_batch_that_was_begun_while_the_topic_was_not_there(tmp_path: Path) -> None:
    """It would be done again over fewer partitions than there are, which Spark refuses every time."""
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    (offsets / "3").write_text('v1\n{}\n{"t":{"0":7},"u":{"0":1}}\n{"w":{"0":4}}')
    (offsets / "4").write_text('v1\n{}\n{"u":{"0":2}}\n{"w":{"0":5}}')
    move_query(tmp_path, {"t": {0: 0}})
    assert (offsets / "3").read_text() == 'v1\n{}\n{"t":{"0":0},"u":{"0":1}}\n{"w":{"0":4}}'
    lines = (offsets / "4").read_text().splitlines()
    assert [json.loads(line) for line in lines[2:]] == [{"t": {"0": 0}, "u": {"0": 2}}, {"w": {"0": 5}}]


def test_a_shorter_topic_without_ids(checkpoint: Checkpoint) -> None:
    cluster = Cluster(t=("", [(0, 5)]), u=("", [(0, 3)]))
    first, said = watch(checkpoint, cluster)
    first.begin(None)
    assert len(said) == 1
    assert said[0].startswith("these brokers tell no topic ids")
    batch(checkpoint, 0, {"t": {"0": 5}, "u": {"0": 3}})
    cluster.topics["t"] = ("", [(0, 4)])
    with pytest.raises(Sentence) as refused:
        watch(checkpoint, cluster)[0].begin(None)
    assert "t-0 ends at 4 now, but was read up to 5" in str(refused.value)
    assert "--topic-recreated" in str(refused.value)
    assert "--allow-data-loss" not in str(refused.value)
    again, _ = watch(checkpoint, cluster)
    again.begin("start-over")
    assert offsets(checkpoint) == {"t-0": 0, "u-0": 3}
    assert (again.incarnations, again.topic_ids) == ({"t": "#1", "u": "#0"}, {})


def test_an_old_checkpoint_goes_on_with_a_warning(checkpoint: Checkpoint) -> None:
    batch(checkpoint, 0, {"t": {"0": 5}, "u": {"0": 3}})
    cluster = Cluster(t=("A", [(0, 5)]), u=("U", [(0, 3)]))
    first, said = watch(checkpoint, cluster)
    first.begin(None)
    assert len(said) == 1
    assert "does not know the ids of its topics" in said[0]
    second, said = watch(checkpoint, cluster)
    second.begin(None)
    assert not said


def test_a_topic_recreated_while_it_is_read(checkpoint: Checkpoint) -> None:
    cluster = Cluster(t=("A", [(0, 5)]), u=("U", [(0, 3)]))
    running, _ = watch(checkpoint, cluster)
    running.begin(None)
    cluster.topics["new"] = ("N", [(0, 1)])
    running.look(running.ask())
    assert running.topic_ids == {"t": "A", "u": "U", "new": "N"}
    del cluster.topics["t"]
    running.look(running.ask())
    with pytest.raises(Sentence, match="topic t was deleted while the pipeline read: create it again"):
        running.look(running.ask(), failed=True)
    cluster.topics["t"] = ("B", [(0, 9)])
    with pytest.raises(Sentence, match="topic t was deleted and recreated while the pipeline read: run it again with"):
        running.look(running.ask())
    with pytest.raises(Sentence, match="its id was A, is B"):
        watch(checkpoint, cluster)[0].begin(None)
