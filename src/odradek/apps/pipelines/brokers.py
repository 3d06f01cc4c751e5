"""What a run asks of brokers itself: are the topics there, what was lost, and how far is the group."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import TypeVar

from odradek.apps.pipelines.pipeline import Pipeline
from odradek.apps.pipelines.sinks import ToTopic
from odradek.apps.pipelines.sources import Topic
from odradek.apps.terminal.sentence import Sentence
from odradek.apps.terminal.session import Session, one_sentence, reach
from odradek.client.admin import Admin
from odradek.client.admin.base import Outcomes
from odradek.client.admin.cluster import ConfigResource, ResourceType
from odradek.client.admin.topics import NewTopic
from odradek.client.cluster import TopicInfo, TopicPartition
from odradek.client.errors import ClientError
from odradek.client.leaders import EARLIEST, LATEST, Answers, FoundOffset
from odradek.client.offsets import CommittedOffset
from odradek.configdef import did_you_mean
from odradek.ids import ZERO_UUID, uuid_text
from odradek.protocol.errors import ErrorCode, KafkaError

ResultT = TypeVar("ResultT")
MAX_MESSAGE_BYTES = "max.message.bytes"
SETTLING_S = 20.0
"""How long partitions of a new topic may take to get leaders."""

COMMIT_S = 5.0
"""How long a run, which has other things to do, waits until offsets are committed; it tries again later."""

Spans = tuple[dict[TopicPartition, int], dict[TopicPartition, int]]
"""Where partitions begin and where they end."""


class Brokers:
    """An Admin for code that does not await: Spark's driver is such code. To be closed, or used as a context."""

    def __init__(self, session: Session) -> None:
        self.bootstrap = session.bootstrap
        self._runner = asyncio.Runner()
        self._admin = self._runner.run(_made(session))

    def __enter__(self) -> Brokers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self._admin.close())
        self._runner.close()

    def prepare(self, pipeline: Pipeline, *, needs_dead_letters: bool) -> None:
        """Topics to read exist, topics to write do now; or a Sentence."""
        self._ask(lambda admin: _prepare(admin, pipeline, needs_dead_letters=needs_dead_letters))

    def spans(self, topics: Collection[str], *, read_committed: bool = False) -> Spans:
        """Where their partitions begin and end, asked for together."""
        return self._ask(lambda admin: offsets_of(admin, topics, read_committed=read_committed))

    def names(self, streams: Iterable[Topic]) -> set[str]:
        """The topics that these streams read, patterns included."""
        streams = list(streams)
        named = {name for each in streams for name in each.topics}
        if not any(each.pattern for each in streams):
            return named
        existing = self._ask(lambda admin: admin.list_topics())
        return named | {topic.name for topic in existing for each in streams if each.reads(topic.name)}

    def topic_ids(self, names: set[str], patterns: set[str]) -> dict[str, str]:
        """The ids of these topics and of those that match, as far as there are any; empty where brokers tell none."""
        return self._ask(lambda admin: topic_ids_of(admin, names, patterns))

    def largest_batch(self, topic: str) -> int | None:
        """How large a batch of a topic may be (max.message.bytes); None where brokers do not tell."""
        return self._ask(lambda admin: _largest_batch(admin, topic))

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
        self._ask(lambda admin: _create(admin, name, partitions, dict(configs or {})))

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> str:
        """Commit for the group; what kept it from working, or nothing. A run does not end for it: Spark's checkpoint
        decides where a pipeline goes on, the group is for those who watch."""
        wanted = {partition: CommittedOffset(offset) for partition, offset in offsets.items()}

        async def committed() -> Outcomes[TopicPartition]:
            async with asyncio.timeout(COMMIT_S):
                return await self._admin.alter_group_offsets(group, wanted)

        try:
            outcomes = self._runner.run(committed())
        except TimeoutError:
            return f"no broker has done it within {COMMIT_S:g} s"
        except (KafkaError, ClientError) as failure:
            return str(failure) or type(failure).__name__
        refused = [failure for failure in outcomes.values() if failure is not None]
        return str(refused[0]) if refused else ""

    def forget(self, group: str) -> None:
        """Delete the group with all it has committed; nothing if there is none."""
        outcomes = self._ask(lambda admin: admin.delete_groups([group]))
        failure = outcomes[group]
        if failure is not None and failure.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise Sentence(f"group {group} was not deleted: {failure}.")

    def _ask(self, question: Callable[[Admin], Awaitable[ResultT]]) -> ResultT:
        async def asked() -> ResultT:
            await reach(self._admin.cluster)
            return await question(self._admin)

        with one_sentence():
            return self._runner.run(asked())


def lost(
    read_up_to: Mapping[TopicPartition, int], begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> list[str]:
    """What is gone between where a pipeline was and where its topics begin now, one text a partition."""
    texts = []
    for partition, offset in sorted(read_up_to.items()):
        begin, end = begins.get(partition), ends.get(partition)
        if begin is None or end is None:
            texts.append(f"{partition} is not there any more")
        elif offset < begin:
            texts.append(f"{partition} begins at {begin} now, and offsets {offset} to {begin - 1} were not read")
    return texts


def lost_by_query(
    read_up_to: Mapping[str, Mapping[TopicPartition, int]],
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> list[str]:
    """The same for several queries, which are named where only some of them have lost it: a sink that was taken out of
    the file and comes back is as far as it was."""
    found: dict[str, list[str]] = {}
    for query, offsets in read_up_to.items():
        for text in lost(offsets, begins, ends):
            found.setdefault(text, []).append(query)
    return [
        text if len(queries) == len(read_up_to) else f"{', '.join(queries)}: {text}" for text, queries in found.items()
    ]


async def _made(session: Session) -> Admin:
    return session.admin()


async def _prepare(admin: Admin, pipeline: Pipeline, *, needs_dead_letters: bool) -> None:
    existing = {topic.name: len(topic.partitions) for topic in await admin.list_topics()}
    for source_name, source in pipeline.sources.items():
        stream = source if isinstance(source, Topic) else source.stream
        if stream.pattern and not any(map(stream.reads, existing)):
            raise Sentence(
                f"source {source_name}: no topic matches {stream.pattern}; `odradek topic list` shows those there are."
            )
        for name in stream.topics:
            if name not in existing:
                raise Sentence(
                    f"there is no topic {name}.{did_you_mean(name, list(existing))} Source {source_name} reads it: "
                    f"create it with `odradek topic create {name}`, or change the source."
                )
    wanted = {
        each.sink.name: each.sink.partitions for each in pipeline.outputs.values() if isinstance(each.sink, ToTopic)
    }
    if needs_dead_letters:
        wanted.setdefault(pipeline.dead_letters, -1)
    missing = [NewTopic(name, partitions) for name, partitions in wanted.items() if name not in existing]
    if missing:
        for failure in (await admin.create_topics(missing)).values():
            if failure is not None and failure.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise failure
    await _settled(admin, wanted)  # All of them: somebody may have made one a moment ago.


async def _create(admin: Admin, name: str, partitions: int, configs: dict[str, str]) -> None:
    """Make a topic and wait until its partitions answer."""
    try:
        await admin.create_topic(name, partitions=partitions, configs=configs)
    except KafkaError as failure:
        if failure.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
    await _settled(admin, [name])


async def _settled(admin: Admin, names: Collection[str]) -> None:
    """Wait until every partition of these topics answers at its leader; they are asked together.

    A producer that comes earlier may lose records. Its first batch is refused, because the leader does not know the
    partition yet; the second, a moment later and on its way already, is taken, as a producer that is not known
    may begin with any sequence; and then the first is out of order for ever (KAFKA-15591, in Apache Kafka before 4.5).
    """
    deadline = asyncio.get_running_loop().time() + SETTLING_S
    waiting = sorted(names)
    while waiting:
        described = await admin.describe_topics(waiting)
        asked = _partitions(described)
        answers = await admin.list_offsets(dict.fromkeys(asked, LATEST)) if asked else {}
        answered = {at.topic for at in asked} - {at.topic for at in asked if isinstance(answers[at], KafkaError)}
        waiting = [name for name in waiting if name not in answered]
        if waiting and asyncio.get_running_loop().time() > deadline:
            raise Sentence(
                f"not every partition of topic {waiting[0]} has a leader that answers: look at the brokers with "
                f"`odradek topic describe {waiting[0]}`."
            )
        if waiting:
            await asyncio.sleep(0.05)


async def _largest_batch(admin: Admin, topic: str) -> int | None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    described = (await admin.describe_configs([resource], keys=[MAX_MESSAGE_BYTES]))[resource]
    if isinstance(described, KafkaError):
        return None  # Whoever may not look at settings has to do without.
    told = [each.value for each in described if each.name == MAX_MESSAGE_BYTES and each.value is not None]
    return int(told[0]) if told else None


async def topic_ids_of(admin: Admin, names: set[str], patterns: set[str]) -> dict[str, str]:
    """The ids of topics and of those that match, as far as there are any; empty where brokers tell none."""
    described = await admin.describe_topics(sorted(names))
    found = {name: topic for name, topic in described.items() if not isinstance(topic, KafkaError)}
    if patterns:
        for topic in await admin.list_topics():
            if any(re.fullmatch(pattern, topic.name) for pattern in patterns):
                found[topic.name] = topic
    return {
        name: "" if topic.topic_id == ZERO_UUID else uuid_text(topic.topic_id) for name, topic in sorted(found.items())
    }


async def offsets_of(admin: Admin, topics: Collection[str], *, read_committed: bool = False) -> Spans:
    """Where the partitions of topics begin and end; without those that nobody leads at the moment."""
    partitions = _partitions(await admin.describe_topics(sorted(topics))) if topics else []
    if not partitions:
        return {}, {}
    begins, ends = await asyncio.gather(
        admin.list_offsets(dict.fromkeys(partitions, EARLIEST)),
        admin.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=read_committed),
    )
    return _found(begins), _found(ends)


def _partitions(described: Mapping[str, TopicInfo | KafkaError]) -> list[TopicPartition]:
    return [
        TopicPartition(name, each.partition)
        for name, topic in described.items()
        if not isinstance(topic, KafkaError)
        for each in topic.partitions
    ]


def _found(answers: Answers[FoundOffset]) -> dict[TopicPartition, int]:
    return {partition: each.offset for partition, each in answers.items() if not isinstance(each, KafkaError)}
