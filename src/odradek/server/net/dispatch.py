"""From a request's first bytes to the handler that answers it.

An `Endpoint` is one API in one version, compiled at first use: everything that can be known before the request arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

from odradek.ports import Part
from odradek.protocol.api import ApiKey, request_class, request_header_version, response_class, response_header_version
from odradek.protocol.codec import Message, decoder, parts_encoder
from odradek.protocol.declare import layout
from odradek.server.net.api_table import served_on
from odradek.server.net.latency import Latencies
from odradek.server.net.routes import Role, Route, route_of, routes_of

Handle: TypeAlias = Callable[..., Any]


class Endpoint:
    """One version of one API on one listener."""

    __slots__ = (
        "cached_reader",
        "decode",
        "encode",
        "error_answer",
        "fast_path",
        "flexible_header",
        "flexible_response",
        "handle",
        "latencies",
        "listener_name",
        "overlaps",
        "plan_of",
        "quota_use",
        "read",
        "served",
        "unmetered",
        "write",
    )

    def __init__(self, route: Route, version: int, listener_name: str, handle: Handle) -> None:
        response = response_class(route.api_key)
        self.handle = handle
        self.decode = decoder(request_class(route.api_key), version)
        self.encode: Callable[[Any], list[Part]] = (route.encode or partial(parts_encoder, response))(version)
        self.error_answer = _error_answer(response, version)
        self.flexible_header = request_header_version(route.api_key, version) >= 2
        self.flexible_response = response_header_version(route.api_key, version) >= 1
        self.overlaps = route.overlaps
        self.fast_path = None if route.fast_path is None else route.fast_path(version, listener_name)
        self.unmetered = route.unmetered
        self.read = None if route.read is None else route.read(version)
        self.cached_reader = route.cached_reader
        self.plan_of = route.plan_of
        self.write = None if route.write is None else route.write(version)
        self.quota_use = route.quota_use
        self.listener_name = listener_name
        self.served = 0
        self.latencies = Latencies()


class UnservedRequest(Exception):
    """An API or a version of it that this listener does not serve."""


class Endpoints:
    """All that one listener answers, by its role."""

    def __init__(self, role: Role, listener_name: str, forward: Handle | None = None) -> None:
        """`forward` takes the place of handlers that run on the active controller, where this listener is not its."""
        self.announced = served_on(role)
        self.role = role
        self._listener_name = listener_name
        self._forward = forward
        self._compiled: dict[int, Endpoint] = {}
        """By key and version in one number, as `get` is asked for them."""
        self.get = self._compiled.get

    @property
    def routes(self) -> dict[ApiKey, Route]:
        """With all handlers loaded."""
        return routes_of(self.role)

    def used(self) -> Iterator[tuple[ApiKey, int, Endpoint]]:
        """Key, version and endpoint of everything that was asked for so far."""
        for number, endpoint in sorted(self._compiled.items()):
            yield ApiKey(number >> 16), number & 0xFFFF, endpoint

    def compile(self, api_key: int, version: int) -> Endpoint:
        """The endpoint for a pair that `get` (of `api_key << 16 | version`) did not know."""
        try:
            served = self.announced[ApiKey(api_key)]
        except (ValueError, KeyError):
            raise UnservedRequest(f"API key {api_key} is not served on this listener") from None
        if not served.min_version <= version <= served.max_version:
            raise UnservedRequest(
                f"version {version} of {served.api_key.name} is not served "
                f"(versions {served.min_version} to {served.max_version} are)"
            )
        route = route_of(served.api_key, self.role)
        handle = self._forward if route.forwarded and self._forward is not None else route.handle
        endpoint = Endpoint(route, version, self._listener_name, handle)
        self._compiled[api_key << 16 | version] = endpoint
        return endpoint


def _error_answer(response: type[Message], version: int) -> Callable[[int, str], Message] | None:
    """How to say a request-level error in this API's terms, where this version has a place for one."""
    names = [each.name for each in layout(response) if version in each.versions]
    if "error_code" not in names:
        return None
    make: Callable[..., Message] = response
    if "error_message" in names:
        return lambda code, text: make(error_code=code, error_message=text)
    return lambda code, text: make(error_code=code)
