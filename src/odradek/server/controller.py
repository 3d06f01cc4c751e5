"""The active controller: requests are decided one after another, made durable together, and then answered.

Order: decide, append, replay, answer. Whatever was asked for within one turn of the loop shares one write and one
sync, so a burst of small changes costs what one does. A decision sees what those before it decided, also where that is
not yet durable; nobody else does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from odradek.configdef import value_text
from odradek.decisions import Decision
from odradek.ids import NodeId, Offset, ProducerId
from odradek.metadata.bootstrap import activation_records
from odradek.metadata.controller import decided
from odradek.metadata.controller.acls import create_acls, delete_acls
from odradek.metadata.controller.brokers import (
    NodeDescription,
    fence,
    register_broker,
    register_controller,
    unfence,
)
from odradek.metadata.controller.configs import ConfigRules, alter_configs, incremental_alter_configs
from odradek.metadata.controller.deletion import delete_topics
from odradek.metadata.controller.directories import DirectoryAssignment, assign_directories
from odradek.metadata.controller.features import update_features
from odradek.metadata.controller.partitions import create_partitions
from odradek.metadata.controller.producer_ids import ProducerIdBlock, allocate_producer_ids
from odradek.metadata.controller.quotas import alter_client_quotas
from odradek.metadata.controller.scram import alter_scram_credentials
from odradek.metadata.controller.topics import TopicSettings, create_topics
from odradek.metadata.image import Image, Provenance
from odradek.metadata.image.configs import ALL_BROKERS, BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE, Resource
from odradek.metadata.loader import Draft
from odradek.metadata.records import AbortTransactionRecord
from odradek.ports import World
from odradek.protocol.codec import Message
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from odradek.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from odradek.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from odradek.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from odradek.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from odradek.protocol.messages.create_topics import (
    CreatableTopicConfigs,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from odradek.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from odradek.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from odradek.server.broker_configs import (
    BROKER_KEYS,
    ConfigSource,
    check_broker_configs,
    warn_of_what_has_no_effect,
)
from odradek.server.config import NodeConfig
from odradek.server.group_configs import GROUP_CONFIGS, check_group_configs
from odradek.server.quorum import Quorum
from odradek.storage.config import TOPIC_CONFIGS, validate_overrides

ResponseT = TypeVar("ResponseT")

Decide = Callable[[Image, Offset], Decision[Message, ResponseT]]
"""From the newest state, and the offset that the decision's first record will have."""


MAX_DECISIONS_PER_APPEND = 100
"""So many share one write and one sync; while those are under way the loop serves others, and the rest waits."""


class Controller:
    """Owns the queue of decisions; one task works it off."""

    def __init__(self, config: NodeConfig, world: World, quorum: Quorum) -> None:
        self._config = config
        self._world = world
        self._quorum = quorum
        self._node_id = NodeId(config.node_id)
        self._queue: list[tuple[Decide[Any], asyncio.Future[Any]]] = []
        self._worker: asyncio.Task[None] | None = None
        self._ids = range(0)
        self._next_block: asyncio.Future[ProducerIdBlock] | None = None
        self._settings = TopicSettings(
            num_partitions=config.num_partitions,
            replication_factor=config.default_replication_factor,
            check_configs=lambda configs: _check_configs(config, configs),
            effective_configs=EffectiveConfigs(config).of_topic,
        )
        self._config_rules = ConfigRules(tables=_CONFIG_TABLES, check=self._check_resource)
        self.on_failure: Callable[[BaseException], None] = lambda failure: None
        """Told when the metadata log cannot be written or an invariant is broken: the node must stop."""

    # Life of the node.

    async def register(self, node: NodeDescription, bootstrap: Sequence[Message]) -> None:
        """At the start: begin an empty log, or end a transaction that a crash cut short; register this node, fenced."""
        quorum = self._quorum
        if quorum.interrupted_transaction:
            await self._submit(lambda image, at: decided([AbortTransactionRecord()], None))
        waiting = []
        if not quorum.image.features.metadata_version:
            records = activation_records(bootstrap, min_insync_replicas=self._config.min_insync_replicas)
            waiting.append(self._submit(lambda image, at: decided(records, None)))
        waiting.append(self._submit(lambda image, at: decided(register_controller(image, node), None)))
        waiting.append(self._submit(lambda image, at: decided(register_broker(image, node, broker_epoch=at), None)))
        await asyncio.gather(*waiting)

    async def unfence(self) -> None:
        """This node is ready to serve, and leads what it can lead."""
        await self._submit(lambda image, at: decided(unfence(image, self._node_id), None))

    async def fence(self) -> None:
        """This node is about to stop; on a full or broken disk it stops without saying so, as if it had died."""
        with suppress(KafkaError, OSError):
            await self._submit(lambda image, at: decided(fence(image, self._node_id), None))

    async def close(self) -> None:
        """Come back once everything asked for so far is answered."""
        if self._worker is not None:
            await asyncio.wait([self._worker])

    # What clients and brokers ask for.

    async def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        entropy = self._world.entropy
        return await self._submit(
            lambda image, at: create_topics(image, request, settings=self._settings, entropy=entropy)
        )

    async def delete_topics(self, request: DeleteTopicsRequest, api_version: int) -> DeleteTopicsResponse:
        enabled = self._config.delete_topic_enable
        return await self._submit(
            lambda image, at: delete_topics(image, request, api_version=api_version, enabled=enabled)
        )

    async def create_partitions(self, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
        entropy = self._world.entropy
        return await self._submit(lambda image, at: create_partitions(image, request, entropy=entropy))

    async def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest
    ) -> IncrementalAlterConfigsResponse:
        return await self._submit(lambda image, at: incremental_alter_configs(image, request, rules=self._config_rules))

    async def alter_configs(self, request: AlterConfigsRequest) -> AlterConfigsResponse:
        return await self._submit(lambda image, at: alter_configs(image, request, rules=self._config_rules))

    def _check_resource(self, resource: Resource, configs: Mapping[str, str]) -> None:
        resource_type, name = resource
        if resource_type == TOPIC_RESOURCE:
            _check_configs(self._config, configs)
        elif resource_type == GROUP_RESOURCE:
            check_group_configs(self._config, configs)
        else:
            check_broker_configs(self._config, name, configs)
            warn_of_what_has_no_effect(configs)

    async def alter_client_quotas(self, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
        return await self._submit(lambda image, at: alter_client_quotas(image, request))

    async def alter_scram_credentials(
        self, request: AlterUserScramCredentialsRequest
    ) -> AlterUserScramCredentialsResponse:
        return await self._submit(lambda image, at: alter_scram_credentials(image, request))

    async def update_features(self, request: UpdateFeaturesRequest, api_version: int) -> UpdateFeaturesResponse:
        kraft_version = self._quorum.kraft_version
        return await self._submit(
            lambda image, at: update_features(image, request, api_version=api_version, kraft_version=kraft_version)
        )

    async def create_acls(self, request: CreateAclsRequest) -> CreateAclsResponse:
        entropy = self._world.entropy
        return await self._submit(lambda image, at: create_acls(image, request, entropy=entropy))

    async def delete_acls(self, request: DeleteAclsRequest) -> DeleteAclsResponse:
        return await self._submit(lambda image, at: delete_acls(image, request))

    def assign_directories(self, assignments: Sequence[DirectoryAssignment]) -> asyncio.Future[None]:
        """Tell the cluster where this broker has put partitions that it could choose a directory for.

        Nobody needs to wait: a full disk may refuse it, and the next start tells it again.
        """
        told = self._submit(lambda image, at: decided(assign_directories(image, self._node_id, assignments), None))
        told.add_done_callback(_note_outcome)
        return told

    async def next_producer_id(self) -> ProducerId:
        """An id that was never given out: from this broker's block, or from a new one."""
        while not self._ids:
            if self._next_block is None or self._next_block.done():
                self._next_block = self._submit(self._allocate)
            waited_for = self._next_block
            block = await asyncio.shield(waited_for)
            if waited_for is self._next_block:  # The first of those who waited for it; the others find ids there.
                self._next_block = None
                self._ids = range(block.first, block.first + block.size)
        first = self._ids[0]
        self._ids = self._ids[1:]
        return ProducerId(first)

    def _allocate(self, image: Image, _at: Offset) -> Decision[Message, ProducerIdBlock]:
        broker = image.cluster.brokers[self._node_id]
        return allocate_producer_ids(image, broker_id=self._node_id, broker_epoch=broker.broker_epoch)

    # The queue.

    def _submit(self, decide: Decide[ResponseT]) -> asyncio.Future[ResponseT]:
        future: asyncio.Future[ResponseT] = asyncio.get_running_loop().create_future()
        self._queue.append((decide, future))
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())
            self._worker.add_done_callback(_note_outcome)
        return future

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
                    _note_outcome(future)
            self._queue.clear()
            raise
        finally:
            self._worker = None

    async def _decide_and_append(self, taken: list[tuple[Decide[Any], asyncio.Future[Any]]]) -> None:
        quorum = self._quorum
        draft = Draft(quorum.image)
        at: int = quorum.next_offset
        batches: list[tuple[Message, ...]] = []
        outcomes: list[tuple[asyncio.Future[Any], Any, KafkaError | None]] = []
        try:
            for position, (decide, future) in enumerate(taken):
                try:
                    decision = decide(draft.image, Offset(at))
                except KafkaError as refused:
                    outcomes.append((future, None, refused))
                    continue
                ((_, answer),) = decision.answers
                outcomes.append((future, answer, None))
                if decision.records:
                    batches.append(decision.records)
                    at += len(decision.records)
                    if position + 1 < len(taken):
                        draft.replay(decision.records, Provenance(Offset(at - 1), quorum.epoch, -1))
            await quorum.append(batches)
        except KafkaError as refused:
            outcomes = [(future, None, refused) for _, future in taken]
        except BaseException as failure:
            for _, future in taken:
                if not future.done():
                    future.set_exception(failure)
            raise
        for future, answer, refusal in outcomes:
            if future.done():  # The one who asked has gone away.
                continue
            if refusal is not None:
                future.set_exception(refusal)
            else:
                future.set_result(answer)


def _note_outcome(future: asyncio.Future[None]) -> None:
    """Look at an outcome that nobody waits for, lest the loop complain; what is fatal goes to `on_failure` anyway."""
    if not future.cancelled():
        future.exception()


def _check_configs(config: NodeConfig, configs: Mapping[str, str]) -> None:
    validate_overrides(configs, config.log_defaults)


_CONFIG_TABLES = {TOPIC_RESOURCE: TOPIC_CONFIGS, BROKER_RESOURCE: BROKER_KEYS, GROUP_RESOURCE: GROUP_CONFIGS}


class EffectiveConfigs:
    """Every topic-level setting by name, with its value and where that comes from: the strongest source counts."""

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        self._resource = str(config.node_id)
        self._sources: tuple[Mapping[str, str], Mapping[str, str]] | None = None
        self._defaults: dict[str, CreatableTopicConfigs] = {}

    def of_topic(self, image: Image, topic_configs: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        sources = (image.configs.of(BROKER_RESOURCE, self._resource), image.configs.of(BROKER_RESOURCE, ALL_BROKERS))
        if sources != self._sources:  # Most topics have the defaults, so those are kept ready.
            self._sources = sources
            public = sorted(name for name, key in TOPIC_CONFIGS.items() if not key.internal)
            self._defaults = {name: self._default(name, *sources) for name in public}
        overrides = {name: _entry(name, text, ConfigSource.TOPIC) for name, text in topic_configs.items()}
        return [overrides.get(name, entry) for name, entry in self._defaults.items()]

    def _default(self, name: str, own: Mapping[str, str], everyones: Mapping[str, str]) -> CreatableTopicConfigs:
        key = TOPIC_CONFIGS[name]
        text = value_text(getattr(self._config.log_defaults, name.replace(".", "_"), key.default))
        for synonym in key.synonyms:
            if synonym in own:
                return _entry(name, own[synonym], ConfigSource.BROKER)
            if synonym in everyones:
                return _entry(name, everyones[synonym], ConfigSource.ALL_BROKERS)
            if synonym in self._config.given:
                return _entry(name, text, ConfigSource.FILE)
        return _entry(name, text, ConfigSource.DEFAULT)


def _entry(name: str, text: str | None, source: ConfigSource) -> CreatableTopicConfigs:
    return CreatableTopicConfigs(name=name, value=text, read_only=False, config_source=source, is_sensitive=False)
