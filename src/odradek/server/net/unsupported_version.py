"""How a client that speaks a version of ApiVersions nobody here knows finds out which ones are known."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.protocol.api import ApiKey
from odradek.protocol.codec import encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from odradek.server.net.api_table import Served


def unsupported_version_answer(announced: Mapping[ApiKey, Served]) -> bytes:
    """The whole body for a version that is not known."""
    return encode(
        ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[announce(announced[ApiKey.API_VERSIONS])]
        ),
        0,
    )


def announce(served: Served) -> ApiVersion:
    return ApiVersion(api_key=served.api_key, min_version=served.announced_min_version, max_version=served.max_version)
