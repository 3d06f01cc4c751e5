"""Writes `docs/reference/client-configs.md` from the tables that the client library reads; `make docs` runs it."""

from __future__ import annotations

from pathlib import Path

from tools.config_reference import table

from odradek.client.settings import ADMIN_TABLE, COMMON, CONSUMER_TABLE, IGNORED, PRODUCER_TABLE, REFUSED

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "client-configs.md"

HEAD = """\
# Client configuration

Written by `make docs` from the tables in `client/settings.py`. Names, types and defaults are Kafka's; how to give them:
[howto/python-client.md](../howto/python-client.md).
"""


def page() -> str:
    """The whole page."""
    shared = [key.name for key in COMMON]
    lines = [HEAD, "## All clients\n", *table(COMMON)]
    for title, keys in (("Producer", PRODUCER_TABLE), ("Consumer", CONSUMER_TABLE), ("Admin", ADMIN_TABLE)):
        lines += [f"\n## {title}\n", *table(key for key in keys.values() if key.name not in shared)]
    lines += ["\n## Passed over\n", "They mean something to the Java client only.\n"]
    lines += [f"{', '.join(f'`{name}`' for name in sorted(IGNORED))}."]
    lines += ["\n## Refused\n", "`ssl.*` and `sasl.*`, and `security.protocol` other than PLAINTEXT; besides:\n"]
    lines += [f"* `{name}`: {reason}." for name, reason in REFUSED.items()]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    PAGE.write_text(page())
