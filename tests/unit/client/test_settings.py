"""Settings: Kafka's names, and one sentence about what cannot be."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools import client_config_reference

import odradek.client
from odradek.client.settings import ADMIN_TABLE, CONSUMER_TABLE, PRODUCER_TABLE, Settings, parse_address
from odradek.configdef import ConfigError, ConfigValue

BROKER: dict[str, ConfigValue] = {"bootstrap.servers": "a:1, b:2"}


def test_texts_and_python_values_mean_the_same() -> None:
    texts = Settings(PRODUCER_TABLE, BROKER | {"linger.ms": "7", "enable.idempotence": "false"})
    values = Settings(PRODUCER_TABLE, BROKER | {"linger.ms": 7, "enable.idempotence": False})
    for settings in (texts, values):
        assert settings.number("linger.ms") == 7
        assert not settings.flag("enable.idempotence")
        assert settings.words("bootstrap.servers") == ("a:1", "b:2")
        assert settings.number("batch.size") == 16_384
        assert settings.given.keys() == {"bootstrap.servers", "linger.ms", "enable.idempotence"}


def test_none_is_not_given_and_what_the_java_client_needs_is_passed_over() -> None:
    settings = Settings(CONSUMER_TABLE, BROKER | {"group.id": None, "key.deserializer": "x.y.Z"})
    assert settings.optional_text("group.id") is None


@pytest.mark.parametrize(
    ("name", "setting", "complaint"),
    [
        ("lingre.ms", "5", "Did you mean linger.ms?"),
        ("linger.ms", "soon", "Not a number"),
        ("linger.ms", "-1", "at least 0"),
        ("acks", "2", "must be one of"),
        ("group.id", "g", "another kind of client"),
        ("security.protocol", "SASL_SSL", "PLAINTEXT only"),
        ("ssl.truststore.location", "/x", "PLAINTEXT only"),
        ("sasl.jaas.config", "x", "PLAINTEXT only"),
        ("bootstrap.servers", "", "must not be empty"),
    ],
)
def test_what_is_refused(name: str, setting: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Settings(PRODUCER_TABLE, BROKER | {name: setting})
    assert complaint in str(refused.value)
    assert refused.value.key == name


def test_somebody_must_be_named_to_connect_to() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers is missing"):
        Settings(ADMIN_TABLE, {})


def test_addresses() -> None:
    assert parse_address("localhost:9092") == ("localhost", 9092)
    assert parse_address("[::1]:9092") == ("::1", 9092)
    for text in ("localhost", ":9092", "localhost:", "localhost:x", "localhost:70000", "localhost:0"):
        with pytest.raises(ConfigError, match="is not host:port"):
            parse_address(text)


def test_the_reference_is_current() -> None:
    assert client_config_reference.PAGE.read_text() == client_config_reference.page(), "run `make docs`"


def test_every_setting_is_read_somewhere() -> None:
    """A setting that nothing reads would be a promise that is not kept."""
    rooms = [path for path in Path(odradek.client.__path__[0]).rglob("*.py") if path.name != "settings.py"]
    everything = "\n".join(path.read_text() for path in rooms)
    names = sorted({*ADMIN_TABLE, *PRODUCER_TABLE, *CONSUMER_TABLE})
    read_by_pattern = r"(retry|reconnect)\.backoff\.(max\.)?ms|compression\.(gzip|lz4|zstd)\.level"
    unread = [name for name in names if f'"{name}"' not in everything and not re.fullmatch(read_by_pattern, name)]
    assert unread == ["group.protocol", "security.protocol"], "which have one value each"
