"""Which handler answers which API, on which kind of listener, in which versions.

A handler says so itself with `@serves`, and `api_table.py` knows it before the handler is loaded; what is not there is
not announced and not answered.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol, TypeAlias, TypeVar

from odradek.ports import Part
from odradek.protocol.api import ApiKey, request_class
from odradek.server.net.api_table import Role, served_on
from odradek.server.waiting.deferred import Deferred
from odradek.values import value

__all__ = [
    "CachedReader",
    "CachedReaderMaker",
    "FastAnswer",
    "FastPath",
    "FastPathMaker",
    "Plan",
    "QuotaUse",
    "Reader",
    "Role",
    "Route",
    "Writer",
    "route_of",
    "routes_of",
    "serves",
]

FastAnswer: TypeAlias = bytes | list[Part] | Deferred[Any] | None
FastPath: TypeAlias = Callable[[Any, memoryview, int, int], FastAnswer]
"""(rooms, frame, where the request begins, correlation id) to the whole answer or its parts, empty where none is sent.

A deferred, with its `frame`, is an answer that has to wait. None means that the request is not of the kind it knows,
and nothing was done: the generic path takes over.
"""

FastPathMaker: TypeAlias = Callable[[int, str], FastPath | None]
"""(version, name of the listener) to a handler of that listener's requests: what a refusal says depends on both."""


class Plan(Protocol):
    """What a request asks for, whatever form its bytes had."""

    throttle_ms: int
    """How long its client has to wait before it is heard again (KIP-219); the answer says so."""


Reader: TypeAlias = Callable[[memoryview, int], Any]
"""(frame, where the request begins) to its plan; None where these bytes are unusual: the compiled decoder reads them.

It knows bytes and nothing else, so it has no side effect.
"""

Writer: TypeAlias = Callable[[Any, Any, int], bytes | list[Part]]
"""(plan, outcome, correlation id) to the whole answer or its parts, empty where none is sent."""

QuotaUse: TypeAlias = Callable[[Any, Any, int], tuple[str, int] | None]
"""(plan, outcome, bytes of the request) to the quota that it counts for beside its time, and how many bytes; None: it
is not metered."""


class CachedReader(Protocol):
    """What one connection asks for again and again, known so well that hardly anything is left to look at."""

    def learn(self, view: memoryview, plan: Any) -> None:
        """Remember a request that came alone, with all that is in front of it (four bytes of size first)."""

    def read(self, view: memoryview, end: int) -> tuple[Any, int] | None:
        """The plan and the correlation id of what the view holds up to there, which may be less than a request.

        None unless it is like one that was learnt. It is asked only while nothing of its connection waits.
        """


CachedReaderMaker: TypeAlias = Callable[[memoryview, Any], CachedReader | None]
"""(view, plan) of a first request to a cached reader for those that are like it, if that is worth it."""

HandlerT = TypeVar("HandlerT", bound=Callable[..., Any])


@value
class Route:
    """One API as this node serves it."""

    api_key: ApiKey
    roles: Role
    handle: Callable[..., Any]
    """Of a context and a request, and to be awaited; with a plan, of rooms, caller and plan: then what it returns is
    the outcome, a deferred one, or a coroutine, whose result is either of the two and before which nothing else of the
    connection is begun."""
    min_version: int
    max_version: int
    announced_min_version: int
    overlaps: bool
    """Whether it may start while earlier ones of its kind still wait on the same connection (Produce)."""
    fast_path: FastPathMaker | None
    """A hand-made way through for the most common requests of a version."""
    unmetered: bool
    """Whether quotas are not for what its fast path answers: then only an authorizer closes it."""
    encode: Callable[[int], Callable[[Any], list[Part]]] | None
    """A way of its own from an answer to bytes, by version."""
    read: Callable[[int], Reader] | None
    """Of an API with a plan: from bytes to the plan, by version;"""
    cached_reader: CachedReaderMaker | None
    """the same for requests that a connection has sent before;"""
    plan_of: Callable[[Any, int], Plan] | None
    """from what the compiled decoder has read, and the version, to the plan;"""
    write: Callable[[int], Writer] | None
    """from plan and outcome to bytes, by version;"""
    quota_use: QuotaUse | None
    """and what it costs, if quotas are for it."""
    forwarded: bool
    """Whether a broker hands it on to the active controller, where the handler runs."""


_ROUTES: dict[tuple[ApiKey, Role], Route] = {}
"""By API and role: the same request may mean another thing to a broker and to a controller (Fetch)."""


def serves(
    api_key: ApiKey,
    *,
    on: Role,
    announced_min_version: int | None = None,
    overlaps: bool = False,
    fast_path: FastPathMaker | None = None,
    unmetered: bool = False,
    encode: Callable[[int], Callable[[Any], list[Part]]] | None = None,
    read: Callable[[int], Reader] | None = None,
    cached_reader: CachedReaderMaker | None = None,
    plan_of: Callable[[Any, int], Plan] | None = None,
    write: Callable[[int], Writer] | None = None,
    quota_use: QuotaUse | None = None,
    forwarded: bool = False,
) -> Callable[[HandlerT], HandlerT]:
    """Register the decorated handler for every stable version of the API."""

    def register(handle: HandlerT) -> HandlerT:
        message = request_class(api_key)
        route = Route(
            api_key=api_key,
            roles=on,
            handle=handle,
            min_version=message.min_version,
            max_version=message.max_stable_version,
            announced_min_version=message.min_version if announced_min_version is None else announced_min_version,
            overlaps=overlaps,
            fast_path=fast_path,
            unmetered=unmetered,
            encode=encode,
            read=read,
            cached_reader=cached_reader,
            plan_of=plan_of,
            write=write,
            quota_use=quota_use,
            forwarded=forwarded,
        )
        for role in Role:
            if role & on:
                _ROUTES[api_key, role] = route
        return handle

    return register


def route_of(api_key: ApiKey, role: Role) -> Route:
    """The route of an API that `served_on` names; its handler is loaded now if it was not."""
    route = _ROUTES.get((api_key, role))
    if route is None:
        import_module(f"odradek.server.handlers.{served_on(role)[api_key].module}")
        route = _ROUTES[api_key, role]
    return route


def routes_of(role: Role) -> dict[ApiKey, Route]:
    """All that is served on a listener of that role, by key in ascending order, with all its handlers."""
    return {api_key: route_of(api_key, role) for api_key in served_on(role)}
