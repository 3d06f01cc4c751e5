"""Where a node's settings come from: built-in defaults or a file, then the environment, then the command line."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence

from odradek.apps.terminal.properties import read_file
from odradek.apps.terminal.sentence import Sentence
from odradek.configdef import ConfigError
from odradek.server.configs.node_config import NodeConfig, load
from odradek.values import value

DEFAULT_PORT = 9092
DEFAULT_DATA = "odradek-data"

NOT_SETTINGS = frozenset(
    (
        "KAFKA_VERSION",
        "KAFKA_HEAP_OPTS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_OPTS",
        "KAFKA_JMX_OPTS",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_JMX_HOSTNAME",
    )
)
"""Variables that the apache/kafka image reads for other ends, so they are no keys of `server.properties` (KIP-975)."""


@value
class Sources:
    """Settings by key, and for those that are not from the file a word on where they are from."""

    properties: dict[str, str]
    origins: dict[str, str]

    def load(self) -> NodeConfig:
        """The configuration, or a Sentence that also says where a wrong setting came from."""
        try:
            return load(self.properties, host_name=host_name(), origins=self.origins)
        except ConfigError as wrong:
            origin = self.origins.get(wrong.key)
            raise Sentence(f"{wrong} ({wrong.key} is set by {origin}.)" if origin else str(wrong)) from wrong


def gather(
    file: str | None,
    environment: Mapping[str, str],
    *,
    port: int | None = None,
    data: str | None = None,
    overrides: Sequence[str] = (),
) -> Sources:
    """All settings of one start; of two for the same key the later source counts."""
    if file is not None and port is not None:
        raise Sentence("--port goes without a FILE; with one, say --override listeners=... instead.", 2)
    properties = lone_node(DEFAULT_PORT if port is None else port, DEFAULT_DATA) if file is None else read_file(file)
    origins: dict[str, str] = {}
    for variable, key in environment_keys(environment).items():
        properties[key] = environment[variable]
        origins[key] = f"the environment variable {variable}"
    if port is not None:
        properties["listeners"] = lone_node(port, DEFAULT_DATA)["listeners"]
        origins["listeners"] = "--port"
    if data is not None:
        properties["log.dirs"] = data
        origins["log.dirs"] = "--data"
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key.strip():
            raise Sentence(f"--override takes KEY=VALUE, not {override!r}.", 2)
        properties[key.strip()] = text.strip()
        origins[key.strip()] = "--override"
    return Sources(properties, origins)


def lone_node(port: int, data: str) -> dict[str, str]:
    """A node for someone who configured nothing.

    It listens on loopback alone, because it asks nobody who they are. Its controller is on any free port: nobody but
    the node itself needs to find it.
    """
    return {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": data,
    }


def environment_keys(environment: Mapping[str, str]) -> dict[str, str]:
    """Which variable sets which key: `_` is a dot, `__` an underscore, `___` a dash."""
    return {
        variable: variable[len("KAFKA_") :].lower().replace("_", ".").replace("...", "-").replace("..", "_")
        for variable in sorted(environment)
        if variable.startswith("KAFKA_") and len(variable) > len("KAFKA_") and variable not in NOT_SETTINGS
    }


def host_name() -> str:
    """What a listener without a host is advertised as: this machine's name where it resolves, else localhost."""
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return "localhost"
    return name
