"""What a broker tells of the partitions it leads, and what its throttled replicas take."""

from __future__ import annotations

from typing import cast

from tests.unit.server.replica_rig import Broker, ReplicaRig

from odradek.metadata.image.configs import BROKER_RESOURCE
from odradek.metadata.records import ConfigRecord
from odradek.server.metrics import _replica_manager
from odradek.server.rooms import Rooms


def gauges(broker: Broker) -> dict[str, float]:
    return {family.name: family.samples[0][2] for family in _replica_manager(cast(Rooms, broker))}


def test_what_a_move_adds_is_not_missed_before_it_has_come() -> None:
    rig = ReplicaRig(2)

    async def story() -> None:
        names = [
            f"kafka_server_replicamanager_{name}" for name in ("underreplicatedpartitions", "reassigningpartitions")
        ]

        def told() -> list[float]:
            return [gauges(rig.brokers[1])[name] for name in names]

        await rig.create_topic("t", [[1]])
        await rig.create_topic("u", [[1, 2]])
        assert told() == [0, 0]
        rig.brokers[2].crash()
        directories = [rig.uuid(102), rig.uuid(101)]
        await rig.change("t", replicas=[2, 1], adding_replicas=[2], removing_replicas=[1], directories=directories)
        assert told() == [0, 1]
        await rig.change("u", isr=[1])
        assert told() == [1, 1]

    rig.run(story)


def test_rates_of_throttled_replicas_are_told_by_both_sides() -> None:
    rig = ReplicaRig(2)

    async def story() -> None:
        records = [
            ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=f"{side}.rate", value="1")
            for side in SIDES
        ]
        await rig.commit(*records)
        await rig.create_topic("t", [[1, 2]], configs={f"{side}.replicas": "*" for side in SIDES})
        await rig.produce(1, "t", bytes(10_000))
        sent, taken = "kafka_server_leaderreplication_byte_rate", "kafka_server_followerreplication_byte_rate"
        assert gauges(rig.brokers[1])[sent] > 9_000
        assert gauges(rig.brokers[1])[taken] == 0
        assert gauges(rig.brokers[2])[sent] == 0
        assert gauges(rig.brokers[2])[taken] > 9_000

    rig.run(story)


SIDES = ("leader.replication.throttled", "follower.replication.throttled")
