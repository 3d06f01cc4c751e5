"""What a node tells of itself: directories, producers, quotas, credentials, features and the quorum."""

from __future__ import annotations

from tests.unit.server.asking import produce
from tests.unit.server.rig import Client, Rig

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestedEntryData,
)
from odradek.protocol.messages.alter_client_quotas import EntityData as Entity
from odradek.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from odradek.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from odradek.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from odradek.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    RequestedPartitionData,
    RequestedTopicData,
)
from odradek.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from odradek.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest


def test_log_directories_show_sizes_and_room() -> None:
    rig = Rig(properties={"log.dirs": "/one,/two"})

    async def look() -> None:
        hosts = await rig.create_topic("t", 2)
        client = rig.connect()
        await client.ask(produce("t", bytes(1000)), 9)
        everything = await client.ask(DescribeLogDirsRequest(topics=None), 4)
        assert [each.log_dir for each in everything.results] == ["/one", "/two"]
        sizes = {
            (topic.name, part.partition_index): part.partition_size
            for each in everything.results
            for topic in each.topics
            for part in topic.partitions
        }
        assert sizes == {("t", host.index): host.partition.log.size_bytes for host in hosts}
        assert sizes["t", 0] > 1000
        assert all(each.total_bytes >= each.usable_bytes > 0 for each in everything.results)
        request = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic="t", partitions=[1])])
        one = await client.ask(request, 4)
        assert [
            (topic.name, [part.partition_index for part in topic.partitions])
            for each in one.results
            for topic in each.topics
        ] == [("t", [1])]
        hosts[0].directory.go_offline()
        path = hosts[0].directory.path
        after = await client.ask(DescribeLogDirsRequest(topics=None), 4)
        codes = {each.log_dir: each.error_code for each in after.results}
        assert codes == {"/one": 0, "/two": 0} | {path: ErrorCode.KAFKA_STORAGE_ERROR}

    rig.run(look)


def test_a_partition_tells_of_its_producers() -> None:
    rig = Rig()

    async def look() -> None:
        await rig.create_topic("t")
        client = rig.connect()
        await client.ask(produce("t", b"a", b"b", producer_id=7, producer_epoch=1, base_sequence=0), 9)
        request = DescribeProducersRequest(
            topics=[
                TopicRequest(name="t", partition_indexes=[0, 9]),
                TopicRequest(name="other", partition_indexes=[0]),
            ]
        )
        first, second = (await client.ask(request, 0)).topics
        known, missing = first.partitions
        (producer,) = known.active_producers
        assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 1, 1)
        assert producer.current_txn_start_offset == -1
        assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert second.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    rig.run(look)


async def _describe_quotas(client: Client, *components: tuple[str, int, str | None], strict: bool = False) -> list[str]:
    request = DescribeClientQuotasRequest(
        components=[ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components],
        strict=strict,
    )
    response = await client.ask(request, 1)
    assert response.error_code == 0, response
    return sorted(
        "/".join(f"{part.entity_type}={part.entity_name}" for part in each.entity) for each in response.entries
    )


def test_quotas_are_found_by_what_they_are_for() -> None:
    rig = Rig()

    async def look() -> None:
        client = rig.connect()
        entities: list[list[tuple[str, str | None]]] = [
            [("user", "alice")],
            [("user", None)],
            [("user", "alice"), ("client-id", "app")],
            [("client-id", None)],
        ]
        entries = [
            RequestedEntryData(
                entity=[Entity(entity_type=kind, entity_name=name) for kind, name in entity],
                ops=[OpData(key="request_percentage", value=1e9, remove=False)],
            )
            for entity in entities
        ]
        await client.ask(AlterClientQuotasRequest(entries=entries, validate_only=False), 1)
        await rig.restart()
        client = rig.connect()
        both = "client-id=app/user=alice"
        assert await _describe_quotas(client) == ["client-id=None", both, "user=None", "user=alice"]
        assert await _describe_quotas(client, ("user", 0, "alice")) == [both, "user=alice"]
        assert await _describe_quotas(client, ("user", 0, "alice"), strict=True) == ["user=alice"]
        assert await _describe_quotas(client, ("user", 1, None)) == ["user=None"]
        assert await _describe_quotas(client, ("user", 2, None)) == [both, "user=None", "user=alice"]
        for wrong, code in (
            ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
            ([("user", 1, "x")], ErrorCode.INVALID_REQUEST),
            ([("user", 9, None)], ErrorCode.INVALID_REQUEST),
            ([("", 2, None)], ErrorCode.INVALID_REQUEST),
            ([("user", 2, None), ("user", 2, None)], ErrorCode.INVALID_REQUEST),
            ([("user", 2, None), ("ip", 2, None)], ErrorCode.INVALID_REQUEST),
            ([("team", 2, None)], ErrorCode.UNSUPPORTED_VERSION),
        ):
            components = [ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in wrong]
            request = DescribeClientQuotasRequest(components=components, strict=False)
            assert (await client.ask(request, 1)).error_code == code

    rig.run(look)


def test_credentials_are_described_without_their_secrets() -> None:
    rig = Rig()

    async def look() -> None:
        client = rig.connect()
        upsertions = [
            ScramCredentialUpsertion(name=user, mechanism=mechanism, iterations=5000, salt=b"s", salted_password=b"p")
            for user, mechanism in (("alice", 1), ("bob", 2))
        ]
        request = AlterUserScramCredentialsRequest(deletions=[], upsertions=upsertions)
        assert {each.error_code for each in (await client.ask(request, 0)).results} == {0}
        await rig.restart()
        client = rig.connect()
        found = (await client.ask(DescribeUserScramCredentialsRequest(users=None), 0)).results
        assert {each.user: [(info.mechanism, info.iterations) for info in each.credential_infos] for each in found} == {
            "alice": [(1, 5000)],
            "bob": [(2, 5000)],
        }
        users = [UserName(name=name) for name in ("alice", "carol", "bob", "bob")]
        named = (await client.ask(DescribeUserScramCredentialsRequest(users=users), 0)).results
        assert {each.user: each.error_code for each in named} == {
            "alice": 0,
            "carol": ErrorCode.RESOURCE_NOT_FOUND,
            "bob": ErrorCode.DUPLICATE_RESOURCE,
        }

    rig.run(look)


def test_a_level_that_was_set_is_told_to_clients() -> None:
    rig = Rig()

    async def look() -> None:
        client = rig.connect()
        update = FeatureUpdateKey(feature="metadata.version", max_version_level=7, upgrade_type=3)
        refused = await client.ask(UpdateFeaturesRequest(feature_updates=[update]), 2)
        assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
        update = FeatureUpdateKey(feature="metadata.version", max_version_level=30, upgrade_type=1)
        assert (await client.ask(UpdateFeaturesRequest(feature_updates=[update]), 2)).error_code == 0
        versions = await client.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
        levels = {each.name: each.max_version_level for each in versions.finalized_features}
        assert levels["metadata.version"] == 30

    rig.run(look)


def test_the_quorum_of_a_lone_node_becomes_dynamic() -> None:
    rig = Rig(properties={"controller.quorum.voters": "1@node:9093"})

    async def look() -> None:
        client = rig.connect()
        raised = FeatureUpdateKey(feature="kraft.version", max_version_level=1, upgrade_type=1)
        only_asked = UpdateFeaturesRequest(feature_updates=[raised], validate_only=True)
        assert (await client.ask(only_asked, 2)).error_code == 0
        assert rig.node.rooms.quorum.kraft_version == 0
        assert (await client.ask(UpdateFeaturesRequest(feature_updates=[raised]), 2)).error_code == 0
        assert rig.node.rooms.quorum.kraft_version == 1
        await rig.create_topic("t")
        await rig.restart()
        assert rig.node.rooms.quorum.kraft_version == 1
        assert [voter.node_id for voter in rig.node.rooms.quorum.voters] == [1]
        client = rig.connect()
        lowered = FeatureUpdateKey(feature="kraft.version", max_version_level=0, upgrade_type=2)
        refused = await client.ask(UpdateFeaturesRequest(feature_updates=[lowered]), 2)
        assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION

    rig.run(look)


def test_the_quorum_is_this_node() -> None:
    rig = Rig()

    async def look() -> None:
        for port in (9092, 9093):
            client = rig.connect(port)
            wanted = [("__cluster_metadata", 0), ("__cluster_metadata", 1), ("other", 0)]
            request = DescribeQuorumRequest(
                topics=[
                    RequestedTopicData(topic_name=name, partitions=[RequestedPartitionData(partition_index=index)])
                    for name, index in wanted
                ]
            )
            response = await client.ask(request, 2)
            metadata, beyond, other = (topic.partitions[0] for topic in response.topics)
            assert (metadata.error_code, metadata.leader_id) == (0, 1)
            (voter,) = metadata.current_voters
            assert voter.replica_id == 1
            assert voter.log_end_offset == metadata.high_watermark > 0
            assert {beyond.error_code, other.error_code} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            assert [(node.node_id, node.listeners[0].port) for node in response.nodes] == [(1, 9093)]

    rig.run(look)
