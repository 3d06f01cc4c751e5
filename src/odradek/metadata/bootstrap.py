"""A new cluster's beginning: the records it starts with, and the files that formatting a node's directories writes.

Everything is as Apache Kafka's storage tool leaves it, so either can start on what the other formatted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from odradek.ids import LeaderEpoch, NodeId, Uuid, parse_uuid, uuid_text
from odradek.metadata.features import (
    KRAFT_VERSION,
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    RELEASES,
    SUPPORTED_FEATURES,
    default_levels,
    metadata_version_of,
    supported_feature,
    supports_transactions,
)
from odradek.metadata.image.configs import ALL_BROKERS, BROKER_RESOURCE
from odradek.metadata.raft.snapshot import BOOTSTRAP_SNAPSHOT, BadSnapshot, QuorumRecords, build_snapshot, read_snapshot
from odradek.metadata.raft.voters import Voter
from odradek.metadata.records import BeginTransactionRecord, ConfigRecord, EndTransactionRecord, FeatureLevelRecord
from odradek.metadata.uuids import random_uuid
from odradek.ports import Entropy
from odradek.protocol.codec import Message
from odradek.values import value

BOOTSTRAP_FILE = "bootstrap.checkpoint"
META_PROPERTIES_FILE = "meta.properties"
METADATA_DIRECTORY = "__cluster_metadata-0"

_BOOTSTRAP_TRANSACTION = "Bootstrap records"
_ELIGIBLE_LEADER_REPLICAS = "eligible.leader.replicas.version"


class FormatError(Exception):
    """What was asked for cannot be formatted; the message is for a person."""


@value
class FormatRequest:
    """The options of `storage format`, parsed."""

    cluster_id: str
    node_id: NodeId
    log_dirs: tuple[str, ...]
    metadata_log_dir: str
    controller_listener_name: str
    features: Mapping[str, int]
    release_version: str | None
    initial_controllers: tuple[Voter, ...] | None
    """The voters of a dynamic quorum; None for a static one, or for a node that joins one."""


@value
class FormattedDirectory:
    """What one log directory gets: each file's path within it, and its content. `meta.properties` comes last, for it is
    what makes a directory count as formatted."""

    log_dir: str
    kind: str
    directory_id: Uuid
    files: tuple[tuple[str, bytes], ...]


@value
class FormatPlan:
    """Everything that formatting writes, and what it chose."""

    metadata_version: int
    records: tuple[Message, ...]
    directories: tuple[FormattedDirectory, ...]

    @property
    def release(self) -> str:
        return RELEASES[self.metadata_version]


def plan_format(request: FormatRequest, *, unformatted: Sequence[str], entropy: Entropy, now_ms: int) -> FormatPlan:
    """Decide the files for the directories that have none yet; FormatError where the options contradict each other."""
    if not request.cluster_id:
        raise FormatError("You must specify the cluster id.")
    levels = feature_levels(request)
    records = bootstrap_records(levels)
    bootstrap = _bootstrap_snapshot(records, now_ms)
    directories = []
    for log_dir in sorted(unformatted):
        kind = _kind(request, log_dir)
        directory_id = _own_directory_id(request) if kind == _VOTER else random_uuid(entropy)
        files = [(BOOTSTRAP_FILE, bootstrap)]
        if kind in (_VOTER, _NON_VOTER):
            path = f"{METADATA_DIRECTORY}/{BOOTSTRAP_SNAPSHOT.file_name}"
            files.append((path, _voters_snapshot(request, levels[KRAFT_VERSION], now_ms)))
        properties = meta_properties(
            cluster_id=request.cluster_id, node_id=request.node_id, directory_id=directory_id, now_ms=now_ms
        )
        files.append((META_PROPERTIES_FILE, properties))
        directories.append(FormattedDirectory(log_dir, kind, directory_id, tuple(files)))
    return FormatPlan(levels[METADATA_VERSION], records, tuple(directories))


def feature_levels(request: FormatRequest) -> dict[str, int]:
    """The level of every feature that this node knows, from what was asked for and defaults."""
    levels = {}
    for name, level in sorted(request.features.items()):
        known = supported_feature(name)
        if known is None:
            names = ", ".join(sorted(feature.name for feature in SUPPORTED_FEATURES))
            raise FormatError(f"Unsupported feature: {name}. Supported features are: {names}")
        if not known.minimum <= level <= known.maximum:
            raise FormatError(f"No feature:{name} with feature level {level}")
        levels[name] = level
    levels[METADATA_VERSION] = _metadata_version(request)
    levels[KRAFT_VERSION] = _kraft_version(request)
    return {**default_levels(levels[METADATA_VERSION]), **levels}


def bootstrap_records(levels: Mapping[str, int]) -> tuple[Message, ...]:
    """What the first controller writes: metadata.version first, then the other features by name.

    kraft.version is told by a control record, and level 0 by leaving it out.
    """
    records: list[Message] = [FeatureLevelRecord(name=METADATA_VERSION, feature_level=levels[METADATA_VERSION])]
    for name, level in sorted(levels.items()):
        if name not in (METADATA_VERSION, KRAFT_VERSION) and level > 0:
            records.append(FeatureLevelRecord(name=name, feature_level=level))
    return tuple(records)


def default_bootstrap_records() -> tuple[Message, ...]:
    """For a directory without `bootstrap.checkpoint`: what formatting it today would have written."""
    return bootstrap_records(default_levels(LATEST_METADATA_VERSION))


def read_bootstrap(content: bytes) -> tuple[Message, ...]:
    """The records in a `bootstrap.checkpoint`; FormatError if it is damaged."""
    try:
        return read_snapshot(content).records
    except BadSnapshot as damaged:
        raise FormatError(f"{BOOTSTRAP_FILE} is damaged: {damaged}.") from damaged


def activation_records(bootstrap: Sequence[Message], *, min_insync_replicas: int) -> list[Message]:
    """The first batch of an empty metadata log: all of the bootstrap or nothing of it.

    Where leaders may be elected from the ELR, the cluster-wide min.insync.replicas must be on record (KIP-966).
    """
    levels = {record.name: record.feature_level for record in bootstrap if isinstance(record, FeatureLevelRecord)}
    records = list(bootstrap)
    if levels.get(_ELIGIBLE_LEADER_REPLICAS, 0) > 0:
        records.append(
            ConfigRecord(
                resource_type=BROKER_RESOURCE,
                resource_name=ALL_BROKERS,
                name="min.insync.replicas",
                value=str(min_insync_replicas),
            )
        )
    if not supports_transactions(levels.get(METADATA_VERSION, 0)):
        return records
    return [BeginTransactionRecord(name=_BOOTSTRAP_TRANSACTION), *records, EndTransactionRecord()]


def meta_properties(*, cluster_id: str, node_id: NodeId, directory_id: Uuid, now_ms: int) -> bytes:
    """The file that says whose directory it is, with the lines and the order that Java's Properties give it."""
    written = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")
    lines = (
        "#",
        f"#{written}",
        f"node.id={node_id}",
        f"directory.id={uuid_text(directory_id)}",
        "version=1",
        f"cluster.id={cluster_id}",
    )
    return "".join(f"{line}\n" for line in lines).encode()


@value
class MetaProperties:
    """What a `meta.properties` says; a directory of older releases has no id of its own."""

    cluster_id: str
    node_id: NodeId
    directory_id: Uuid | None


def read_meta_properties(properties: Mapping[str, str], *, log_dir: str) -> MetaProperties:
    """Check what the file of a log directory says; FormatError when it is not a KRaft node's."""
    version = properties.get("version", "0")
    if version != "1":
        raise FormatError(
            f"{log_dir}/{META_PROPERTIES_FILE} has version {version}; a node of a KRaft cluster has version 1."
        )
    try:
        directory = properties.get("directory.id")
        return MetaProperties(
            cluster_id=properties["cluster.id"],
            node_id=NodeId(int(properties["node.id"])),
            directory_id=parse_uuid(directory) if directory else None,
        )
    except KeyError as missing:
        raise FormatError(f"{log_dir}/{META_PROPERTIES_FILE} has no {missing.args[0]}.") from missing
    except ValueError as wrong:
        raise FormatError(f"{log_dir}/{META_PROPERTIES_FILE} is wrong: {wrong}.") from wrong


_LOG = "data directory"
_STATIC = "metadata directory"
_NON_VOTER = "dynamic metadata directory"
_VOTER = "dynamic metadata voter directory"


def _kind(request: FormatRequest, log_dir: str) -> str:
    if log_dir != request.metadata_log_dir:
        return _LOG
    if request.initial_controllers is None:
        return _STATIC
    return _VOTER if any(voter.node_id == request.node_id for voter in request.initial_controllers) else _NON_VOTER


def _own_directory_id(request: FormatRequest) -> Uuid:
    voters = request.initial_controllers or ()
    return next(voter.directory_id for voter in voters if voter.node_id == request.node_id)


def _metadata_version(request: FormatRequest) -> int:
    asked = request.features.get(METADATA_VERSION)
    if asked is not None and request.release_version is not None:
        raise FormatError(
            f"Use either --release-version or --feature {METADATA_VERSION}, not both: they say the same thing."
        )
    if asked is not None:
        return asked
    if request.release_version is None:
        return LATEST_METADATA_VERSION
    try:
        return metadata_version_of(request.release_version)
    except ValueError as unknown:
        raise FormatError(str(unknown)) from unknown


def _kraft_version(request: FormatRequest) -> int:
    dynamic = request.initial_controllers is not None
    asked = request.features.get(KRAFT_VERSION)
    if asked is None:
        return 1 if dynamic else 0
    if bool(asked) != dynamic:
        condition = "if" if dynamic else "unless"
        raise FormatError(
            f"Cannot set {KRAFT_VERSION} to {asked} {condition} KIP-853 configuration is present. "
            f"Try removing the --feature flag for {KRAFT_VERSION}."
        )
    return asked


def _bootstrap_snapshot(records: Sequence[Message], now_ms: int) -> bytes:
    return build_snapshot(
        records,
        metadata_version=LATEST_METADATA_VERSION,
        epoch=LeaderEpoch(0),
        last_contained_timestamp_ms=0,
        now_ms=now_ms,
    )


def _voters_snapshot(request: FormatRequest, kraft_version: int, now_ms: int) -> bytes:
    voters = tuple(sorted(request.initial_controllers or (), key=lambda voter: voter.node_id))
    return build_snapshot(
        (),
        metadata_version=LATEST_METADATA_VERSION,
        epoch=BOOTSTRAP_SNAPSHOT.epoch,
        last_contained_timestamp_ms=now_ms,
        now_ms=now_ms,
        quorum=QuorumRecords(kraft_version, voters, request.controller_listener_name),
    )
