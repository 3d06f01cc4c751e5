"""Writes the Python function that turns bytes into a message, for one message and one version.

What a peer declares is checked against the bytes it sent before anything is built from it: a count of two billion in a
frame of forty bytes allocates nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from odradek.protocol.declare import FieldLayout, Message, Struct, layout
from odradek.protocol.errors import MalformedFrame
from odradek.protocol.primitives import WireType, decode_uvarint


def compile_decoder(cls: type[Message], version: int) -> Callable[[Any, int], Any]:
    """`decode(buffer, position) -> (message, position after it)`; the buffer ends where the message may end."""
    return _Decoder(version, flexible=version in cls.flexible).compile(cls)


def skip_tagged_fields(buffer: bytes | bytearray | memoryview, position: int) -> int:
    """The position after a section of tagged fields that nobody here knows."""
    count, position = decode_uvarint(buffer, position)
    for _ in range(count):
        _, position = decode_uvarint(buffer, position)
        size, position = decode_uvarint(buffer, position)
        position += size
        if position > len(buffer):
            raise MalformedFrame("a tagged field is longer than the message")
    return position


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

    def flush(self) -> None:
        """Read the run of fixed-size values with one unpack."""
        if self.run:
            letters = "".join([letter for letter, _ in self.run])
            unpack = "unpack_" + letters.replace("?", "o")
            if unpack not in self.constants:
                self.constants[unpack] = struct.Struct(">" + letters).unpack_from
            targets = ", ".join([target for _, target in self.run])
            self.line(f"{targets}, = {unpack}(b, p); p += {struct.calcsize('>' + letters)}")
            self.run.clear()

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
            self.nested(each.type, target, nullable=nullable)
        elif each.type.size:
            self.run.append((each.type.format, target))
        else:
            self.sized(each.type, target, flexible=flexible, nullable=nullable)

    def nested(self, cls: type[Struct], target: str, *, nullable: bool) -> None:
        if nullable:
            marker = self.name()
            self.run.append(("b", marker))
            self.flush()
            self.line(f"if {marker} < 0: {target} = None")
            self.line("else:")
            self.indent += " "
        value = self.struct(cls)
        self.flush()
        self.line(f"{target} = {value}")
        if nullable:
            self.indent = self.indent[:-1]

    def length(self, what: str, letter: str, *, flexible: bool, nullable: bool, target: str) -> str:
        """The variable that holds a length; a nullable one leaves the indent inside the `else` of "it is None"."""
        length = self.name()
        self.run.append(("B" if flexible else letter, length))
        self.flush()
        if flexible:
            self.line(f"if {length} > 127: {length}, p = uvarint(b, p - 1)")
            self.line(f"{length} -= 1")
        if nullable:
            self.line(f"if {length} < 0: {target} = None")
            self.line("else:")
            self.indent += " "
        else:
            field = target.partition(".")[2] or "an element"
            self.line(f"if {length} < 0: raise MalformedFrame('{field}: a {what} may not be null')")
        return length

    def array(self, each: FieldLayout, target: str, *, flexible: bool, nullable: bool) -> None:
        count = self.length("array", "i", flexible=flexible, nullable=nullable, target=target)
        kind = each.type
        smallest = self.smallest(kind, flexible=flexible)
        times = f" * {smallest}" if smallest > 1 else ""
        self.line(f"if {count}{times} > end - p: raise MalformedFrame(f'{each.name}: {{{count}}} elements do not fit')")
        if isinstance(kind, WireType) and kind.size:
            letters = f"f'>{{{count}}}{kind.format}'" if len(kind.format) == 1 else f"'>' + '16s' * {count}"
            self.line(f"{target} = list(unpack_from({letters}, b, p)) if {count} else []; p += {count} * {kind.size}")
        else:
            items, item = self.name(), self.name()
            self.line(f"{target} = {items} = []")
            self.line(f"for {item} in range({count}):")
            self.indent += " "
            if isinstance(kind, WireType):
                self.sized(kind, item, flexible=flexible, nullable=False)
                self.line(f"{items}.append({item})")
            else:
                value = self.struct(kind)
                self.flush()
                self.line(f"{items}.append({value})")
            self.indent = self.indent[:-1]
        if nullable:
            self.indent = self.indent[:-1]

    def sized(self, kind: WireType, target: str, *, flexible: bool, nullable: bool) -> None:
        """A string, bytes or record batches: length, then content."""
        letter = "h" if kind.name == "string" else "i"
        length = self.length(kind.name, letter, flexible=flexible, nullable=nullable, target=target)
        end = self.name()
        self.line(f"{end} = p + {length}")
        self.line(f"if {end} > end: raise MalformedFrame(f'{{{length}}} bytes declared, {{end - p}} left')")
        content = {"string": f"str(b[p:{end}], 'utf-8')", "bytes": f"bytes(b[p:{end}])"}.get(kind.name, f"b[p:{end}]")
        self.line(f"{target} = {content}; p = {end}")
        if nullable:
            self.indent = self.indent[:-1]

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
        if not tagged:
            self.flush()
            self.line("if b[p]: p = skip_tagged_fields(b, p)")
            self.line("else: p += 1")
            return
        count, tag, size, end = self.name(), self.name(), self.name(), self.name()
        self.run.append(("B", count))
        self.flush()
        self.line(f"if {count}:")
        self.indent += " "
        self.line(f"if {count} > 127: {count}, p = uvarint(b, p - 1)")
        self.line(f"for _ in range({count}):")
        self.indent += " "
        self.line(f"{tag}, p = uvarint(b, p); {size}, p = uvarint(b, p); {end} = p + {size}")
        self.line(f"if {end} > end: raise MalformedFrame('a tagged field is longer than the message')")
        word = "if"
        for each in tagged:
            self.line(f"{word} {tag} == {each.tag}:")
            self.indent += " "
            self.field(each, f"{value}.{each.name}")
            self.flush()
            self.line(f"if p != {end}: raise MalformedFrame('{each.name}: its size does not match its content')")
            self.indent = self.indent[:-1]
            word = "elif"
        self.line(f"else: p = {end}")
        self.indent = self.indent[:-2]
