"""Topics, their partitions, records and offsets."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum

from odradek.client.admin.base import AdminBase, Outcomes, outcome
from odradek.client.cluster import TopicInfo, TopicPartition, by_topic
from odradek.client.errors import check
from odradek.client.leaders import Answers, FoundOffset, ask_leaders, list_offsets
from odradek.ids import ZERO_UUID
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from odradek.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from odradek.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from odradek.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from odradek.values import value

BROKERS_CHOICE = -1


class Election(IntEnum):
    """As ElectLeaders numbers them."""

    PREFERRED = 0
    UNCLEAN = 1


@value
class NewTopic:
    """A topic to create: by counts, where -1 leaves the choice to the broker, or by the replicas of each partition."""

    name: str
    partitions: int = BROKERS_CHOICE
    replication_factor: int = BROKERS_CHOICE
    configs: tuple[tuple[str, str], ...] = ()
    assignments: tuple[tuple[int, ...], ...] = ()


class TopicAdmin(AdminBase):
    """What can be asked about topics."""

    async def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> Outcomes[str]:
        request = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in topics], timeout_ms=self._timeout_ms, validate_only=validate_only
        )
        response = await self._ask(request, CreateTopicsResponse)
        return {each.name: outcome(each.error_code, each.error_message) for each in response.topics}

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = BROKERS_CHOICE,
        replication_factor: int = BROKERS_CHOICE,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """One topic; raises if it could not be created."""
        topic = NewTopic(name, partitions, replication_factor, tuple((configs or {}).items()))
        for failure in (await self.create_topics([topic])).values():
            if failure is not None:
                raise failure

    async def delete_topics(self, names: Sequence[str]) -> Outcomes[str]:
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names],
            topic_names=list(names),
            timeout_ms=self._timeout_ms,
        )
        response = await self._ask(request, DeleteTopicsResponse)
        return {each.name or "": outcome(each.error_code, each.error_message) for each in response.responses}

    async def list_topics(self, *, internal: bool = True) -> list[TopicInfo]:
        """Every topic, by name."""
        await self.cluster.retrying(lambda: self.cluster.refresh(None))
        topics = self.cluster.topics
        return [topics[name] for name in sorted(topics) if internal or not topics[name].internal]

    async def describe_topics(self, names: Collection[str]) -> dict[str, TopicInfo | KafkaError]:
        """Leaders and replicas of topics, asked for now; no topic is created on the way."""
        await self.cluster.retrying(lambda: self.cluster.refresh(names))
        described: dict[str, TopicInfo | KafkaError] = {}
        for name in names:
            try:
                described[name] = self.cluster.known_topic(name)
            except KafkaError as failure:
                described[name] = failure
        return described

    async def create_partitions(self, counts: Mapping[str, int], *, validate_only: bool = False) -> Outcomes[str]:
        """Let topics have that many partitions in all."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in counts.items()],
            timeout_ms=self._timeout_ms,
            validate_only=validate_only,
        )
        response = await self._ask(request, CreatePartitionsResponse)
        return {each.name: outcome(each.error_code, each.error_message) for each in response.results}

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False, timeout_ms: int | None = None
    ) -> Answers[FoundOffset]:
        """Offsets by timestamp, or by EARLIEST, LATEST and MAX_TIMESTAMP of `odradek.client.leaders`."""
        waits_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        return await list_offsets(self.cluster, wanted, timeout_ms=waits_ms, read_committed=read_committed)

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> Answers[int]:
        """Delete everything before each offset (-1: up to the high watermark); the new low watermarks."""

        async def ask(node_id: int, partitions: list[TopicPartition]) -> Answers[int]:
            topics = [
                DeleteRecordsTopic(
                    name=topic,
                    partitions=[
                        DeleteRecordsPartition(partition_index=index, offset=before[TopicPartition(topic, index)])
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(partitions).items()
            ]
            request = DeleteRecordsRequest(topics=topics, timeout_ms=self._timeout_ms)
            response = await self.cluster.ask(request, DeleteRecordsResponse, node_id=node_id)
            return {
                TopicPartition(topic.name, each.partition_index): outcome(each.error_code) or each.low_watermark
                for topic in response.topics
                for each in topic.partitions
            }

        return await ask_leaders(self.cluster, before, ask, timeout_ms=self._timeout_ms)

    async def describe_producers(self, partitions: Collection[TopicPartition]) -> Answers[list[ProducerState]]:
        """The producers that partitions remember."""

        async def ask(node_id: int, led: list[TopicPartition]) -> Answers[list[ProducerState]]:
            topics = [TopicRequest(name=topic, partition_indexes=some) for topic, some in by_topic(led).items()]
            response = await self.cluster.ask(
                DescribeProducersRequest(topics=topics), DescribeProducersResponse, node_id=node_id
            )
            return {
                TopicPartition(topic.name, each.partition_index): each.active_producers
                if not each.error_code
                else outcome(each.error_code, each.error_message) or []
                for topic in response.topics
                for each in topic.partitions
            }

        return await ask_leaders(self.cluster, partitions, ask, timeout_ms=self._timeout_ms)

    async def elect_leaders(
        self, kind: Election, partitions: Collection[TopicPartition] | None = None
    ) -> Outcomes[TopicPartition]:
        """Hold an election, for some partitions or for all."""
        wanted = None
        if partitions is not None:
            wanted = [TopicPartitions(topic=topic, partitions=some) for topic, some in by_topic(partitions).items()]
        request = ElectLeadersRequest(election_type=kind, topic_partitions=wanted, timeout_ms=self._timeout_ms)
        response = await self._ask(request, ElectLeadersResponse)
        check(response.error_code)
        return {
            TopicPartition(topic.topic, each.partition_id): outcome(each.error_code, each.error_message)
            for topic in response.replica_election_results
            for each in topic.partition_result
        }


def _creatable(topic: NewTopic) -> CreatableTopic:
    by_hand = bool(topic.assignments)
    return CreatableTopic(
        name=topic.name,
        num_partitions=BROKERS_CHOICE if by_hand else topic.partitions,
        replication_factor=BROKERS_CHOICE if by_hand else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
            for index, replicas in enumerate(topic.assignments)
        ],
        configs=[CreatableTopicConfig(name=name, value=text) for name, text in topic.configs],
    )
