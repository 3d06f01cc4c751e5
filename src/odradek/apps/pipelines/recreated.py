"""Topics that were deleted and created again under their old names: offsets of a checkpoint mean nothing in them.

Kafka gives every topic an id when it is created (KIP-516). A checkpoint holds the ids that its offsets belong to; a
topic with another id has other records at the same offsets, so nothing is read of it until somebody has said where to
begin.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Protocol

from odradek.apps.pipelines.brokers import Spans, topic_ids_of
from odradek.apps.pipelines.checkpoint import Checkpoint
from odradek.apps.terminal.sentence import Sentence
from odradek.client.admin import Admin
from odradek.client.cluster import TopicPartition
from odradek.values import value

START_OVER = "start-over"
SKIP = "skip"


@value
class KnownTopic:
    """A topic as a checkpoint knows it."""

    topic_id: str
    """Empty where the brokers tell none."""

    generation: int = 0
    """How often it was seen to be recreated, which is all there is to tell by where there are no ids."""


class Topics(Protocol):
    """What is asked of brokers here."""

    def topic_ids(self, names: set[str], patterns: set[str]) -> dict[str, str]: ...

    def spans(self, topics: set[str]) -> Spans: ...


class TopicWatch:
    """The ids of the topics that a pipeline reads, compared before its run begins and while it runs."""

    def __init__(
        self, checkpoint: Checkpoint, topics: Topics, *, names: set[str], patterns: set[str], say: Callable[[str], None]
    ) -> None:
        """`say` is told what is worth a warning."""
        self._checkpoint = checkpoint
        self._topics = topics
        self._names = names
        self._patterns = patterns
        self._say = say
        self.known: dict[str, KnownTopic] = {}
        self._there: set[str] = set()

    @property
    def incarnations(self) -> dict[str, str]:
        """Of every topic what tells it from those of its name before: its id, or how often it was seen to change where
        brokers tell no ids."""
        return {name: each.topic_id or f"#{each.generation}" for name, each in self.known.items()}

    @property
    def topic_ids(self) -> dict[str, str]:
        return {name: each.topic_id for name, each in self.known.items() if each.topic_id}

    def begin(self, choice: str | None) -> None:
        """Before a run: its checkpoint fits its topics, or is made to as `choice` says; or a Sentence.

        The ids are noted last, so that a run that is killed on the way finds them changed again.
        """
        held = self._checkpoint.topics()
        now = self.ask()
        positions = self._checkpoint.furthest()
        if held is None and positions:
            self._say(
                f"the checkpoint {self._checkpoint.place} was written by an older version and does not know the ids of "
                "its topics; whether one was recreated since cannot be told. From this run on it can."
            )
        if any(not topic_id for topic_id in now.values()):
            self._say(
                "these brokers tell no topic ids, so a topic that is deleted and recreated is noticed only where it is "
                "shorter than what was read of it."
            )
        before = {name: KnownTopic(**each) for name, each in (held or {}).items()}
        changed = {
            name: f"topic {name} was deleted and recreated since it was read (its id was {before[name].topic_id}, is "
            f"{topic_id})"
            for name, topic_id in now.items()
            if _differ(before.get(name), topic_id)
        }
        changed |= self._shorter(positions, {*now} - {*changed})
        if changed and choice is None:
            raise Sentence(f"{'; '.join(changed.values())}: {_advice(len(changed))}.")
        if changed:
            self._move(set(changed), choice == START_OVER)
        self.known = dict(before)
        for name, topic_id in now.items():
            known = before.get(name, KnownTopic(topic_id))
            self.known[name] = KnownTopic(topic_id or known.topic_id, known.generation + (name in changed))
        self._there = set(now)
        self._note()

    def ask(self) -> dict[str, str]:
        """The ids as they are now."""
        return self._topics.topic_ids(self._names, self._patterns)

    async def ask_of(self, admin: Admin) -> dict[str, str]:
        """The same, from where one may wait for it."""
        return await topic_ids_of(admin, self._names, self._patterns)

    def look(self, now: Mapping[str, str], *, failed: bool = False) -> None:
        """While it runs: a Sentence if a topic is another one than when it began; new ones of a pattern are noted.

        With `failed`, a query has just ended: that a topic is gone is then the reason, and else a moment in its life.
        """
        changed = [name for name, topic_id in now.items() if _differ(self.known.get(name), topic_id)]
        if changed:
            what = ", ".join(changed)
            were = "topics" if len(changed) > 1 else "topic"
            raise Sentence(
                f"{were} {what} {'were' if len(changed) > 1 else 'was'} deleted and recreated while the pipeline read: "
                f"{_advice(len(changed), again=True)}."
            )
        gone = sorted(self._there - now.keys())
        if gone and failed:
            raise Sentence(
                f"topic {', '.join(gone)} was deleted while the pipeline read: create it again, and then "
                f"{_advice(len(gone), again=True)}."
            )
        self._there |= now.keys()
        fresh = {name: KnownTopic(topic_id) for name, topic_id in now.items() if name not in self.known}
        if fresh:
            self.known |= fresh
            self._note()

    def _shorter(self, positions: Mapping[TopicPartition, int], topics: set[str]) -> dict[str, str]:
        """Topics that end before where they were read up to: without ids that is the only sign."""
        read = {at: offset for at, offset in positions.items() if at.topic in topics}
        if not read:
            return {}
        _, ends = self._topics.spans({at.topic for at in read})
        found: dict[str, str] = {}
        for at, offset in sorted(read.items()):
            end = ends.get(at)
            if end is not None and end < offset:
                found[at.topic] = (
                    f"{at} ends at {end} now, but was read up to {offset}: its topic was recreated, or has lost its end"
                )
        return found

    def _move(self, topics: set[str], to_beginning: bool) -> None:
        begins, ends = self._topics.spans(topics)
        places = begins if to_beginning else ends
        fresh: dict[str, dict[int, int]] = {name: {} for name in topics}
        for at, offset in places.items():
            fresh[at.topic][at.partition] = offset
        for offsets in Path(self._checkpoint.place).glob("*/offsets"):
            move_query(offsets.parent, fresh)  # Also that of a sink that is not in the file now: it may come back.

    def _note(self) -> None:
        self._checkpoint.note_topics(
            {
                name: {"topic_id": each.topic_id, "generation": each.generation}
                for name, each in sorted(self.known.items())
            }
        )


def move_query(query: Path, fresh: Mapping[str, Mapping[int, int]]) -> None:
    """Let a query of Spark's go on at other offsets of some topics, and of the others where it is.

    Spark goes on from the last batch's end if that batch was finished, and does it again if not: from the end of the
    one before, or from where its sources began. All three say the same of these topics afterwards, so that a batch
    that is done again has nothing of them in it, and of the other topics what it had. That goes for a topic, too, that
    was not there for a moment when the last batch was begun, between its deletion and its creation.
    """
    named: dict[int, set[str]] = {}
    for file in (query / "sources").glob("*/0"):
        head, newline, last = file.read_bytes().rpartition(b"\n")
        named[int(file.parent.name)] = _topics(last.decode())
        _write(file, head + newline + moved(last.decode(), fresh).encode())
    numbers = sorted(int(each.name) for each in (query / "offsets").glob("[0-9]*") if each.name.isdecimal())
    for number in numbers[-2:]:
        file = query / "offsets" / str(number)
        version, settings, *sources = file.read_text().split("\n")
        for index, line in enumerate(sources):
            named.setdefault(index, set()).update(_topics(line))
            sources[index] = moved(line, fresh, named[index])
        _write(file, "\n".join([version, settings, *sources]).encode())


def moved(line: str, fresh: Mapping[str, Mapping[int, int]], before: Collection[str] = ()) -> str:
    """A source's offsets as Spark writes them, with other ones for those topics of `fresh` that are among them, or that
    were `before`."""
    try:
        held = json.loads(line)
    except ValueError:
        return line  # A dash, where a source had nothing yet.
    if not isinstance(held, dict):
        return line
    known = {*held, *before} & fresh.keys()
    if not known:
        return line
    for name in known:
        held[name] = {str(partition): offset for partition, offset in sorted(fresh[name].items())}
    return json.dumps(held, separators=(",", ":"))


def _topics(line: str) -> set[str]:
    try:
        held = json.loads(line)
    except ValueError:
        return set()
    return set(held) if isinstance(held, dict) else set()


def _write(file: Path, content: bytes) -> None:
    """Spark keeps a checksum beside each of its files; where there is none, it does not ask for it."""
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    new = file.with_name(f".{file.name}.moved")
    new.write_bytes(content)
    new.replace(file)


def _differ(known: KnownTopic | None, topic_id: str) -> bool:
    return known is not None and bool(known.topic_id) and bool(topic_id) and known.topic_id != topic_id


def _advice(count: int, *, again: bool = False) -> str:
    what = "it" if count == 1 else "them"
    return (
        f"{'run it again with' if again else 'say'} --topic-recreated {START_OVER} to read {what} from the beginning, "
        f"or --topic-recreated {SKIP} to go on at the end"
    )
