"""Texts become values, and properties files are read, as Kafka and Java read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.configdef import (
    Choices,
    ConfigError,
    ConfigKey,
    ConfigType,
    NotEmpty,
    Range,
    RangeOr,
    ThrottledReplicas,
    did_you_mean,
    format_properties,
    parse_properties,
    value_text,
)


def key(kind: ConfigType, valid: object = None) -> ConfigKey:
    return ConfigKey("some.key", kind, None, "A key.", valid)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (ConfigType.BOOLEAN, " TRUE ", True),
        (ConfigType.BOOLEAN, "false", False),
        (ConfigType.INT, " +10 ", 10),
        (ConfigType.INT, "-2147483648", -(1 << 31)),
        (ConfigType.LONG, "9223372036854775807", (1 << 63) - 1),
        (ConfigType.SHORT, "32767", 32767),
        (ConfigType.DOUBLE, "1e-1", 0.1),
        (ConfigType.DOUBLE, ".5", 0.5),
        (ConfigType.LIST, "a , b,c", ("a", "b", "c")),
        (ConfigType.LIST, "a,a", ("a",)),
        (ConfigType.LIST, "", ()),
        (ConfigType.STRING, "  x y ", "x y"),
        (ConfigType.PASSWORD, " keep ", " keep "),
    ],
)
def test_a_text_becomes_a_value(kind: ConfigType, text: str, expected: object) -> None:
    assert key(kind).parse(text) == expected


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (
            ConfigType.BOOLEAN,
            "maybe",
            "Invalid value maybe for configuration some.key: Expected value to be either true or false",
        ),
        (ConfigType.INT, "2147483648", "Invalid value 2147483648 for configuration some.key: Not a number of type INT"),
        (ConfigType.SHORT, "32768", "Invalid value 32768 for configuration some.key: Not a number of type SHORT"),
        (ConfigType.LONG, "0x10", "Invalid value 0x10 for configuration some.key: Not a number of type LONG"),
        (ConfigType.LONG, "1_000", "Invalid value 1_000 for configuration some.key: Not a number of type LONG"),
        (ConfigType.LONG, "", "Invalid value  for configuration some.key: Not a number of type LONG"),
        (
            ConfigType.LONG,
            "9" * 5000,
            f"Invalid value {'9' * 5000} for configuration some.key: Not a number of type LONG",
        ),
        (ConfigType.DOUBLE, "x", "Invalid value x for configuration some.key: Not a number of type DOUBLE"),
    ],
)
def test_a_wrong_text_is_refused_in_kafkas_words(kind: ConfigType, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        key(kind).parse(text)
    assert str(wrong.value) == message
    assert wrong.value.key == "some.key"


@pytest.mark.parametrize(
    ("kind", "valid", "text", "message"),
    [
        (ConfigType.INT, Range(1), "0", "Invalid value 0 for configuration some.key: Value must be at least 1"),
        (
            ConfigType.DOUBLE,
            Range(0, 1),
            "2",
            "Invalid value 2.0 for configuration some.key: Value must be no more than 1",
        ),
        (
            ConfigType.INT,
            RangeOr(1, 9, -1),
            "0",
            "Invalid value 0 for configuration some.key: Value must be between 1 and 9 or equal to -1",
        ),
        (
            ConfigType.LIST,
            Choices(("compact", "delete")),
            "delete,x",
            "Invalid value x for configuration some.key: String must be one of: compact, delete",
        ),
        (
            ConfigType.LIST,
            NotEmpty(),
            "",
            "Configuration 'some.key' must not be empty. Valid values include: any non-empty value",
        ),
        (
            ConfigType.LIST,
            ThrottledReplicas(),
            "x",
            "Invalid value [x] for configuration some.key: some.key must be the literal '*' or a list of replicas "
            "in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        ),
    ],
)
def test_a_value_out_of_bounds_is_refused_in_kafkas_words(
    kind: ConfigType, valid: object, text: str, message: str
) -> None:
    with pytest.raises(ConfigError) as wrong:
        key(kind, valid).parse(text)
    assert str(wrong.value) == message


def test_bounds_are_included() -> None:
    assert [key(ConfigType.INT, Range(1, 3)).parse(text) for text in ("1", "3")] == [1, 3]
    assert [key(ConfigType.INT, RangeOr(1, 9, -1)).parse(text) for text in ("1", "9", "-1")] == [1, 9, -1]
    assert key(ConfigType.LIST, ThrottledReplicas()).parse("*") == ("*",)
    assert key(ConfigType.LIST, ThrottledReplicas()).parse("0:1,1:2") == ("0:1", "1:2")
    assert key(ConfigType.LIST, ThrottledReplicas()).parse(",0:1,") == ("", "0:1")  # Kafka reads over empty ones, too.


def test_validators_show_themselves_as_in_kafkas_reference() -> None:
    shown = [str(valid) for valid in (Range(1), Range(0, 1), RangeOr(1, 9, -1), Choices(("a", "b")))]
    assert shown == ["[1,...]", "[0,...,1]", "[1,...,9] or -1", "[a, b]"]


def test_a_misspelt_key_is_told_its_nearest_neighbour() -> None:
    assert did_you_mean("retention.sm", ["retention.ms", "segment.ms"]) == " Did you mean retention.ms?"
    assert did_you_mean("entirely.different", ["retention.ms"]) == ""


def test_values_are_written_as_kafka_writes_them() -> None:
    assert [value_text(given) for given in (True, ("a", "b"), 5, None)] == ["true", "a,b", "5", None]


def test_properties_follow_javas_rules() -> None:
    text = "\n".join(
        [
            "# a comment = not a key",
            "  ! another",
            "plain=value",
            "colon: value with spaces ",
            "blank value",
            "  indented \t = \t x",
            "long=one,\\",
            "    two,\\",
            "    three",
            "escaped\\ key\\=1=a\\tb\\u00e9\\\\",
            "empty=",
            "alone",
            "twice=1",
            "twice=2",
            "sum=a=b:c # not a comment",
            "even=back\\\\",
            "last=not continued at the end\\",
        ]
    )
    assert parse_properties(text) == {
        "plain": "value",
        "colon": "value with spaces ",
        "blank": "value",
        "indented": "x",
        "long": "one,two,three",
        "escaped key=1": "a\tbé\\",
        "empty": "",
        "alone": "",
        "twice": "2",
        "sum": "a=b:c # not a comment",
        "even": "back\\",
        "last": "not continued at the end",
    }


def test_a_broken_unicode_escape_is_refused() -> None:
    with pytest.raises(ConfigError, match="uxxxx"):
        parse_properties("key=\\u12")


def test_a_character_beyond_the_first_plane_has_two_escapes() -> None:
    assert parse_properties("key=\\ud83d\\ude00") == {"key": "😀"}


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.dictionaries(words.filter(bool), words, max_size=5))
def test_what_is_written_is_read_back(properties: dict[str, str]) -> None:
    assert parse_properties(format_properties(properties)) == properties
