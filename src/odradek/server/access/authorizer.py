"""The one place that handlers ask whether a client may do what it asks for.

Without `authorizer.class.name` everybody may do everything and an answer costs one comparison. With Kafka's
StandardAuthorizer the cluster's access rules count (`security.acl` says how), for every listener alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.metadata.image.acls import AclsImage
from odradek.metadata.image.configs import GROUP_RESOURCE, TOPIC_RESOURCE
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.security.acl import CLUSTER_NAME, AccessRules, Operation, ResourceType
from odradek.server.access.authorized_operations import CLUSTER_OPERATIONS

if TYPE_CHECKING:
    from odradek.server.handlers.context import Context

_REFUSALS = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class Authorizer:
    """The access rules in force."""

    def __init__(self, *, super_users: frozenset[str], allow_if_no_acl: bool) -> None:
        self._super_users = super_users
        self._allow_if_no_acl = allow_if_no_acl
        self._acls: AclsImage | None = None
        self.rules = AccessRules(())

    def apply(self, acls: AclsImage) -> None:
        """If that fails only super users may do anything: a rule that is gone must not go on granting.

        It is tried again with every commit.
        """
        if acls is self._acls:
            return
        self._acls = None
        self.rules = AccessRules((), super_users=self._super_users)
        self.rules = AccessRules(
            acls.by_id.values(), super_users=self._super_users, allow_if_no_acl=self._allow_if_no_acl
        )
        self._acls = acls


def allowed(ctx: Context, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
    """Whether the client may do that to a resource."""
    authorizer = ctx.node.authorizer
    if authorizer is None or (operation is Operation.CLUSTER_ACTION and ctx.is_peer):
        # Nodes do not say who they are on a plain listener, and a cluster in which they may not act is none.
        return True
    return authorizer.rules.allows(ctx.principal, ctx.client_address, operation, resource_type, name)


def allowed_somewhere(ctx: Context, operation: Operation, resource_type: ResourceType) -> bool:
    """Whether there is any resource of the type that the client may do that to."""
    authorizer = ctx.node.authorizer
    return authorizer is None or authorizer.rules.allows_somewhere(
        ctx.principal, ctx.client_address, operation, resource_type
    )


def require(ctx: Context, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> None:
    """KafkaError, the one that is for this type of resource, unless the client may do that."""
    if ctx.node.authorizer is not None and not allowed(ctx, operation, resource_type, name):
        raise KafkaError(_REFUSALS[resource_type])


def require_authorizer(ctx: Context) -> None:
    """Rules that nobody would follow are neither made nor shown."""
    if ctx.node.authorizer is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


def require_configs(ctx: Context, operation: Operation, resource_type: int, name: str) -> None:
    """As `require`, for a resource with a configuration; brokers and their loggers belong to the cluster."""
    if resource_type == TOPIC_RESOURCE:
        require(ctx, operation, ResourceType.TOPIC, name)
    elif resource_type == GROUP_RESOURCE:
        require(ctx, operation, ResourceType.GROUP, name)
    else:
        require(ctx, operation, ResourceType.CLUSTER)


def topic_check(ctx: Context, operation: Operation) -> Callable[[str], bool] | None:
    """For requests about many partitions: asks once a topic; None where everybody may do everything."""
    if ctx.node.authorizer is None:
        return None
    known: dict[str, bool] = {}

    def check(topic: str) -> bool:
        answer = known.get(topic)
        if answer is None:
            answer = known[topic] = allowed(ctx, operation, ResourceType.TOPIC, topic)
        return answer

    return check


def cluster_operations(ctx: Context) -> int:
    """What the client may do to the cluster; nothing is told to one that may not even describe it."""
    if not allowed(ctx, Operation.DESCRIBE, ResourceType.CLUSTER):
        return 0
    return allowed_operations(ctx, ResourceType.CLUSTER, CLUSTER_NAME, CLUSTER_OPERATIONS)


def allowed_operations(ctx: Context, resource_type: ResourceType, name: str, all_of_them: int) -> int:
    """Which of some operations, as a bit field of their codes, the client may do to a resource."""
    if ctx.node.authorizer is None:
        return all_of_them
    return sum(
        1 << operation
        for operation in Operation
        if all_of_them >> operation & 1 and allowed(ctx, operation, resource_type, name)
    )
