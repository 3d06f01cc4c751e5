"""Requests that each partition's leader must answer: split by leader, and sent again where the leader has moved."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import TypeAlias, TypeVar

from odradek.client.cluster import Cluster, TopicPartition, by_topic
from odradek.client.patience import answer_or_error, ask_within
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.values import value

AnswerT = TypeVar("AnswerT")
Answers: TypeAlias = "dict[TopicPartition, AnswerT | KafkaError]"

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
"""What ListOffsets takes in place of a timestamp."""

_LEADER_MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


@value
class FoundOffset:
    """What ListOffsets knows of a partition; offset -1 where nothing is as young as the timestamp asked for."""

    offset: int
    timestamp: int
    leader_epoch: int


async def ask_leaders(
    cluster: Cluster,
    partitions: Collection[TopicPartition],
    ask: Callable[[int, list[TopicPartition]], Awaitable[Answers[AnswerT]]],
    *,
    timeout_ms: int,
) -> Answers[AnswerT]:
    """Every partition's answer or error; errors that mean "ask another" are tried again until the time is up.

    A topic that does not exist is an answer, not something to wait for.
    """
    deadline_ms = cluster.ports.clock.monotonic_ms() + timeout_ms
    answers: Answers[AnswerT] = {}
    missing = list(dict.fromkeys(partitions))
    tries = 0
    while missing:
        await cluster.retrying(
            partial(_know_topics, cluster, missing),
            timeout_ms=max(deadline_ms - cluster.ports.clock.monotonic_ms(), 0),
        )
        routes, unrouted = _routes(cluster, missing)
        answers.update(unrouted)
        rounds = [_ask_one(ask, node_id, led) for node_id, led in routes.items()]
        for answered in await asyncio.gather(*rounds):
            answers.update(answered)
        missing = [partition for partition in missing if _must_move(answers.get(partition))]
        for partition in missing:
            cluster.mark_stale(partition.topic)
        pause_ms = cluster.backoff_ms(tries)
        if cluster.ports.clock.monotonic_ms() + pause_ms >= deadline_ms:
            break
        if missing:
            await asyncio.sleep(pause_ms / 1000)
        tries += 1
    return answers


async def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, timeout_ms: int, read_committed: bool = False
) -> Answers[FoundOffset]:
    """The first offset with at least each timestamp, or what EARLIEST, LATEST and MAX_TIMESTAMP stand for."""
    clock, patience_ms = cluster.ports.clock, cluster.settings.number("request.timeout.ms")
    deadline_ms = clock.monotonic_ms() + timeout_ms

    async def ask(node_id: int, partitions: list[TopicPartition]) -> Answers[FoundOffset]:
        topics = [
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=wanted[TopicPartition(topic, index)])
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(partitions).items()
        ]
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=int(read_committed), topics=topics, timeout_ms=timeout_ms
        )
        left_ms = max(min(deadline_ms - clock.monotonic_ms(), patience_ms), 1)
        response = await ask_within(cluster, request, ListOffsetsResponse, node_id=node_id, timeout_ms=left_ms)
        return {
            TopicPartition(topic.name, each.partition_index): KafkaError(ErrorCode(each.error_code))
            if each.error_code
            else FoundOffset(each.offset, each.timestamp, each.leader_epoch)
            for topic in response.topics
            for each in topic.partitions
        }

    return await ask_leaders(cluster, wanted, ask, timeout_ms=timeout_ms)


async def _know_topics(cluster: Cluster, partitions: Collection[TopicPartition]) -> None:
    unknown = [topic for topic in by_topic(partitions) if cluster.is_stale(topic) or topic not in cluster.topics]
    if unknown:
        await cluster.refresh(unknown)


def _routes(
    cluster: Cluster, partitions: Collection[TopicPartition]
) -> tuple[dict[int, list[TopicPartition]], dict[TopicPartition, KafkaError]]:
    routes: dict[int, list[TopicPartition]] = {}
    unrouted: dict[TopicPartition, KafkaError] = {}
    for partition in partitions:
        try:
            topic = cluster.known_topic(partition.topic)
        except KafkaError as unknown:
            unrouted[partition] = unknown
            continue
        leader = cluster.leader(partition)
        if leader is not None:
            routes.setdefault(leader.leader, []).append(partition)
        elif 0 <= partition.partition < len(topic.partitions):
            unrouted[partition] = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader now")
        else:
            unrouted[partition] = KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {partition.topic!r} has {len(topic.partitions)} partitions, none is {partition.partition}",
            )
    return routes, unrouted


async def _ask_one(
    ask: Callable[[int, list[TopicPartition]], Awaitable[Answers[AnswerT]]],
    node_id: int,
    partitions: list[TopicPartition],
) -> Answers[AnswerT]:
    answered = await answer_or_error(ask(node_id, partitions))
    return dict.fromkeys(partitions, answered) if isinstance(answered, KafkaError) else answered


def _must_move(answer: object) -> bool:
    return isinstance(answer, KafkaError) and answer.code in _LEADER_MOVED
