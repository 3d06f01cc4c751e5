"""What will be in force for a topic: the answer to CreateTopics tells it setting by setting."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.configdef import value_text
from odradek.metadata.image import Image
from odradek.metadata.image.configs import ALL_BROKERS, BROKER_RESOURCE
from odradek.protocol.messages.create_topics import CreatableTopicConfigs
from odradek.server.configs.dynamic import ConfigSource
from odradek.server.configs.node_config import NodeConfig
from odradek.storage.config import TOPIC_CONFIGS


class EffectiveConfigs:
    """Every topic-level setting by name, with its value and where that comes from: the strongest source counts."""

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        self._resource = str(config.node_id)
        self._sources: tuple[Mapping[str, str], Mapping[str, str]] | None = None
        self._defaults: dict[str, CreatableTopicConfigs] = {}

    def of_topic(self, image: Image, topic_configs: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        sources = (image.configs.of(BROKER_RESOURCE, self._resource), image.configs.of(BROKER_RESOURCE, ALL_BROKERS))
        if sources != self._sources:  # Most topics have the defaults, so those are kept ready.
            self._sources = sources
            public = sorted(name for name, key in TOPIC_CONFIGS.items() if not key.internal)
            self._defaults = {name: self._default(name, *sources) for name in public}
        overrides = {name: _entry(name, text, ConfigSource.TOPIC) for name, text in topic_configs.items()}
        return [overrides.get(name, entry) for name, entry in self._defaults.items()]

    def _default(self, name: str, own: Mapping[str, str], everyones: Mapping[str, str]) -> CreatableTopicConfigs:
        key = TOPIC_CONFIGS[name]
        text = value_text(getattr(self._config.log_defaults, name.replace(".", "_"), key.default))
        for synonym in key.synonyms:
            if synonym in own:
                return _entry(name, own[synonym], ConfigSource.BROKER)
            if synonym in everyones:
                return _entry(name, everyones[synonym], ConfigSource.ALL_BROKERS)
            if synonym in self._config.given:
                return _entry(name, text, ConfigSource.FILE)
        return _entry(name, text, ConfigSource.DEFAULT)


def _entry(name: str, text: str | None, source: ConfigSource) -> CreatableTopicConfigs:
    return CreatableTopicConfigs(name=name, value=text, read_only=False, config_source=source, is_sensitive=False)
