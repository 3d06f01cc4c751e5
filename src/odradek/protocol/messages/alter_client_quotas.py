"""AlterClientQuotas: quotas of users, client ids and addresses."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import boolean, float64, int16, int32, string


class EntityData(Struct):
    entity_type: string
    entity_name: string | None = field(nullable="0+")


class OpData(Struct):
    key: string
    value: float64
    remove: boolean


class RequestedEntryData(Struct):
    entity: list[EntityData]
    ops: list[OpData]


class AlterClientQuotasRequest(Message, api_key=49, versions="0-1", flexible="1+"):
    entries: list[RequestedEntryData]
    validate_only: boolean


class EntryData(Struct):
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)
    entity: list[EntityData]


class AlterClientQuotasResponse(Message, api_key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: int32 = 0
    entries: list[EntryData] = field(default_factory=list)
