"""Writes the Python function that turns a message into bytes, for one message and one version.

Generated, because a call per field would cost more than all the bytes: runs of fixed-size fields become one `pack`, a
length below 128 one table lookup, and nothing is asked at run time that the version already answers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from odradek.ports import FileSlice
from odradek.protocol.declare import FieldLayout, Message, Struct, layout
from odradek.protocol.primitives import WireType, encode_uvarint

_ONE_BYTE = tuple([bytes((value,)) for value in range(128)])


def compile_encoder(cls: type[Message], version: int, *, in_parts: bool) -> Callable[[Any], Any]:
    """`encode(message) -> bytes`, or with `in_parts` a list in which record batches stay objects of their own."""
    return _Encoder(version, flexible=version in cls.flexible, in_parts=in_parts).compile(cls)


class _Encoder:
    """Source in the making. Pieces go into the list `w` through `a`, its `append`."""

    def __init__(self, version: int, *, flexible: bool, in_parts: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.in_parts = in_parts
        self.lines: list[str] = []
        self.indent = " "
        self.names = 0
        self.run: list[tuple[str, str]] = []
        """Fixed-size values waiting to be packed together: struct letter and expression."""
        self.constants: dict[str, Any] = {
            "one_byte": _ONE_BYTE,
            "uvarint": encode_uvarint,
            "pack": struct.pack,
            "join": b"".join,
            "FileSlice": FileSlice,
        }

    def compile(self, cls: type[Message]) -> Callable[[Any], Any]:
        self.line("w = []")
        self.line("a = w.append")
        if self.in_parts:
            self.line("parts = []")
        self.struct(cls, "m")
        self.flush()
        if self.in_parts:
            self.line("if w: parts.append(join(w))")
            self.line("return parts")
        else:
            self.line("return join(w)")
        source = "\n".join(["def encode(m):", *self.lines])
        exec(compile(source, f"<encoder of {cls.__name__} v{self.version}>", "exec"), self.constants)
        encode: Callable[[Any], Any] = self.constants["encode"]
        return encode

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def name(self) -> str:
        self.names += 1
        return f"v{self.names}"

    def flush(self) -> None:
        """Write the run of fixed-size values as one pack."""
        if self.run:
            letters = "".join([letter for letter, _ in self.run])
            pack = "pack_" + letters.replace("?", "o")
            if pack not in self.constants:
                self.constants[pack] = struct.Struct(">" + letters).pack
            self.line(f"a({pack}({', '.join([expression for _, expression in self.run])}))")
            self.run.clear()

    def struct(self, cls: type[Struct], value: str) -> None:
        tagged = []
        for each in layout(cls):
            if self.version in each.versions:
                if each.tag is None:
                    self.field(each, f"{value}.{each.name}")
                else:
                    tagged.append(each)
        if self.flexible:
            self.tagged_fields(sorted(tagged, key=lambda each: each.tag or 0), value)

    def field(self, each: FieldLayout, value: str) -> None:
        nullable = self.version in each.nullable
        flexible = self.flexible if each.flexible is None else self.version in each.flexible
        if each.is_array:
            self.array(each, value, flexible=flexible, nullable=nullable)
        elif not isinstance(each.type, WireType):
            self.nested(each.type, value, nullable=nullable)
        elif each.type.size:
            self.run.append((each.type.format, value))
        else:
            self.sized(each.type, value, flexible=flexible, nullable=nullable)

    def nested(self, cls: type[Struct], value: str, *, nullable: bool) -> None:
        inner = self.name()
        self.line(f"{inner} = {value}")
        if nullable:
            self.flush()
            self.line(f"if {inner} is None: a(b'\\xff')")
            self.line("else:")
            self.indent += " "
            self.line("a(b'\\x01')")
        self.struct(cls, inner)
        if nullable:
            self.flush()
            self.indent = self.indent[:-1]

    def array(self, each: FieldLayout, value: str, *, flexible: bool, nullable: bool) -> None:
        items = self.name()
        self.line(f"{items} = {value}")
        self.null_or_length(items, "i", flexible=flexible, nullable=nullable)
        kind = each.type
        if isinstance(kind, WireType) and kind.size:
            letters = f"f'>{{len({items})}}{kind.format}'" if len(kind.format) == 1 else f"'>' + '16s' * len({items})"
            self.line(f"if {items}: a(pack({letters}, *{items}))")
        else:
            item = self.name()
            self.line(f"for {item} in {items}:")
            self.indent += " "
            if isinstance(kind, WireType):
                self.sized(kind, item, flexible=flexible, nullable=False)
            else:
                before = len(self.lines)
                self.struct(kind, item)
                if len(self.lines) == before and not self.run:
                    self.line("pass")
            self.flush()
            self.indent = self.indent[:-1]
        if nullable:
            self.indent = self.indent[:-1]

    def sized(self, kind: WireType, value: str, *, flexible: bool, nullable: bool) -> None:
        """A string, bytes or record batches: length, then content."""
        content = self.name()
        if kind.name == "string":
            encoded = f"{value}.encode()"
            if nullable:
                self.line(f"{content} = {value}")
                encoded = f"{content} if {content} is None else {content}.encode()"
            self.line(f"{content} = {encoded}")
        else:
            self.line(f"{content} = {value}")
        self.null_or_length(content, "h" if kind.name == "string" else "i", flexible=flexible, nullable=nullable)
        if kind.name != "records":
            self.line(f"a({content})")
        elif self.in_parts:
            self.line("parts.append(join(w)); w.clear()")
            self.line(f"if len({content}): parts.append({content})")
        else:
            self.line(f"a({content}.read() if isinstance({content}, FileSlice) else {content})")
        if nullable:
            self.indent = self.indent[:-1]

    def null_or_length(self, value: str, letter: str, *, flexible: bool, nullable: bool) -> None:
        """The length before something of variable size; a nullable one leaves the indent inside the `else`."""
        if nullable:
            self.flush()
            null = b"\0" if flexible else b"\xff" * struct.calcsize(letter)
            self.line(f"if {value} is None: a({null!r})")
            self.line("else:")
            self.indent += " "
        if flexible:
            self.flush()
            length = self.name()
            self.line(f"{length} = len({value}) + 1")
            self.line(f"a(one_byte[{length}] if {length} < 128 else uvarint({length}))")
        else:
            self.run.append((letter, f"len({value})"))
            self.flush()

    def tagged_fields(self, tagged: list[FieldLayout], value: str) -> None:
        """Those that differ from their default, each with tag and size, in order of tag."""
        self.flush()
        if not tagged:
            self.line("a(b'\\0')")
            return
        count = self.name()
        found = self.name()
        self.line(f"{count} = 0; {found} = w; w = []; a = w.append")
        for each in tagged:
            self.tagged_field(each, value, count)
        self.line(f"a = {found}.append; a(one_byte[{count}])")
        self.line(f"if {count}: {found} += w")
        self.line(f"w = {found}")

    def tagged_field(self, each: FieldLayout, value: str, count: str) -> None:
        content, default, outer = self.name(), self.name(), self.name()
        self.constants[default] = each.default()
        self.line(f"{content} = {value}.{each.name}")
        self.line(f"if {content} is not {default} and {content} != {default}:")
        self.indent += " "
        self.line(f"{count} += 1; {outer} = w; w = []; a = w.append")
        self.field(each, content)
        self.flush()
        encoded = self.name()
        self.line(f"{encoded} = join(w); w = {outer}; a = w.append")
        self.line(f"a({encode_uvarint(each.tag or 0)!r}); a(uvarint(len({encoded}))); a({encoded})")
        self.indent = self.indent[:-1]
