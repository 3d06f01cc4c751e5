"""What a topic's log is configured with: what the topic says, and the broker's defaults for the rest."""

from __future__ import annotations

from odradek.metadata.image.configs import TOPIC_RESOURCE, ConfigsImage
from odradek.server.configs.node_config import NodeConfig
from odradek.storage.config import LogConfig, log_config

_MOST_LOG_CONFIGS = 1000


class LogConfigs:
    """One for all topics that say the same: few are special, and every partition asks."""

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        self._known: dict[tuple[tuple[str, str], ...], tuple[LogConfig, LogConfig]] = {}
        """By what a topic says: the defaults of the broker, and what both make together."""

    def of(self, topic: str, configs: ConfigsImage) -> LogConfig:
        overrides = configs.of(TOPIC_RESOURCE, topic)
        defaults, told = self._config.log_defaults, tuple(overrides.items())
        known = self._known.get(told)
        if known is None or known[0] is not defaults:
            if len(self._known) >= _MOST_LOG_CONFIGS:
                self._known.clear()
            known = self._known[told] = (defaults, log_config(overrides, defaults))
        return known[1]
