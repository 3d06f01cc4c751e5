"""Which handler answers which API, on which kind of listener, in which versions.

A handler says so itself with `@serves`; what is not here is not announced and not answered.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from odradek.ports import Part
from odradek.protocol.api import ApiKey, request_class
from odradek.server.promise import Promise
from odradek.values import value

if TYPE_CHECKING:
    from odradek.server.node import Node

QuickAnswer: TypeAlias = bytes | Promise[Any] | None
QuickHandler: TypeAlias = Callable[["Node", memoryview, int, int], QuickAnswer]
"""(node, frame, where the request begins, correlation id) to the whole answer, empty where none is sent.

A promise, with its `frame`, is an answer that has to wait. None means that the request is not of the kind it knows, and
nothing was done: the declared way takes over.
"""

HandlerT = TypeVar("HandlerT", bound=Callable[..., Coroutine[Any, Any, Any]])


class Role(enum.Flag):
    """Who answers on a listener."""

    BROKER = enum.auto()
    CONTROLLER = enum.auto()


@value
class Route:
    """One API as this node serves it."""

    api_key: ApiKey
    roles: Role
    handle: Callable[..., Coroutine[Any, Any, Any]]
    min_version: int
    max_version: int
    announced_min_version: int
    overlaps: bool
    """Whether it may start while earlier ones of its kind still wait on the same connection (Produce)."""
    quick: Callable[[int], QuickHandler] | None
    """A hand-made way through for the most common requests of a version."""
    encode: Callable[[int], Callable[[Any], list[Part]]] | None
    """A way of its own from an answer to bytes, by version."""
    forwarded: bool
    """Whether a broker hands it on to the active controller, where the handler runs."""


_ROUTES: dict[tuple[ApiKey, Role], Route] = {}
"""By API and role: the same request may mean another thing to a broker and to a controller (Fetch)."""

HANDLER_MODULES = (
    "add_raft_voter",
    "allocate_producer_ids",
    "alter_client_quotas",
    "alter_configs",
    "alter_partition",
    "alter_partition_reassignments",
    "alter_user_scram_credentials",
    "api_versions",
    "assign_replicas_to_dirs",
    "begin_quorum_epoch",
    "broker_heartbeat",
    "broker_registration",
    "consumer_group_describe",
    "consumer_group_heartbeat",
    "controller_registration",
    "create_acls",
    "create_partitions",
    "create_topics",
    "delete_acls",
    "delete_groups",
    "delete_records",
    "delete_topics",
    "describe_acls",
    "describe_client_quotas",
    "describe_cluster",
    "describe_configs",
    "describe_groups",
    "describe_log_dirs",
    "describe_producers",
    "describe_quorum",
    "describe_topic_partitions",
    "describe_user_scram_credentials",
    "elect_leaders",
    "end_quorum_epoch",
    "envelope",
    "fetch",
    "fetch_metadata_log",
    "fetch_snapshot",
    "find_coordinator",
    "heartbeat",
    "incremental_alter_configs",
    "init_producer_id",
    "join_group",
    "leave_group",
    "list_config_resources",
    "list_groups",
    "list_offsets",
    "list_partition_reassignments",
    "metadata",
    "offset_commit",
    "offset_delete",
    "offset_fetch",
    "offset_for_leader_epoch",
    "produce",
    "remove_raft_voter",
    "sync_group",
    "unregister_broker",
    "update_features",
    "update_raft_voter",
    "vote",
)


def serves(
    api_key: ApiKey,
    *,
    on: Role,
    announced_min_version: int | None = None,
    overlaps: bool = False,
    quick: Callable[[int], QuickHandler] | None = None,
    encode: Callable[[int], Callable[[Any], list[Part]]] | None = None,
    forwarded: bool = False,
) -> Callable[[HandlerT], HandlerT]:
    """Register the decorated handler for every stable version of the API."""

    def register(handle: HandlerT) -> HandlerT:
        message = request_class(api_key)
        route = Route(
            api_key=api_key,
            roles=on,
            handle=handle,
            min_version=message.min_version,
            max_version=message.max_stable_version,
            announced_min_version=message.min_version if announced_min_version is None else announced_min_version,
            overlaps=overlaps,
            quick=quick,
            encode=encode,
            forwarded=forwarded,
        )
        for role in Role:
            if role & on:
                _ROUTES[api_key, role] = route
        return handle

    return register


def routes_of(role: Role) -> dict[ApiKey, Route]:
    """All that is served on a listener of that role, by key in ascending order."""
    for name in HANDLER_MODULES:
        import_module(f"odradek.server.handlers.{name}")
    return {key: route for (key, served), route in sorted(_ROUTES.items(), key=_by_key) if served is role}


def _by_key(entry: tuple[tuple[ApiKey, Role], Route]) -> int:
    return entry[0][0]
