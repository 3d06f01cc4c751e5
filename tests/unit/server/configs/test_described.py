"""Keys are described as Apache Kafka describes them: type, default, and whether a running broker can change them."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.configdef import ConfigTable, Dynamic, value_text
from odradek.server.configs.group_configs import GROUP_CONFIGS
from odradek.server.configs.settings import NODE_CONFIGS
from odradek.storage.config import TOPIC_CONFIGS

_GOLDEN = Path(__file__).parent / "golden" / "describe-configs-4.3.1.txt"
_FIXED_HERE = ("listeners", "listener.security.protocol.map")
"""Kafka can open and close ports while it runs."""


def _facts() -> dict[tuple[str, str], tuple[str, bool, str]]:
    facts = {}
    for line in _GOLDEN.read_text().splitlines()[1:]:
        resource, key, kind, changeable, default = line.split(" ", 4)
        facts[resource, key] = (kind, changeable == "rw", default)
    return facts


@pytest.mark.parametrize(
    ("resource", "table"), [("topic", TOPIC_CONFIGS), ("broker", NODE_CONFIGS), ("group", GROUP_CONFIGS)]
)
def test_keys_are_kafkas(resource: str, table: ConfigTable) -> None:
    facts = _facts()
    compared = 0
    for name, key in table.items():
        if (resource, name) not in facts:
            assert key.internal or name.startswith(("remote.", "super.", "allow.", "odradek."))
            continue
        kind, changeable, default = facts[resource, name]
        assert key.type.name == kind, name
        if name not in _FIXED_HERE:
            assert (key.dynamic is not Dynamic.READ_ONLY) == changeable, name
        if default != "-":
            text = value_text(key.default)
            assert ("null" if text is None else text or '""') == default, name
        compared += 1
    assert compared > 0


def test_every_key_of_topics_is_there() -> None:
    missing = [name for resource, name in _facts() if resource == "topic" and name not in TOPIC_CONFIGS]
    assert missing == []
