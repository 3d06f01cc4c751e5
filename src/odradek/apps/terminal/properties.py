"""Properties files that a person names on the command line."""

from __future__ import annotations

from odradek.apps.terminal.sentence import Sentence
from odradek.configdef import ConfigError, parse_properties


def read_file(file: str) -> dict[str, str]:
    """The keys of a properties file."""
    try:
        with open(file, encoding="utf-8") as opened:
            return parse_properties(opened.read())
    except OSError as wrong:
        raise Sentence(f"cannot read {file}: {(wrong.strerror or str(wrong)).lower()}.") from wrong
    except UnicodeDecodeError as wrong:
        raise Sentence(f"cannot read {file}: it is not a text in UTF-8.") from wrong
    except ConfigError as wrong:
        raise Sentence(f"cannot read {file}: {wrong}.") from wrong
