"""A cluster as its clients see it: brokers, what they speak, who leads which partition, who coordinates which group."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from enum import IntEnum
from typing import NamedTuple, TypeVar

from odradek.client.connection import Connection
from odradek.client.errors import ClientError, ConnectionLost, NoBrokerAnswers, check, may_pass
from odradek.client.link import Link, Ports, backoff_ms
from odradek.client.settings import Settings, parse_address
from odradek.ids import ZERO_UUID, Uuid
from odradek.protocol.api import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from odradek.values import value

ResponseT = TypeVar("ResponseT", bound=Message)
ResultT = TypeVar("ResultT")

NOBODY = -1


class Lane(IntEnum):
    """Which of the connections to a broker: a fetch that waits for records must not hold up a commit behind it."""

    GENERAL = 0
    FETCH = 1
    COORDINATOR = 2


class CoordinatorKind(IntEnum):
    """As FindCoordinator numbers them."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class TopicPartition(NamedTuple):
    """A partition by name and number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@value
class BrokerInfo:
    """Where a broker is."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@value
class PartitionInfo:
    """Who leads and holds a partition."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()


@value
class TopicInfo:
    """A topic and its partitions, in order of their numbers."""

    name: str
    topic_id: Uuid
    internal: bool
    partitions: tuple[PartitionInfo, ...]


class Cluster:
    """Connections made when they are needed, and metadata asked for when it is missing, stale or refuted."""

    def __init__(self, ports: Ports, settings: Settings, *, auto_create: bool = False) -> None:
        self.ports = ports
        self.settings = settings
        self._auto_create = auto_create
        self._max_age_ms = settings.number("metadata.max.age.ms")
        self.brokers: dict[int, BrokerInfo] = {}
        self.cluster_id: str | None = None
        self.controller_id = NOBODY
        self.topics: dict[str, TopicInfo] = {}
        self.topic_names: dict[Uuid, str] = {}
        self._former_ids: dict[Uuid, None] = {}
        """Of topics that were deleted and made anew: a broker that lags behind may still tell of them."""
        self._bootstrap = [parse_address(text) for text in settings.words("bootstrap.servers")]
        self._links: dict[tuple[str, int, Lane], Link] = {}
        self._refusals: dict[str, ErrorCode] = {}
        self._refreshed_ms: dict[str, int] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._coordinators: dict[tuple[CoordinatorKind, str], int] = {}
        self._features: dict[str, int] = {}
        self._features_epoch = -1

    async def close(self) -> None:
        """Close all connections; whoever waits for an answer gets ConnectionLost."""
        if self._refreshing is not None:
            self._refreshing.cancel()
        for link in self._links.values():
            await link.close()
        self._links.clear()

    # Requests.

    async def ask(
        self,
        request: Message,
        response: type[ResponseT],
        *,
        node_id: int | None = None,
        lane: Lane = Lane.GENERAL,
        timeout_ms: int | None = None,
        max_version: int | None = None,
    ) -> ResponseT:
        """One try, at a broker or at any: the answer, whatever it says.

        The highest version that both sides know is spoken, or `max_version` where this client wants no higher one.
        Raises ConnectionLost, RequestTimedOut or NoBrokerAnswers, and UNSUPPORTED_VERSION without a common version.
        """
        connection = await (self.any_connection() if node_id is None else self.connection(node_id, lane))
        version = self.version_for(connection, type(request), max_version)
        if timeout_ms is None:
            timeout_ms = self.settings.number("request.timeout.ms")
        return await connection.ask(request, response, version, timeout_ms=timeout_ms)

    def version_for(self, connection: Connection, request: type[Message], max_version: int | None = None) -> int:
        """The version to speak; UNSUPPORTED_VERSION if the broker does not serve the API, or none we know of it."""
        name = ApiKey(request.api_key).name
        served = connection.versions.get(request.api_key)
        if served is None:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"the broker does not serve {name}")
        version = min(served[1], request.max_stable_version if max_version is None else max_version)
        if version < max(served[0], request.min_version):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the broker serves versions {served[0]} to {served[1]} of {name}, this client {request.versions}",
            )
        return version

    async def retrying(self, attempt: Callable[[], Awaitable[ResultT]], *, timeout_ms: int | None = None) -> ResultT:
        """The attempt's result, tried again with growing pauses while it fails in a way that may pass."""
        if timeout_ms is None:
            timeout_ms = self.settings.number("default.api.timeout.ms")
        deadline_ms = self.ports.clock.monotonic_ms() + timeout_ms
        tries = 0
        while True:
            try:
                return await attempt()
            except (KafkaError, ClientError) as failure:
                pause_ms = self.backoff_ms(tries)
                if not may_pass(failure) or self.ports.clock.monotonic_ms() + pause_ms >= deadline_ms:
                    raise
            await asyncio.sleep(pause_ms / 1000)
            tries += 1

    def backoff_ms(self, tries: int) -> int:
        """How long to wait after that many failures: doubling up to a limit, and a fifth more or less by chance."""
        return backoff_ms(self.settings, "retry", tries, self.ports.entropy)

    # Connections.

    async def connection(self, node_id: int, lane: Lane = Lane.GENERAL) -> Connection:
        """The connection to a broker that metadata has named."""
        broker = self.brokers.get(node_id)
        if broker is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"no address of broker {node_id} is known")
        return await self._link(broker.host, broker.port, lane).ready()

    async def any_connection(self) -> Connection:
        """One to whichever broker answers: those connected first, then those known, then the bootstrap addresses."""
        known = [(broker.host, broker.port) for broker in self.brokers.values()]
        start = self.ports.entropy.below(len(known)) if known else 0
        addresses = known[start:] + known[:start]
        addresses += [address for address in self._bootstrap if address not in known]
        addresses.sort(key=lambda address: self._link(address[0], address[1], Lane.GENERAL).doubts)
        complaints: list[str] = []
        for host, port in addresses:
            try:
                return await self._link(host, port, Lane.GENERAL).ready()
            except ConnectionLost as failure:
                where, why = f"{host}:{port}", str(failure)
                complaints.append(why if why.startswith(where) else f"{where}: {why}")
        raise NoBrokerAnswers(f"no broker answers: {'; '.join(complaints)}")

    def _link(self, host: str, port: int, lane: Lane) -> Link:
        link = self._links.get((host, port, lane))
        if link is None:
            link = self._links[host, port, lane] = Link(self.ports, self.settings, host, port, opened=self._opened)
        return link

    def _opened(self, connection: Connection) -> None:
        if connection.features_epoch >= self._features_epoch:
            self._features, self._features_epoch = connection.features, connection.features_epoch

    def feature_level(self, name: str) -> int:
        """The finalized level of a feature, as of the newest that a broker told when it was connected; 0 if none."""
        return self._features.get(name, 0)

    # Metadata.

    async def topic(self, name: str, *, timeout_ms: int) -> TopicInfo:
        """A topic's metadata, from memory if it is fresh; waits for a topic that is about to appear."""

        async def attempt() -> TopicInfo:
            if self.is_stale(name) or name not in self.topics:
                await self.refresh((name,))
            return self.known_topic(name)

        return await self.retrying(attempt, timeout_ms=timeout_ms)

    def known_topic(self, name: str) -> TopicInfo:
        """What is known now; raises why nothing is."""
        topic = self.topics.get(name)
        if topic is None:
            code = self._refusals.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            raise KafkaError(code, f"topic {name!r}: {code.default_message}")
        return topic

    def leader(self, partition: TopicPartition) -> PartitionInfo | None:
        """The partition as last heard of, if it has a leader whose address is known."""
        topic = self.topics.get(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            return None
        found = topic.partitions[partition.partition]
        return found if found.leader in self.brokers else None

    def mark_stale(self, name: str) -> None:
        """What is known of a topic was refuted: the next `topic` asks again."""
        self._refreshed_ms.pop(name, None)

    def is_stale(self, name: str) -> bool:
        """Whether what is known of a topic was refuted, or is older than `metadata.max.age.ms`."""
        heard_ms = self._refreshed_ms.get(name)
        return heard_ms is None or self.ports.clock.monotonic_ms() - heard_ms > self._max_age_ms

    async def refresh(self, names: Collection[str] | None) -> None:
        """Ask for these topics (None: for all), and hear of brokers on the way; one request at a time."""
        while self._refreshing is not None:
            await asyncio.wait([self._refreshing])
            await asyncio.sleep(0)  # Let its end be noted first.
            if names is not None and all(name in self._refreshed_ms for name in names):
                return
        self._refreshing = asyncio.ensure_future(self._refresh(names))
        self._refreshing.add_done_callback(self._refresh_ended)
        await asyncio.shield(self._refreshing)

    def _refresh_ended(self, task: asyncio.Task[None]) -> None:
        self._refreshing = None
        if not task.cancelled():
            task.exception()  # Whoever wanted it may have gone.

    async def _refresh(self, names: Collection[str] | None) -> None:
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=self._auto_create and names is not None)
        response = await self.ask(request, MetadataResponse)
        now_ms = self.ports.clock.monotonic_ms()
        self.brokers = {
            broker.node_id: BrokerInfo(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
        }
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        if names is None:
            self.topics.clear()
            self.topic_names.clear()
        for each in response.topics:
            if each.name is not None:
                self._note_topic(each.name, each, now_ms)

    def _note_topic(self, name: str, heard: MetadataResponseTopic, now_ms: int) -> None:
        self._refreshed_ms[name] = now_ms
        before = self.topics.get(name)
        if heard.error_code:
            self._refusals[name] = ErrorCode(heard.error_code)
            self.topics.pop(name, None)
            if before is not None:
                self.topic_names.pop(before.topic_id, None)
            return
        if heard.topic_id in self._former_ids:
            return
        if before is not None and before.topic_id != heard.topic_id:
            self.topic_names.pop(before.topic_id, None)
            if ZERO_UUID not in (before.topic_id, heard.topic_id):
                self._former_ids[before.topic_id] = None
            before = None
        self._refusals.pop(name, None)
        self.topics[name] = _topic_info(name, heard, before)
        if heard.topic_id != ZERO_UUID:
            self.topic_names[heard.topic_id] = name

    # Coordinators.

    async def coordinator(self, key: str, kind: CoordinatorKind = CoordinatorKind.GROUP) -> int:
        """The broker that looks after a group or a transactional id; one try, asked once and then remembered.

        One that metadata does not name any more is gone, and somebody else does it now.
        """
        known = self._coordinators.get((kind, key))
        if known is not None and known in self.brokers:
            return known
        request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
        response = await self.ask(request, FindCoordinatorResponse)
        answers = [each for each in response.coordinators if each.key == key]
        found = answers[0] if answers else response
        check(found.error_code, found.error_message or "")
        self.brokers.setdefault(found.node_id, BrokerInfo(found.node_id, found.host, found.port))
        self._coordinators[kind, key] = found.node_id
        return found.node_id

    def forget_coordinator(self, key: str, kind: CoordinatorKind = CoordinatorKind.GROUP) -> None:
        """It was refuted, or did not answer: the next `coordinator` asks again."""
        self._coordinators.pop((kind, key), None)

    async def ask_coordinator(
        self,
        key: str,
        request: Message,
        response: type[ResponseT],
        *,
        kind: CoordinatorKind = CoordinatorKind.GROUP,
        timeout_ms: int | None = None,
        max_version: int | None = None,
    ) -> ResponseT:
        """One try at a coordinator; a connection that is lost makes it be looked up anew."""
        node_id = await self.coordinator(key, kind)
        try:
            return await self.ask(
                request,
                response,
                node_id=node_id,
                lane=Lane.COORDINATOR,
                timeout_ms=timeout_ms,
                max_version=max_version,
            )
        except ClientError:
            self.forget_coordinator(key, kind)
            raise

    def check_coordinated(
        self, key: str, code: int, message: str = "", *, kind: CoordinatorKind = CoordinatorKind.GROUP
    ) -> None:
        """Raise what a coordinator answered, and forget it if it said that it is none."""
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self.forget_coordinator(key, kind)
        check(code, message)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers by topic, in the order given: the shape most requests have."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped


def _topic_info(name: str, heard: MetadataResponseTopic, before: TopicInfo | None) -> TopicInfo:
    partitions = []
    for each in sorted(heard.partitions, key=lambda partition: partition.partition_index):
        found = PartitionInfo(
            partition=each.partition_index,
            leader=each.leader_id,
            leader_epoch=each.leader_epoch,
            replicas=tuple(each.replica_nodes),
            isr=tuple(each.isr_nodes),
            offline=tuple(each.offline_replicas),
        )
        if before is not None and each.partition_index < len(before.partitions):
            # A broker that lags behind may tell of an older leader than another did before (KIP-320).
            older = before.partitions[each.partition_index]
            found = older if older.leader_epoch > found.leader_epoch else found
        partitions.append(found)
    return TopicInfo(name, heard.topic_id, heard.is_internal, tuple(partitions))
