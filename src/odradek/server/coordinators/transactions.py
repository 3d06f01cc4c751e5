"""Transaction coordinators: one shard for each partition of `__transaction_state` that this node leads."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from odradek.coordinator.transaction.settings import TransactionSettings
from odradek.metadata.topic_names import TRANSACTION_TOPIC
from odradek.ports import World
from odradek.protocol.errors import KafkaError
from odradek.server.configs.node_config import NodeConfig
from odradek.server.coordinators.coordinator import Coordinator, StateTopic, TopicCreator
from odradek.server.partitions.replicas import Replicas

if TYPE_CHECKING:
    from odradek.coordinator.shard import Effect
    from odradek.coordinator.transaction.shard import TransactionShard
    from odradek.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResult, AddPartitionsToTxnTransaction
    from odradek.server.coordinators.marker_sender import MarkerSender
    from odradek.server.coordinators.producer_ids import ProducerIds
    from odradek.server.coordinators.shard_runner import ShardRunner

TransactionRunner: TypeAlias = "ShardRunner[TransactionShard]"


class TransactionCoordinator(Coordinator["TransactionShard"]):
    """All transaction coordinators of this node."""

    def __init__(
        self,
        config: NodeConfig,
        world: World,
        replicas: Replicas,
        topics: TopicCreator,
        producer_ids: ProducerIds,
        markers: MarkerSender,
    ) -> None:
        topic = StateTopic(
            name=TRANSACTION_TOPIC,
            num_partitions=config.transaction_state_log_num_partitions,
            replication_factor=config.transaction_state_log_replication_factor,
            is_factor_given="transaction.state.log.replication.factor" in config.given,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(_min_isr(config)),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )
        super().__init__(config, world, replicas, topics, topic)
        self.commit_timeout_ms = config.request_timeout_ms
        self.load_buffer_bytes = config.transaction_state_log_load_buffer_size
        self.settings = TransactionSettings(
            max_timeout_ms=config.transaction_max_timeout_ms,
            id_expiration_ms=config.transactional_id_expiration_ms,
            abort_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            expiration_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
        )
        self._producer_ids = producer_ids
        self._markers = markers

    def new_shard(self) -> TransactionShard:
        from odradek.coordinator.transaction.shard import TransactionShard  # Not before it is needed, as the runner.

        return TransactionShard(self.settings, self._producer_ids.take)

    def begin(self, runner: TransactionRunner, effect: Effect) -> None:
        """The only effect there is: partitions are told how a transaction has ended."""
        from odradek.coordinator.transaction.shard import WriteMarkers

        assert isinstance(effect, WriteMarkers), effect
        self._markers.send(runner, effect.transaction)

    async def partitions(
        self, asked: AddPartitionsToTxnTransaction, *, client_version: int
    ) -> AddPartitionsToTxnResult:
        """What the producer's coordinator, if it is here, says of partitions that a transaction writes to."""
        try:
            result: AddPartitionsToTxnResult = await self.ask(
                asked.transactional_id,
                lambda shard, ticket, now: (
                    shard.verify_partitions(ticket, asked)
                    if asked.verify_only
                    else shard.add_partitions(ticket, asked, client_version, now)
                ),
            )
        except KafkaError as refused:
            from odradek.coordinator.transaction.shard import partition_results

            return partition_results(asked, refused.code)
        return result

    @property
    def markers_without_leader(self) -> int:
        return self._markers.without_leader

    @property
    def refused_ends(self) -> int:
        """Of transactions that all their partitions know of, how many ends the log has refused and not taken yet."""
        return sum(runner.shard.refused_ends for runner in self._runners.values())

    async def close(self) -> None:
        self._markers.close()
        await super().close()


def _min_isr(config: NodeConfig) -> int:
    """A lone node that nobody configured shall just work, as with the count of replicas."""
    if config.is_alone and "transaction.state.log.min.isr" not in config.given:
        return 1
    return config.transaction_state_log_min_isr
