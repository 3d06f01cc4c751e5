"""The queue of the active controller: decisions one after another, made durable together, and then answered.

Order: decide, append, replay, answer. Whatever was asked for within one turn of the loop shares one write and one
sync, so a burst of small changes costs what one does. A decision sees what those before it decided, also where that is
not yet durable; nobody else does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from odradek.decisions import Decision
from odradek.ids import LeaderEpoch, Offset
from odradek.metadata.features import supports_transactions
from odradek.metadata.image import Image, Provenance
from odradek.metadata.loader import Draft
from odradek.metadata.records import BeginTransactionRecord, EndTransactionRecord
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.server.containment import Containment, Cost
from odradek.server.quorum.quorum import Quorum
from odradek.server.quorum.writer import MAX_RECORDS_PER_BATCH

ResponseT = TypeVar("ResponseT")

Decide = Callable[[Image, Offset], Decision[Message, ResponseT]]
"""From the newest state, and the offset that the decision's first record will have."""

MAX_DECISIONS_PER_APPEND = 100
"""So many share one write and one sync; while those are under way the loop serves others, and the rest waits."""


class DecisionQueue:
    """Decides while this node is the active controller; one task works the queue off."""

    def __init__(self, quorum: Quorum, containment: Containment) -> None:
        self._quorum = quorum
        self._containment = containment
        self._queue: list[tuple[Decide[Any], asyncio.Future[Any]]] = []
        self._worker: asyncio.Task[None] | None = None
        self._first: Decide[Any] | None = None
        self.on_failure: Callable[[BaseException], None] = lambda failure: None
        """Told when the metadata log cannot be written: the node must stop."""

    def submit(self, decide: Decide[ResponseT]) -> asyncio.Future[ResponseT]:
        """The answer, once all it rests on is committed; NOT_CONTROLLER where another node has to be asked."""
        future: asyncio.Future[ResponseT] = asyncio.get_running_loop().create_future()
        self._queue.append((decide, future))
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())
            self._worker.add_done_callback(note_outcome)
        return future

    def begin(self, decide: Decide[ResponseT]) -> asyncio.Future[ResponseT]:
        """As `submit`, for what a new controller writes first: before it, nothing can be decided on an empty log."""
        self._first = decide
        return self.submit(decide)

    def refuse_all(self) -> None:
        """Leadership is lost: what was not decided yet is for the next controller."""
        for _, future in self._queue:
            if not future.done():
                future.set_exception(not_controller())
                note_outcome(future)
        self._queue.clear()

    async def close(self) -> None:
        """Come back once everything asked for so far is answered."""
        if self._worker is not None:
            await asyncio.wait([self._worker])

    async def _work(self) -> None:
        """Decide everything that is queued, append it as one, answer; until the queue stays empty."""
        try:
            while self._queue:
                taken = self._queue[:MAX_DECISIONS_PER_APPEND]
                del self._queue[:MAX_DECISIONS_PER_APPEND]
                await self._decide_and_append(taken)
        except BaseException as failure:
            self.on_failure(failure)
            for _, future in self._queue:
                if not future.done():
                    future.set_exception(failure)
                    note_outcome(future)
            self._queue.clear()
            raise
        finally:
            self._worker = None

    async def _decide_and_append(self, taken: list[tuple[Decide[Any], asyncio.Future[Any]]]) -> None:
        outcomes: list[tuple[asyncio.Future[Any], Any, KafkaError | None]] = []
        try:
            if not self._quorum.is_active:
                raise not_controller()
            epoch = self._quorum.epoch
            batches, outcomes = self._decide(taken, epoch)
            if batches:
                await self._quorum.append(batches, epoch=epoch)
        except KafkaError as refused:
            outcomes = [(future, None, refused) for _, future in taken]
        except BaseException as failure:
            for _, future in taken:
                if not future.done():
                    future.set_exception(failure)
                    note_outcome(future)
            raise
        for future, answer, refusal in outcomes:
            if future.done():  # The one who asked has gone away.
                continue
            if refusal is not None:
                future.set_exception(refusal)
                note_outcome(future)  # Whoever asked may be on its way out this very turn.
            else:
                future.set_result(answer)

    def _decide(
        self, taken: list[tuple[Decide[Any], asyncio.Future[Any]]], epoch: LeaderEpoch
    ) -> tuple[list[tuple[Message, ...]], list[tuple[asyncio.Future[Any], Any, KafkaError | None]]]:
        """The records of all decisions, each a batch of its own, and what each is answered with."""
        draft = Draft(self._quorum.image)
        at: int = self._quorum.next_offset
        batches: list[tuple[Message, ...]] = []
        outcomes: list[tuple[asyncio.Future[Any], Any, KafkaError | None]] = []
        for position, (decide, future) in enumerate(taken):
            try:
                if not draft.image.features.metadata_version and decide is not self._first:
                    raise not_controller()  # What the log begins with could not be written yet.
                decision = decide(draft.image, Offset(at))
                ((_, answer),) = decision.answers
            except KafkaError as refused:
                outcomes.append((future, None, refused))
                continue
            except Exception as failure:  # noqa: BLE001 - nothing of it is in the log: only who asked pays for it
                self._containment.note(Cost.REQUEST, "a decision of the controller", failure)
                outcomes.append((future, None, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)))
                continue
            outcomes.append((future, answer, None))
            if decision.records:
                records = _whole(decision.records, draft.image)
                batches.append(records)
                at += len(records)
                if position + 1 < len(taken):
                    draft.replay(records, Provenance(Offset(at - 1), epoch, -1))
        return batches, outcomes


def not_controller() -> KafkaError:
    return KafkaError(ErrorCode.NOT_CONTROLLER, "This node is not the active controller.")


def note_outcome(future: asyncio.Future[Any]) -> None:
    """Look at an outcome that nobody waits for, lest the loop complain; what is fatal goes to `on_failure` anyway."""
    if not future.cancelled():
        future.exception()


def _whole(records: tuple[Message, ...], image: Image) -> tuple[Message, ...]:
    """One decision is all or nothing: what does not fit into one batch is a metadata transaction (KIP-868)."""
    if len(records) <= MAX_RECORDS_PER_BATCH or not supports_transactions(image.features.metadata_version):
        return records
    return (BeginTransactionRecord(), *records, EndTransactionRecord())
