"""What a shard of a coordinator is: the state behind one partition of an internal topic.

A shard decides and replays; its shell appends. What is in the log changes by `replay` alone. Beside it a shard keeps
what is never logged: who waits for which answer, and when to look again. That part is changed by decisions, is gone
with the leadership, and `refused` says what happens to it when an append fails.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from heapq import heappop, heappush
from typing import ClassVar, Protocol, TypeAlias

from odradek.decisions import Ticket
from odradek.metadata.image import Changes, Image
from odradek.protocol.codec import Message, Struct
from odradek.protocol.errors import ErrorCode
from odradek.values import value

RecordKinds: TypeAlias = Mapping[int, tuple[type[Message], type[Message]]]
"""The classes of key and value by the number that a key begins with."""


@value
class CoordinatorRecord:
    """A key and its newest value; None is a tombstone."""

    key: Message
    value: Message | None
    value_version: int = 0


@value
class Moment:
    """Wall clock for what is written down, monotonic clock for deadlines: a jump of the first ends no session."""

    wall_ms: int
    monotonic_ms: int


@value
class ProducerKey:
    """Who writes in a transaction: what it wrote counts once a marker says that it was committed."""

    producer_id: int
    producer_epoch: int


class Effect:
    """What is to happen outside of a shard once its log has what it decided; each coordinator has its own kinds.

    Those of a shard that resigns do not begin any more: whoever loads the log next decides on them again.
    """

    __slots__ = ()


@value
class CoordinatorDecision:
    """The outcome of one event, as `decisions.Decision`; answers are responses or parts of them."""

    records: tuple[CoordinatorRecord, ...]
    answers: tuple[tuple[Ticket, Struct], ...] = ()
    next_deadline_ms: int | None = None
    producer: ProducerKey | None = None
    """In whose transaction the records are written."""
    effects: tuple[Effect, ...] = ()
    """Begun once everything that was replayed up to here is committed."""


class Shard(Protocol):
    """What the shell needs of a coordinator's state."""

    kinds: ClassVar[RecordKinds]
    """The records in its log; others are passed over."""

    @property
    def next_deadline_ms(self) -> int | None:
        """When to be asked to `expire`."""

    def replay(self, record: CoordinatorRecord, producer: ProducerKey | None) -> None:
        """Take over what is in the log, in the log's order; what a producer wrote does not count yet."""

    def replay_encoded(self, key: bytes, content: bytes) -> bool:
        """As `replay` of what no producer wrote, for kinds of which a log that is loaded has very many.

        False, and nothing was done: it is decoded for `replay`.
        """

    def replay_marker(self, producer: ProducerKey, committed: bool) -> None:
        """The transaction that producer id wrote in has ended: what it wrote counts, or never was.

        The marker's epoch may be later than that of what was written.
        """

    def loaded(self, now: Moment) -> CoordinatorDecision:
        """The log has been replayed to its end and this node leads it."""

    def learn(self, image: Image, changes: Changes | None) -> None:
        """The cluster agreed on something, before this is loaded as well; None if everything may be another."""

    def expire(self, now: Moment) -> CoordinatorDecision:
        """Do what is due; at most one piece of work that makes records, so that the next sees them replayed."""

    def refused(
        self, decision: CoordinatorDecision, code: ErrorCode, asker: Ticket | None, now: Moment
    ) -> CoordinatorDecision:
        """The records of a decision could not be appended and were not replayed; who but the asker is told what."""

    def resign(self) -> CoordinatorDecision:
        """This node does not lead the partition any more: everyone who waits is sent to look for the coordinator."""

    def holds(self, ticket: Ticket) -> bool:
        """Whether somebody still waits with it; looked for only after a failure."""


class Outcome:
    """A decision in the making."""

    __slots__ = ("answers", "producer", "records")

    def __init__(self) -> None:
        self.records: list[CoordinatorRecord] = []
        self.answers: list[tuple[Ticket, Struct]] = []
        self.producer: ProducerKey | None = None

    def answer(self, ticket: Ticket, response: Struct) -> None:
        self.answers.append((ticket, response))

    def decision(self, next_deadline_ms: int | None) -> CoordinatorDecision:
        return CoordinatorDecision(tuple(self.records), tuple(self.answers), next_deadline_ms, self.producer)


class Timers:
    """Deadlines by key. Putting one off, as heartbeats do, costs a dictionary entry and no place in the heap."""

    def __init__(self) -> None:
        self._deadlines: dict[Hashable, int] = {}
        self._queued: dict[Hashable, int] = {}
        """The earliest entry of each key in the heap, which may lie before its deadline."""
        self._heap: list[tuple[int, int, Hashable]] = []
        self._sequence = 0

    def set(self, key: Hashable, deadline_ms: int) -> None:
        """Set, put off or bring forward."""
        self._deadlines[key] = deadline_ms
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._push(key, deadline_ms)

    def cancel(self, key: Hashable) -> None:
        self._deadlines.pop(key, None)

    def deadline_ms(self, key: Hashable) -> int | None:
        return self._deadlines.get(key)

    def due(self, now_ms: int) -> Iterator[Hashable]:
        """Keys whose time has come, each taken out as it is handed on."""
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            queued_ms, _, key = heappop(heap)
            if self._queued.get(key) != queued_ms:
                continue  # It was brought forward since, and that entry has come up already.
            del self._queued[key]
            deadline_ms = self._deadlines.get(key)
            if deadline_ms is None:
                continue
            if deadline_ms > now_ms:
                self._push(key, deadline_ms)
                continue
            del self._deadlines[key]
            yield key

    @property
    def next_deadline_ms(self) -> int | None:
        """When to look again: never too late, and too early where a deadline was put off or cancelled."""
        return self._heap[0][0] if self._heap else None

    def _push(self, key: Hashable, deadline_ms: int) -> None:
        self._queued[key] = deadline_ms
        self._sequence += 1
        heappush(self._heap, (deadline_ms, self._sequence, key))
