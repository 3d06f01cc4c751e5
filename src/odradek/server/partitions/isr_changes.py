"""AlterPartition: leaders on this node ask the controller for other ISRs, many in a request, one request at a time."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol

from odradek.ids import NodeId, Uuid
from odradek.ports import World
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    RequestedPartitionData,
    RequestedTopicData,
)
from odradek.replication.isr import IsrProposal
from odradek.server.containment import Cost
from odradek.server.partitions.hosted_partition import HostedPartition
from odradek.server.partitions.replicas import Replicas

log = logging.getLogger(__name__)

ANSWER_TIMEOUT_MS = 30_000
PAUSE_S = 0.05
"""Before what the controller could not decide is asked again."""

BROKEN_PAUSE_S = 5.0
"""Before what has broken unexpectedly is asked again."""

DIFFERS_AFTER_S = 5.0
"""So long after the controller said that it has moved on, a leader without news takes its partition epoch for another
than the controller's (ADR 14), and asks once more with one that is surely ahead: `EPOCHS_AHEAD`."""
EPOCHS_AHEAD = 1_000

_SETTLED_BY_METADATA = (
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
)
"""The controller has moved on: what it decided is on its way here, and until then the proposal may be the case."""

_REFUSED = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)
"""Nothing was changed and nothing will be; whoever still belongs in the ISR is proposed again."""


class Channel(Protocol):
    """The way to the active controller."""

    async def ask(self, request: Message, *, timeout_ms: int) -> Any: ...


class IsrChanges:
    """Proposals on their way."""

    def __init__(self, world: World, replicas: Replicas, channel: Channel, *, node_id: NodeId) -> None:
        self._clock = world.clock
        self._replicas = replicas
        self._channel = channel
        self._node_id = node_id
        self._waiting: dict[HostedPartition, IsrProposal] = {}
        self._ahead: dict[HostedPartition, IsrProposal] = {}
        """Proposals to ask for with a partition epoch that the controller cannot have."""
        self._doubts: dict[HostedPartition, asyncio.TimerHandle] = {}
        self._task: asyncio.Task[None] | None = None
        self.expands = self.shrinks = self.refusals = 0
        replicas.on_proposal = self.submit

    def submit(self, hosted: HostedPartition, proposal: IsrProposal) -> None:
        """Ask for it, with whatever else comes up in this turn."""
        self._waiting[hosted] = proposal
        if self._task is None:
            self._start()

    def _start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._ended)

    async def close(self) -> None:
        for doubt in self._doubts.values():
            doubt.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if (
            not task.cancelled() and self._waiting
        ):  # Submitted after its last look, and before anybody was told that it has ended.
            self._start()

    async def _run(self) -> None:
        while self._waiting:
            await asyncio.sleep(0)
            asked, self._waiting = self._waiting, {}
            try:
                again = await self._ask({hosted: each for hosted, each in asked.items() if _stands(hosted, each)})
            except Exception as failure:  # noqa: BLE001 - whatever it is, nobody else proposes these
                self._replicas.containment.note(Cost.TASK, "asking for other ISRs", failure)
                await asyncio.sleep(BROKEN_PAUSE_S)
                again = asked
            if again:
                await asyncio.sleep(PAUSE_S)
                self._waiting = {**again, **self._waiting}

    async def _ask(self, asked: dict[HostedPartition, IsrProposal]) -> dict[HostedPartition, IsrProposal]:
        """Those that must be asked for again."""
        if not asked:
            return {}
        request = AlterPartitionRequest(
            broker_id=self._node_id, broker_epoch=self._replicas.liveness.broker_epoch, topics=self._topics(asked)
        )
        try:
            response: AlterPartitionResponse = await self._channel.ask(request, timeout_ms=ANSWER_TIMEOUT_MS)
        except KafkaError as failure:
            log.warning("The controller was not asked for %d ISR changes: %s", len(asked), failure)
            return asked
        if response.error_code:
            # A stale broker epoch, for instance: this node has registered anew and its proposals follow suit.
            log.info("The controller refused ISR changes: %s", ErrorCode(response.error_code).name)
            return asked
        answers = {
            (topic.topic_id, answer.partition_index): answer for topic in response.topics for answer in topic.partitions
        }
        again = {}
        for hosted, proposal in asked.items():
            answer = answers.get((hosted.topic_id, hosted.index))
            with self._replicas.containment.at_most(Cost.PARTITION, hosted):
                if answer is None or not self._apply_answer(hosted, proposal, answer):
                    again[hosted] = proposal
        return again

    def _apply_answer(self, hosted: HostedPartition, proposal: IsrProposal, answer: PartitionData) -> bool:
        """Carry out one answer; whether it is one."""
        now_ms = self._clock.monotonic_ms()
        partition = hosted.partition
        if answer.error_code == ErrorCode.NONE:
            isr = tuple(map(NodeId, answer.isr))
            if len(isr) < len(partition.state.isr):
                self.shrinks += 1
                log.info("Fewer are in sync for %s: %s", hosted, list(isr))
            else:
                self.expands += 1
                log.info("More are in sync for %s: %s", hosted, list(isr))
            moved = partition.isr_agreed(
                proposal,
                leader_epoch=answer.leader_epoch,
                partition_epoch=answer.partition_epoch,
                isr=isr,
                now_ms=now_ms,
            )
        elif answer.error_code in _REFUSED:
            self.refusals += 1
            moved = partition.isr_refused(proposal, now_ms=now_ms)
        else:
            if answer.error_code == ErrorCode.INVALID_UPDATE_VERSION:
                self._doubt(hosted, proposal)
            return answer.error_code in _SETTLED_BY_METADATA
        if moved:
            hosted.on_high_watermark_advanced()
        if answer.error_code == ErrorCode.NONE:
            self._replicas.maybe_expand_isr(hosted)  # Whoever caught up meanwhile had to wait for this answer.
        return True

    def _doubt(self, hosted: HostedPartition, proposal: IsrProposal) -> None:
        """What the controller decided should be here soon. If it is not, the two count differently."""
        previous = self._doubts.pop(hosted, None)
        if previous is not None:
            previous.cancel()
        loop = asyncio.get_running_loop()
        self._doubts[hosted] = loop.call_later(DIFFERS_AFTER_S, self._ask_ahead, hosted, proposal)

    def _ask_ahead(self, hosted: HostedPartition, proposal: IsrProposal) -> None:
        del self._doubts[hosted]
        if _stands(hosted, proposal):
            log.warning(
                "The controller has another partition epoch for %s: it is asked to put the partition on record", hosted
            )
            self._ahead[hosted] = proposal
            self.submit(hosted, proposal)

    def _topics(self, asked: dict[HostedPartition, IsrProposal]) -> list[RequestedTopicData]:
        topics: dict[Uuid, RequestedTopicData] = {}
        for hosted, proposal in asked.items():
            ahead = EPOCHS_AHEAD if self._ahead.pop(hosted, None) is proposal else 0
            topic = topics.setdefault(hosted.topic_id, RequestedTopicData(topic_id=hosted.topic_id, partitions=[]))
            topic.partitions.append(
                RequestedPartitionData(
                    partition_index=hosted.index,
                    leader_epoch=proposal.leader_epoch,
                    new_isr=list(proposal.isr),
                    new_isr_with_epochs=[
                        BrokerState(broker_id=replica, broker_epoch=epoch)
                        for replica, epoch in zip(proposal.isr, proposal.broker_epochs, strict=True)
                    ],
                    partition_epoch=proposal.partition_epoch + ahead,
                )
            )
        return list(topics.values())


def _stands(hosted: HostedPartition, proposal: IsrProposal) -> bool:
    """Whether it is still what the leader wants: the cluster may have agreed on something else meanwhile."""
    leadership = hosted.partition.leadership
    return leadership is not None and leadership.in_sync.proposal is proposal
