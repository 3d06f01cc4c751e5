"""SCRAM credentials of users: what proves that somebody knows a password, and not the password."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from odradek.metadata.image.keyed import KeyedDelta
from odradek.metadata.records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from odradek.protocol.codec import Message
from odradek.security.scram import ScramCredential
from odradek.values import value

CredentialKey: TypeAlias = tuple[int, str]
"""Mechanism, numbered as in the protocol, and user."""


@value
class ScramImage:
    """All credentials."""

    credentials: dict[CredentialKey, ScramCredential]

    def records(self) -> Iterator[Message]:
        """What a snapshot holds of this."""
        for (mechanism, user), credential in self.credentials.items():
            yield scram_record(user, mechanism, credential)


NO_SCRAM = ScramImage(credentials={})


def scram_record(user: str, mechanism: int, credential: ScramCredential) -> UserScramCredentialRecord:
    return UserScramCredentialRecord(
        name=user,
        mechanism=mechanism,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )


class ScramDelta:
    """Changes to credentials on their way into a new image."""

    def __init__(self, base: ScramImage, *, in_place: bool = False) -> None:
        self._base = base
        self._credentials = KeyedDelta(base.credentials, in_place=in_place)

    def replay(self, record: UserScramCredentialRecord) -> None:
        credential = ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)
        self._credentials.set((record.mechanism, record.name), credential)

    def replay_remove(self, record: RemoveUserScramCredentialRecord) -> None:
        self._credentials.set((record.mechanism, record.name), None)

    def apply(self) -> ScramImage:
        credentials = self._credentials.next()
        return self._base if credentials is None else ScramImage(credentials)
