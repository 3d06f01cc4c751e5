"""Writes `docs/reference/apis.md` from the routes that the node itself serves by; `make docs` runs it."""

from __future__ import annotations

from pathlib import Path

from odradek.protocol.api import ApiKey
from odradek.server.net.routes import Role, routes_of

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "apis.md"

HEAD = """\
# APIs

Written by `make docs` from the handlers' own declarations. What is not here is neither announced nor answered.

| Key | API | Versions | Answered by |
|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    lines = []
    by_role = {role: routes_of(role) for role in Role}
    for key in sorted({key for routes in by_role.values() for key in routes}):
        route = next(routes[key] for routes in by_role.values() if key in routes)
        versions = f"{route.min_version}–{route.max_version}"
        if route.announced_min_version < route.min_version:
            versions += f" (announced from {route.announced_min_version}, as Kafka does)"
        by = " and ".join(role.name.lower() for role, routes in by_role.items() if key in routes and role.name)
        lines.append(f"| {route.api_key.value} | {_name(route.api_key)} | {versions} | {by} |\n")
    return HEAD + "".join(lines)


def _name(key: ApiKey) -> str:
    return "".join(word.capitalize() for word in key.name.split("_"))


if __name__ == "__main__":
    PAGE.write_text(page())
