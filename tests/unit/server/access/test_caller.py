"""What the rules say of a topic is asked once a connection, for as long as they stay."""

from __future__ import annotations

from unittest.mock import patch

from odradek.ids import Uuid
from odradek.metadata.image.acls import AclsImage
from odradek.security.acl import AccessRules, Acl, Operation, PatternType, Permission, ResourceType
from odradek.server.access import caller as module
from odradek.server.access.authorizer import Authorizer, topic_check
from odradek.server.access.caller import Caller

READS = Acl(
    ResourceType.TOPIC, "t", PatternType.LITERAL, "User:ANONYMOUS", "*", int(Operation.READ), int(Permission.ALLOW)
)


def caller_of(authorizer: Authorizer | None) -> Caller:
    return Caller(
        address="10.0.0.1",
        client_id="me",
        listener="PLAINTEXT",
        connection_id=1,
        authorizer=authorizer,
        mute=lambda duration_ms: None,
    )


def test_everybody_may_do_everything_without_an_authorizer() -> None:
    caller = caller_of(None)
    assert topic_check(caller, Operation.WRITE) is None
    assert caller.may(Operation.WRITE, "t")


def test_an_answer_stands_until_other_rules_are_in_force() -> None:
    authorizer = Authorizer(super_users=frozenset(), allow_if_no_acl=False)
    caller = caller_of(authorizer)
    assert not caller.may(Operation.READ, "t")
    authorizer.apply(AclsImage({Uuid(bytes(16)): READS}))
    may_read = topic_check(caller, Operation.READ)
    assert may_read is not None
    with patch.object(AccessRules, "allows", autospec=True, side_effect=AccessRules.allows) as asked:
        assert [may_read("t"), may_read("t"), caller.may(Operation.WRITE, "t"), may_read("u")] == [
            True,
            True,
            False,
            False,
        ]
    assert asked.call_count == 3
    authorizer.apply(AclsImage({}))
    assert not may_read("t")


def test_a_client_that_names_topic_after_topic_is_not_remembered_for_ever() -> None:
    caller = caller_of(Authorizer(super_users=frozenset(), allow_if_no_acl=False))
    for number in range(module.MAX_KNOWN_TOPICS * 2 + 1):
        caller.may(Operation.READ, f"t{number}")
    assert len(caller._known_topics) <= module.MAX_KNOWN_TOPICS
