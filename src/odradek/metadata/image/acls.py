"""Who may do what: access rules by their ids."""

from __future__ import annotations

from collections.abc import Iterator

from odradek.ids import Uuid
from odradek.metadata.image.keyed import KeyedDelta
from odradek.metadata.records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from odradek.protocol.codec import Message
from odradek.security.acl import Acl
from odradek.values import value


@value
class AclsImage:
    """All rules. What they mean is `security.acl`'s business."""

    by_id: dict[Uuid, Acl]

    def records(self) -> Iterator[Message]:
        """What a snapshot holds of this."""
        for acl_id, acl in self.by_id.items():
            yield acl_record(acl_id, acl)


NO_ACLS = AclsImage(by_id={})


def acl_record(acl_id: Uuid, acl: Acl) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=acl_id,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )


class AclsDelta:
    """Changes to rules on their way into a new image."""

    def __init__(self, base: AclsImage, *, in_place: bool = False) -> None:
        self._base = base
        self._acls = KeyedDelta(base.by_id, in_place=in_place)

    def replay(self, record: AccessControlEntryRecord) -> None:
        self._acls.set(
            record.id,
            Acl(
                record.resource_type,
                record.resource_name,
                record.pattern_type,
                record.principal,
                record.host,
                record.operation,
                record.permission_type,
            ),
        )

    def replay_remove(self, record: RemoveAccessControlEntryRecord) -> None:
        assert self._acls.get(record.id) is not None, "an access rule is removed that is not there"
        self._acls.set(record.id, None)

    def apply(self) -> AclsImage:
        by_id = self._acls.next()
        return self._base if by_id is None else AclsImage(by_id)
