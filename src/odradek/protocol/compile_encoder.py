"""Writes the Python function that turns a message into bytes, for one message and one version.

Generated, because a call per field would cost more than all the bytes: runs of fixed-size fields become one `pack`,
which takes the length of what follows with it, and nothing is asked at run time that the version already answers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

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
            "in_memory": (bytes, bytearray, memoryview),
        }

    def compile(self, cls: type[Message]) -> Callable[[Any], Any]:
        self.line("w = []; a = w.append")
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

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines under an `if`, `else` or `for`; a run never crosses its borders."""
        self.flush()
        self.line(head)
        self.indent += " "
        before = len(self.lines)
        yield
        self.flush()
        if len(self.lines) == before:
            self.line("pass")
        self.indent = self.indent[:-1]

    def flush(self) -> None:
        """Write the run of fixed-size values as one pack, or as a literal where they are known already."""
        if self.run:
            known = all(letter == "B" and expression.isdecimal() for letter, expression in self.run)
            literal = repr(bytes([int(expression) for _, expression in self.run])) if known else ""
            self.line(f"a({literal or self.packed(self.run)})")
            self.run.clear()

    def packed(self, run: list[tuple[str, str]]) -> str:
        letters = "".join([letter for letter, _ in run])
        pack = "pack_" + letters.replace("?", "o")
        if pack not in self.constants:
            self.constants[pack] = struct.Struct(">" + letters).pack
        return f"{pack}({', '.join([expression for _, expression in run])})"

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
            self.nested(each.type, value, null=(0 if each.tag is not None else 255) if nullable else None)
        elif each.type.size:
            self.run.append((each.type.format, value))
        else:
            self.sized(each.type, value, flexible=flexible, nullable=nullable)

    def nested(self, cls: type[Struct], value: str, *, null: int | None) -> None:
        """A struct; a nullable one after the byte 1, or the byte that says null, which differs in tagged fields."""
        inner = self.name()
        self.line(f"{inner} = {value}")
        if null is None:
            self.struct(cls, inner)
            return
        self.flush()
        self.line(f"if {inner} is None: a({bytes([null])!r})")
        with self.block("else:"):
            self.run.append(("B", "1"))
            self.struct(cls, inner)

    def array(self, each: FieldLayout, value: str, *, flexible: bool, nullable: bool) -> None:
        items = self.name()
        self.line(f"{items} = {value}")
        some = self.length(items, "i", flexible=flexible, nullable=nullable)
        kind = each.type
        if isinstance(kind, WireType) and kind.size:
            letters = f"f'>{{len({items})}}{kind.format}'" if len(kind.format) == 1 else f"'>' + '16s' * len({items})"
            self.line(f"if {some}: a(pack({letters}, *{items}))")
            return
        item = self.name()
        with self.block(f"for {item} in {items}{' or ()' if nullable else ''}:"):
            if isinstance(kind, WireType):
                self.sized(kind, item, flexible=flexible, nullable=False)
            else:
                self.struct(kind, item)

    def sized(self, kind: WireType, value: str, *, flexible: bool, nullable: bool) -> None:
        """A string, bytes or record batches: length, then content."""
        content = self.name()
        self.line(f"{content} = {value}")
        letter = "i"
        if kind.name == "string":
            letter = "h"
            condition = f"if {content} is not None: " if nullable else ""
            self.line(f"{condition}{content} = {content}.encode()")
        some = self.length(content, letter, flexible=flexible, nullable=nullable)
        if kind.name != "records":
            put = f"a({content})"
        elif self.in_parts:
            put = f"parts.append(join(w)); w.clear(); parts.append({content})"
        else:
            put = f"a({content} if isinstance({content}, in_memory) else {content}.read())"
        self.line(f"if {some}: {put}")

    def length(self, value: str, letter: str, *, flexible: bool, nullable: bool) -> str:
        """Write the length of what varies in size, with the run before it; the test whether anything follows."""
        length = self.name()
        if not flexible:
            self.line(f"{length} = " + (f"-1 if {value} is None else " if nullable else "") + f"len({value})")
            self.run.append((letter, length))
            self.flush()
            return f"{length} > 0"
        self.line(f"{length} = " + (f"0 if {value} is None else " if nullable else "") + f"len({value}) + 1")
        short = self.packed([*self.run, ("B", length)]) if self.run else f"one_byte[{length}]"
        long = (self.packed(self.run) + " + " if self.run else "") + f"uvarint({length})"
        self.run.clear()
        self.line(f"a({short} if {length} < 128 else {long})")
        return f"{length} > 1"

    def tagged_fields(self, tagged: list[FieldLayout], value: str) -> None:
        """Those that differ from their default, each with tag and size, in order of tag; mostly there is none."""
        if not tagged:
            self.run.append(("B", "0"))
            return
        self.flush()
        names = [self.name() for _ in tagged]
        for each, name in zip(tagged, names, strict=True):
            self.line(f"{name} = {value}.{each.name}")
        tests = [self.differs(each, name) for each, name in zip(tagged, names, strict=True)]
        place, count = self.name(), self.name()
        with self.block(f"if {' or '.join(tests)}:"):
            self.line(f"{count} = 0; {place} = len(w); a(b'')")
            for each, name, test in zip(tagged, names, tests, strict=True):
                with self.block(f"if {test}:"):
                    self.tagged_field(each, name)
                    self.line(f"{count} += 1")
            self.line(f"w[{place}] = one_byte[{count}]")
        self.line("else: a(b'\\0')")

    def differs(self, each: FieldLayout, value: str) -> str:
        """The test whether a tagged field must be sent."""
        default = each.default()
        if default == [] and self.version not in each.nullable:
            return value
        if default is None:
            return f"{value} is not None"
        if not isinstance(default, Struct):
            return f"{value} != {default!r}"
        name = self.name()
        self.constants[name] = default
        if self.fixed_size(each):  # Field by field: a call of `__eq__` would cost more than all of them.
            tests = [f"{value}.{field.name} != {getattr(default, field.name)!r}" for field in layout(type(default))]
            return f"({value} is not {name} and ({' or '.join(tests)}))"
        return f"({value} is not {name} and {value} != {name})"

    def fixed_size(self, each: FieldLayout) -> int:
        """How many bytes a field always takes; 0 if that depends on its value."""
        if each.is_array or self.version in each.nullable:
            return 0
        if isinstance(each.type, WireType):
            return each.type.size
        inner = [field for field in layout(each.type) if self.version in field.versions]
        sizes = [0 if field.tag is not None else self.fixed_size(field) for field in inner]
        return sum(sizes) + self.flexible if all(sizes) else 0

    def tagged_field(self, each: FieldLayout, value: str) -> None:
        size = self.fixed_size(each)
        if size:
            self.run += [("B", str(byte)) for byte in encode_uvarint(each.tag or 0) + encode_uvarint(size)]
            self.field(each, value)
            self.flush()
            return
        outer, encoded = self.name(), self.name()
        self.line(f"{outer} = w; w = []; a = w.append")
        self.field(each, value)
        self.flush()
        self.line(f"{encoded} = join(w); w = {outer}; a = w.append")
        self.line(f"a({encode_uvarint(each.tag or 0)!r} + uvarint(len({encoded})) + {encoded})")
