"""Writes the Python function that turns bytes into a message, for one message and one version.

What a peer declares is checked against the bytes it sent before anything is built from it: a count of two billion in a
frame of forty bytes allocates nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from odradek.protocol.declare import FieldLayout, Message, Struct, layout
from odradek.protocol.errors import MalformedFrame
from odradek.protocol.primitives import WireType, decode_uvarint

_LONGEST_STRING = (1 << 15) - 1
"""Also where the length could say more: Kafka reads none that is longer, and no key of a coordinator holds one."""


def compile_decoder(cls: type[Message], version: int) -> Callable[[Any, int], Any]:
    """`decode(buffer, position) -> (message, position after it)`; the buffer ends where the message may end."""
    return _Decoder(version, flexible=version in cls.flexible).compile(cls)


def skip_tagged_fields(buffer: bytes | bytearray | memoryview, position: int) -> int:
    """The position after a section of tagged fields that nobody here knows."""
    try:
        if not buffer[position]:
            return position + 1
        count, position = decode_uvarint(buffer, position)
        for _ in range(count):
            _, position = decode_uvarint(buffer, position)
            size, position = decode_uvarint(buffer, position)
            position += size
    except IndexError as wrong:
        raise MalformedFrame("the message ends inside its tagged fields") from wrong
    if position > len(buffer):
        raise MalformedFrame("a tagged field is longer than the message")
    return position


# Complaints are functions because a call is the least that generated code can hold: most of it never runs.


def _null(field: str) -> NoReturn:
    raise MalformedFrame(f"{field} may not be null")


def _too_many(field: str, count: int) -> NoReturn:
    raise MalformedFrame(f"{field}: {count} elements do not fit")


def _too_long(declared_bytes: int, left_bytes: int) -> NoReturn:
    raise MalformedFrame(f"{declared_bytes} bytes declared, {left_bytes} left")


def _long_string(declared_bytes: int) -> NoReturn:
    raise MalformedFrame(f"a string of {declared_bytes} bytes, where {_LONGEST_STRING} are allowed")


def _wrong_size(field: str) -> NoReturn:
    raise MalformedFrame(f"{field} does not have its declared size")


class _Decoder:
    """Source in the making. `b` is the buffer, `p` the position, `end` where the buffer ends."""

    def __init__(self, version: int, *, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self.indent = "  "
        self.names = 0
        self.run: list[tuple[str, str]] = []
        """Fixed-size values waiting to be unpacked together: struct letter and target."""
        self.constants: dict[str, Any] = {
            "new": object.__new__,
            "uvarint": decode_uvarint,
            "skip_tagged_fields": skip_tagged_fields,
            "unpack_from": struct.unpack_from,
            "MalformedFrame": MalformedFrame,
            "null": _null,
            "too_many": _too_many,
            "too_long": _too_long,
            "long_string": _long_string,
            "wrong_size": _wrong_size,
            "struct_error": struct.error,
        }

    def compile(self, cls: type[Message]) -> Callable[[Any, int], Any]:
        message = self.struct(cls)
        self.flush()
        name = f"{cls.__name__} v{self.version}"
        source = "\n".join(
            [
                "def decode(b, p):",
                " if b.__class__ is not memoryview: b = memoryview(b)",
                " end = len(b)",
                " try:",
                *self.lines,
                " except (IndexError, struct_error) as wrong:",
                f"  raise MalformedFrame('{name} ends too early') from wrong",
                " except UnicodeDecodeError as wrong:",
                f"  raise MalformedFrame('{name} holds a string that is not UTF-8') from wrong",
                f" return {message}, p",
            ]
        )
        exec(compile(source, f"<decoder of {name}>", "exec"), self.constants)
        decode: Callable[[Any, int], Any] = self.constants["decode"]
        return decode

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def name(self) -> str:
        self.names += 1
        return f"v{self.names}"

    def constant(self, value: Any) -> str:
        """How the generated source refers to a value that is built once."""
        if value is None or isinstance(value, bool | int | float | str | bytes):
            return repr(value)
        name = self.name()
        self.constants[name] = value
        return name

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines under an `if`, `else` or `for`; a run never crosses its borders."""
        self.flush()
        self.line(head)
        self.indent += " "
        yield
        self.flush()
        self.indent = self.indent[:-1]

    def flush(self) -> None:
        """Read the run of fixed-size values with one unpack; a lone byte needs none."""
        if not self.run:
            return
        letters = "".join([letter for letter, _ in self.run])
        targets = ", ".join([target for _, target in self.run])
        self.run.clear()
        if letters == "B":
            self.line(f"{targets} = b[p]; p += 1")
            return
        unpack = "unpack_" + letters.replace("?", "o")
        if unpack not in self.constants:
            self.constants[unpack] = struct.Struct(">" + letters).unpack_from
        self.line(f"{targets}, = {unpack}(b, p); p += {struct.calcsize('>' + letters)}")

    def struct(self, cls: type[Struct]) -> str:
        """Read one struct; the name of the variable that holds it."""
        value = self.name()
        self.line(f"{value} = new({self.constant(cls)})")
        tagged = []
        for each in layout(cls):
            if self.version not in each.versions:
                self.default(each, value)
            elif each.tag is None:
                self.field(each, f"{value}.{each.name}")
            else:
                self.default(each, value)
                tagged.append(each)
        if self.flexible:
            self.tagged_fields(tagged, value)
        return value

    def default(self, each: FieldLayout, value: str) -> None:
        default = "[]" if each.declared.default_factory is list else self.constant(each.default())
        self.line(f"{value}.{each.name} = {default}")

    def field(self, each: FieldLayout, target: str) -> None:
        nullable = self.version in each.nullable
        flexible = self.flexible if each.flexible is None else self.version in each.flexible
        if each.is_array:
            self.array(each, target, flexible=flexible, nullable=nullable)
        elif not isinstance(each.type, WireType):
            self.nested(each.type, target, nullable=nullable, tagged=each.tag is not None)
        elif each.type.size:
            self.run.append((each.type.format, target))
        else:
            self.sized(each.type, target, flexible=flexible, nullable=nullable)

    def nested(self, cls: type[Struct], target: str, *, nullable: bool, tagged: bool) -> None:
        """A struct; before a nullable one a byte says whether it is there: 0 or 1 in tagged fields, else -1 or 1."""
        if not nullable:
            self.flush()
            self.read_struct(cls, target)
            return
        marker = self.name()
        self.run.append(("b", marker))
        self.flush()
        self.line(f"if {marker} {'<=' if tagged else '<'} 0: {target} = None")
        with self.block("else:"):
            self.read_struct(cls, target)

    def read_struct(self, cls: type[Struct], target: str) -> None:
        value = self.struct(cls)
        self.flush()
        self.line(f"{target} = {value}")

    @contextmanager
    def length(self, letter: str, target: str, *, empty: str, flexible: bool, nullable: bool) -> Iterator[str]:
        """Read a length; the lines that follow are for one above zero, in the variable given."""
        length = self.name()
        self.run.append(("B" if flexible else letter, length))
        self.flush()
        if flexible:
            limit = f"; {length} <= {_LONGEST_STRING + 1} or long_string({length} - 1)" if letter == "h" else ""
            self.line(f"if {length} > 127: {length}, p = uvarint(b, p - 1){limit}")
        self.line(f"if {length} == {1 if flexible else 0}: {target} = {empty}")
        null = f"{length} == 0" if flexible else f"{length} < 0"
        field = target.partition(".")[2] or "an element"
        outcome = f"{target} = None" if nullable else f"null('{field}')"
        self.line(f"elif {null}: {outcome}")
        with self.block("else:"):
            if flexible:
                self.line(f"{length} -= 1")
            yield length

    def array(self, each: FieldLayout, target: str, *, flexible: bool, nullable: bool) -> None:
        kind = each.type
        smallest = self.smallest(kind, flexible=flexible)
        with self.length("i", target, empty="[]", flexible=flexible, nullable=nullable) as count:
            fits = f"{count} * {smallest}" if smallest > 1 else count
            self.line(f"if {fits} > end - p: too_many('{each.name}', {count})")
            if isinstance(kind, WireType) and kind.size:
                letters = f"f'>{{{count}}}{kind.format}'" if len(kind.format) == 1 else f"'>' + '16s' * {count}"
                self.line(f"{target} = list(unpack_from({letters}, b, p)); p += {count} * {kind.size}")
                return
            items, item = self.name(), self.name()
            self.line(f"{target} = {items} = []")
            with self.block(f"for {item} in range({count}):"):
                if isinstance(kind, WireType):
                    self.sized(kind, item, flexible=flexible, nullable=False)
                else:
                    item = self.struct(kind)
                    self.flush()
                self.line(f"{items}.append({item})")

    def sized(self, kind: WireType, target: str, *, flexible: bool, nullable: bool) -> None:
        """A string, bytes or record batches: length, then content."""
        letter = "h" if kind.name == "string" else "i"
        empty, content = {
            "string": ("''", "str(b[p:{end}], 'utf-8')"),
            "bytes": ("b''", "bytes(b[p:{end}])"),
            "records": ("b[p:p]", "b[p:{end}]"),
        }[kind.name]
        end = self.name()
        with self.length(letter, target, empty=empty, flexible=flexible, nullable=nullable) as length:
            self.line(f"{end} = p + {length}")
            self.line(f"if {end} > end: too_long({length}, end - p)")
            self.line(f"{target} = {content.format(end=end)}; p = {end}")

    def smallest(self, kind: WireType | type[Struct], *, flexible: bool) -> int:
        """The fewest bytes an element can take, which bounds how many there can be; at least 1, as in Kafka."""
        if isinstance(kind, WireType):
            return kind.size or (1 if flexible else 2 if kind.name == "string" else 4)
        size = 1 if self.flexible else 0
        for each in layout(kind):
            if self.version in each.versions and each.tag is None:
                if each.is_array:
                    size += 1 if flexible else 4
                elif self.version in each.nullable and not isinstance(each.type, WireType):
                    size += 1
                else:
                    size += self.smallest(each.type, flexible=flexible)
        return max(size, 1)

    def tagged_fields(self, tagged: list[FieldLayout], value: str) -> None:
        """Mostly a zero; the byte is read with the run before it."""
        count = self.name()
        self.run.append(("B", count))
        self.flush()
        if not tagged:
            self.line(f"if {count}: p = skip_tagged_fields(b, p - 1)")
            return
        tag, size, end = self.name(), self.name(), self.name()
        with self.block(f"if {count}:"):
            self.line(f"if {count} > 127: {count}, p = uvarint(b, p - 1)")
            with self.block(f"for _ in range({count}):"):
                self.line(f"{tag} = b[p]; {size} = b[p + 1]; p += 2")
                self.line(f"if {tag} > 127 or {size} > 127: {tag}, p = uvarint(b, p - 2); {size}, p = uvarint(b, p)")
                self.line(f"{end} = p + {size}")
                self.line(f"if {end} > end: too_long({size}, end - p)")
                word = "if"
                for each in tagged:
                    with self.block(f"{word} {tag} == {each.tag}:"):
                        self.field(each, f"{value}.{each.name}")
                        self.flush()
                        self.line(f"if p != {end}: wrong_size('{each.name}')")
                    word = "elif"
                self.line(f"else: p = {end}")
