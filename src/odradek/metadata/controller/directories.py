"""Which log directory of a broker holds a partition: told by the broker once it has chosen (KIP-858)."""

from __future__ import annotations

from collections.abc import Iterable

from odradek.ids import NodeId, Uuid
from odradek.metadata.features import supports_directories
from odradek.metadata.image import Image
from odradek.metadata.records import PartitionChangeRecord
from odradek.protocol.codec import Message
from odradek.values import value


@value
class DirectoryAssignment:
    """One replica and where it is."""

    topic_id: Uuid
    partition: int
    directory: Uuid


def assign_directories(image: Image, broker_id: NodeId, assignments: Iterable[DirectoryAssignment]) -> list[Message]:
    """Records for what is new; a topic that was deleted meanwhile, or a replica that moved away, is passed over."""
    if not supports_directories(image.features.metadata_version):
        return []
    records: list[Message] = []
    for assignment in assignments:
        topic = image.topics.by_id.get(assignment.topic_id)
        if topic is None or assignment.partition >= len(topic.partitions):
            continue
        partition = topic.partitions[assignment.partition]
        if broker_id not in partition.replicas or partition.directory(broker_id) == assignment.directory:
            continue
        directories = list(partition.directories)
        directories[partition.replicas.index(broker_id)] = assignment.directory
        records.append(
            PartitionChangeRecord(
                partition_id=assignment.partition, topic_id=assignment.topic_id, directories=directories
            )
        )
    return records
