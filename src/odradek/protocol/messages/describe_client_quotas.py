"""DescribeClientQuotas: the quotas that match a filter."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import boolean, float64, int8, int16, int32, string


class ComponentData(Struct):
    entity_type: string
    match_type: int8
    match: string | None = field(nullable="0+")


class DescribeClientQuotasRequest(Message, api_key=48, versions="0-1", flexible="1+"):
    components: list[ComponentData]
    strict: boolean


class EntityData(Struct):
    entity_type: string
    entity_name: string | None = field(nullable="0+")


class ValueData(Struct):
    key: string
    value: float64


class EntryData(Struct):
    entity: list[EntityData]
    values: list[ValueData]


class DescribeClientQuotasResponse(Message, api_key=48, versions="0-1", flexible="1+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)
    entries: list[EntryData] | None = field(nullable="0+", default_factory=list)
