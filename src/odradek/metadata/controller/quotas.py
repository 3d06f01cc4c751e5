"""Client quotas set and removed, an entity at a time: Kafka's checks in Kafka's order, with Kafka's words."""

from __future__ import annotations

from odradek.configdef import INT_MAX, LONG_MAX
from odradek.decisions import Decision
from odradek.metadata.controller import decided
from odradek.metadata.image import Image
from odradek.metadata.image.client_quotas import CLIENT_ID, IP, USER, Entity, entity_of, quota_record
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

_CLIENT_KEYS: dict[str, int | None] = {
    PRODUCER_BYTE_RATE: LONG_MAX,
    CONSUMER_BYTE_RATE: LONG_MAX,
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
_IP_KEYS: dict[str, int | None] = {CONNECTION_CREATION_RATE: INT_MAX}
"""Keys with the largest whole number they take, or None where any number will do."""


def alter_client_quotas(
    image: Image, request: AlterClientQuotasRequest
) -> Decision[Message, AlterClientQuotasResponse]:
    """Every entity that may be changed is; each of the others is told why not."""
    records: list[Message] = []
    answers: list[EntryData] = []
    seen: dict[Entity, None] = {}
    for entry in request.entries:
        named = {part.entity_type: part.entity_name for part in entry.entity}
        entity = entity_of(named.items())
        failure: KafkaError | None = None
        try:
            if entity in seen or len({op.key for op in entry.ops}) < len(entry.ops):
                shown = ", ".join(f"{kind}={name}" for kind, name in entity)
                raise _refused(f"Ignoring duplicate entity ClientQuotaEntity(entries={{{shown}}})")
            records += _changes(image, entity, entry.ops)
        except KafkaError as refused:
            failure = refused
        seen[entity] = None
        answers.append(
            EntryData(
                error_code=ErrorCode.NONE if failure is None else failure.code,
                error_message=None if failure is None else failure.message,
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            )
        )
    return decided(() if request.validate_only else records, AlterClientQuotasResponse(entries=answers))


def _changes(image: Image, entity: Entity, ops: list[OpData]) -> list[Message]:
    keys = _keys_of(dict(entity))
    before = image.client_quotas.of(entity)
    records: list[Message] = []
    for op in ops:
        if op.remove:
            if op.key in before:
                records.append(quota_record(entity, op.key, None))
            continue
        _check_limit(keys, op.key, op.value)
        if before.get(op.key) != op.value:
            records.append(quota_record(entity, op.key, op.value))
    return records


def _keys_of(entity: dict[str, str | None]) -> dict[str, int | None]:
    """Which keys an entity may have; KafkaError unless there are such entities."""
    if not entity:
        raise _refused("Invalid empty client quota entity")
    for kind, name in entity.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise _refused(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _refused(f"Empty {kind} not supported")
    if IP not in entity:
        return _CLIENT_KEYS
    if len(entity) > 1:
        raise _refused("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
    address = entity[IP]
    if address is not None:
        import ipaddress  # 2 ms that only quotas of addresses need

        try:
            ipaddress.ip_address(address)
        except ValueError:
            raise _refused(f"{address} is not a valid IP or resolvable host.") from None
    return _IP_KEYS


def _check_limit(keys: dict[str, int | None], key: str, limit: float) -> None:
    if key not in keys:
        raise _refused(f"Invalid configuration key {key}")
    if not limit > 0.0:
        raise _refused(f"Quota {key} must be greater than 0")
    most = keys[key]
    if most is None:
        return
    if limit > most:
        kind = "an INT" if most == INT_MAX else "a LONG"
        raise _refused(f"Proposed value for {key} is too large for {kind}.")
    if limit % 1.0 > 1e-6:
        raise _refused(f"{key} cannot be a fractional value.")


def _refused(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)
