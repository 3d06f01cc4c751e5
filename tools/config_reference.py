"""Writes `docs/reference/configs.md` from the tables that the node itself reads; `make docs` runs it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from odradek.configdef import INT_MAX, LONG_MAX, ConfigKey, value_text
from odradek.server.configs.dynamic import RUN_TIME_KEYS
from odradek.server.configs.settings import NODE_CONFIGS
from odradek.server.configs.unsupported import NO_EFFECT
from odradek.storage.config import TOPIC_CONFIGS

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "configs.md"

HEAD = """\
# Configuration

Written by `make docs` from the tables in `server/configs/` (`settings.py`, `unsupported.py`) and `storage/config.py`.
Names, types, defaults and valid values are Kafka 4.3's. How a file is read, and what stops a start:
[howto/server-properties.md](../howto/server-properties.md).
"""


def page() -> str:
    """The whole page."""
    return "\n".join(
        (
            HEAD,
            "## Node (`server.properties`)\n",
            *table(NODE_CONFIGS.values()),
            "\n## Brokers, at run time only\n",
            "For one broker or for all (`odradek config set`, kafka-configs); a file cannot set them.\n",
            *table(RUN_TIME_KEYS.values()),
            "\n## Topics\n",
            "Given when a topic is created. Where a broker's key gives the default, the first that is set counts.\n",
            *table(TOPIC_CONFIGS.values(), synonyms=True),
            "\n## Known to Kafka, without effect here\n",
            "Each gets a warning at start that says why.\n",
            *_without_effect(),
            "",
        )
    )


def table(keys: Iterable[ConfigKey], *, synonyms: bool = False) -> Iterable[str]:
    yield f"| Key | What it says | Type | Default | Valid |{' Default from |' if synonyms else ''}"
    yield f"|---|---|---|---|---|{'---|' if synonyms else ''}"
    for key in sorted(keys, key=lambda key: key.name):
        default = "**required**" if key.required else _shown(value_text(key.default))
        valid = _shown(str(key.validator)) if key.validator is not None else ""
        more = f" {', '.join(f'`{name}`' for name in key.synonyms)} |" if synonyms else ""
        yield f"| `{key.name}` | {key.doc} | {key.type.name.lower()} | {default} | {valid} |{more}"


def _shown(text: str | None) -> str:
    if text == str(LONG_MAX):
        return "2⁶³−1"
    if text == str(INT_MAX):
        return "2³¹−1"
    return f"`{text}`" if text else ""


def _without_effect() -> Iterable[str]:
    by_reason: dict[str, list[str]] = {}
    for name, reason in NO_EFFECT.items():
        by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        yield f"* {reason[0].upper()}{reason[1:]}: {', '.join(f'`{name}`' for name in sorted(names))}."


if __name__ == "__main__":
    PAGE.write_text(page())
