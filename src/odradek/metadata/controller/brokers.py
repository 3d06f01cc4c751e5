"""Nodes come and go: registering, fencing, unfencing and unregistering, and who leads what afterwards."""

from __future__ import annotations

from collections.abc import Iterable

from odradek.decisions import Decision
from odradek.ids import NO_NODE, NodeId, Offset, Uuid, uuid_text
from odradek.metadata.controller import decided
from odradek.metadata.controller.leadership import changed_partitions, in_elr, in_isr, without_leader
from odradek.metadata.controller.topic_rules import TopicRules
from odradek.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS,
    KRAFT_VERSION,
    METADATA_VERSION,
    supported_feature,
    supports_controller_registration,
    supports_directories,
)
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
from odradek.metadata.records import BrokerRegistrationChangeRecord, UnregisterBrokerRecord
from odradek.ports import Entropy
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages import broker_registration as of_broker
from odradek.protocol.messages import controller_registration as of_controller
from odradek.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from odradek.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from odradek.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from odradek.values import value

_CLEAN_STOPS_ARE_TOLD_SINCE = 3
_LAST_RESERVED_DIRECTORY = Uuid(bytes(15) + bytes([100]))
"""KIP-858 keeps the first hundred ids for meanings of their own."""


@value
class Registrar:
    """What the controller knows when a broker asks to be registered, beside the image."""

    cluster_id: str
    kraft_version: int
    alive: bool
    """Whether the broker that holds the id was heard of within its session."""
    next_epoch: Offset
    """A broker epoch that nobody has had: the offset of the decision's first record."""
    api_version: int


def register_broker(
    image: Image, request: BrokerRegistrationRequest, *, registrar: Registrar, rules: TopicRules
) -> Decision[Message, BrokerRegistrationResponse]:
    """Take a broker in, fenced; what its last incarnation was in sync with, it has to prove anew (KIP-903).

    The registration is the last record: whoever has it has all that comes with it.
    """
    broker_id = NodeId(request.broker_id)
    before = image.cluster.brokers.get(broker_id)
    _check_identity(request, before, registrar)
    _check_directories(image, request)
    _check_features(image, request, registrar.kraft_version)
    same = before is not None and before.incarnation_id == request.incarnation_id
    registration = BrokerRegistration(
        broker_id=broker_id,
        broker_epoch=before.broker_epoch if before is not None and same else registrar.next_epoch,
        incarnation_id=request.incarnation_id,
        endpoints=endpoints_of(request),
        features=_features(request.features),
        rack=request.rack,
        fenced=before.fenced if before is not None and same else True,
        in_controlled_shutdown=before is not None and same and before.in_controlled_shutdown,
        log_dirs=tuple(request.log_dirs) if supports_directories(image.features.metadata_version) else (),
        cordoned_log_dirs=before.cordoned_log_dirs if before is not None and same else None,
    )
    records: list[Message] = []
    if not same:
        clean = (
            registrar.api_version >= _CLEAN_STOPS_ARE_TOLD_SINCE
            and before is not None
            and before.broker_epoch == request.previous_broker_epoch
        )
        records += _left_by_last_incarnation(image, broker_id, rules, clean=clean)
    records.append(register_broker_record(registration))
    return decided(records, BrokerRegistrationResponse(broker_epoch=registration.broker_epoch))


def register_controller(
    image: Image, request: ControllerRegistrationRequest
) -> Decision[Message, ControllerRegistrationResponse]:
    """Put a controller's listeners and features on record."""
    if not supports_controller_registration(image.features.metadata_version):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller registrations.",
        )
    registration = ControllerRegistration(
        controller_id=NodeId(request.controller_id),
        incarnation_id=request.incarnation_id,
        zk_migration_ready=False,
        endpoints=endpoints_of(request),
        features=_features(request.features),
    )
    return decided([register_controller_record(registration)], ControllerRegistrationResponse())


def unregister_broker(
    image: Image, request: UnregisterBrokerRequest, *, rules: TopicRules
) -> Decision[Message, UnregisterBrokerResponse]:
    """Forget a broker; it leads nothing and is in sync with nothing from then on."""
    broker_id = NodeId(request.broker_id)
    broker = image.cluster.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")
    records = list(changed_partitions(image, rules, in_isr(image, broker_id), leaving=broker_id))
    records.append(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.broker_epoch))
    return decided(records, UnregisterBrokerResponse())


def fence(image: Image, broker_id: NodeId, rules: TopicRules) -> list[Message]:
    """Take everything it leads from a broker that is gone, or about to go."""
    broker = image.cluster.brokers.get(broker_id)
    if broker is None or broker.fenced:
        return []
    records = list(changed_partitions(image, rules, in_isr(image, broker_id), leaving=broker_id))
    records.append(registration_change(broker, fenced=FENCED))
    return records


def unfence(image: Image, broker_id: NodeId, rules: TopicRules) -> list[Message]:
    """The broker is ready: it may lead, and does lead what waits for it."""
    broker = image.cluster.brokers[broker_id]
    records: list[Message] = [registration_change(broker, fenced=UNFENCED)]
    records += changed_partitions(image, rules, without_leader(image), coming=broker_id)
    return records


def begin_shutdown(image: Image, broker_id: NodeId, rules: TopicRules) -> list[Message]:
    """A broker wants to stop: others lead what it leads before it does (KIP-841)."""
    broker = image.cluster.brokers[broker_id]
    records: list[Message] = []
    if not broker.in_controlled_shutdown:
        records.append(registration_change(broker, in_controlled_shutdown=1))
    records += changed_partitions(image, rules, in_isr(image, broker_id), leaving=broker_id)
    return records


def registration_change(
    broker: BrokerRegistration,
    *,
    fenced: int = 0,
    in_controlled_shutdown: int = 0,
    log_dirs: Iterable[Uuid] = (),
    cordoned_log_dirs: list[Uuid] | None = None,
) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id,
        broker_epoch=broker.broker_epoch,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
        log_dirs=list(log_dirs),
        cordoned_log_dirs=cordoned_log_dirs,
    )


def registered(image: Image, broker_id: NodeId, broker_epoch: int) -> BrokerRegistration:
    """The broker that speaks, if it still holds its registration; STALE_BROKER_EPOCH for one that was replaced."""
    broker = image.cluster.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
    if broker.broker_epoch != broker_epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Expected broker epoch {broker.broker_epoch}, but got broker epoch {broker_epoch}",
        )
    return broker


def endpoints_of(request: BrokerRegistrationRequest | ControllerRegistrationRequest) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(each.name, each.host, each.port, each.security_protocol) for each in request.listeners)


def live_controller(image: Image, asked: NodeId, entropy: Entropy) -> NodeId:
    """The broker that clients are told is the controller: in KRaft any live one, since brokers forward (KIP-590).

    That is the one that was asked, if it lives: it answers, which nobody knows of the others.
    """
    alive = image.cluster.alive_brokers()
    if any(broker.broker_id == asked for broker in alive):
        return asked
    return alive[entropy.below(len(alive))].broker_id if alive else NO_NODE


# Registration, step by step.


def _check_identity(
    request: BrokerRegistrationRequest, before: BrokerRegistration | None, registrar: Registrar
) -> None:
    if request.cluster_id != registrar.cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {registrar.cluster_id}, but got cluster ID {request.cluster_id}",
        )
    if before is not None and registrar.alive and request.incarnation_id != before.incarnation_id:
        raise KafkaError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"Another broker is registered with the id {before.broker_id}, and it is alive. If this broker was "
            "restarted just now, that one is taken for gone once its session ends.",
        )
    if request.is_migrating_zk_broker:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, "Controller does not support registering ZK brokers.")


def _check_directories(image: Image, request: BrokerRegistrationRequest) -> None:
    if not supports_directories(image.features.metadata_version):
        return
    given = request.log_dirs
    if not given:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "No directories specified in request")
    if any(directory <= _LAST_RESERVED_DIRECTORY for directory in given):
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "Reserved directory ID in request")
    if len(dict.fromkeys(given)) < len(given):
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "Duplicate directory ID in request")
    for other in image.cluster.brokers.values():
        if other.broker_id == request.broker_id:
            continue
        for directory in other.log_dirs:
            if directory in given:
                raise KafkaError(
                    ErrorCode.INVALID_REGISTRATION,
                    f"Broker {other.broker_id} is already registered with directory {uuid_text(directory)}",
                )


def _check_features(image: Image, request: BrokerRegistrationRequest, kraft_version: int) -> None:
    """Every level that the cluster has finalized must be one the broker can work with.

    Levels of features that this controller does not serve are none it could have asked anybody to work with: a
    directory that Apache Kafka formatted has them on record, and they stand in nobody's way.
    """
    if all(feature.name != METADATA_VERSION for feature in request.features):
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, f"Request features do not contain '{METADATA_VERSION}'")
    ranges = {each.name: (each.min_supported_version, each.max_supported_version) for each in request.features}
    finalized = {**image.features.finalized, METADATA_VERSION: image.features.metadata_version}
    finalized[KRAFT_VERSION] = kraft_version
    demanded = [*ranges, *(name for name in finalized if supported_feature(name) is not None and name not in ranges)]
    for name in demanded:
        level = finalized.get(name, 0)
        lowest, highest = ranges.get(name, (0, 0))
        if not lowest <= level <= highest:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} of {name}. The "
                f"broker wants a version between {lowest} and {highest}, inclusive.",
            )


def _left_by_last_incarnation(image: Image, broker_id: NodeId, rules: TopicRules, *, clean: bool) -> Iterable[Message]:
    if image.features.level(ELIGIBLE_LEADER_REPLICAS) and not clean:
        yield from changed_partitions(image, rules, in_isr(image, broker_id), unclean=broker_id)
        yield from changed_partitions(image, rules, in_elr(image, broker_id), unclean=broker_id)
    else:
        yield from changed_partitions(image, rules, in_isr(image, broker_id), leaving=broker_id)


def _features(listed: Iterable[of_broker.Feature | of_controller.Feature]) -> tuple[FeatureRange, ...]:
    return tuple(FeatureRange(each.name, each.min_supported_version, each.max_supported_version) for each in listed)
