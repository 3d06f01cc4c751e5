"""Access rules are written once, and deleted by filters."""

from __future__ import annotations

import pytest
from tests.unit.metadata.building import cluster, entropy, replayed

from odradek.metadata.controller.acls import create_acls, delete_acls
from odradek.metadata.image import Image
from odradek.metadata.records import AccessControlEntryRecord
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest


def creation(**changes: int | str) -> AclCreation:
    fields: dict[str, int | str] = {
        "resource_type": 2,
        "resource_name": "t",
        "resource_pattern_type": 3,
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return AclCreation(**{**fields, **changes})  # type: ignore[arg-type]


def wanted(**changes: int | str | None) -> DeleteAclsFilter:
    fields: dict[str, int | str | None] = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    return DeleteAclsFilter(**{**fields, **changes})  # type: ignore[arg-type]


def with_rules(*creations: AclCreation) -> Image:
    decision = create_acls(cluster(), CreateAclsRequest(creations=list(creations)), entropy=entropy())
    return replayed(cluster(), decision.records)


def test_a_rule_is_written_once() -> None:
    twice = CreateAclsRequest(creations=[creation(), creation(), creation(operation=4)])
    decision = create_acls(cluster(), twice, entropy=entropy())
    assert len(decision.records) == 2
    assert [result.error_code for result in decision.answers[0][1].results] == [0, 0, 0]
    assert isinstance(decision.records[0], AccessControlEntryRecord)
    again = create_acls(replayed(cluster(), decision.records), twice, entropy=entropy(1))
    assert again.records == ()
    assert [result.error_code for result in again.answers[0][1].results] == [0, 0, 0]


@pytest.mark.parametrize(
    ("field", "wrong", "message"),
    [
        ("resource_type", 1, "Invalid resourceType"),
        ("resource_type", 99, "Invalid resourceType"),
        ("resource_pattern_type", 2, "Invalid patternType"),
        ("operation", 1, "Invalid operation"),
        ("operation", 99, "Invalid operation"),
        ("permission_type", 1, "Invalid permissionType"),
        ("resource_name", "", "empty resource name"),
        ("principal", "alice", "Could not parse principal"),
    ],
)
def test_what_is_no_rule_is_refused_and_the_others_are_made(field: str, wrong: int | str, message: str) -> None:
    request = CreateAclsRequest(creations=[creation(**{field: wrong}), creation()])
    decision = create_acls(cluster(), request, entropy=entropy())
    refused, made = decision.answers[0][1].results
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert message in refused.error_message
    assert made.error_code == 0
    assert len(decision.records) == 1


def test_the_cluster_has_one_name() -> None:
    request = CreateAclsRequest(
        creations=[creation(resource_type=4), creation(resource_type=4, resource_name="kafka-cluster")]
    )
    decision = create_acls(cluster(), request, entropy=entropy())
    assert [result.error_code for result in decision.answers[0][1].results] == [ErrorCode.INVALID_REQUEST, 0]


def test_filters_delete_what_they_match_and_a_rule_goes_once() -> None:
    image = with_rules(creation(), creation(resource_name="u"), creation(resource_type=3))
    request = DeleteAclsRequest(
        filters=[
            wanted(resource_name_filter="t", resource_type_filter=2),
            wanted(resource_type_filter=2),
            wanted(resource_type_filter=0),
        ]
    )
    decision = delete_acls(image, request)
    first, second, wrong = decision.answers[0][1].filter_results
    assert [acl.resource_name for acl in first.matching_acls] == ["t"]
    assert sorted(acl.resource_name for acl in second.matching_acls) == ["t", "u"]
    assert wrong.error_code == ErrorCode.INVALID_REQUEST
    assert len(decision.records) == 2
    left = replayed(image, decision.records).acls.by_id.values()
    assert [acl.resource_type for acl in left] == [3]
