"""A node's configuration: `server.properties` read, checked and made typed.

`load` either returns a `NodeConfig` that the node can honour, with warnings about what it passes over, or raises
`ConfigError` with one sentence for the person who wrote the file. Wording follows Kafka where Kafka has the same error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from odradek.configdef import ConfigError, ConfigValue, did_you_mean
from odradek.security.principal import super_users
from odradek.server.configs.settings import NODE_CONFIGS, ListenerSetting, NodeSettings, VoterSetting
from odradek.server.configs.unsupported import NO_EFFECT, refuse_what_cannot_be_honoured, warnings_for
from odradek.storage.config import LogConfig, broker_log_defaults
from odradek.storage.producer_state import ProducerSettings

__all__ = ["ListenerSetting", "NodeConfig", "VoterSetting", "load"]

ALL_DIRECTORIES = "*"
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ENDPOINT = re.compile(r"([^:/\s]+)://(?:\[([0-9a-zA-Z%._:-]*)\]|([0-9a-zA-Z%._-]*)):([0-9]+)")
_HOST_PORT = re.compile(r"(?:\[([0-9a-zA-Z%._:-]+)\]|([0-9a-zA-Z%._-]+)):([0-9]+)")


class NodeConfig(NodeSettings):
    """Settings by Kafka's key with underscores, and what follows from several of them together."""

    super_users: frozenset[str]
    """Principals that may do everything, whatever the access rules say."""

    allow_everyone_if_no_acl_found: bool
    """Whether a resource that no access rule speaks of is open to all."""

    log_defaults: LogConfig
    """What a topic without overrides has."""

    controller_advertised_listeners: tuple[ListenerSetting, ...]
    """What other nodes are told of this controller."""

    values: dict[str, ConfigValue]
    """Every key with its value, as parsed: for DescribeConfigs."""

    given: dict[str, str]
    """What was set, as text: a key in here has its value from the file, not by default."""

    warnings: tuple[str, ...]
    """Sentences for the log: what was passed over."""

    controller_bootstrap: tuple[tuple[str, int], ...]
    """Hosts and ports at which the quorum is looked for: the voters, or the bootstrap servers of a dynamic quorum."""

    is_alone: bool
    """Whether nobody else is named: such a node may begin a cluster by itself."""

    def is_cordoned(self, log_dir: str) -> bool:
        """Whether a directory gets no new partitions (KIP-1066)."""
        return log_dir in self.cordoned_log_dirs or self.cordoned_log_dirs == (ALL_DIRECTORIES,)

    @property
    def is_broker(self) -> bool:
        return "broker" in self.process_roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.process_roles

    @property
    def producer_settings(self) -> ProducerSettings:
        """What every log of this node is told of its producers."""
        return ProducerSettings(
            expiration_ms=self.producer_id_expiration_ms, verifies=self.transaction_partition_verification_enable
        )

    @property
    def broker_listeners(self) -> tuple[ListenerSetting, ...]:
        return tuple(one for one in self.listeners if one.name not in self.controller_listener_names)

    @property
    def controller_listeners(self) -> tuple[ListenerSetting, ...]:
        return tuple(one for one in self.listeners if one.name in self.controller_listener_names)


def load(
    properties: Mapping[str, str], *, host_name: str = "localhost", origins: Mapping[str, str] | None = None
) -> NodeConfig:
    """Make a configuration of what the file says.

    `host_name` is advertised for listeners without a host; `origins` says of keys that are not from the file what set
    them, for the warnings.
    """
    refuse_what_cannot_be_honoured(properties)
    given = _with_node_id(properties)
    values = _parse(given)
    config = NodeConfig()
    config.__dict__.update({name.replace(".", "_"): parsed for name, parsed in values.items()})
    config.values = values
    config.given = dict(given)
    config.warnings = tuple(_warnings(given, origins or {}))
    _resolve_directories(config)
    check_cordoned(config, config.cordoned_log_dirs)
    _resolve_listeners(config, host_name)
    _resolve_http(config)
    _resolve_quorum(config, host_name)
    _resolve_authorizer(config)
    check_logs(values)
    config.log_defaults = broker_log_defaults(values)
    return config


def _with_node_id(properties: Mapping[str, str]) -> Mapping[str, str]:
    """`broker.id` is the older name of `node.id`."""
    older = properties.get("broker.id", "").strip()
    if not older or older == "-1":
        return properties
    if properties.get("node.id", older).strip() != older:
        raise ConfigError("You must set `node.id` to the same value as `broker.id`.", "broker.id")
    return {**properties, "node.id": older}


def _parse(given: Mapping[str, str]) -> dict[str, ConfigValue]:
    values: dict[str, ConfigValue] = {}
    for name, key in NODE_CONFIGS.items():
        if name in given:
            values[name] = key.parse(given[name])
        elif key.required:
            raise ConfigError(f'Missing required configuration "{name}" which has no default value.', name)
        else:
            values[name] = key.default
    return values


_ALSO_KNOWN = (
    "broker.id",
    "security.inter.broker.protocol",
    "super.users",
    "allow.everyone.if.no.acl.found",
)
"""Read elsewhere in this file and by `refuse_what_cannot_be_honoured`, so neither settings nor without effect; Kafka
leaves the last two to its authorizer, and so they have no type there either."""


def _warnings(given: Mapping[str, str], origins: Mapping[str, str]) -> list[str]:
    passed_over = [name for name in given if name in NO_EFFECT]
    lines = warnings_for(passed_over)
    for name in given:
        if name not in NODE_CONFIGS and name not in NO_EFFECT and name not in _ALSO_KNOWN:
            origin = f" (set by {origins[name]})" if name in origins else ""
            hint = did_you_mean(name, (*NODE_CONFIGS, *NO_EFFECT))
            lines.append(f"Unknown configuration {name}{origin} is ignored.{hint}")
    return lines


def _resolve_directories(config: NodeConfig) -> None:
    fields: dict[str, Any] = config.__dict__
    fields["log_dirs"] = config.log_dirs or config.log_dir
    fields["metadata_log_dir"] = config.metadata_log_dir or config.log_dirs[0]


def _resolve_authorizer(config: NodeConfig) -> None:
    """What the authorizer is told; without one these keys mean nothing, as in Kafka."""
    try:
        config.super_users = super_users(config.given.get("super.users", ""))
    except ValueError as wrong:
        raise ConfigError(
            f"super.users: {wrong} is no principal; write Type:name, such as User:admin.", "super.users"
        ) from None
    config.allow_everyone_if_no_acl_found = (
        config.given.get("allow.everyone.if.no.acl.found", "").strip().lower() == "true"
    )


# --- listeners --------------------------------------------------------------------------------------------------------


def _resolve_listeners(config: NodeConfig, host_name: str) -> None:
    """Parse the endpoints and check, as Kafka does, that they fit together; anything but PLAINTEXT is refused."""
    fields: dict[str, Any] = config.__dict__
    fields["controller_listener_names"] = tuple(name.upper() for name in config.controller_listener_names)
    protocols = _protocol_map(config)
    fields["listener_security_protocol_map"] = protocols
    listeners = _endpoints("listeners", config.values["listeners"], protocols)
    fields["listeners"] = listeners
    _check_distinct(listeners)
    _check_roles(config)
    advertised = listeners
    if config.values["advertised.listeners"] is not None:
        advertised = _endpoints("advertised.listeners", config.values["advertised.listeners"], protocols)
    reachable = tuple(
        ListenerSetting(one.name, one.host or host_name, one.port, one.security_protocol) for one in advertised
    )
    for_brokers = tuple(one for one in reachable if one.name not in config.controller_listener_names)
    for_controllers = tuple(one for one in reachable if one.name in config.controller_listener_names)
    fields["advertised_listeners"] = for_brokers
    config.controller_advertised_listeners = for_controllers or tuple(
        ListenerSetting(one.name, one.host or host_name, one.port, one.security_protocol)
        for one in config.controller_listeners
    )
    if config.is_broker:
        _check_advertised(config, for_brokers)
        _resolve_inter_broker_listener(config)


def _check_roles(config: NodeConfig) -> None:
    """Which listeners a node must have, and may not have, follows from what it is."""
    key = "controller.listener.names"
    own = [one.name for one in config.listeners]
    missing = [name for name in config.controller_listener_names if name not in own]
    if config.is_controller:
        if not config.controller_listeners:
            raise ConfigError(
                f"{key} must contain at least one value appearing in the 'listeners' configuration "
                "when running the KRaft controller role",
                key,
            )
        if missing:
            raise ConfigError(
                f"{key} must only contain values appearing in the 'listeners' configuration "
                "when running the KRaft controller role",
                key,
            )
    elif config.controller_listeners:
        raise ConfigError(
            f"{key} must not contain a value appearing in the 'listeners' configuration "
            "when running KRaft with just the broker role",
            key,
        )
    for name in missing:
        protocol = config.listener_security_protocol_map.get(name)
        if protocol is None:
            raise ConfigError(
                f"Controller listener with name {name} defined in {key} not found in listener.security.protocol.map "
                "(an explicit security mapping for each controller listener is required if "
                "listener.security.protocol.map is non-empty, or if there are security protocols other than PLAINTEXT "
                "in use)",
                key,
            )
        _refuse_unless_plain(name, protocol, key)
    if not config.is_broker and config.broker_listeners:
        raise ConfigError(
            f"The listeners config must only contain KRaft controller listeners from {key} "
            "when process.roles=controller",
            "listeners",
        )


def _protocol_map(config: NodeConfig) -> dict[str, str]:
    """Listener name to security protocol; a controller's listener is PLAINTEXT unless the map itself is given."""
    key = "listener.security.protocol.map"
    protocols: dict[str, str] = {}
    for entry in str(config.values[key]).split(","):
        name, colon, protocol = entry.strip().partition(":")
        if not colon:
            raise ConfigError(
                f"Error parsing configuration property '{key}': {entry.strip()!r} is not NAME:PROTOCOL.", key
            )
        if protocol not in SECURITY_PROTOCOLS:
            raise ConfigError(f"Invalid security protocol `{protocol}` defined in {key}", key)
        protocols[name.upper()] = protocol
    if key not in config.given:
        for name in config.controller_listener_names:
            protocols.setdefault(name, "PLAINTEXT")
    return protocols


def _endpoints(key: str, texts: ConfigValue, protocols: Mapping[str, str]) -> tuple[ListenerSetting, ...]:
    assert isinstance(texts, tuple)
    complaint = f"Error creating broker listeners from '[{', '.join(texts)}]': "
    found: list[ListenerSetting] = []
    for text in texts:
        matched = _ENDPOINT.fullmatch(text)
        if matched is None or int(matched[4]) > 65535:
            raise ConfigError(f"{complaint}Unable to parse {text} to a broker endpoint", key)
        name = matched[1].upper()
        protocol = protocols.get(name)
        if protocol is None:
            raise ConfigError(f"{complaint}No security protocol defined for listener {name}", key)
        _refuse_unless_plain(name, protocol, key)
        found.append(ListenerSetting(name, matched[2] or matched[3] or "", int(matched[4]), protocol))
    return tuple(found)


def _refuse_unless_plain(name: str, protocol: str, key: str) -> None:
    if protocol != "PLAINTEXT":
        raise ConfigError(
            f"Listener {name} asks for {protocol}, which this node does not offer yet; "
            "it does not start rather than serve open what was meant to be closed.",
            key,
        )


def _resolve_http(config: NodeConfig) -> None:
    key = "odradek.http.listener"
    text = config.values[key]
    if text is None:
        return
    matched = _ENDPOINT.fullmatch(str(text))
    if matched is None or matched[1] != "http" or int(matched[4]) > 65535:
        raise ConfigError(f"{key}={text} is not of the form http://host:port, for example http://127.0.0.1:9404.", key)
    fields: dict[str, Any] = config.__dict__
    fields["odradek_http_listener"] = ListenerSetting("HTTP", matched[2] or matched[3] or "", int(matched[4]))


def _check_distinct(listeners: Sequence[ListenerSetting]) -> None:
    shown = f"[{', '.join(map(str, listeners))}]"
    if len({one.name for one in listeners}) < len(listeners):
        raise ConfigError(f"Each listener must have a different name, listeners: {shown}", "listeners")
    families: dict[int, list[bool]] = {}
    for one in listeners:
        if one.port:
            families.setdefault(one.port, []).append(":" in one.host)
    for six in families.values():
        # One port may be bound twice: once for an IPv4 and once for an IPv6 address.
        if len(six) > 2 or (len(six) == 2 and six[0] == six[1]):
            raise ConfigError(f"Each listener must have a different port, listeners: {shown}", "listeners")


def _check_advertised(config: NodeConfig, advertised: Sequence[ListenerSetting]) -> None:
    key = "advertised.listeners"
    if not advertised:
        raise ConfigError(
            "There must be at least one broker advertised listener. "
            "Perhaps all listeners appear in controller.listener.names?",
            key,
        )
    names = [one.name for one in config.broker_listeners]
    for one in advertised:
        if one.name not in names:
            raise ConfigError(
                f"{key} listener names must be equal to or a subset of the ones defined in listeners. "
                f"Found {one.name}. The valid options based on the current configuration are {','.join(names)}",
                key,
            )
        if one.host in ("0.0.0.0", "::"):
            raise ConfigError(
                f"{key} cannot use the nonroutable meta-address {one.host}. Use a routable IP address.", key
            )


def _resolve_inter_broker_listener(config: NodeConfig) -> None:
    key = "inter.broker.listener.name"
    names = [one.name for one in config.advertised_listeners]
    name = str(config.values[key] or "").upper()
    if name and "security.inter.broker.protocol" in config.given:
        raise ConfigError(f"Only one of {key} and security.inter.broker.protocol should be set.", key)
    if not name:
        name = "PLAINTEXT" if "PLAINTEXT" in names else names[0]
    if name not in names:
        raise ConfigError(
            f"{key} must be a listener name defined in advertised.listeners. "
            f"The valid options based on currently configured listeners are {','.join(names)}",
            key,
        )
    config.__dict__["inter_broker_listener_name"] = name


# --- the quorum -------------------------------------------------------------------------------------------------------


def _resolve_quorum(config: NodeConfig, host_name: str) -> None:
    """Who the controllers are, or where they can be asked for."""
    voters = tuple(_voter(text) for text in config.controller_quorum_voters)  # type: ignore[arg-type]
    config.__dict__["controller_quorum_voters"] = voters
    key = "controller.quorum.bootstrap.servers"
    servers = tuple(
        _host_and_port(text, key, '"{host}:{port}"', text) for text in config.controller_quorum_bootstrap_servers
    )
    config.controller_bootstrap = tuple((voter.host, voter.port) for voter in voters) or servers
    if voters:
        _check_voters(config, voters)
    elif not servers and sorted(config.process_roles) != ["broker", "controller"]:
        raise ConfigError(
            "If using process.roles, either controller.quorum.bootstrap.servers must contain the set of bootstrap "
            "controllers or controller.quorum.voters must contain a parseable set of controllers.",
            "process.roles",
        )
    config.is_alone = config.is_controller and (
        len(voters) == 1 or (not voters and all(_is_own(config, server, host_name) for server in servers))
    )


def _check_voters(config: NodeConfig, voters: tuple[VoterSetting, ...]) -> None:
    key = "controller.quorum.voters"
    ids = [voter.node_id for voter in voters]
    shown = ", ".join(map(str, ids))
    for node_id in ids:
        if ids.count(node_id) > 1:
            raise ConfigError(f"{key} names node {node_id} more than once.", key)
    if config.is_controller and config.node_id not in ids:
        raise ConfigError(
            f"If process.roles contains the 'controller' role, the node id {config.node_id} must be included in the "
            f"set of voters {key}={shown}",
            key,
        )
    if not config.is_controller and config.node_id in ids:
        raise ConfigError(
            f"If process.roles contains just the 'broker' role, the node id {config.node_id} must not be included in "
            f"the set of voters {key}={shown}",
            key,
        )


def _is_own(config: NodeConfig, server: tuple[str, int], host_name: str) -> bool:
    """Whether that is this node's own controller listener; any port may be, where the node chooses one itself."""
    own = (*config.controller_listeners, *config.controller_advertised_listeners)
    hosts = {*(one.host for one in own), host_name, "localhost", "127.0.0.1", "::1"}
    ports = [one.port for one in own]
    return server[0] in hosts and (server[1] in ports or 0 in ports)


def _voter(text: str) -> VoterSetting:
    key = "controller.quorum.voters"
    number, at, place = text.partition("@")
    if not at or not number.isdecimal():
        raise ConfigError(
            f"Failed to parse voter ID from entry {text} for the configuration {key}. "
            "Each entry should be in the form `{id}@{host}:{port}`.",
            key,
        )
    host, port = _host_and_port(place, key, "`{id}@{host}:{port}`", text)
    return VoterSetting(int(number), host, port)


def _host_and_port(place: str, key: str, form: str, entry: str) -> tuple[str, int]:
    matched = _HOST_PORT.fullmatch(place)
    if matched is None or int(matched[3]) > 65535:
        raise ConfigError(
            f"Failed to parse host name from {entry} for the configuration {key}. "
            f"Each entry should be in the form {form}",
            key,
        )
    return matched[1] or matched[2], int(matched[3])


# --- logs -------------------------------------------------------------------------------------------------------------


def check_cordoned(config: NodeConfig, cordoned: ConfigValue) -> None:
    """Those without new partitions (KIP-1066) are directories of this node; ConfigError, in Kafka's words, if not."""
    assert isinstance(cordoned, tuple)
    if ALL_DIRECTORIES in cordoned:
        if len(cordoned) > 1:
            raise ConfigError(
                "requirement failed: When cordoned.log.dirs is set to *, it must not contain other values",
                "cordoned.log.dirs",
            )
        return
    missing = [path for path in cordoned if path not in config.log_dirs]
    if missing:
        raise ConfigError(
            "requirement failed: All entries in cordoned.log.dirs must be present in log.dirs or log.dir. "
            f"Missing entries : {', '.join(missing)}",
            "cordoned.log.dirs",
        )


def check_logs(values: Mapping[str, ConfigValue]) -> None:
    """What Kafka requires of several keys together; ConfigError otherwise."""
    for key in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        if values[key] is not None:
            if values[key] == 0:
                raise ConfigError("log.retention.ms must be unlimited (-1) or, greater than or equal to 1", key)
            break
    for key, least in (("log.roll.ms", 1), ("log.roll.jitter.ms", 0)):
        given = values[key]
        if isinstance(given, int) and given < least:
            raise ConfigError(f"{key} must be greater than or equal to {least}", key)
