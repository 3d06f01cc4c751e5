"""Heartbeats of brokers: each says where it is and what it wants, and learns whether it is fenced and may stop."""

from __future__ import annotations

import enum

from odradek.decisions import Decision
from odradek.ids import NodeId, Offset
from odradek.metadata.controller import decided
from odradek.metadata.controller.brokers import begin_shutdown, fence, registered, registration_change, unfence
from odradek.metadata.controller.leadership import changed_partitions, in_directory, leads_anything
from odradek.metadata.controller.sessions import BrokerSessions
from odradek.metadata.controller.topic_rules import TopicRules
from odradek.metadata.features import supports_cordoned_directories, supports_directories
from odradek.metadata.image import Image
from odradek.metadata.image.cluster import BrokerRegistration
from odradek.protocol.codec import Message
from odradek.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse


class BrokerState(enum.Enum):
    """Where a broker is between start and stop."""

    FENCED = enum.auto()
    UNFENCED = enum.auto()
    CONTROLLED_SHUTDOWN = enum.auto()
    """Others lead already, but not everybody has heard of it yet."""
    SHUTDOWN_NOW = enum.auto()


def broker_heartbeat(
    image: Image,
    request: BrokerHeartbeatRequest,
    *,
    sessions: BrokerSessions,
    rules: TopicRules,
    registered_at: Offset,
) -> Decision[Message, BrokerHeartbeatResponse]:
    """Move the broker to the state it wants, as far as it may be there yet.

    `registered_at` is where the log holds its registration: a broker that has not replayed that far does not know
    what it hosts. STALE_BROKER_EPOCH for one that another has replaced.
    """
    broker_id = NodeId(request.broker_id)
    broker = registered(image, broker_id, request.broker_epoch)
    now = current_state(broker, sessions)
    wanted = next_state(image, broker, request, sessions, registered_at)
    records: list[Message] = []
    if wanted is not now:
        match wanted:
            case BrokerState.FENCED | BrokerState.SHUTDOWN_NOW:
                records += fence(image, broker_id, rules)
            case BrokerState.UNFENCED:
                records += unfence(image, broker_id, rules)
            case BrokerState.CONTROLLED_SHUTDOWN:
                records += begin_shutdown(image, broker_id, rules)
    records += _directory_changes(image, broker, request, rules)
    return decided(records, _response(request, wanted, registered_at))


def unchanged(
    image: Image, request: BrokerHeartbeatRequest, *, sessions: BrokerSessions, registered_at: Offset
) -> BrokerHeartbeatResponse | None:
    """The answer where the heartbeat changes nothing, as nearly all do; None where it has to be decided."""
    if request.want_fence or request.want_shut_down or request.offline_log_dirs:
        return None
    broker = registered(image, NodeId(request.broker_id), request.broker_epoch)
    if broker.fenced or current_state(broker, sessions) is not BrokerState.UNFENCED or _cordons(image, broker, request):
        return None
    return _response(request, BrokerState.UNFENCED, registered_at)


def current_state(broker: BrokerRegistration, sessions: BrokerSessions) -> BrokerState:
    if broker.fenced:
        return BrokerState.FENCED
    if sessions.shutting_down(broker.broker_id, broker.broker_epoch) is not None:
        return BrokerState.CONTROLLED_SHUTDOWN
    return BrokerState.UNFENCED


def next_state(
    image: Image,
    broker: BrokerRegistration,
    request: BrokerHeartbeatRequest,
    sessions: BrokerSessions,
    registered_at: Offset,
) -> BrokerState:
    match current_state(broker, sessions):
        case BrokerState.FENCED:
            if request.want_shut_down:
                return BrokerState.SHUTDOWN_NOW
            if request.want_fence or request.current_metadata_offset < registered_at:
                return BrokerState.FENCED
            return BrokerState.UNFENCED
        case BrokerState.UNFENCED:
            if request.want_fence:
                return BrokerState.SHUTDOWN_NOW if request.want_shut_down else BrokerState.FENCED
            if not request.want_shut_down:
                return BrokerState.UNFENCED
            leads = leads_anything(image, broker.broker_id)
            return BrokerState.CONTROLLED_SHUTDOWN if leads else BrokerState.SHUTDOWN_NOW
        case _:
            offset = sessions.shutting_down(broker.broker_id, broker.broker_epoch)
            assert offset is not None, "a broker shuts down, and nobody knows since when"
            others = [other for other in image.cluster.brokers.values() if other.active]
            if leads_anything(image, broker.broker_id) or not sessions.all_reached(offset, others):
                return BrokerState.CONTROLLED_SHUTDOWN
            return BrokerState.SHUTDOWN_NOW


def _response(request: BrokerHeartbeatRequest, state: BrokerState, registered_at: Offset) -> BrokerHeartbeatResponse:
    return BrokerHeartbeatResponse(
        is_caught_up=request.current_metadata_offset >= registered_at,
        is_fenced=state in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW),
        should_shut_down=state is BrokerState.SHUTDOWN_NOW,
    )


def _directory_changes(
    image: Image, broker: BrokerRegistration, request: BrokerHeartbeatRequest, rules: TopicRules
) -> list[Message]:
    """A directory that failed takes its replicas out of every ISR; a cordoned one takes no new ones."""
    records: list[Message] = []
    if supports_directories(image.features.metadata_version):
        lost = [directory for directory in broker.log_dirs if directory in request.offline_log_dirs]
        for directory in lost:
            hosted = in_directory(image, broker.broker_id, directory)
            records += changed_partitions(image, rules, hosted, leaving=broker.broker_id)
        if lost:
            left = [directory for directory in broker.log_dirs if directory not in lost]
            records.append(registration_change(broker, log_dirs=left))
    if _cordons(image, broker, request):
        records.append(registration_change(broker, cordoned_log_dirs=sorted(request.cordoned_log_dirs or ())))
    return records


def _cordons(image: Image, broker: BrokerRegistration, request: BrokerHeartbeatRequest) -> bool:
    cordoned = request.cordoned_log_dirs
    if cordoned is None or not supports_cordoned_directories(image.features.metadata_version):
        return False
    return tuple(sorted(cordoned)) != broker.cordoned_log_dirs
