"""What a follower asks its leader: a message, or within a session that goes on as usual, the bytes of one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from odradek.ids import NodeId, Offset, Uuid
from odradek.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from odradek.replication import follower
from odradek.replication.broker_liveness import BrokerLiveness
from odradek.replication.fetch_forms import RequestForm, written, written_directory
from odradek.replication.fetch_plan import PlannedFetch
from odradek.server.configs.node_config import NodeConfig
from odradek.server.partitions.hosted_partition import HostedPartition

Key: TypeAlias = tuple[Uuid, int]

UNKNOWN_LAG = -1
_REPLICA_STATE_VERSION = 15


class Followed:
    """One partition as its fetcher sees it."""

    __slots__ = ("asked_offset", "directory", "failures", "hosted", "key", "lag", "leader_epoch", "since", "timer")

    def __init__(self, hosted: HostedPartition) -> None:
        self.hosted = hosted
        self.key: Key = (hosted.topic_id, hosted.index)
        self.leader_epoch = hosted.partition.state.leader_epoch
        self.directory = written_directory(hosted.directory.directory_id)
        self.asked_offset = Offset(-1)
        self.since = -1
        """The request that asked for it from there; what answers an earlier one is out of date."""
        self.lag = UNKNOWN_LAG
        """Committed records that the leader had and this node had not, as of the last answer."""
        self.failures = 0
        self.timer: asyncio.TimerHandle | None = None


class FetchRequests:
    """Of one follower, to one leader; each partition remembers by which it was asked for, and from where."""

    __slots__ = ("_client_id", "_config", "_form", "_liveness", "_max_bytes", "timeout_ms")

    def __init__(self, config: NodeConfig, client_id: str, liveness: BrokerLiveness) -> None:
        self.timeout_ms = config.replica_socket_timeout_ms + config.replica_fetch_wait_max_ms
        """How long a frame may wait for its answer."""
        self._config = config
        self._liveness = liveness
        self._max_bytes = config.replica_fetch_max_bytes
        self._client_id = client_id
        self._form: RequestForm | None = None

    def message(
        self,
        planned: PlannedFetch[Key],
        mentioned: Iterable[Followed],
        version: int,
        *,
        serial: int,
        max_wait_ms: int,
    ) -> FetchRequest:
        request = self._empty(self._liveness.broker_epoch, max_wait_ms)
        request.session_id = planned.session_id
        request.session_epoch = planned.session_epoch
        request.forgotten_topics_data = _forgotten(planned.forgotten)
        if version < _REPLICA_STATE_VERSION:
            request.replica_id = self._config.node_id
        topics: dict[Uuid, FetchTopic] = {}
        for followed in mentioned:
            topic_id, index = followed.key
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchTopic(topic_id=topic_id, partitions=[])
                request.topics.append(topic)
            position = follower.position_of(followed.hosted.partition.log)
            followed.asked_offset = position.fetch_offset
            followed.since = serial
            topic.partitions.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=followed.leader_epoch,
                    fetch_offset=position.fetch_offset,
                    last_fetched_epoch=position.last_fetched_epoch,
                    log_start_offset=position.log_start_offset,
                    partition_max_bytes=self._max_bytes,
                    replica_directory_id=followed.hosted.directory.directory_id,
                )
            )
        return request

    def frame(
        self,
        correlation_id: int,
        usual: tuple[int, int, Iterable[Key]],
        follows: Mapping[Key, Followed],
        serial: int,
    ) -> bytes:
        """The same for one that says only what moved, as bytes, of the version that `fetch_forms` knows. (Hot.)"""
        session_id, session_epoch, moved = usual
        form = self._form
        broker_epoch = self._liveness.broker_epoch
        if form is None or form.broker_epoch != broker_epoch:
            example = self._empty(broker_epoch, self._config.replica_fetch_wait_max_ms)
            form = self._form = RequestForm(self._client_id, example)
        topics: dict[Uuid, list[bytes]] = {}
        for key in moved:
            followed = follows[key]
            log = followed.hosted.partition.log
            followed.asked_offset = fetch_offset = log.log_end_offset
            followed.since = serial
            topic_id, index = key
            partition = (
                written(
                    index,
                    followed.leader_epoch,
                    fetch_offset,
                    log.leader_epochs.latest,
                    log.log_start_offset,
                    self._max_bytes,
                )
                + followed.directory
            )
            if topic_id in topics:
                topics[topic_id].append(partition)
            else:
                topics[topic_id] = [partition]
        return form.frame(correlation_id, session_id, session_epoch, topics)

    def _empty(self, broker_epoch: int, max_wait_ms: int) -> FetchRequest:
        config = self._config
        return FetchRequest(
            replica_state=ReplicaState(replica_id=NodeId(config.node_id), replica_epoch=broker_epoch),
            max_wait_ms=max_wait_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            topics=[],
        )


def _forgotten(keys: tuple[Key, ...]) -> list[ForgottenTopic]:
    topics: dict[Uuid, ForgottenTopic] = {}
    for topic_id, index in keys:
        topics.setdefault(topic_id, ForgottenTopic(topic_id=topic_id, partitions=[])).partitions.append(index)
    return list(topics.values())
