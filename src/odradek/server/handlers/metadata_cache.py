"""Topics as Metadata describes them, kept encoded: a thousand clients that ask for the same cost little more than one.

What a topic looks like follows from its own image, from the registrations of brokers, from the listener and from the
version. Images share what did not change, so a topic's bytes are good for as long as those two objects are the same.
What is not there yet is built in slices, with other work between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeAlias

from odradek.ids import NO_NODE
from odradek.metadata.image import Image
from odradek.metadata.image.cluster import ClusterImage
from odradek.metadata.image.topics import PartitionRegistration, TopicImage, TopicsImage
from odradek.metadata.topic_names import is_internal
from odradek.ports import Part
from odradek.protocol.codec import Message, encode, encoder, parts_encoder
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from odradek.server.handlers.listener_view import ListenerView

PARTITIONS_A_SLICE = 500
"""Built between two turns of the loop, in about two milliseconds."""

_LISTENER_ERROR_SINCE = 6
_FLEXIBLE_SINCE = 9

Entry: TypeAlias = TopicImage | MetadataResponseTopic
"""A topic that is there, or what to say of one that is not."""


class EncodedTopics(list[MetadataResponseTopic]):
    """Topics of an answer that are bytes already: a list without elements, and what stands for them."""

    def __init__(self, pieces: Sequence[bytes], count: int) -> None:
        super().__init__()
        self.pieces = pieces
        self.total = count


class _Topics(Message, versions="0-13", flexible="9+"):
    topics: list[MetadataResponseTopic]


class _Partitions(Message, versions="0-13", flexible="9+"):
    partitions: list[MetadataResponsePartition]


class _Seen:
    """What is known on one listener in one version."""

    def __init__(self, cluster: ClusterImage, listener_name: str) -> None:
        self.cluster = cluster
        self.view = ListenerView(cluster, listener_name)
        self.topics: dict[str, tuple[TopicImage, bytes]] = {}
        self.whole: tuple[TopicsImage, bytes] | None = None
        """All topics of an image together."""


class MetadataCache:
    """The encoded topics of one node."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], _Seen] = {}

    async def all_topics(self, image: Image, *, listener_name: str, version: int) -> EncodedTopics:
        """Every topic of the image."""
        seen = self._of(image, listener_name, version)
        topics = image.topics
        if seen.whole is None or seen.whole[0] is not topics:
            pieces = await self._pieces(seen, list(topics.by_name.values()), version)
            seen.whole = (topics, b"".join(pieces))
            if len(seen.topics) > len(topics.by_name):
                seen.topics = {name: known for name, known in seen.topics.items() if name in topics.by_name}
        return EncodedTopics((seen.whole[1],), len(topics.by_name))

    async def some_topics(
        self, image: Image, entries: Sequence[Entry], *, listener_name: str, version: int
    ) -> EncodedTopics:
        """Those topics, in that order."""
        seen = self._of(image, listener_name, version)
        return EncodedTopics(await self._pieces(seen, entries, version), len(entries))

    def _of(self, image: Image, listener_name: str, version: int) -> _Seen:
        seen = self._seen.get((listener_name, version))
        if seen is None or seen.cluster is not image.cluster:
            seen = self._seen[listener_name, version] = _Seen(image.cluster, listener_name)
        return seen

    async def _pieces(self, seen: _Seen, entries: Sequence[Entry], version: int) -> list[bytes]:
        pieces = []
        built = 0
        for entry in entries:
            if not isinstance(entry, TopicImage):
                pieces.append(_topic_bytes(entry, (), 0, version))
                continue
            known = seen.topics.get(entry.name)
            if known is None or known[0] is not entry:
                slices = []
                for start in range(0, len(entry.partitions), PARTITIONS_A_SLICE):
                    if built >= PARTITIONS_A_SLICE:
                        await asyncio.sleep(0)
                        built = 0
                    end = min(start + PARTITIONS_A_SLICE, len(entry.partitions))
                    slices.append(_partition_bytes(seen.view, entry, start, end, version))
                    built += end - start
                known = (entry, _topic_bytes(_shell(entry), slices, len(entry.partitions), version))
                seen.topics[entry.name] = known
            pieces.append(known[1])
        return pieces


def answer_encoder(version: int) -> Callable[[MetadataResponse], list[Part]]:
    """As the codec's own, for answers whose topics are bytes already as well."""
    encode_parts = parts_encoder(MetadataResponse, version)
    encode_whole = encoder(MetadataResponse, version)
    # Behind the topics: cluster_authorized_operations, error_code, tagged fields.
    tail = 4 * (8 <= version <= 10) + 2 * (version >= 13) + (version >= _FLEXIBLE_SINCE)

    def encode_answer(response: MetadataResponse) -> list[Part]:
        topics = response.topics
        if isinstance(topics, EncodedTopics):
            return [_filled(encode_whole(response), tail, topics.pieces, topics.total, version)]
        return encode_parts(response)

    return encode_answer


def describe_topic(view: ListenerView, topic: TopicImage, version: int) -> MetadataResponseTopic:
    """One topic as a client sees it."""
    described = _shell(topic)
    described.partitions = [
        _partition(view, index, partition, version) for index, partition in enumerate(topic.partitions)
    ]
    return described


def _shell(topic: TopicImage) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name, topic_id=topic.topic_id, is_internal=is_internal(topic.name), partitions=[]
    )


def _partition(
    view: ListenerView, index: int, partition: PartitionRegistration, version: int
) -> MetadataResponsePartition:
    """Version 0 knows no offline replicas: it leaves them out of the lists and calls that an error."""
    leader = partition.leader
    replicas: list[int] = list(partition.replicas) if version else view.alive(partition.replicas)
    isr: list[int] = list(partition.isr) if version else view.alive(partition.isr)
    if not view.is_reachable(leader):
        missing_listener = version >= _LISTENER_ERROR_SINCE and view.is_registered(leader)
        code = ErrorCode.LISTENER_NOT_FOUND if missing_listener else ErrorCode.LEADER_NOT_AVAILABLE
        leader = NO_NODE
    elif len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr):
        code = ErrorCode.REPLICA_NOT_AVAILABLE
    else:
        code = ErrorCode.NONE
    return MetadataResponsePartition(
        error_code=code,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=view.offline(partition),
    )


# --- bytes ------------------------------------------------------------------------------------------------------------


def _topic_bytes(topic: MetadataResponseTopic, slices: Sequence[bytes], count: int, version: int) -> bytes:
    """A topic alone, as it stands between others; its partitions are given as bytes."""
    whole = _alone(encode(_Topics(topics=[topic]), version), 1, version)
    # Behind the partitions: topic_authorized_operations, tagged fields.
    return _filled(whole, 4 * (version >= 8) + (version >= _FLEXIBLE_SINCE), slices, count, version)


def _partition_bytes(view: ListenerView, topic: TopicImage, start: int, end: int, version: int) -> bytes:
    partitions = [_partition(view, index, topic.partitions[index], version) for index in range(start, end)]
    return _alone(encode(_Partitions(partitions=partitions), version), end - start, version)


def _alone(message: bytes, count: int, version: int) -> bytes:
    """The elements of a message that is one array."""
    return message[len(_count(count, version)) : -1 if version >= _FLEXIBLE_SINCE else None]


def _filled(whole: bytes, tail: int, pieces: Sequence[bytes], count: int, version: int) -> bytes:
    """A message with an empty array `tail` bytes before its end, with that array filled."""
    end = len(whole) - tail
    return b"".join((whole[: end - len(_count(0, version))], _count(count, version), *pieces, whole[end:]))


def _count(count: int, version: int) -> bytes:
    """How an array of so many elements begins."""
    if version < _FLEXIBLE_SINCE:
        return count.to_bytes(4)
    rest = count + 1
    begun = bytearray()
    while rest > 0x7F:
        begun.append(rest & 0x7F | 0x80)
        rest >>= 7
    begun.append(rest)
    return bytes(begun)
