"""Access rules created and deleted; a rule that is there already is not written twice."""

from __future__ import annotations

from odradek.decisions import Decision
from odradek.ids import Uuid
from odradek.metadata.controller import decided
from odradek.metadata.image import Image
from odradek.metadata.image.acls import acl_record
from odradek.metadata.records import RemoveAccessControlEntryRecord
from odradek.metadata.uuids import random_uuid
from odradek.ports import Entropy
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from odradek.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from odradek.protocol.messages.describe_acls import DescribeAclsRequest
from odradek.security.acl import CLUSTER_NAME, Acl, AclFilter, Operation, PatternType, Permission, ResourceType

MAX_DELETED = 10_000
"""Kafka's bound on the records of one request."""


def create_acls(image: Image, request: CreateAclsRequest, *, entropy: Entropy) -> Decision[Message, CreateAclsResponse]:
    """Every rule that is one; each of the others is told why not."""
    there = dict.fromkeys(image.acls.by_id.values())
    records: list[Message] = []
    results: list[AclCreationResult] = []
    for creation in request.creations:
        try:
            acl = _new_acl(creation)
        except KafkaError as refused:
            results.append(AclCreationResult(error_code=refused.code, error_message=refused.message))
            continue
        results.append(AclCreationResult(error_message=""))
        if acl not in there:
            there[acl] = None
            records.append(acl_record(random_uuid(entropy), acl))
    return decided(records, CreateAclsResponse(results=results))


def delete_acls(image: Image, request: DeleteAclsRequest) -> Decision[Message, DeleteAclsResponse]:
    """All rules that match any of the filters; each filter is told what it matched."""
    gone: dict[Uuid, None] = {}
    results: list[DeleteAclsFilterResult] = []
    for each in request.filters:
        try:
            wanted = acl_filter(each)
        except KafkaError as refused:
            results.append(
                DeleteAclsFilterResult(error_code=refused.code, error_message=refused.message, matching_acls=[])
            )
            continue
        matching = {acl_id: acl for acl_id, acl in image.acls.by_id.items() if wanted.matches(acl)}
        gone.update(dict.fromkeys(matching))
        if len(gone) > MAX_DELETED:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Cannot remove more than {MAX_DELETED} acls in a single delete operation."
            )
        results.append(
            DeleteAclsFilterResult(
                matching_acls=[
                    DeleteAclsMatchingAcl(
                        resource_type=acl.resource_type,
                        resource_name=acl.resource_name,
                        pattern_type=acl.pattern_type,
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission_type,
                    )
                    for acl in matching.values()
                ]
            )
        )
    records = [RemoveAccessControlEntryRecord(id=acl_id) for acl_id in gone]
    return decided(records, DeleteAclsResponse(filter_results=results))


def acl_filter(given: DeleteAclsFilter | DescribeAclsRequest) -> AclFilter:
    """A filter of the protocol; INVALID_REQUEST where it has a number that means nothing."""
    known = (
        _is(ResourceType, given.resource_type_filter)
        and _is(PatternType, given.pattern_type_filter)
        and _is(Operation, given.operation)
        and _is(Permission, given.permission_type)
    )
    if not known:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The filter holds a type that is not known.")
    return AclFilter(
        given.resource_type_filter,
        given.resource_name_filter,
        given.pattern_type_filter,
        given.principal_filter,
        given.host_filter,
        given.operation,
        given.permission_type,
    )


def _is(kinds: type[ResourceType] | type[PatternType] | type[Operation] | type[Permission], number: int) -> bool:
    return 0 < number <= max(kinds)


def _new_acl(creation: AclCreation) -> Acl:
    if creation.resource_type <= ResourceType.ANY or not _is(ResourceType, creation.resource_type):
        raise _invalid("resourceType", creation.resource_type)
    if creation.resource_pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid("patternType", creation.resource_pattern_type)
    if creation.operation <= Operation.ANY or not _is(Operation, creation.operation):
        raise _invalid("operation", creation.operation)
    if creation.permission_type not in (Permission.DENY, Permission.ALLOW):
        raise _invalid("permissionType", creation.permission_type)
    if not creation.resource_name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty resource name")
    if creation.resource_type == ResourceType.CLUSTER and creation.resource_name != CLUSTER_NAME:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if ":" not in creation.principal:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Could not parse principal from `{creation.principal}` (no colon is present separating the principal "
            "type from the principal name)",
        )
    return Acl(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def _invalid(what: str, number: int) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid {what} {number}")
