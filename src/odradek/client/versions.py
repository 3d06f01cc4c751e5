"""The first question on every connection: which APIs the broker serves, and in which versions."""

from __future__ import annotations

from odradek import __version__
from odradek.client.connection import Connection
from odradek.client.errors import ConnectionLost
from odradek.ports import Network
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

SOFTWARE = {"client_software_name": "odradek", "client_software_version": __version__}
"""What brokers see in their metrics of who is connected (KIP-511)."""


async def connect(
    network: Network, *, host: str, port: int, client_id: str, connect_timeout_ms: int, answer_timeout_ms: int
) -> Connection:
    """A connection on which the question is answered; ConnectionLost or RequestTimedOut where that cannot be had."""
    connection = await Connection.open(
        network, host=host, port=port, client_id=client_id, timeout_ms=connect_timeout_ms
    )
    try:
        await _learn_versions(connection, answer_timeout_ms)
    except BaseException:
        connection.close()
        raise
    return connection


async def _learn_versions(connection: Connection, timeout_ms: int) -> None:
    request = ApiVersionsRequest(**SOFTWARE)
    response = await connection.ask(request, ApiVersionsResponse, request.max_stable_version, timeout_ms=timeout_ms)
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        response = await connection.ask(request, ApiVersionsResponse, 0, timeout_ms=timeout_ms)
    if response.error_code:
        raise ConnectionLost(f"ApiVersions was answered with error {response.error_code}")
    connection.versions = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    connection.features = {each.name: each.max_version_level for each in response.finalized_features}
    connection.features_epoch = response.finalized_features_epoch
