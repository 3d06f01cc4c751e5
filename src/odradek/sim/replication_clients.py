"""Clients of partitions whose leaders move: they ask any broker who leads, and go there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.ids import ZERO_UUID
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from odradek.sim.consumer import Consumer, FinalReader, Observer
from odradek.sim.history import Partition
from odradek.sim.producer import Batch, Producer
from odradek.sim.workload import Client, TryAgain

if TYPE_CHECKING:
    from odradek.sim.replication_cluster import ReplicationCluster

READS_FROM_FOLLOWERS = 11


class AtLeader(Client):
    """A client of one partition, which finds its leader; `strays` is how often it goes elsewhere."""

    cluster: ReplicationCluster
    strays = 0.02

    async def place(self) -> tuple[str, int]:
        brokers = self.cluster.brokers
        strays = self.draw.random() < self.strays
        if strays and self.leader_epoch >= 0:  # Who knows of no epoch would believe a leader that was replaced.
            return self.draw.choice(brokers)
        connection = await self.connect(*self.draw.choice(brokers))
        try:
            wanted = self.wanted
            name = wanted.topic if wanted.topic_id is None else None
            topics = [MetadataRequestTopic(name=name, topic_id=wanted.topic_id or ZERO_UUID)]
            request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
            response = await self.wait(connection.ask(request, MetadataResponse, 12))
        finally:
            connection.close()
        addresses = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.partition_index == wanted.index and partition.leader_id in addresses:
                    if partition.leader_epoch < self.leader_epoch:
                        raise TryAgain  # The broker that was asked knows less.
                    self.leader_epoch = partition.leader_epoch
                    return addresses[partition.leader_id]
        raise TryAgain

    @property
    def wanted(self) -> Partition:
        return self.partitions[0]


class LeaderProducer(AtLeader, Producer):
    """Writes to one partition, for as long as faults happen."""

    longest_pause_s = 1.5

    def in_flight_at_most(self) -> int:
        """One, before anything is acknowledged: a leader that does not know a producer takes whatever comes first."""
        return super().in_flight_at_most() if self.is_known else 1

    def refused(self, batch: Batch, error: ErrorCode) -> None:
        if (batch.partition, self.producer_id, batch.sequence) in self.cluster.zombie_appends:
            self.cluster.trace.mark("zombie's append refused")
        if error in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
            self.cluster.trace.mark("too few in sync")


class LeaderConsumer(AtLeader, Consumer):
    """Reads one partition, often from a follower."""

    strays = 0.4
    longest_pause_s = 0.5
    max_wait_ms = 700

    async def place(self) -> tuple[str, int]:
        place = await super().place()
        for machine, hosted in self.cluster.hosted(self.wanted):
            if machine.name == place[0] and not hosted.partition.is_leader and self._version >= READS_FROM_FOLLOWERS:
                self.cluster.trace.mark("read from a follower")
        return place


class LeaderObserver(AtLeader, Observer):
    """Asks for the bounds of one partition."""

    longest_pause_s = 2.0
    deletes = 0.1


class LastReader(AtLeader, FinalReader):
    """Reads one partition when all is over."""

    strays = 0.0
