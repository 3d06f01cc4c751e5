"""How much users, client ids and addresses may ask of the brokers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from odradek.metadata.image.keyed import KeyedDelta
from odradek.metadata.records import ClientQuotaRecord, EntityData
from odradek.protocol.codec import Message
from odradek.values import value

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"

Entity: TypeAlias = tuple[tuple[str, str | None], ...]
"""Types and names, ordered by type; the name None stands for all that have no quota of their own."""


@value
class ClientQuotasImage:
    """Quotas by entity and key."""

    by_entity: dict[Entity, Mapping[str, float]]

    def of(self, entity: Entity) -> Mapping[str, float]:
        return self.by_entity.get(entity, {})

    def records(self) -> Iterator[Message]:
        """What a snapshot holds of this."""
        for entity, quotas in self.by_entity.items():
            for key, limit in quotas.items():
                yield quota_record(entity, key, limit)


NO_CLIENT_QUOTAS = ClientQuotasImage(by_entity={})


def quota_record(entity: Entity, key: str, limit: float | None) -> ClientQuotaRecord:
    """None removes the quota."""
    return ClientQuotaRecord(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        key=key,
        value=0.0 if limit is None else limit,
        remove=limit is None,
    )


def entity_of(parts: Iterable[tuple[str, str | None]]) -> Entity:
    return tuple(sorted(parts, key=lambda part: part[0]))


class ClientQuotasDelta:
    """Changes to quotas on their way into a new image."""

    def __init__(self, base: ClientQuotasImage, *, in_place: bool = False) -> None:
        self._base = base
        self._quotas = KeyedDelta(base.by_entity, in_place=in_place)

    def replay(self, record: ClientQuotaRecord) -> None:
        entity = entity_of((part.entity_type, part.entity_name) for part in record.entity)
        quotas = dict(self._quotas.get(entity) or {})
        if record.remove:
            quotas.pop(record.key, None)
        else:
            quotas[record.key] = record.value
        self._quotas.set(entity, quotas or None)

    def apply(self) -> ClientQuotasImage:
        by_entity = self._quotas.next()
        return self._base if by_entity is None else ClientQuotasImage(by_entity)
