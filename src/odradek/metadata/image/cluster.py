"""Who is in the cluster: brokers and controllers as they registered themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from odradek.ids import NodeId, Uuid
from odradek.metadata.records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    ControllerFeature,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from odradek.protocol.codec import Message
from odradek.values import replace, value

FENCED = 1
UNFENCED = -1


@value
class Endpoint:
    """One listener of a node."""

    name: str
    host: str
    port: int
    security_protocol: int


@value
class FeatureRange:
    """The levels of one feature that a node can work with."""

    name: str
    minimum: int
    maximum: int


@value
class BrokerRegistration:
    """One incarnation of a broker; `broker_epoch` is the offset of its registration, so every one has another."""

    broker_id: NodeId
    broker_epoch: int
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[Uuid, ...]
    cordoned_log_dirs: tuple[Uuid, ...] | None

    @property
    def active(self) -> bool:
        """Whether it may lead and be in sync."""
        return not self.fenced and not self.in_controlled_shutdown

    def endpoint(self, listener_name: str) -> Endpoint | None:
        for endpoint in self.endpoints:
            if endpoint.name == listener_name:
                return endpoint
        return None

    def has_online_directory(self, directory: Uuid) -> bool:
        """Reserved ids (unassigned, migrating) count as online unless they say that the directory is lost."""
        return not self.log_dirs or directory in self.log_dirs or directory in _ASSUMED_ONLINE


_ASSUMED_ONLINE = (Uuid(bytes(16)), Uuid(bytes(15) + b"\x01"))


@value
class ControllerRegistration:
    """One incarnation of a controller."""

    controller_id: NodeId
    incarnation_id: Uuid
    zk_migration_ready: bool
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]

    def endpoint(self, listener_name: str) -> Endpoint | None:
        for endpoint in self.endpoints:
            if endpoint.name == listener_name:
                return endpoint
        return None


@value
class ClusterImage:
    """All registrations, in the order of their ids."""

    brokers: dict[NodeId, BrokerRegistration]
    controllers: dict[NodeId, ControllerRegistration]

    def alive_brokers(self) -> list[BrokerRegistration]:
        return [broker for broker in self.brokers.values() if not broker.fenced]

    def is_active(self, broker_id: NodeId) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.active

    def records(self) -> Iterator[Message]:
        """What a snapshot holds of this."""
        for broker in self.brokers.values():
            yield register_broker_record(broker)
        for controller in self.controllers.values():
            yield register_controller_record(controller)


NO_CLUSTER = ClusterImage(brokers={}, controllers={})


class ClusterDelta:
    """Changes to registrations on their way into a new image."""

    def __init__(self, base: ClusterImage) -> None:
        self._base = base
        self._brokers: dict[NodeId, BrokerRegistration | None] = {}
        self._controllers: dict[NodeId, ControllerRegistration] = {}

    def replay_register_broker(self, record: RegisterBrokerRecord) -> None:
        cordoned = record.cordoned_log_dirs
        self._brokers[NodeId(record.broker_id)] = BrokerRegistration(
            broker_id=NodeId(record.broker_id),
            broker_epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=_endpoints(record.end_points),
            features=_features(record.features),
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            log_dirs=tuple(record.log_dirs),
            cordoned_log_dirs=None if cordoned is None else tuple(cordoned),
        )

    def replay_registration_change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch)
        fenced = broker.fenced if record.fenced == 0 else record.fenced == FENCED
        cordoned = record.cordoned_log_dirs
        self._brokers[broker.broker_id] = replace(
            broker,
            fenced=fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown or record.in_controlled_shutdown == 1,
            log_dirs=tuple(record.log_dirs) or broker.log_dirs,
            cordoned_log_dirs=broker.cordoned_log_dirs if cordoned is None else tuple(cordoned),
        )

    def replay_fence(self, record: FenceBrokerRecord) -> None:
        self._fence(self._broker(record.id, record.epoch), fenced=True)

    def replay_unfence(self, record: UnfenceBrokerRecord) -> None:
        self._fence(self._broker(record.id, record.epoch), fenced=False)

    def replay_unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self._brokers[self._broker(record.broker_id, record.broker_epoch).broker_id] = None

    def replay_register_controller(self, record: RegisterControllerRecord) -> None:
        self._controllers[NodeId(record.controller_id)] = ControllerRegistration(
            controller_id=NodeId(record.controller_id),
            incarnation_id=record.incarnation_id,
            zk_migration_ready=record.zk_migration_ready,
            endpoints=_endpoints(record.end_points),
            features=_features(record.features),
        )

    def apply(self) -> ClusterImage:
        if not self._brokers and not self._controllers:
            return self._base
        brokers: dict[NodeId, BrokerRegistration | None] = {**self._base.brokers, **self._brokers}
        controllers = {**self._base.controllers, **self._controllers}
        return ClusterImage(
            brokers={broker_id: broker for broker_id, broker in sorted(brokers.items()) if broker is not None},
            controllers=dict(sorted(controllers.items())),
        )

    def _broker(self, broker_id: int, broker_epoch: int) -> BrokerRegistration:
        known = NodeId(broker_id)
        broker = self._brokers[known] if known in self._brokers else self._base.brokers.get(known)
        assert broker is not None, f"broker {broker_id} is not registered"
        assert broker.broker_epoch == broker_epoch, f"broker {broker_id} has epoch {broker.broker_epoch}"
        return broker

    def _fence(self, broker: BrokerRegistration, *, fenced: bool) -> None:
        self._brokers[broker.broker_id] = replace(broker, fenced=fenced)


def register_broker_record(broker: BrokerRegistration) -> RegisterBrokerRecord:
    """The record that registers exactly this."""
    cordoned = broker.cordoned_log_dirs
    return RegisterBrokerRecord(
        broker_id=broker.broker_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.broker_epoch,
        end_points=[
            BrokerEndpoint(name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
            for each in broker.endpoints
        ],
        features=[
            BrokerFeature(name=each.name, min_supported_version=each.minimum, max_supported_version=each.maximum)
            for each in broker.features
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs),
        cordoned_log_dirs=None if cordoned is None else list(cordoned),
    )


def register_controller_record(controller: ControllerRegistration) -> RegisterControllerRecord:
    """The record that registers exactly this."""
    return RegisterControllerRecord(
        controller_id=controller.controller_id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=[
            ControllerEndpoint(name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
            for each in controller.endpoints
        ],
        features=[
            ControllerFeature(name=each.name, min_supported_version=each.minimum, max_supported_version=each.maximum)
            for each in controller.features
        ],
    )


def _endpoints(listed: Iterable[BrokerEndpoint | ControllerEndpoint]) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(each.name, each.host, each.port, each.security_protocol) for each in listed)


def _features(listed: Iterable[BrokerFeature | ControllerFeature]) -> tuple[FeatureRange, ...]:
    return tuple(FeatureRange(each.name, each.min_supported_version, each.max_supported_version) for each in listed)
