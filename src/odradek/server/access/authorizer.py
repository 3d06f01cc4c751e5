"""The one place that handlers ask whether a client may do what it asks for.

Without `authorizer.class.name` everybody may do everything and an answer costs one comparison. With Kafka's
StandardAuthorizer the cluster's access rules count (`security.acl` says how), for every listener alike.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from odradek.metadata.image.acls import AclsImage
from odradek.metadata.image.configs import GROUP_RESOURCE, TOPIC_RESOURCE
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.security.acl import CLUSTER_NAME, AccessRules, Operation, ResourceType
from odradek.server.access.authorized_operations import CLUSTER_OPERATIONS

if TYPE_CHECKING:
    from odradek.server.access.caller import Caller

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
        self.rules = AccessRules((), super_users=super_users)

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


def allowed(caller: Caller, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
    """Whether the client may do that to a resource."""
    authorizer = caller.authorizer
    if authorizer is None or (operation is Operation.CLUSTER_ACTION and caller.is_peer):
        # Nodes do not say who they are on a plain listener, and a cluster in which they may not act is none.
        return True
    return authorizer.rules.allows(caller.principal, caller.address, operation, resource_type, name)


def allowed_somewhere(caller: Caller, operation: Operation, resource_type: ResourceType) -> bool:
    """Whether there is any resource of the type that the client may do that to."""
    authorizer = caller.authorizer
    return authorizer is None or authorizer.rules.allows_somewhere(
        caller.principal, caller.address, operation, resource_type
    )


def require(caller: Caller, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> None:
    """KafkaError, the one that is for this type of resource, unless the client may do that."""
    if caller.authorizer is not None and not allowed(caller, operation, resource_type, name):
        raise KafkaError(_REFUSALS[resource_type])


def require_authorizer(caller: Caller) -> None:
    """Rules that nobody would follow are neither made nor shown."""
    if caller.authorizer is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


def require_configs(caller: Caller, operation: Operation, resource_type: int, name: str) -> None:
    """As `require`, for a resource with a configuration; brokers and their loggers belong to the cluster."""
    if resource_type == TOPIC_RESOURCE:
        require(caller, operation, ResourceType.TOPIC, name)
    elif resource_type == GROUP_RESOURCE:
        require(caller, operation, ResourceType.GROUP, name)
    else:
        require(caller, operation, ResourceType.CLUSTER)


def topic_check(caller: Caller, operation: Operation) -> Callable[[str], bool] | None:
    """For requests about many partitions: asks once a topic; None where everybody may do everything."""
    if caller.authorizer is None:
        return None
    return partial(caller.may, operation)


def cluster_operations(caller: Caller) -> int:
    """What the client may do to the cluster; nothing is told to one that may not even describe it."""
    if not allowed(caller, Operation.DESCRIBE, ResourceType.CLUSTER):
        return 0
    return allowed_operations(caller, ResourceType.CLUSTER, CLUSTER_NAME, CLUSTER_OPERATIONS)


def allowed_operations(caller: Caller, resource_type: ResourceType, name: str, all_of_them: int) -> int:
    """Which of some operations, as a bit field of their codes, the client may do to a resource."""
    if caller.authorizer is None:
        return all_of_them
    return sum(
        1 << operation
        for operation in Operation
        if all_of_them >> operation & 1 and allowed(caller, operation, resource_type, name)
    )
