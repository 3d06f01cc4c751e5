"""ApiVersions, versions 0 to 4: what this listener serves, and the features of the cluster.

An unknown version is answered in version 0 with UNSUPPORTED_VERSION and the range of ApiVersions alone, and the
connection stays, so that a newer client can ask again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from odradek.ports import Part
from odradek.protocol.api import ApiKey
from odradek.protocol.codec import encoder
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from odradek.server.handlers.context import Context
from odradek.server.net.api_table import served_on
from odradek.server.net.routes import Role, serves
from odradek.server.net.unsupported_version import announce

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
_SOFTWARE_VERSION = 3
_ZERO_RANGE_VERSION = 4
_FIRST_FLEXIBLE_VERSION = 3
_KEYS_AT = 2
"""Behind the error code; an empty list is one byte there."""
_MOST_LISTS = 4
"""One a role is known; errors have lists of their own."""


def _encoder(version: int) -> Callable[[ApiVersionsResponse], list[Part]]:
    """What is announced never changes, and is most of the answer: its bytes are made once."""
    encode_all = encoder(ApiVersionsResponse, version)
    if version < _FIRST_FLEXIBLE_VERSION:
        return lambda response: [encode_all(response)]
    announced: list[tuple[list[ApiVersion], bytes]] = []

    def encode_around(response: ApiVersionsResponse) -> list[Part]:
        keys = response.api_keys
        response.api_keys = []
        body = encode_all(response)
        response.api_keys = keys
        part = next((part for known, part in announced if known is keys), None)
        if part is None:
            whole = encode_all(response)
            part = whole[_KEYS_AT : _KEYS_AT + 1 + len(whole) - len(body)]
            announced.append((keys, part))
            del announced[:-_MOST_LISTS]
        return [body[:_KEYS_AT] + part + body[_KEYS_AT + 1 :]]

    return encode_around


@serves(ApiKey.API_VERSIONS, on=Role.BROKER | Role.CONTROLLER, encode=_encoder)
async def handle(ctx: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if ctx.api_version >= _SOFTWARE_VERSION and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    image = ctx.rooms.image
    return ApiVersionsResponse(
        error_code=0,
        api_keys=_announced_on(ctx.listener.endpoints.role),
        supported_features=[
            SupportedFeatureKey(name=feature.name, min_version=feature.minimum, max_version=feature.maximum)
            for feature in ctx.rooms.supported_features
            # Before version 4 clients choke on a range that begins with 0 (KIP-1022).
            if feature.minimum > 0 or ctx.api_version >= _ZERO_RANGE_VERSION
        ],
        finalized_features_epoch=image.provenance.offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in image.features.served(ctx.rooms.quorum.kraft_version).items()
        ],
    )


@cache
def _announced_on(role: Role) -> list[ApiVersion]:
    """Made once: whoever connects asks for it, and it is the longest of all small answers."""
    return [announce(served) for served in served_on(role).values()]
