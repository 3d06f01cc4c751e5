"""Access rules and quotas, in the protocol's own words and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odradek.client.admin.base import AdminBase, outcome
from odradek.client.errors import check
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
    RequestedEntryData,
)
from odradek.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from odradek.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from odradek.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResource, DescribeAclsResponse
from odradek.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntryData,
)


class AccessAdmin(AdminBase):
    """What can be asked about rules and quotas."""

    async def describe_acls(self, wanted: DescribeAclsRequest) -> list[DescribeAclsResource]:
        """The rules that match, by resource; the request is the filter."""
        response = await self._ask(wanted, DescribeAclsResponse)
        check(response.error_code, response.error_message)
        return response.resources

    async def create_acls(self, rules: Sequence[AclCreation]) -> list[KafkaError | None]:
        """The outcome for each rule, in order."""
        response = await self._ask(CreateAclsRequest(creations=list(rules)), CreateAclsResponse)
        return [outcome(each.error_code, each.error_message) for each in response.results]

    async def delete_acls(self, filters: Sequence[DeleteAclsFilter]) -> list[list[DeleteAclsMatchingAcl] | KafkaError]:
        """The rules that each filter matched and that are gone now."""
        response = await self._ask(DeleteAclsRequest(filters=list(filters)), DeleteAclsResponse)
        return [outcome(each.error_code, each.error_message) or each.matching_acls for each in response.filter_results]

    async def describe_client_quotas(
        self, components: Sequence[ComponentData] = (), *, strict: bool = False
    ) -> list[EntryData]:
        """The quotas of entities that match; `strict` leaves out those with components not named."""
        request = DescribeClientQuotasRequest(components=list(components), strict=strict)
        response = await self._ask(request, DescribeClientQuotasResponse)
        check(response.error_code, response.error_message)
        return response.entries or []

    async def alter_client_quotas(
        self, entity: Mapping[str, str | None], quotas: Mapping[str, float | None], *, validate_only: bool = False
    ) -> None:
        """Set an entity's quotas, or remove those given as None.

        The entity maps `user`, `client-id` or `ip` to a name, or to None for the default one.
        """
        entry = RequestedEntryData(
            entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
            ops=[OpData(key=key, value=limit or 0.0, remove=limit is None) for key, limit in quotas.items()],
        )
        request = AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)
        response = await self._ask(request, AlterClientQuotasResponse)
        for each in response.entries:
            check(each.error_code, each.error_message)
