"""The controller learns in which log directory each partition is, where the broker could choose (KIP-858).

Told in the background and again until it is taken; the newest choice counts. Nobody waits for it: a start tells anew
whatever is not on record.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from odradek.ids import NodeId, Uuid
from odradek.metadata.controller.directories import DirectoryAssignment
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    RequestedDirectoryData,
    RequestedPartitionData,
    RequestedTopicData,
)
from odradek.server.containment import Containment, Cost

if TYPE_CHECKING:
    from odradek.server.peers.controller_channel import ControllerChannel

log = logging.getLogger(__name__)

MAX_ASSIGNMENTS_PER_REQUEST = 2_250
"""Kafka's own bound."""

PAUSE_MS = 500
"""After a request that was not taken,"""

BROKEN_PAUSE_MS = 5_000
"""or that could not even be asked, for a reason nobody knows."""


class DirectoryAssignments:
    """What is still to be told, and the one task that tells it."""

    def __init__(
        self,
        channel: ControllerChannel,
        node_id: NodeId,
        broker_epoch: Callable[[], int],
        containment: Containment,
        *,
        timeout_ms: int,
    ) -> None:
        self._channel = channel
        self._containment = containment
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._timeout_ms = timeout_ms
        self._waiting: dict[tuple[Uuid, int], Uuid] = {}
        self._task: asyncio.Task[None] | None = None

    def tell(self, assignments: Iterable[DirectoryAssignment]) -> None:
        """Soon, in one request with all that comes meanwhile."""
        self._waiting.update({(each.topic_id, each.partition): each.directory for each in assignments})
        if self._waiting and self._task is None:
            self._start()

    def _start(self) -> None:
        self._task = asyncio.create_task(self._tell())
        self._task.add_done_callback(self._told)

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _tell(self) -> None:
        while self._waiting:
            some = dict(islice(self._waiting.items(), MAX_ASSIGNMENTS_PER_REQUEST))
            try:
                request = AssignReplicasToDirsRequest(
                    broker_id=self._node_id, broker_epoch=self._broker_epoch(), directories=_by_directory(some)
                )
                response: AssignReplicasToDirsResponse = await self._channel.ask(request, timeout_ms=self._timeout_ms)
                if response.error_code:
                    raise KafkaError(ErrorCode(response.error_code))
            except KafkaError as failure:
                log.warning("Could not tell the controller where %d partitions are: %s", len(some), failure)
                await asyncio.sleep(PAUSE_MS / 1000)
                continue
            except Exception as failure:  # noqa: BLE001 - whatever it is, a start tells anew what is not on record
                self._containment.note(Cost.TASK, "telling the controller where partitions are", failure)
                await asyncio.sleep(BROKEN_PAUSE_MS / 1000)
                continue
            for place, directory in some.items():
                if self._waiting.get(place) == directory:  # Else another one was chosen meanwhile.
                    del self._waiting[place]

    def _told(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and self._waiting:  # Told after its last look, and before anybody knew of its end.
            self._start()


def _by_directory(assignments: dict[tuple[Uuid, int], Uuid]) -> list[RequestedDirectoryData]:
    grouped: dict[Uuid, dict[Uuid, list[int]]] = {}
    for (topic_id, partition), directory in assignments.items():
        grouped.setdefault(directory, {}).setdefault(topic_id, []).append(partition)
    return [
        RequestedDirectoryData(id=directory, topics=[_topic(*each) for each in topics.items()])
        for directory, topics in grouped.items()
    ]


def _topic(topic_id: Uuid, partitions: Sequence[int]) -> RequestedTopicData:
    return RequestedTopicData(
        topic_id=topic_id, partitions=[RequestedPartitionData(partition_index=index) for index in partitions]
    )
