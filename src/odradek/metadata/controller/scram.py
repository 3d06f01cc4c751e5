"""SCRAM credentials set and deleted; a user may be named once in a request."""

from __future__ import annotations

from odradek.decisions import Decision
from odradek.metadata.controller import decided, repeated
from odradek.metadata.features import supports_scram
from odradek.metadata.image import Image
from odradek.metadata.image.scram import scram_record
from odradek.metadata.records import RemoveUserScramCredentialRecord
from odradek.protocol.codec import Message
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.security.scram import MAX_ITERATIONS, MECHANISMS, MIN_ITERATIONS, credential


def alter_scram_credentials(
    image: Image, request: AlterUserScramCredentialsRequest
) -> Decision[Message, AlterUserScramCredentialsResponse]:
    """Every user that may be changed is; each of the others is told why not."""
    changes: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*request.deletions, *request.upsertions]
    twice = repeated(change.name for change in changes)
    records: list[Message] = []
    results: list[AlterUserScramCredentialsResult] = []
    for change in changes:
        if change.name in twice:
            continue
        try:
            if not supports_scram(image.features.metadata_version):
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM")
            if isinstance(change, ScramCredentialDeletion):
                records.append(_deletion(image, change))
            else:
                records.append(_upsertion(change))
            results.append(AlterUserScramCredentialsResult(user=change.name))
        except KafkaError as refused:
            results.append(_refusal(change.name, refused))
    why = KafkaError(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
    results += [_refusal(user, why) for user in twice]
    return decided(records, AlterUserScramCredentialsResponse(results=results))


def _deletion(image: Image, change: ScramCredentialDeletion) -> Message:
    _check(change.name, change.mechanism)
    if (change.mechanism, change.name) not in image.scram.credentials:
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    return RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism)


def _upsertion(change: ScramCredentialUpsertion) -> Message:
    _check(change.name, change.mechanism)
    if change.iterations < MIN_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > MAX_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    kept = credential(
        change.mechanism,
        salt=change.salt,
        salted_password=change.salted_password,
        iterations=change.iterations,
    )
    return scram_record(change.name, change.mechanism, kept)


def _check(user: str, mechanism: int) -> None:
    if not user:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if mechanism not in MECHANISMS:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")


def _refusal(user: str, why: KafkaError) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(user=user, error_code=why.code, error_message=why.message)
