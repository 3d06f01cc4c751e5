"""StandardAuthorizer's rules: who may do what to which resource, decided from a list of access rules.

A matching rule that denies counts before any that allows; a resource that some rule speaks of is closed to all whom
none allows; one that no rule speaks of is closed or open by configuration. Super users may do everything.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from odradek.security.principal import EVERYBODY
from odradek.values import value

ANY_NAME = "*"
ANY_HOST = "*"
CLUSTER_NAME = "kafka-cluster"


class ResourceType(IntEnum):
    """What there is to protect."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How a rule's name is meant; ANY and MATCH are for filters alone."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """What can be done to a resource."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """What a rule says."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


IMPLIED_BY = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
"""Who may do the one may also do the other; a rule that denies implies nothing."""


@value
class Acl:
    """One rule, with the numbers of the protocol."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

    def __hash__(self) -> int:
        return hash((self.resource_name, self.principal, self.operation))


@value
class AclFilter:
    """Which rules somebody asks for; None and the ANYs match everything."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_name(acl)
            and (self.principal is None or self.principal == acl.principal)
            and (self.host is None or self.host == acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission_type in (Permission.ANY, acl.permission_type)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.resource_name is None:
            return True
        if self.pattern_type == PatternType.MATCH:
            return _speaks_of(acl, self.resource_name)
        return self.resource_name == acl.resource_name


class AccessRules:
    """The rules of a cluster, kept so that a decision looks at those that can matter."""

    def __init__(
        self, acls: Iterable[Acl], *, super_users: frozenset[str] = frozenset(), allow_if_no_acl: bool = False
    ) -> None:
        self._super_users = super_users
        self._allow_if_no_acl = allow_if_no_acl
        self._literal: dict[tuple[int, str], list[Acl]] = {}
        self._prefixed: dict[int, list[Acl]] = {}
        for acl in acls:
            if acl.pattern_type == PatternType.PREFIXED:
                self._prefixed.setdefault(acl.resource_type, []).append(acl)
            else:
                self._literal.setdefault((acl.resource_type, acl.resource_name), []).append(acl)

    def allows(self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether somebody at that address may do that to a resource."""
        if principal in self._super_users:
            return True
        spoken_of = False
        allowed = False
        for acl in self._about(resource_type, name):
            spoken_of = True
            if acl.principal not in (principal, EVERYBODY) or acl.host not in (host, ANY_HOST):
                continue
            if acl.permission_type == Permission.DENY:
                if acl.operation in (operation, Operation.ALL):
                    return False
            elif _grants(acl.operation, operation):
                allowed = True
        return allowed if spoken_of else self._allow_if_no_acl

    def allows_somewhere(self, principal: str, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether there is any resource of the type that somebody may do that to (KIP-679).

        A rule that allows counts unless one that denies covers all that it could cover.
        """
        if principal in self._super_users:
            return True
        mine = [
            acl
            for acl in self._of_type(resource_type)
            if acl.principal in (principal, EVERYBODY) and acl.host in (host, ANY_HOST)
        ]
        denied = [
            acl
            for acl in mine
            if acl.permission_type == Permission.DENY and acl.operation in (operation, Operation.ALL)
        ]
        if any(acl.resource_name == ANY_NAME and acl.pattern_type == PatternType.LITERAL for acl in denied):
            return False
        if self._allow_if_no_acl:
            return True
        return any(
            acl.permission_type == Permission.ALLOW
            and _grants(acl.operation, operation)
            and not any(_covers(denial, acl) for denial in denied)
            for acl in mine
        )

    def _about(self, resource_type: int, name: str) -> Iterable[Acl]:
        yield from self._literal.get((resource_type, name), ())
        if name != ANY_NAME:
            yield from self._literal.get((resource_type, ANY_NAME), ())
        for acl in self._prefixed.get(resource_type, ()):
            if name.startswith(acl.resource_name):
                yield acl

    def _of_type(self, resource_type: int) -> Iterable[Acl]:
        for (kind, _), acls in self._literal.items():
            if kind == resource_type:
                yield from acls
        yield from self._prefixed.get(resource_type, ())


def _speaks_of(acl: Acl, name: str) -> bool:
    """Whether a rule concerns the resource of that name."""
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, ANY_NAME)


def _covers(denial: Acl, allowance: Acl) -> bool:
    """Whether nothing is left of what a rule allows."""
    if denial.pattern_type == PatternType.PREFIXED:
        return allowance.resource_name.startswith(denial.resource_name)
    return allowance.pattern_type == PatternType.LITERAL and allowance.resource_name == denial.resource_name


def _grants(given: int, wanted: Operation) -> bool:
    return given in (Operation.ALL, wanted) or given in IMPLIED_BY.get(wanted, ())
