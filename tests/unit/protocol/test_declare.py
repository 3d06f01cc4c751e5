"""The declaration language itself: ranges of versions, constructors, defaults, equality."""

from __future__ import annotations

import copy

import pytest

from odradek.protocol.codec import Message, Struct, Versions, decode, encode, field
from odradek.protocol.declare import layout
from odradek.protocol.primitives import (
    TopicName,
    WireType,
    boolean,
    bytes_,
    float64,
    int8,
    int32,
    string,
    uint16,
    uint32,
)


class Leader(Struct):
    id: int32 = -1
    epoch: int32 = -1


class Place(Struct):
    host: string
    port: uint16 = field(versions="1+", default=9092)


class Example(Message, api_key=99, versions="0-3", flexible="2+", unstable="3"):
    name: TopicName
    places: list[Place]
    flags: list[boolean] = field(versions="1+", default_factory=list)
    names: list[string] | None = field(versions="1+", nullable="2+", default_factory=list)
    weight: float64 = 0.5
    checksum: uint32 = 0
    kind: int8 = field(versions="0-1", default=3)
    home: Place | None = field(versions="2+", nullable="2+", default=None)
    leader: Leader = field(versions="2+", tag=1, default_factory=Leader)
    note: bytes_ | None = field(versions="3+", nullable="3+", tag=0, default=None)
    labels: list[string] = field(versions="3+", tag=2, default_factory=list)
    successor: Leader | None = field(versions="3+", nullable="3+", tag=3, default_factory=Leader)


def example() -> Example:
    return Example(
        name="t",
        places=[Place(host="h", port=1)],
        flags=[True, False],
        names=None,
        home=Place(host="home"),
        leader=Leader(id=4),
        note=b"\0",
        labels=["a", ""],
        successor=None,
    )


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("3", [3], [2, 4]), ("0-4", [0, 4], [5]), ("2+", [2, 32767], [1]), ("none", [], [0, 1])],
)
def test_versions(text: str, inside: list[int], outside: list[int]) -> None:
    versions = Versions(text)
    assert all(version in versions for version in inside)
    assert not any(version in versions for version in outside)
    assert repr(versions) == text
    assert versions == Versions(text)


def test_versions_in_common() -> None:
    assert Versions("2+").within(Versions("0-4")) == Versions("2-4")
    assert Versions("5+").within(Versions("0-4")) == Versions("none")
    assert list(Versions("2-4")) == [2, 3, 4]


def test_what_a_message_knows_about_itself() -> None:
    assert (Example.api_key, Example.min_version, Example.max_stable_version) == (99, 0, 2)
    assert Example.field_names[:3] == ("name", "places", "flags")
    name = layout(Example)[0].type
    assert isinstance(name, WireType)
    assert (name.name, name.entity) == ("string", "topicName")


def test_a_message_takes_keywords_only_and_no_others() -> None:
    with pytest.raises(TypeError):
        Example("t", [])  # type: ignore[call-arg,misc]
    with pytest.raises(TypeError):
        Place(host="h", prot=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Place(host="h").prot = 1  # type: ignore[attr-defined]


def test_defaults_are_not_shared_unless_they_cannot_be_changed() -> None:
    first, second = Example(name="a", places=[]), Example(name="b", places=[])
    first.flags.append(True)
    assert second.flags == []
    assert first.leader is second.leader
    with pytest.raises(TypeError, match="a default Leader is shared"):
        first.leader.id = 5
    first.leader = Leader(id=5)
    assert second.leader == Leader()
    assert repr(second.leader) == "Leader(id=-1, epoch=-1)"


def test_equality_and_repr() -> None:
    assert Place(host="h") == Place(host="h", port=9092)
    assert Place(host="h") != Place(host="i")
    assert Place(host="h") != "h"
    assert repr(Place(host="h")) == "Place(host='h', port=9092)"
    with pytest.raises(TypeError):
        hash(Place(host="h"))


def test_copies() -> None:
    original = example()
    deep = copy.deepcopy(original)
    assert deep == original
    deep.places[0].host = "other"
    assert original.places[0].host == "h"
    with_default = Example(name="t", places=[])
    assert copy.deepcopy(with_default).leader is with_default.leader


WITHOUT_TAGS = "02 74  02 02 68 0001 00  03 01 00  00  3fe0000000000000 00000000  01 05 686f6d65 2384 00 "


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, "0001 74  00000001 0001 68  3fe0000000000000 00000000 03"),
        (1, "0001 74  00000001 0001 68 0001  00000002 01 00  00000000  3fe0000000000000 00000000 03"),
        (2, WITHOUT_TAGS + "01 01 09 00000004 ffffffff 00"),
        (
            3,
            WITHOUT_TAGS + "04  00 02 02 00  01 09 00000004 ffffffff 00  02 04 03 02 61 01  03 01 00",
        ),
    ],
)
def test_known_bytes_of_every_construct(version: int, expected: str) -> None:
    message = example()
    if version == 1:
        message.names = []
    encoded = encode(message, version)
    assert encoded.hex() == bytes.fromhex(expected).hex()
    decoded = decode(Example, version, encoded)
    assert encode(decoded, version) == encoded
    assert decoded == message or version < 3


def test_a_null_that_the_version_cannot_say_is_an_error() -> None:
    with pytest.raises(TypeError):
        encode(example(), 1)
    with pytest.raises(AttributeError):
        encode(Example(name=None, places=[]), 0)  # type: ignore[arg-type]


def test_a_nullable_struct_in_a_tagged_field() -> None:
    message = Example(name="t", places=[], successor=Leader(id=7))
    assert encode(message, 3).endswith(bytes.fromhex("01 03 0a 01 00000007 ffffffff 00"))
    assert decode(Example, 3, encode(message, 3)) == message


def test_tagged_fields_with_their_default_are_not_sent() -> None:
    assert encode(Example(name="t", places=[]), 3).endswith(bytes.fromhex("00000000 ff 00"))
    explicit = Example(name="t", places=[], leader=Leader(id=-1, epoch=-1), labels=[], note=None)
    assert encode(explicit, 3) == encode(Example(name="t", places=[]), 3)
