"""Nodes come and go: registering, fencing and unfencing, and who leads what afterwards."""

from __future__ import annotations

from odradek.ids import NO_NODE, NodeId, Offset, Uuid
from odradek.metadata.controller.elections import leaders_after_unfencing
from odradek.metadata.features import supports_controller_registration, supports_cordoned_directories
from odradek.metadata.image import Image
from odradek.metadata.image.cluster import (
    FENCED,
    UNFENCED,
    BrokerRegistration,
    ControllerRegistration,
    Endpoint,
    FeatureRange,
    register_broker_record,
    register_controller_record,
)
from odradek.metadata.records import BrokerRegistrationChangeRecord
from odradek.ports import Entropy
from odradek.protocol.codec import Message
from odradek.values import value


@value
class NodeDescription:
    """What a node says about itself when it registers; a new `incarnation_id` at every start."""

    node_id: NodeId
    incarnation_id: Uuid
    broker_endpoints: tuple[Endpoint, ...]
    controller_endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]
    rack: str | None
    log_dirs: tuple[Uuid, ...]


def register_controller(image: Image, node: NodeDescription) -> list[Message]:
    """The record that registers a controller, unless the cluster is too old to keep such records."""
    if not supports_controller_registration(image.features.metadata_version):
        return []
    registration = ControllerRegistration(
        controller_id=node.node_id,
        incarnation_id=node.incarnation_id,
        zk_migration_ready=False,
        endpoints=node.controller_endpoints,
        features=node.features,
    )
    return [register_controller_record(registration)]


def register_broker(image: Image, node: NodeDescription, *, broker_epoch: Offset) -> list[Message]:
    """The record that registers a broker, fenced; `broker_epoch` is the offset that this record will have."""
    before = image.cluster.brokers.get(node.node_id)
    assert before is None or before.broker_epoch < broker_epoch, "a broker epoch goes back"
    registration = BrokerRegistration(
        broker_id=node.node_id,
        broker_epoch=broker_epoch,
        incarnation_id=node.incarnation_id,
        endpoints=node.broker_endpoints,
        features=node.features,
        rack=node.rack,
        fenced=True,
        in_controlled_shutdown=False,
        log_dirs=node.log_dirs,
        cordoned_log_dirs=None,
    )
    return [register_broker_record(registration)]


def unfence(image: Image, broker_id: NodeId) -> list[Message]:
    """The broker is ready: it may lead, and does lead what waits for it.

    Every partition it led before starts a new leader epoch, for a log that lost its tail in a crash must not be
    mistaken for the log that its clients saw.
    """
    broker = image.cluster.brokers[broker_id]
    records: list[Message] = []
    if broker.fenced:
        records.append(_change(broker, fenced=UNFENCED))
    if broker.cordoned_log_dirs is None and supports_cordoned_directories(image.features.metadata_version):
        records.append(_change(broker, cordoned_log_dirs=[]))
    records += leaders_after_unfencing(image, broker_id)
    return records


def fence(image: Image, broker_id: NodeId) -> list[Message]:
    """The broker stops in order. Its partitions keep their leader on record: nobody else could take over, and the next
    start elects anew."""
    broker = image.cluster.brokers.get(broker_id)
    if broker is None or broker.fenced:
        return []
    return [_change(broker, fenced=FENCED)]


def live_controller(image: Image, entropy: Entropy) -> NodeId:
    """The broker that clients are told is the controller: in KRaft any live one, since brokers forward (KIP-590)."""
    alive = image.cluster.alive_brokers()
    return alive[entropy.below(len(alive))].broker_id if alive else NO_NODE


def _change(
    broker: BrokerRegistration, *, fenced: int = 0, cordoned_log_dirs: list[Uuid] | None = None
) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id,
        broker_epoch=broker.broker_epoch,
        fenced=fenced,
        cordoned_log_dirs=cordoned_log_dirs,
    )
