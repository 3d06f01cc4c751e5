"""DescribeUserScramCredentials, version 0: which users have credentials, of which mechanism and how many iterations."""

from __future__ import annotations

from odradek.metadata.controller import repeated
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves

_TWICE = "Cannot describe SCRAM credentials for the same user twice in a single request: "
_NOBODY = "Attempt to describe a user credential that does not exist: "


@serves(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, on=Role.BROKER)
async def handle(ctx: Context, request: DescribeUserScramCredentialsRequest) -> DescribeUserScramCredentialsResponse:
    require(ctx.caller, Operation.DESCRIBE, ResourceType.CLUSTER)
    found: dict[str, list[CredentialInfo]] = {}
    for (mechanism, user), credential in ctx.rooms.image.scram.credentials.items():
        info = CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
        found.setdefault(user, []).append(info)
    asked = [user.name for user in request.users or ()] or list(found)
    twice = repeated(asked)
    results = []
    for user in dict.fromkeys(asked):
        if user in twice:
            results.append(_refusal(user, ErrorCode.DUPLICATE_RESOURCE, _TWICE))
        elif user not in found:
            results.append(_refusal(user, ErrorCode.RESOURCE_NOT_FOUND, _NOBODY))
        else:
            results.append(
                DescribeUserScramCredentialsResult(user=user, error_message="", credential_infos=found[user])
            )
    return DescribeUserScramCredentialsResponse(error_message="", results=results)


def _refusal(user: str, code: ErrorCode, why: str) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(user=user, error_code=code, error_message=why + user, credential_infos=[])
