"""Access rules: denials first, then allowances, then what configuration says of resources nobody speaks of."""

from __future__ import annotations

import pytest

from odradek.security.acl import AccessRules, Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from odradek.security.principal import super_users

ALICE = "User:alice"
HOST = "10.0.0.1"


def rule(
    name: str = "t",
    *,
    operation: Operation = Operation.READ,
    permission: Permission = Permission.ALLOW,
    principal: str = ALICE,
    host: str = "*",
    pattern: PatternType = PatternType.LITERAL,
    kind: ResourceType = ResourceType.TOPIC,
) -> Acl:
    return Acl(kind, name, pattern, principal, host, operation, permission)


def allows(*rules: Acl, operation: Operation = Operation.READ, name: str = "t", **more: bool) -> bool:
    return AccessRules(rules, allow_if_no_acl=more.get("open_by_default", False)).allows(
        ALICE, HOST, operation, ResourceType.TOPIC, name
    )


def test_nobody_may_do_what_no_rule_allows() -> None:
    assert not allows()
    assert allows(open_by_default=True)
    assert not allows(rule(principal="User:bob"), open_by_default=True), "a rule speaks of the topic, so it is closed"
    assert allows(rule("other"), open_by_default=True)


@pytest.mark.parametrize(
    ("allowing", "fits"),
    [
        (rule(), True),
        (rule("*"), True),
        (rule("other"), False),
        (rule("", pattern=PatternType.PREFIXED), True),
        (rule("t", pattern=PatternType.PREFIXED), True),
        (rule("tt", pattern=PatternType.PREFIXED), False),
        (rule(principal="User:*"), True),
        (rule(principal="User:bob"), False),
        (rule(host=HOST), True),
        (rule(host="10.0.0.2"), False),
        (rule(operation=Operation.ALL), True),
        (rule(operation=Operation.WRITE), False),
        (rule(kind=ResourceType.GROUP), False),
    ],
)
def test_a_rule_counts_where_resource_principal_host_and_operation_fit(allowing: Acl, fits: bool) -> None:
    assert allows(allowing) == fits


@pytest.mark.parametrize("operation", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER])
def test_who_may_do_something_may_see_it(operation: Operation) -> None:
    assert allows(rule(operation=operation), operation=Operation.DESCRIBE)
    assert not allows(rule(operation=operation), operation=Operation.DESCRIBE_CONFIGS)
    assert allows(rule(operation=Operation.ALTER_CONFIGS), operation=Operation.DESCRIBE_CONFIGS)
    denial = rule(operation=operation, permission=Permission.DENY)
    allowance = rule(operation=Operation.DESCRIBE)
    assert allows(denial, allowance, operation=Operation.DESCRIBE), "what is denied implies nothing"


def test_a_denial_counts_before_any_allowance() -> None:
    for denial in (
        rule("*", permission=Permission.DENY),
        rule("", permission=Permission.DENY, pattern=PatternType.PREFIXED),
        rule(permission=Permission.DENY, operation=Operation.ALL, principal="User:*"),
    ):
        assert not allows(rule(), denial, open_by_default=True)
        assert not allows(denial, rule(), open_by_default=True)


def test_super_users_may_do_everything() -> None:
    rules = AccessRules([rule(permission=Permission.DENY)], super_users=super_users("User:root; User:alice"))
    assert rules.allows(ALICE, HOST, Operation.READ, ResourceType.TOPIC, "t")
    assert rules.allows_somewhere(ALICE, HOST, Operation.WRITE, ResourceType.TOPIC)
    with pytest.raises(ValueError, match="nobody"):
        super_users("User:root;nobody")


@pytest.mark.parametrize(
    ("rules", "somewhere"),
    [
        ([], False),
        ([rule()], True),
        ([rule("x", pattern=PatternType.PREFIXED)], True),
        ([rule(), rule(permission=Permission.DENY)], False),
        ([rule(), rule("t2", permission=Permission.DENY)], True),
        ([rule(), rule("*", permission=Permission.DENY)], False),
        ([rule("*"), rule("t", permission=Permission.DENY)], True),
        ([rule("topic"), rule("to", permission=Permission.DENY, pattern=PatternType.PREFIXED)], False),
        (
            [
                rule("to", pattern=PatternType.PREFIXED),
                rule("topic", permission=Permission.DENY, pattern=PatternType.PREFIXED),
            ],
            True,
        ),
        ([rule(principal="User:bob")], False),
    ],
)
def test_whether_there_is_anything_to_do_at_all(rules: list[Acl], somewhere: bool) -> None:
    found = AccessRules(rules).allows_somewhere(ALICE, HOST, Operation.READ, ResourceType.TOPIC)
    assert found == somewhere


def _filter(name: str | None, pattern: PatternType, **more: str) -> AclFilter:
    return AclFilter(
        ResourceType.ANY, name, pattern, more.get("principal"), more.get("host"), Operation.ANY, Permission.ANY
    )


def test_filters_match_by_pattern() -> None:
    literal, wildcard, prefixed = rule("topic"), rule("*"), rule("to", pattern=PatternType.PREFIXED)
    everything = [literal, wildcard, prefixed]

    def found(wanted: AclFilter) -> list[Acl]:
        return [acl for acl in everything if wanted.matches(acl)]

    assert found(_filter(None, PatternType.ANY)) == everything
    assert found(_filter("topic", PatternType.LITERAL)) == [literal]
    assert found(_filter("topic", PatternType.MATCH)) == everything
    assert found(_filter("to", PatternType.ANY)) == [prefixed]
    assert found(_filter("to", PatternType.PREFIXED)) == [prefixed]
    assert found(_filter("other", PatternType.MATCH)) == [wildcard]
    assert found(_filter(None, PatternType.ANY, principal="User:bob")) == []
    assert found(_filter(None, PatternType.ANY, host="*")) == everything
