"""The cluster itself: its nodes, features, quorum, configurations and log directories."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from odradek.client.admin.base import AdminBase, Outcomes, outcome
from odradek.client.errors import check
from odradek.client.patience import ask_within
from odradek.client.versions import SOFTWARE
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from odradek.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from odradek.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from odradek.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    RequestedPartitionData,
    RequestedTopicData,
)
from odradek.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from odradek.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from odradek.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from odradek.values import value

METADATA_TOPIC = "__cluster_metadata"


class ResourceType(IntEnum):
    """What has a configuration, as the protocol numbers it."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """A thing with a configuration; a broker's name is its id, or empty for the default of all brokers."""

    type: ResourceType
    name: str


class ConfigOperation(IntEnum):
    """What to do with one setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@value
class ConfigChange:
    """One setting to change; DELETE takes no value."""

    name: str
    value: str | None
    operation: ConfigOperation = ConfigOperation.SET


class UpgradeType(IntEnum):
    """How far a feature may be moved."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class ClusterAdmin(AdminBase):
    """What can be asked about brokers and the cluster as a whole."""

    async def describe_cluster(self, *, fenced: bool = False) -> DescribeClusterResponse:
        """Id, controller and brokers."""
        request = DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=fenced)
        response = await self._ask(request, DescribeClusterResponse)
        check(response.error_code, response.error_message)
        return response

    async def describe_quorum(self, *, timeout_ms: int | None = None) -> tuple[PartitionData, DescribeQuorumResponse]:
        """The metadata quorum's partition, and the whole answer with the nodes' addresses.

        Its leader alone knows: without one nobody answers. A timeout of one's own bounds the wait for that.
        """
        asked = RequestedTopicData(topic_name=METADATA_TOPIC, partitions=[RequestedPartitionData(partition_index=0)])
        request = DescribeQuorumRequest(topics=[asked])
        response = await self._ask_within(request, DescribeQuorumResponse, timeout_ms)
        check(response.error_code, response.error_message)
        partition = response.topics[0].partitions[0]
        check(partition.error_code, partition.error_message)
        return partition, response

    async def describe_features(self, node_id: int | None = None) -> ApiVersionsResponse:
        """Features supported and finalized, and the APIs served, by a broker or any."""
        response = await self._ask(ApiVersionsRequest(**SOFTWARE), ApiVersionsResponse, node_id=node_id)
        check(response.error_code)
        return response

    async def update_features(
        self,
        levels: Mapping[str, int],
        *,
        upgrade_type: UpgradeType = UpgradeType.UPGRADE,
        validate_only: bool = False,
    ) -> Outcomes[str]:
        """Set the finalized level of features; 0 removes one."""
        request = UpdateFeaturesRequest(
            timeout_ms=self._timeout_ms,
            feature_updates=[
                FeatureUpdateKey(
                    feature=name,
                    max_version_level=level,
                    allow_downgrade=upgrade_type is not UpgradeType.UPGRADE,
                    upgrade_type=upgrade_type,
                )
                for name, level in levels.items()
            ],
            validate_only=validate_only,
        )
        response = await self._ask(request, UpdateFeaturesResponse)
        check(response.error_code, response.error_message)
        outcomes: Outcomes[str] = dict.fromkeys(levels)
        outcomes.update({each.feature: outcome(each.error_code, each.error_message) for each in response.results})
        return outcomes

    # Configurations.

    async def describe_configs(
        self,
        resources: Sequence[ConfigResource],
        *,
        keys: Collection[str] | None = None,
        synonyms: bool = False,
        documentation: bool = False,
    ) -> dict[ConfigResource, list[DescribeConfigsResourceResult] | KafkaError]:
        """All settings of resources, or some; a broker is asked about itself."""
        described: dict[ConfigResource, list[DescribeConfigsResourceResult] | KafkaError] = {}
        for node_id, asked in _by_broker(resources).items():
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=resource.type,
                        resource_name=resource.name,
                        configuration_keys=None if keys is None else list(keys),
                    )
                    for resource in asked
                ],
                include_synonyms=synonyms,
                include_documentation=documentation,
            )
            response = await self._ask(request, DescribeConfigsResponse, node_id=node_id)
            for each in response.results:
                resource = ConfigResource(ResourceType(each.resource_type), each.resource_name)
                described[resource] = outcome(each.error_code, each.error_message) or each.configs
        return described

    async def alter_configs(
        self, changes: Mapping[ConfigResource, Sequence[ConfigChange]], *, validate_only: bool = False
    ) -> Outcomes[ConfigResource]:
        """Change single settings; all that are not named stay."""
        outcomes: Outcomes[ConfigResource] = {}
        for node_id, asked in _by_broker(list(changes)).items():
            request = IncrementalAlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=resource.type,
                        resource_name=resource.name,
                        configs=[
                            AlterableConfig(name=each.name, config_operation=each.operation, value=each.value)
                            for each in changes[resource]
                        ],
                    )
                    for resource in asked
                ],
                validate_only=validate_only,
            )
            response = await self._ask(request, IncrementalAlterConfigsResponse, node_id=node_id)
            for answer in response.responses:
                resource = ConfigResource(ResourceType(answer.resource_type), answer.resource_name)
                outcomes[resource] = outcome(answer.error_code, answer.error_message)
        return outcomes

    async def list_config_resources(self, types: Collection[ResourceType] = ()) -> list[ConfigResource]:
        """The resources that have a configuration of their own; all kinds unless some are named."""
        request = ListConfigResourcesRequest(resource_types=list(types))
        response = await self._ask(request, ListConfigResourcesResponse)
        check(response.error_code)
        return [
            ConfigResource(ResourceType(each.resource_type), each.resource_name) for each in response.config_resources
        ]

    # Log directories.

    async def describe_log_dirs(
        self, broker_ids: Collection[int] | None = None, *, timeout_ms: int | None = None
    ) -> dict[int, list[DescribeLogDirsResult] | KafkaError]:
        """What lies in the log directories of brokers, by broker; an error for one that does not tell in time."""
        request = DescribeLogDirsRequest(topics=None)

        async def ask(node_id: int, left_ms: int) -> list[DescribeLogDirsResult]:
            response = await ask_within(
                self.cluster, request, DescribeLogDirsResponse, node_id=node_id, timeout_ms=left_ms
            )
            check(response.error_code)
            return response.results

        return await self._ask_brokers(broker_ids, ask, timeout_ms)


def _by_broker(resources: Sequence[ConfigResource]) -> dict[int | None, list[ConfigResource]]:
    """A broker and its loggers are its own business; everything else any broker knows."""
    routes: dict[int | None, list[ConfigResource]] = {}
    for resource in resources:
        own = resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and resource.name.isdecimal()
        routes.setdefault(int(resource.name) if own else None, []).append(resource)
    return routes
