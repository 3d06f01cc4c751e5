"""The active controller: requests become decisions, and time does too.

`activate` and `deactivate` follow the quorum's leadership. Decisions go through one queue (`decision_queue`); what is
not on record (who was heard of when, which connection a broker heartbeats on) lives as long as the leadership.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from odradek.decisions import Decision
from odradek.ids import LeaderEpoch, NodeId, Offset
from odradek.metadata.bootstrap import activation_records
from odradek.metadata.controller import decided
from odradek.metadata.controller.brokers import (
    Registrar,
    fence,
    register_broker,
    register_controller,
    registered,
    unregister_broker,
)
from odradek.metadata.controller.directories import assign_replicas_to_dirs
from odradek.metadata.controller.heartbeats import broker_heartbeat, unchanged
from odradek.metadata.controller.leadership import (
    MAX_ELECTIONS_AT_ONCE,
    impossible_eligible_leaders,
    preferred_leaders,
    unclean_leaders,
)
from odradek.metadata.controller.producer_ids import allocate_producer_ids
from odradek.metadata.controller.sessions import BrokerSessions
from odradek.metadata.controller.topic_rules import StaticRules, TopicRules
from odradek.metadata.controller.topics import TopicSettings, create_topics
from odradek.metadata.image import Image
from odradek.metadata.image.configs import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE, Resource
from odradek.metadata.records import AbortTransactionRecord
from odradek.ports import World
from odradek.protocol.codec import Message
from odradek.protocol.errors import KafkaError
from odradek.server.configs.dynamic import BROKER_KEYS, check_broker_configs, warn_of_what_has_no_effect
from odradek.server.configs.effective_configs import EffectiveConfigs
from odradek.server.configs.group_configs import GROUP_CONFIGS, check_group_configs
from odradek.server.configs.node_config import NodeConfig
from odradek.server.containment import Containment
from odradek.server.controller.broker_watch import BrokerWatch
from odradek.server.controller.decision_queue import DecisionQueue, not_controller
from odradek.server.controller.reached_listeners import ReachedListeners
from odradek.server.quorum.quorum import Quorum
from odradek.storage.config import TOPIC_CONFIGS, validate_overrides

if TYPE_CHECKING:
    from odradek.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
    from odradek.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
    from odradek.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
    from odradek.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
    from odradek.protocol.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
    )
    from odradek.protocol.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponse,
    )
    from odradek.protocol.messages.assign_replicas_to_dirs import (
        AssignReplicasToDirsRequest,
        AssignReplicasToDirsResponse,
    )
    from odradek.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
    from odradek.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
    from odradek.protocol.messages.controller_registration import (
        ControllerRegistrationRequest,
        ControllerRegistrationResponse,
    )
    from odradek.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
    from odradek.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
    from odradek.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
    from odradek.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
    from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
    from odradek.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
    from odradek.protocol.messages.incremental_alter_configs import (
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )
    from odradek.protocol.messages.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
    )
    from odradek.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
    from odradek.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

log = logging.getLogger(__name__)

RETRY_S = 1.0
"""How soon what a new controller must write first is tried again when the disk refuses it."""


class Controller:
    """Owns the queue of decisions, the sessions of brokers and the timers, while this node leads the quorum.

    Decisions that a starting node does not make are imported by those who ask for them.
    """

    def __init__(
        self,
        config: NodeConfig,
        world: World,
        quorum: Quorum,
        containment: Containment,
        *,
        cluster_id: str = "",
        bootstrap: Sequence[Message] = (),
    ) -> None:
        """`bootstrap` is what the first controller of an empty log writes."""
        self._config = config
        self._world = world
        self._quorum = quorum
        self._cluster_id = cluster_id
        self._bootstrap = bootstrap
        self._node_id = NodeId(config.node_id)
        self._queue = DecisionQueue(quorum, containment)
        self._epoch: LeaderEpoch | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._sessions = BrokerSessions(config.broker_session_timeout_ms)
        self._reached = ReachedListeners(world, containment, wanted=self._is_early, myself=self._node_id)
        self._watch = BrokerWatch(
            world,
            self._sessions,
            self._reached,
            image=lambda: quorum.image,
            fence=self._fence,
            is_early=self._is_early,
            myself=self._node_id,
        )
        self._registered_at: dict[NodeId, Offset] = {}
        """Where registrations that this controller made are in the log; older ones are before its activation."""
        self._activated_at = Offset(0)
        self._settings = TopicSettings(
            num_partitions=config.num_partitions,
            replication_factor=config.default_replication_factor,
            check_configs=lambda configs: _check_configs(config, configs),
            effective_configs=EffectiveConfigs(config).of_topic,
        )

    @property
    def on_failure(self) -> Callable[[BaseException], None]:
        """Told when the metadata log cannot be written: the node must stop."""
        return self._queue.on_failure

    @on_failure.setter
    def on_failure(self, told: Callable[[BaseException], None]) -> None:
        self._queue.on_failure = told

    # Leadership.

    def activate(self, epoch: LeaderEpoch) -> None:
        """This node leads the quorum, and its image has all that was committed before."""
        if self._epoch is not None:
            self.deactivate()
        self._epoch = epoch
        image = self._quorum.image
        self._activated_at = image.provenance.offset
        self._watch.start()
        self._tasks = [asyncio.create_task(self._write_first_records(self._begin()))]
        if self._config.auto_leader_rebalance_enable:
            balance_s = self._config.leader_imbalance_check_interval_seconds
            self._tasks.append(asyncio.create_task(self._every(balance_s, preferred_leaders)))
        unclean_s = self._config.unclean_leader_election_interval_ms / 1000
        self._tasks.append(asyncio.create_task(self._every(unclean_s, unclean_leaders)))

    def deactivate(self) -> None:
        """Another node leads, or nobody: nothing more is decided here, and what was is for others to answer."""
        self._epoch = None
        for task in self._tasks:
            task.cancel()
        self._tasks = []
        self._watch.stop()
        self._registered_at.clear()
        self._queue.refuse_all()

    async def close(self) -> None:
        """Come back once everything asked for so far is answered."""
        await self._queue.close()
        if self._epoch is not None:
            self.deactivate()
        self._reached.close()

    def learn(self, image: Image) -> None:
        """What was committed, whoever leads: the one that does not lead yet may have to know who can be reached."""
        self._reached.learn(image)

    def process_ended(self, node_id: NodeId) -> None:
        """The process that led the quorum is gone, as far as its connection says: perhaps a broker with it."""
        self._watch.process_ended(node_id)

    def _is_early(self) -> bool:
        return self._config.odradek_early_fencing_enable

    def _begin(self) -> asyncio.Future[tuple[None, None]]:
        """What is decided before anybody is elected."""
        first = self._queue.begin(self._first_records)
        return asyncio.gather(first, self._queue.submit(self._impossible_eligible_leaders))

    async def _write_first_records(self, first: asyncio.Future[tuple[None, None]]) -> None:
        """End what a predecessor left open, and begin an empty log."""
        while True:
            try:
                await first
                return
            except KafkaError as refused:
                log.error("The first records of this controller could not be written: %s", refused)
                await asyncio.sleep(RETRY_S)
                first = self._begin()

    def _first_records(self, image: Image, _at: Offset) -> Decision[Message, None]:
        records: list[Message] = []
        if self._quorum.interrupted_transaction:
            records.append(AbortTransactionRecord())
        if not image.features.metadata_version:
            records += activation_records(self._bootstrap, min_insync_replicas=self._config.min_insync_replicas)
        return decided(records, None)

    def _impossible_eligible_leaders(self, image: Image, _at: Offset) -> Decision[Message, None]:
        records = list(impossible_eligible_leaders(image, self._rules(image)))
        if records:
            log.warning(
                "An earlier release has left eligible leaders that may lack what is committed: they are forgotten "
                "(partitions: %d)",
                len(records),
            )
        return decided(records, None)

    async def _every(self, period_s: float, elect: Callable[[Image, TopicRules], list[Message]]) -> None:
        """Elections that nobody asks for; where there are many, at once again."""
        while True:
            await asyncio.sleep(period_s)
            with suppress(KafkaError):
                while await self._queue.submit(lambda image, at: _elected(elect(image, self._rules(image)))):
                    pass

    def _rules(self, image: Image) -> TopicRules:
        config = self._config
        static = StaticRules(self._node_id, config.min_insync_replicas, config.unclean_leader_election_enable)
        return TopicRules(image, static)

    # What brokers ask for.

    async def register_broker(self, request: BrokerRegistrationRequest, api_version: int) -> BrokerRegistrationResponse:
        """KafkaError where the broker may not be in this cluster, or another one with its id is."""
        end: list[int] = []

        def decide(image: Image, at: Offset) -> Decision[Message, BrokerRegistrationResponse]:
            decision = register_broker(
                image, request, registrar=self._registrar(image, request, at, api_version), rules=self._rules(image)
            )
            end[:] = [at + len(decision.records) + 1]
            return decision

        broker_id = NodeId(request.broker_id)
        response = await self._queue.submit(decide)
        self._registered_at[broker_id] = Offset(min(end[0], self._quorum.image.provenance.offset))
        self._sessions.heard(broker_id, response.broker_epoch, now_ms=self._world.clock.monotonic_ms())
        self._watch.session_began()
        return response

    def _registrar(self, image: Image, request: BrokerRegistrationRequest, at: Offset, api_version: int) -> Registrar:
        before = image.cluster.brokers.get(NodeId(request.broker_id))
        now_ms = self._world.clock.monotonic_ms()
        alive = before is not None and self._sessions.alive(before.broker_id, before.broker_epoch, now_ms=now_ms)
        if alive and before is not None:
            alive = not self._watch.is_succeeded(before, request.previous_broker_epoch, request.log_dirs)
        return Registrar(
            cluster_id=self._cluster_id,
            kraft_version=self._quorum.kraft_version,
            alive=alive,
            next_epoch=at,
            api_version=api_version,
        )

    async def broker_heartbeat(
        self, request: BrokerHeartbeatRequest, connection: object = None
    ) -> BrokerHeartbeatResponse:
        """Nearly all change nothing, and are answered without waiting for anything."""
        self.require_active()
        broker_id = NodeId(request.broker_id)
        registered(self._quorum.image, broker_id, request.broker_epoch)
        self._sessions.heard(broker_id, request.broker_epoch, now_ms=self._world.clock.monotonic_ms())
        self._sessions.reached(broker_id, Offset(request.current_metadata_offset))
        self._watch.session_began()
        registered_at = self._registered_at.get(broker_id, self._activated_at)
        answer = unchanged(self._quorum.image, request, sessions=self._sessions, registered_at=registered_at)
        if answer is not None:
            return answer
        if request.want_shut_down:
            self._note_who_has_fetched()
        answer = await self._queue.submit(
            lambda image, at: broker_heartbeat(
                image, request, sessions=self._sessions, rules=self._rules(image), registered_at=registered_at
            )
        )
        if answer.should_shut_down:
            self._sessions.end(broker_id)
        elif request.want_shut_down:
            self._sessions.shut_down_after(broker_id, self._quorum.image.provenance.offset)
        return answer

    def _note_who_has_fetched(self) -> None:
        """Brokers fetch the log much more often than they send heartbeats: one that wants to stop need not wait."""
        progress = self._quorum.raft.progress
        if progress is not None:
            for replica in (*progress.voters, *progress.observers(self._world.clock.monotonic_ms())):
                self._sessions.reached(replica.key.node_id, Offset(replica.end_offset - 1))
        self._sessions.reached(self._node_id, self._quorum.image.provenance.offset)

    def heartbeats_on(self, request: BrokerHeartbeatRequest, connection: object) -> bool:
        """Remember on which connection a broker speaks; True for one that is new, whose loss must be told here."""
        return self._watch.heartbeat_on(NodeId(request.broker_id), request.broker_epoch, connection)

    def connection_lost(self, request: BrokerHeartbeatRequest, connection: object, *, closed_by_peer: bool) -> None:
        """The connection of that heartbeat is gone: where the broker's side has closed it, the broker may be too."""
        self._watch.connection_lost(
            NodeId(request.broker_id), request.broker_epoch, connection, closed_by_peer=closed_by_peer
        )

    async def _fence(self, broker_id: NodeId, broker_epoch: int, why: str, holds: Callable[[], bool]) -> None:
        def decide(image: Image, _at: Offset) -> Decision[Message, bool]:
            broker = image.cluster.brokers.get(broker_id)
            if broker is None or broker.broker_epoch != broker_epoch or broker.fenced or not holds():
                return decided((), False)
            return decided(fence(image, broker_id, self._rules(image)), True)

        if await self._queue.submit(decide):
            if holds():
                self._sessions.end(broker_id)
            log.info("Fenced broker %d of epoch %d: %s", broker_id, broker_epoch, why)

    async def register_controller(self, request: ControllerRegistrationRequest) -> ControllerRegistrationResponse:
        return await self._queue.submit(lambda image, at: register_controller(image, request))

    async def unregister_broker(self, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
        response = await self._queue.submit(
            lambda image, at: unregister_broker(image, request, rules=self._rules(image))
        )
        self._sessions.end(NodeId(request.broker_id))
        return response

    async def alter_partition(self, request: AlterPartitionRequest, api_version: int) -> AlterPartitionResponse:
        from odradek.metadata.controller.alter_partition import alter_partition

        return await self._queue.submit(
            lambda image, at: alter_partition(image, request, api_version=api_version, rules=self._rules(image))
        )

    async def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        return await self._queue.submit(lambda image, at: allocate_producer_ids(image, request))

    async def assign_replicas_to_dirs(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        return await self._queue.submit(
            lambda image, at: assign_replicas_to_dirs(image, request, rules=self._rules(image))
        )

    # What operators ask for.

    async def elect_leaders(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        from odradek.metadata.controller.elect_leaders import elect_leaders

        return await self._queue.submit(lambda image, at: elect_leaders(image, request, rules=self._rules(image)))

    async def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        from odradek.metadata.controller.reassignment import alter_partition_reassignments

        return await self._queue.submit(
            lambda image, at: alter_partition_reassignments(image, request, rules=self._rules(image))
        )

    async def list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        from odradek.metadata.controller.reassignment import list_partition_reassignments

        self.require_active()
        return list_partition_reassignments(self._quorum.image, request)

    def require_active(self) -> None:
        """NOT_CONTROLLER where another node has to be asked."""
        if not self._quorum.is_active:
            raise not_controller()

    # What clients ask for.

    async def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        entropy = self._world.entropy
        return await self._queue.submit(
            lambda image, at: create_topics(image, request, settings=self._settings, entropy=entropy)
        )

    async def delete_topics(self, request: DeleteTopicsRequest, api_version: int) -> DeleteTopicsResponse:
        from odradek.metadata.controller.deletion import delete_topics

        enabled = self._config.delete_topic_enable
        return await self._queue.submit(
            lambda image, at: delete_topics(image, request, api_version=api_version, enabled=enabled)
        )

    async def create_partitions(self, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
        from odradek.metadata.controller.partitions import create_partitions

        entropy = self._world.entropy
        return await self._queue.submit(lambda image, at: create_partitions(image, request, entropy=entropy))

    async def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest
    ) -> IncrementalAlterConfigsResponse:
        from odradek.metadata.controller.configs import ConfigRules, incremental_alter_configs

        rules = ConfigRules(tables=_CONFIG_TABLES, check=self._check_resource)
        return await self._queue.submit(lambda image, at: incremental_alter_configs(image, request, rules=rules))

    async def alter_configs(self, request: AlterConfigsRequest) -> AlterConfigsResponse:
        from odradek.metadata.controller.configs import ConfigRules, alter_configs

        rules = ConfigRules(tables=_CONFIG_TABLES, check=self._check_resource)
        return await self._queue.submit(lambda image, at: alter_configs(image, request, rules=rules))

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
        from odradek.metadata.controller.quotas import alter_client_quotas

        return await self._queue.submit(lambda image, at: alter_client_quotas(image, request))

    async def alter_scram_credentials(
        self, request: AlterUserScramCredentialsRequest
    ) -> AlterUserScramCredentialsResponse:
        from odradek.metadata.controller.scram import alter_scram_credentials

        return await self._queue.submit(lambda image, at: alter_scram_credentials(image, request))

    async def update_features(self, request: UpdateFeaturesRequest, api_version: int) -> UpdateFeaturesResponse:
        from odradek.metadata.controller.features import requested_kraft_version

        level = requested_kraft_version(request)
        if level is None or level <= self._quorum.kraft_version:
            return await self._decide_features(request, api_version)
        asked = type(request)(
            timeout_ms=request.timeout_ms, feature_updates=request.feature_updates, validate_only=True
        )
        response = await self._decide_features(asked, api_version)
        if response.error_code:
            return response
        # All or nothing: the quorum's own level is the part that may still be refused.
        await self._quorum.voter_changes.raise_kraft_version(level, validate_only=request.validate_only)
        return response if request.validate_only else await self._decide_features(request, api_version)

    async def _decide_features(self, request: UpdateFeaturesRequest, api_version: int) -> UpdateFeaturesResponse:
        from odradek.metadata.controller.features import update_features

        kraft_version = self._quorum.kraft_version
        return await self._queue.submit(
            lambda image, at: update_features(
                image,
                request,
                api_version=api_version,
                kraft_version=kraft_version,
                min_insync_replicas=self._config.min_insync_replicas,
            )
        )

    async def create_acls(self, request: CreateAclsRequest) -> CreateAclsResponse:
        from odradek.metadata.controller.acls import create_acls

        entropy = self._world.entropy
        return await self._queue.submit(lambda image, at: create_acls(image, request, entropy=entropy))

    async def delete_acls(self, request: DeleteAclsRequest) -> DeleteAclsResponse:
        from odradek.metadata.controller.acls import delete_acls

        return await self._queue.submit(lambda image, at: delete_acls(image, request))


def _elected(records: list[Message]) -> Decision[Message, bool]:
    return decided(records, len(records) >= MAX_ELECTIONS_AT_ONCE)


def _check_configs(config: NodeConfig, configs: Mapping[str, str]) -> None:
    validate_overrides(configs, config.log_defaults)


_CONFIG_TABLES = {TOPIC_RESOURCE: TOPIC_CONFIGS, BROKER_RESOURCE: BROKER_KEYS, GROUP_RESOURCE: GROUP_CONFIGS}
