"""Configuration in Kafka's terms: keys with type, default, range and meaning, and the format of `.properties` files.

A table of `ConfigKey` is what parsing, DescribeConfigs and the generated reference all read, so a key is declared once.
`storage.config` has the table of topics, `server.config` that of nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, IntEnum
from typing import Protocol, TypeAlias

from odradek.values import value

ConfigValue: TypeAlias = "bool | int | float | str | tuple[str, ...] | None"

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1


class ConfigError(ValueError):
    """A setting that cannot be accepted; the message is one sentence for a person."""

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key


class ConfigType(IntEnum):
    """Numbered as DescribeConfigs answers them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Importance(Enum):
    """How much a key matters to someone who reads the reference for the first time."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Dynamic(Enum):
    """Whether Kafka lets a running broker change the key, and for whom."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Validator(Protocol):
    """What a parsed value must be; `str()` of it is how the reference shows the valid values."""

    def complaint(self, key: str, given: ConfigValue) -> str | None:
        """Why the value is not accepted, or None."""


@value
class Range:
    """A number between bounds, both included."""

    low: int | float | None = None
    high: int | float | None = None

    def complaint(self, key: str, given: ConfigValue) -> str | None:
        if not isinstance(given, int | float):
            return None
        if self.low is not None and given < self.low:
            return f"Invalid value {given} for configuration {key}: Value must be at least {self.low}"
        if self.high is not None and given > self.high:
            return f"Invalid value {given} for configuration {key}: Value must be no more than {self.high}"
        return None

    def __str__(self) -> str:
        low = "" if self.low is None else f"{self.low},"
        high = "" if self.high is None else f",{self.high}"
        return f"[{low}...{high}]"


@value
class RangeOr:
    """A number between bounds, or one special number outside them."""

    low: int
    high: int
    special: int

    def complaint(self, key: str, given: ConfigValue) -> str | None:
        if not isinstance(given, int) or self.low <= given <= self.high or given == self.special:
            return None
        return (
            f"Invalid value {given} for configuration {key}: "
            f"Value must be between {self.low} and {self.high} or equal to {self.special}"
        )

    def __str__(self) -> str:
        return f"[{self.low},...,{self.high}] or {self.special}"


@value
class Choices:
    """One of some words, or a list of them; Kafka compares case."""

    words: tuple[str, ...]

    def complaint(self, key: str, given: ConfigValue) -> str | None:
        for word in given if isinstance(given, tuple) else (given,):
            if word is not None and word not in self.words:
                return f"Invalid value {word} for configuration {key}: String must be one of: {', '.join(self.words)}"
        return None

    def __str__(self) -> str:
        return f"[{', '.join(self.words)}]"


@value
class NotEmpty:
    """A list with something in it."""

    def complaint(self, key: str, given: ConfigValue) -> str | None:
        if given == ():
            return f"Configuration '{key}' must not be empty. Valid values include: any non-empty value"
        return None

    def __str__(self) -> str:
        return "non-empty list"


_REPLICA = re.compile(r"[0-9]+:[0-9]+")


@value
class ThrottledReplicas:
    """`*`, or pairs of a partition and a broker."""

    def complaint(self, key: str, given: ConfigValue) -> str | None:
        assert isinstance(given, tuple)
        if given == ("*",) or all(_REPLICA.fullmatch(replica) for replica in given if replica):
            return None
        return (
            f"Invalid value [{', '.join(given)}] for configuration {key}: "
            f"{key} must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        )

    def __str__(self) -> str:
        return "[partitionId]:[brokerId],[partitionId]:[brokerId],..."


@value
class ConfigKey:
    """One setting."""

    name: str
    type: ConfigType
    default: ConfigValue
    doc: str
    validator: Validator | None = None
    importance: Importance = Importance.MEDIUM
    dynamic: Dynamic = Dynamic.READ_ONLY
    required: bool = False
    internal: bool = False
    synonyms: tuple[str, ...] = ()
    """For a topic's key: the broker's keys that give its default, the strongest first."""

    def parse(self, text: str) -> ConfigValue:
        """The value that the text stands for; raises ConfigError as Kafka's ConfigDef does."""
        given = parse_text(self, text)
        complaint = self.validator.complaint(self.name, given) if self.validator is not None else None
        if complaint is not None:
            raise ConfigError(complaint, self.name)
        return given


class ConfigTable(Mapping[str, ConfigKey]):
    """Keys by name, in the order they were declared."""

    def __init__(self, keys: Iterable[ConfigKey]) -> None:
        self._keys = {key.name: key for key in keys}

    def __getitem__(self, name: str) -> ConfigKey:
        return self._keys[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """A short question naming the nearest known name, to end an error with; empty when none is near."""
    import difflib  # 3 ms that only a misspelt key needs

    near = difflib.get_close_matches(name, list(names), n=1, cutoff=0.75)
    return f" Did you mean {near[0]}?" if near else ""


def unknown_key(kind: str, name: str, names: Iterable[str]) -> str:
    """The sentence about a key that is not there, with the nearest one that is."""
    hint = did_you_mean(name, names)
    return f"Unknown {kind} config name: {name}" + (hint and "." + hint)


def value_text(given: ConfigValue) -> str | None:
    """A value as Kafka writes it in DescribeConfigs and in files."""
    match given:
        case None:
            return None
        case bool():
            return "true" if given else "false"
        case tuple():
            return ",".join(given)
        case float():
            return repr(given).upper().replace("E+", "E")  # As Java writes the large and the small ones.
        case _:
            return str(given)


_INTEGER = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?")
_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
_COMMA = re.compile(r"\s*,\s*")


def parse_text(key: ConfigKey, text: str) -> ConfigValue:
    """Read a text by the key's type alone, with Java's ideas of a number (no underscores, no `0x`)."""
    text = text.strip() if key.type is not ConfigType.PASSWORD else text
    match key.type:
        case ConfigType.BOOLEAN:
            if text.lower() in ("true", "false"):
                return text.lower() == "true"
            raise _invalid(key, text, "Expected value to be either true or false")
        case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
            limit = 1 << (_BITS[key.type] - 1)
            if _INTEGER.fullmatch(text) and len(text) <= 20 and -limit <= int(text) < limit:
                return int(text)
            raise _invalid(key, text, f"Not a number of type {key.type.name}")
        case ConfigType.DOUBLE:
            if _FLOAT.fullmatch(text):
                return float(text.rstrip("fFdD"))
            raise _invalid(key, text, "Not a number of type DOUBLE")
        case ConfigType.LIST:
            # A value named twice counts once, in the place where it came first.
            return tuple(dict.fromkeys(_COMMA.split(text))) if text else ()
        case _:
            return text


def _invalid(key: ConfigKey, text: str, why: str) -> ConfigError:
    return ConfigError(f"Invalid value {text} for configuration {key.name}: {why}", key.name)


# --- .properties files ------------------------------------------------------------------------------------------------

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANK = " \t\f"


def parse_properties(text: str) -> dict[str, str]:
    """Read a file by the rules of Java's `Properties.load`: of two equal keys the later one counts."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        key, rest = _split_key(line)
        found[_unescape(key)] = _unescape(rest)
    return found


def format_properties(properties: Mapping[str, str]) -> str:
    """Lines that `parse_properties` and Java read back as given, one key a line, in the order given."""
    return "".join(
        f"{_escape(key, also=' =:')}={_escape(text, leading_blank=True)}\n" for key, text in properties.items()
    )


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without leading blanks, comments and continuation marks; a comment line is never continued."""
    joined = ""
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(_BLANK)
        if not joined and line[:1] in ("", "#", "!"):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            joined += line[:-1]
            continue
        yield joined + line
        joined = ""
    if joined:
        yield joined


def _split_key(line: str) -> tuple[str, str]:
    """The key ends at the first unescaped `=`, `:` or blank; one `=` or `:` may follow blanks."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANK:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return line[:end], rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\" or position == len(text):
            out.append(char if char != "\\" else "")
            continue
        char = text[position]
        position += 1
        if char == "u":
            digits = text[position : position + 4]
            if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
                raise ConfigError(f"Malformed \\uxxxx encoding in the properties: \\u{digits}")
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(char, char))
    # Two escapes may be the halves of one character beyond the first plane.
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(text: str, *, also: str = "", leading_blank: bool = False) -> str:
    back = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "#": "\\#", "!": "\\!"}
    out = "".join(back.get(char, "\\" + char if char in also else char) for char in text)
    return "\\" + out if leading_blank and out.startswith(" ") else out
