"""What a node tells clients that it serves is what its handlers say."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import pytest

import odradek.server.handlers
from odradek.server.net.api_table import SERVED, served_on
from odradek.server.net.routes import Role, routes_of


@pytest.mark.parametrize("role", list(Role))
def test_the_table_says_what_the_handlers_say(role: Role) -> None:
    announced = served_on(role)
    assert list(announced) == sorted(announced)
    assert {
        key: (each.min_version, each.max_version, each.announced_min_version, bool(each.roles & role))
        for key, each in announced.items()
    } == {
        key: (route.min_version, route.max_version, route.announced_min_version, bool(route.roles & role))
        for key, route in routes_of(role).items()
    }


def test_every_handler_is_in_the_table() -> None:
    modules = {module.name for module in pkgutil.iter_modules(odradek.server.handlers.__path__)}
    handlers = {name for name in modules if hasattr(import_module(f"odradek.server.handlers.{name}"), "handle")}
    assert {each.module for each in SERVED} == handlers
