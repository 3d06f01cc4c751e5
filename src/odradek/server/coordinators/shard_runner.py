"""One shard of a coordinator at work: its log, who waits for its answers, and its timer."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from odradek.coordinator.record_format import Newest, client_error, encode_batch
from odradek.coordinator.shard import CoordinatorDecision, Effect, Moment, ProducerKey, Shard
from odradek.decisions import Ticket
from odradek.ids import LeaderEpoch
from odradek.metadata.image import Changes, Image
from odradek.ports import FileSlice
from odradek.protocol.codec import Struct
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records.batch import frame_batch
from odradek.protocol.records.compression import Compression
from odradek.protocol.records.control import EndTxnMarker, end_txn_batch
from odradek.server.containment import Cost
from odradek.server.partitions.hosted_partition import HostedPartition
from odradek.server.partitions.housekeeping import LONGEST_WAIT_MS
from odradek.server.waiting.deferred import Deferred
from odradek.storage.log import Transaction
from odradek.storage.validation import Origin
from odradek.values import value

if TYPE_CHECKING:
    from odradek.server.coordinators.coordinator import Coordinator

log = logging.getLogger(__name__)

ShardT = TypeVar("ShardT", bound=Shard)
AskedT = TypeVar("AskedT", bound=Shard, contravariant=True)
AnswerT = TypeVar("AnswerT")

Decide: TypeAlias = Callable[[ShardT, Ticket, Moment], CoordinatorDecision]
"""A request, put to its shard."""

MAX_EXPIRIES_PER_TURN = 100
"""Decisions that one firing of a shard's timer makes before others get their turn."""

MAX_GATHERED = 100
"""Of one batch; what each of them brings along is bounded already."""


class Gathered(Protocol[AskedT]):
    """A request of a kind that comes so often that those of one turn of the loop are written together."""

    @property
    def count(self) -> int:
        """How many records it is."""

    def check(self, shard: AskedT, now: Moment) -> bool:
        """Whether it may be appended, and replayed before anything else is decided; else the shard has to be asked."""

    def encode(self, first: int, now_ms: int) -> bytes:
        """Its records as a batch has them in which that many come before."""

    def replay(self, shard: AskedT, now: Moment) -> None:
        """What it encoded at that moment is in the log."""


@value
class Held:
    """An answer that leaves once the high watermark has reached an offset."""

    end_offset: int
    deadline_ms: int
    ticket: Ticket
    answer: Struct | None
    """None where it is enough to know that it is committed."""


class ShardRunner(Generic[ShardT]):
    """The shard behind one partition that this node leads."""

    def __init__(
        self, hosted: HostedPartition, leader_epoch: LeaderEpoch, shard: ShardT, coordinator: Coordinator[ShardT]
    ) -> None:
        self.hosted = hosted
        self.leader_epoch = leader_epoch
        self.shard = shard
        self.state = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        """What whoever asks is told; NONE once it is loaded."""
        self.began_ms = coordinator.moment().monotonic_ms
        """When there was something to be loaded."""
        self._coordinator = coordinator
        self._replicas = coordinator.replicas
        self._ticket = 0
        self._parked: dict[Ticket, Deferred[Any]] = {}
        """Every ticket is answered at some time, also that of a client who has gone."""
        self._gathered: list[tuple[Gathered[ShardT], Deferred[None]]] = []
        """Of this turn of the loop."""
        self._asking: Ticket | None = None
        self._answer: Struct | None = None
        """Of the request that is being decided, if it need not wait."""
        self._held: deque[Held] = deque()
        self._effects: deque[tuple[int, Effect]] = deque()
        """What begins once the high watermark has reached an offset,"""
        self._begun: asyncio.Handle | None = None
        """and at the next turn of the loop then, when nothing is being decided."""
        self._patience: asyncio.TimerHandle | None = None
        """Until the first of those has waited for too long."""
        self._flush: asyncio.Task[None] | None = None
        self._flush_to = 0
        """Up to where `flush.messages` or `flush.ms` wants the log synced."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        hosted.listeners[self._watermark_moved] = None

    # Loading and leaving.

    async def load(self, chunk_bytes: int) -> None:
        """Replay the log: what each key was set to last, what open transactions have written, and nothing superseded.

        Up to its end, since a leader commits all that it holds; answers wait for that. Others get their turn meanwhile,
        and what they do may end this: a shard that has resigned must never begin beside the one that came after it.
        """
        for _ in self._replayed(chunk_bytes):
            if self._coordinator.slice_is_over():
                await self._coordinator.give_way()
                if self.state is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    return
        self.begin()

    def _replayed(self, chunk_bytes: int) -> Iterator[None]:
        """The load in steps, of which each takes well below a millisecond."""
        partition_log = self.hosted.partition.log
        newest = Newest()
        offset: int = partition_log.log_start_offset
        while offset < partition_log.log_end_offset:
            with self._replicas.storage_errors(self.hosted):
                read = partition_log.read(
                    offset, max_bytes=chunk_bytes, end_offset=partition_log.log_end_offset, minimum_one=True
                )
                # Of its own, since the log goes on between two steps.
                records = read.records.read() if isinstance(read.records, FileSlice) else bytes(read.records)
            yield from newest.add(records)
            if newest.end_offset is None:
                break
            offset = newest.end_offset
        yield from newest.replay_into(self.shard)

    def begin(self) -> None:
        """All that is in the log has been replayed."""
        now = self._coordinator.moment()
        decision = self.shard.loaded(now)
        if decision.records:
            self._write(decision, now)
        self._deliver(decision)
        self.state = ErrorCode.NONE

    def learn(self, image: Image, changes: Changes | None) -> None:
        """The cluster agreed on something, as `Shard.learn`."""
        self.shard.learn(image, changes)
        if self.state is ErrorCode.NONE:
            self._arm(self.shard.next_deadline_ms)

    def resign(self) -> None:
        """Let go of everything; whoever waits is told to look for the coordinator elsewhere."""
        self.state = ErrorCode.NOT_COORDINATOR
        self.hosted.listeners.pop(self._watermark_moved, None)
        for timer in (self._timer, self._patience, self._begun):
            if timer is not None:
                timer.cancel()
        self._timer = self._patience = self._begun = None
        with self._replicas.containment.at_most(Cost.SHARD, self.hosted):  # Who is not told here is told below.
            for ticket, answer in self.shard.resign().answers:
                self._hand_over(ticket, answer)
        parked, self._parked = self._parked, {}
        gathered, self._gathered = self._gathered, []
        for deferred in (*parked.values(), *(deferred for _, deferred in gathered)):
            deferred.fail(KafkaError(ErrorCode.NOT_COORDINATOR))
        self._held.clear()
        self._effects.clear()

    # Requests.

    def put(self, decide: Decide[ShardT], proof: Transaction = None) -> Struct | Deferred[Any]:
        """Decide, append, replay, answer; a deferred where the shard does not answer at once.

        The proof is for a decision that begins a transaction in this log.
        """
        if self._gathered:
            self._write_gathered()
        if self.state is not ErrorCode.NONE:
            raise KafkaError(self.state)
        ticket = self._asking = self._next_ticket()
        self._answer = None
        now = self._coordinator.moment()
        try:
            try:
                decision = decide(self.shard, ticket, now)
            except KafkaError:
                raise
            except Exception as failure:
                raise self._contain(failure) from failure
            if decision.records:
                self._write(decision, now, proof)
            self._deliver(decision)
        finally:
            self._asking = None
        return self._parked.setdefault(ticket, Deferred()) if self._answer is None else self._answer

    async def ask(self, decide: Decide[ShardT], proof: Transaction = None) -> Any:
        """As `put`, and waits."""
        outcome = self.put(decide, proof)
        return await outcome if isinstance(outcome, Deferred) else outcome

    def gather(self, request: Gathered[ShardT], deferred: Deferred[Any]) -> bool:
        """As `put`, for requests that are written together; then the deferred is completed with None.

        False, and nothing was done: the shard has to be asked.
        """
        if len(self._gathered) == MAX_GATHERED:
            self._write_gathered()
        if self.state is not ErrorCode.NONE or self._coordinator.compression is not Compression.NONE:
            return False
        try:
            if not request.check(self.shard, self._coordinator.moment()):
                return False
        except Exception:  # noqa: BLE001 - contained, whatever it is
            return False  # It is met again there, and answered for.
        if not self._gathered:
            asyncio.get_running_loop().call_soon(self._write_gathered)
        self._gathered.append((request, deferred))
        return True

    def _write_gathered(self) -> None:
        """Before anything else is decided, since what was checked must still be true."""
        gathered, self._gathered = self._gathered, []
        if not gathered:
            return
        now = self._coordinator.moment()
        try:
            batch = _encode_gathered(gathered, now.wall_ms)
            if len(batch) <= self.hosted.partition.log.config.max_message_bytes or len(gathered) == 1:
                self._append_gathered(gathered, batch, now)
                return
            for each in gathered:
                self._append_gathered([each], _encode_gathered([each], now.wall_ms), now)
        except Exception as failure:  # noqa: BLE001 - contained, whatever it is
            self._coordinator.give_up(self, failure)
            for _, deferred in gathered:
                if not deferred.is_done:
                    deferred.fail(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _append_gathered(
        self, gathered: list[tuple[Gathered[ShardT], Deferred[None]]], batch: bytearray, now: Moment
    ) -> None:
        try:
            self._append(batch, now)
        except KafkaError as refused:
            refusal = self._refusal(refused)
            for _, deferred in gathered:
                deferred.fail(refusal)
            return
        for request, _ in gathered:
            request.replay(self.shard, now)
        self._arm(self.shard.next_deadline_ms)
        if self._is_committed():
            for _, deferred in gathered:
                deferred.complete(None)
            return
        self._hold([(self._park(deferred), None) for _, deferred in gathered])

    def write_marker(
        self, producer: ProducerKey, *, committed: bool, coordinator_epoch: int, transaction_version: int = 0
    ) -> Deferred[None]:
        """End the producer's transaction in this partition; KafkaError if the log refuses, or this is not loaded."""
        if self._gathered:
            self._write_gathered()
        if self.state is not ErrorCode.NONE:
            raise KafkaError(self.state)
        now = self._coordinator.moment()
        batch = end_txn_batch(
            EndTxnMarker(committed, coordinator_epoch),
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            timestamp=now.wall_ms,
        )
        try:
            self._append(batch, now, transaction_version)
        except KafkaError:
            if not self.hosted.directory.online:
                self.resign()
            raise
        try:
            self.shard.replay_marker(producer, committed)
        except Exception as failure:
            raise self._coordinator.give_up(self, failure) from failure
        self._arm(self.shard.next_deadline_ms)
        written: Deferred[None] = Deferred()
        if self._is_committed():
            written.complete(None)
        else:
            self._hold([(self._park(written), None)])
        return written

    def answer_at_once(self, answer: Callable[[ShardT, Moment], AnswerT]) -> AnswerT | None:
        """As `put`, where nothing is written; None, and nothing was done: the answer has to wait, or there is none."""
        if self.state is not ErrorCode.NONE or not self._is_committed():
            return None
        try:
            return answer(self.shard, self._coordinator.moment())
        except KafkaError:
            raise
        except Exception as failure:
            raise self._contain(failure) from failure
        finally:
            self._arm(self.shard.next_deadline_ms)

    def _next_ticket(self) -> Ticket:
        self._ticket += 1
        return Ticket(self._ticket)

    def _park(self, deferred: Deferred[None]) -> Ticket:
        ticket = self._next_ticket()
        self._parked[ticket] = deferred
        return ticket

    def tell(self, decide: Callable[[ShardT, Moment], CoordinatorDecision]) -> bool:
        """Something happened that no request asks for; whether the shard wrote anything because of it."""
        if self._gathered:
            self._write_gathered()
        if self.state is not ErrorCode.NONE:
            return False
        now = self._coordinator.moment()
        try:
            decision = decide(self.shard, now)
        except Exception as failure:  # noqa: BLE001 - contained, whatever it is
            self._contain(failure)
            self._arm(self.shard.next_deadline_ms)
            return False
        try:
            if decision.records:
                self._write(decision, now)
            self._deliver(decision)
        except KafkaError as refused:
            log.error("%s could not write what became due: %s", self.hosted, refused)
            return False
        return bool(decision.records)

    def _write(self, decision: CoordinatorDecision, now: Moment, proof: Transaction = None) -> None:
        """Append and replay. A refused append changes nothing, and is raised for the one who asked."""
        batch = encode_batch(
            decision.records,
            timestamp_ms=now.wall_ms,
            compression=self._coordinator.compression,
            producer=decision.producer,
        )
        try:
            self._append(batch, now, proof)
        except KafkaError as refused:
            told = self.shard.refused(decision, client_error(refused.code), self._asking, now)
            assert not told.records, "a shard that could not write must not write more"
            self._deliver(told)
            raise self._refusal(refused) from refused
        except Exception as failure:
            raise self._coordinator.give_up(self, failure) from failure
        try:
            for record in decision.records:
                self.shard.replay(record, decision.producer)
        except Exception as failure:
            raise self._coordinator.give_up(self, failure) from failure

    def _contain(self, failure: Exception) -> KafkaError:
        """What has broken while something was decided costs that decision: nothing of it is in the log.

        It may have let go of members that wait; they are told as whoever asked.
        """
        self._replicas.containment.note(Cost.REQUEST, f"of the coordinator of {self.hosted}", failure)
        kept = {held.ticket for held in self._held}
        for ticket in [each for each in self._parked if each not in kept and not self.shard.holds(each)]:
            self._parked.pop(ticket).fail(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _append(self, batch: bytearray, now: Moment, transaction: Transaction = None) -> None:
        self._replicas.append(
            self.hosted,
            memoryview(batch),
            now_ms=now.wall_ms,
            origin=Origin.COORDINATOR,
            acks_all=True,
            transaction=transaction,
        )
        partition_log = self.hosted.partition.log
        if partition_log.flushes_on_append and partition_log.flush_due(now.wall_ms):
            self._flush_to = partition_log.log_end_offset
            if self._flush is None:
                self._flush = asyncio.create_task(self._sync())

    def _refusal(self, refused: KafkaError) -> KafkaError:
        """What the one who asked is told when the log has refused; without a disk this shard is at its end."""
        if not self.hosted.directory.online:
            self.resign()
        return KafkaError(client_error(refused.code), refused.message)

    # Answers.

    def _deliver(self, decision: CoordinatorDecision) -> None:
        """Now, or once everything that was replayed is committed."""
        if self._is_committed():
            for ticket, answer in decision.answers:
                self._hand_over(ticket, answer)
        elif decision.answers:
            self._hold(decision.answers)
        if decision.effects:
            end_offset = self.hosted.partition.log.log_end_offset
            self._effects.extend((end_offset, effect) for effect in decision.effects)
            self._watermark_moved()
        self._arm(decision.next_deadline_ms)

    def _is_committed(self) -> bool:
        """Whether all that was replayed is; if so, nothing is held back any more."""
        partition_log = self.hosted.partition.log
        if partition_log.high_watermark < partition_log.log_end_offset:
            return False
        if self._held or self._effects:
            self._watermark_moved()
        return True

    def _hold(self, answers: Iterable[tuple[Ticket, Struct | None]]) -> None:
        """Until the high watermark has passed all that is in the log now, or the time for that is over."""
        end_offset = self.hosted.partition.log.log_end_offset
        timeout_ms = self._coordinator.commit_timeout_ms
        deadline_ms = self._coordinator.moment().monotonic_ms + timeout_ms
        self._held.extend(Held(end_offset, deadline_ms, ticket, answer) for ticket, answer in answers)
        if self._patience is None:
            self._be_patient(timeout_ms)

    def _watermark_moved(self) -> None:
        high_watermark = self.hosted.partition.log.high_watermark
        while self._held and self._held[0].end_offset <= high_watermark:
            held = self._held.popleft()
            self._hand_over(held.ticket, held.answer)
        if self._effects and self._effects[0][0] <= high_watermark and self._begun is None:
            self._begun = asyncio.get_running_loop().call_soon(self._begin_effects)

    def _begin_effects(self) -> None:
        """Whatever is committed by now."""
        self._begun = None
        high_watermark = self.hosted.partition.log.high_watermark
        while self._effects and self._effects[0][0] <= high_watermark:
            effect = self._effects.popleft()[1]
            with self._replicas.containment.at_most(Cost.TASK, f"{effect} of {self.hosted}"):
                self._coordinator.begin(self, effect)

    def _be_patient(self, delay_ms: int) -> None:
        self._patience = asyncio.get_running_loop().call_later(delay_ms / 1000, self._give_up)

    def _give_up(self) -> None:
        """Replicas have not followed in time: clients are told to try again, and what they asked for may come true."""
        self._patience = None
        now_ms = self._coordinator.moment().monotonic_ms
        while self._held and self._held[0].deadline_ms <= now_ms:
            deferred = self._parked.pop(self._held.popleft().ticket)
            deferred.fail(KafkaError(client_error(ErrorCode.REQUEST_TIMED_OUT)))
        if self._held:
            self._be_patient(self._held[0].deadline_ms - now_ms)

    def _hand_over(self, ticket: Ticket, answer: Struct | None) -> None:
        """To the one who is parked; the one who is asking right now picks its answer up itself."""
        if ticket == self._asking:
            self._answer = answer
        else:
            self._parked.pop(ticket).complete(answer)

    async def _sync(self) -> None:
        """Sync the log, as `flush.messages` wants, until nothing waits for it."""
        try:
            while self.hosted.partition.log.recovery_point < self._flush_to:
                await self._replicas.flush([self.hosted])
            self._is_committed()
        except KafkaError:
            self.resign()
        finally:
            self._flush = None

    # The timer.

    def _arm(self, deadline_ms: int | None) -> None:
        """Wake up then, or earlier where that is asked for already; waking up too early costs little."""
        if deadline_ms is None:
            return
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._timer_ms = deadline_ms
        delay_ms = max(0, deadline_ms - self._coordinator.moment().monotonic_ms)
        self._timer = asyncio.get_running_loop().call_later(min(delay_ms, LONGEST_WAIT_MS) / 1000, self._expire)

    def _expire(self) -> None:
        self._timer = None
        for _ in range(MAX_EXPIRIES_PER_TURN):
            if not self.tell(lambda shard, now: shard.expire(now)):
                return
        self._arm(self._coordinator.moment().monotonic_ms)


def _encode_gathered(gathered: list[tuple[Gathered[ShardT], Deferred[None]]], now_ms: int) -> bytearray:
    """One batch of all."""
    parts: list[bytes] = []
    count = 0
    for request, _ in gathered:
        parts.append(request.encode(count, now_ms))
        count += request.count
    return frame_batch(b"".join(parts), attributes=0, records_count=count, base_timestamp=now_ms, max_timestamp=now_ms)
