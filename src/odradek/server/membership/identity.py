"""Whose data directories these are: reading `meta.properties`, and formatting what is still empty.

`storage format` formats on demand; `resolve_identity` is what a starting node calls, and it also formats the empty
directories of a lone node by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from odradek.configdef import parse_properties
from odradek.ids import NodeId, Uuid, uuid_text
from odradek.metadata.bootstrap import (
    META_PROPERTIES_FILE,
    METADATA_DIRECTORY,
    FormatError,
    FormatPlan,
    FormatRequest,
    MetaProperties,
    meta_properties,
    plan_format,
    read_meta_properties,
)
from odradek.metadata.image import Image
from odradek.metadata.image.topics import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from odradek.metadata.raft.voters import Voter
from odradek.metadata.uuids import random_uuid
from odradek.ports import Disk, Entropy, World
from odradek.server.configs.node_config import NodeConfig
from odradek.storage.checkpoints import read_partition_metadata, replace_file
from odradek.storage.directories import parse_directory_name
from odradek.storage.file_names import PARTITION_METADATA
from odradek.values import value

logger = logging.getLogger(__name__)


@value
class Survey:
    """What is in a node's directories."""

    formatted: dict[str, MetaProperties]
    unformatted: tuple[str, ...]
    failed: dict[str, str]
    """Directories that cannot be read, and why."""


@value
class Identity:
    """Who a node is, by its directories."""

    cluster_id: str
    directory_ids: dict[str, Uuid]
    failed: dict[str, str]
    """Directories that cannot be used, and why; never the one with the metadata."""
    joining: tuple[str, ...] = ()
    """Empty ones beside a broker's formatted ones: `join` formats them, once `check_joining` has nothing against it."""


def all_directories(config: NodeConfig) -> tuple[str, ...]:
    """The directories with logs and, where it is another one, that of the metadata."""
    return tuple(dict.fromkeys((*config.log_dirs, config.metadata_log_dir)))


def survey(config: NodeConfig, disk: Disk) -> Survey:
    """Look into every directory; a `meta.properties` that is no KRaft node's raises FormatError."""
    formatted: dict[str, MetaProperties] = {}
    unformatted: list[str] = []
    failed: dict[str, str] = {}
    for log_dir in all_directories(config):
        try:
            content = disk.read_file(f"{log_dir}/{META_PROPERTIES_FILE}")
        except FileNotFoundError:
            unformatted.append(log_dir)
        except OSError as wrong:
            failed[log_dir] = (wrong.strerror or str(wrong)).lower()
        else:
            properties = parse_properties(content.decode("utf-8", "replace"))
            formatted[log_dir] = read_meta_properties(properties, log_dir=log_dir)
    return Survey(formatted, tuple(unformatted), failed)


def format_directories(
    config: NodeConfig,
    disk: Disk,
    entropy: Entropy,
    *,
    now_ms: int,
    cluster_id: str,
    unformatted: tuple[str, ...],
    initial_controllers: tuple[Voter, ...] | None,
    features: Mapping[str, int] | None = None,
    release_version: str | None = None,
) -> FormatPlan:
    """Write the files that make these directories this node's, each directory's `meta.properties` last."""
    request = FormatRequest(
        cluster_id=cluster_id,
        node_id=NodeId(config.node_id),
        log_dirs=config.log_dirs,
        metadata_log_dir=config.metadata_log_dir,
        controller_listener_name=config.controller_listener_names[0],
        features=features or {},
        release_version=release_version,
        initial_controllers=initial_controllers,
    )
    plan = plan_format(request, unformatted=unformatted, entropy=entropy, now_ms=now_ms)
    for directory in plan.directories:
        for name, content in directory.files:
            path = f"{directory.log_dir}/{name}"
            disk.make_directory(path.rpartition("/")[0])
            replace_file(disk, path, content, durable=True)
    return plan


def standalone_voter(config: NodeConfig, entropy: Entropy) -> tuple[Voter, ...]:
    """A dynamic quorum of this node alone, as `--standalone` asks for."""
    own = config.controller_advertised_listeners[0]
    return (Voter(NodeId(config.node_id), own.host, own.port, random_uuid(entropy)),)


def resolve_identity(config: NodeConfig, world: World, *, cluster_id: str = "") -> Identity:
    """Read the directories at start, formatting those of a new node that are empty.

    Empty directories of a broker that has others are only `joining`: one may be where a disk is not mounted, and the
    cluster's metadata has to say first that nothing was in it.

    `cluster_id` is what a new cluster is to be called, if not by a random id; a node of several is formatted only where
    it is given. FormatError when the directories are another node's or another cluster's, or when formatting would
    hide that something was lost.
    """
    found = survey(config, world.disk)
    _check_owner(config, found)
    if config.metadata_log_dir in found.failed:
        raise FormatError(f"cannot read {config.metadata_log_dir}: {found.failed[config.metadata_log_dir]}.")
    _check_metadata_place(config, world.disk)
    _check_copies(world.disk, found)
    now_ms = world.clock.now_ms()
    joining: tuple[str, ...] = ()
    if found.unformatted:
        _check_empty(config, world.disk, found)
    if found.formatted and config.is_broker:
        joining = found.unformatted
    elif found.unformatted:
        known = next((meta.cluster_id for meta in found.formatted.values()), None)
        if known is None and not config.is_alone and not cluster_id:
            raise FormatError(
                f"No `meta.properties` found in {found.unformatted[0]}: the directories of a node that is not alone "
                "are formatted first, all with the same cluster id; see `odradek storage format`."
            )
        alone = config.is_alone and not config.controller_quorum_voters
        voters = standalone_voter(config, world.entropy) if alone and known is None else None
        cluster_id = known or cluster_id or uuid_text(random_uuid(world.entropy))
        _format(config, world, found.unformatted, cluster_id=cluster_id, initial_controllers=voters)
        found = survey(config, world.disk)
    ids = {log_dir: _directory_id(log_dir, meta, world, now_ms) for log_dir, meta in found.formatted.items()}
    return Identity(found.formatted[config.metadata_log_dir].cluster_id, ids, found.failed, joining)


def check_joining(identity: Identity, image: Image, node_id: NodeId) -> None:
    """FormatError where an empty directory stands where one of this broker's may have been.

    One that failed while the broker ran is not in its registration any more. It is missed only if a partition in it is
    nobody else's to lead: the others' are filled again from who leads them now.
    """
    known = image.cluster.brokers.get(node_id)
    expected = set(known.log_dirs if known is not None else ())
    for topic in image.topics.by_id.values():
        for partition in topic.partitions:
            if node_id in (*partition.isr, *partition.elr, *partition.last_known_elr) and node_id in partition.replicas:
                expected.add(partition.directory(node_id))
    missing = expected.difference(identity.directory_ids.values(), _NO_DIRECTORY)
    if missing:
        raise FormatError(
            f"{identity.joining[0]} is empty, and a log directory that this broker had is missing (directory.id "
            f"{uuid_text(min(missing))}): mount it, or, if it is lost for good, format an empty one in its place with "
            f"`odradek storage format --ignore-formatted --cluster-id {identity.cluster_id}`."
        )


def join(config: NodeConfig, world: World, identity: Identity) -> Identity:
    """Format the directories that are joining; the identity with them."""
    _format(config, world, identity.joining, cluster_id=identity.cluster_id, initial_controllers=None)
    return resolve_identity(config, world)


_NO_DIRECTORY = (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY, LOST_DIRECTORY)


def _format(
    config: NodeConfig,
    world: World,
    unformatted: tuple[str, ...],
    *,
    cluster_id: str,
    initial_controllers: tuple[Voter, ...] | None,
) -> None:
    plan = format_directories(
        config,
        world.disk,
        world.entropy,
        now_ms=world.clock.now_ms(),
        cluster_id=cluster_id,
        unformatted=unformatted,
        initial_controllers=initial_controllers,
    )
    for directory in plan.directories:
        logger.info("Formatted %s %s with metadata.version %s.", directory.kind, directory.log_dir, plan.release)


def _check_owner(config: NodeConfig, found: Survey) -> None:
    clusters: dict[str, str] = {}
    directories: dict[Uuid, str] = {}
    for log_dir, meta in found.formatted.items():
        if meta.node_id != config.node_id:
            raise FormatError(
                f"{log_dir} belongs to node {meta.node_id}, and this is node {config.node_id}: "
                "set node.id accordingly, or use another directory."
            )
        clusters.setdefault(meta.cluster_id, log_dir)
        if meta.directory_id is not None and directories.setdefault(meta.directory_id, log_dir) != log_dir:
            raise FormatError(
                f"{log_dir} and {directories[meta.directory_id]} have the same directory.id: one is a copy of another."
            )
    if len(clusters) > 1:
        told = " and ".join(f"{log_dir} to cluster {cluster}" for cluster, log_dir in clusters.items())
        raise FormatError(f"The directories belong to different clusters: {told}.")


def _check_metadata_place(config: NodeConfig, disk: Disk) -> None:
    """Refuse a metadata log in another directory, as Kafka does: a new one would be begun beside it, and a cluster
    without topics would have every partition set aside."""
    configured = config.metadata_log_dir
    for log_dir in all_directories(config):
        if log_dir == configured or not disk.exists(f"{log_dir}/{METADATA_DIRECTORY}"):
            continue
        if disk.exists(f"{configured}/{METADATA_DIRECTORY}"):
            raise FormatError(
                f"Both {configured} and {log_dir} hold a metadata log ({METADATA_DIRECTORY}): move the one away that "
                "is not this cluster's (the newer and shorter one, if log.dirs was put in another order), and set "
                "metadata.log.dir to the directory of the other."
            )
        raise FormatError(
            f"{log_dir} holds the metadata log ({METADATA_DIRECTORY}), and the configured metadata directory is "
            f"{configured}: set metadata.log.dir={log_dir}, or name it first in log.dirs."
        )


def _check_copies(disk: Disk, found: Survey) -> None:
    """Refuse two logs of the same partition, as Kafka does: nothing says which of them is the newer one.

    That is what a directory brings along that was away while others were filled in its stead.
    """
    if len(found.formatted) == 1:
        return
    places: dict[str, list[tuple[Uuid | None, str]]] = {}
    for log_dir in found.formatted:
        for name, topic_id in _logs_in(disk, log_dir):
            for other_id, other in places.setdefault(name, []):
                # A power loss may have taken the file that says which topic it is of: then it may be the same one.
                if None in (topic_id, other_id) or topic_id == other_id:
                    raise FormatError(
                        f"{name} is in {other} and in {log_dir}: move the copy away that is not to count, or take the "
                        "directory that was away out of log.dirs again."
                    )
            places[name].append((topic_id, log_dir))


def _logs_in(disk: Disk, log_dir: str) -> list[tuple[str, Uuid | None]]:
    """The partitions' directories, and the topics they are of."""
    try:
        names = [name for name in disk.list(log_dir) if parse_directory_name(name) and name != METADATA_DIRECTORY]
        return [(name, read_partition_metadata(disk, f"{log_dir}/{name}/{PARTITION_METADATA}")) for name in names]
    except OSError:
        return []  # It is offline then, or will be: nothing in it is used.


def _check_empty(config: NodeConfig, disk: Disk, found: Survey) -> None:
    """Only what is surely new is formatted without being asked to."""
    if found.formatted and config.metadata_log_dir in found.unformatted:
        raise FormatError(
            f"No `meta.properties` found in {config.metadata_log_dir}, while other directories have one: the cluster's "
            "metadata is missing, and formatting would begin a new cluster."
        )
    for log_dir in found.unformatted:
        try:
            names = disk.list(log_dir)
        except FileNotFoundError:
            continue
        rest = [name for name in names if name not in (".lock", "lost+found")]
        if rest:
            raise FormatError(
                f"No `meta.properties` found in {log_dir}, which is not empty (it holds {rest[0]}): "
                "use an empty directory, or format this one with `odradek storage format`."
            )


def _directory_id(log_dir: str, meta: MetaProperties, world: World, now_ms: int) -> Uuid:
    """A directory from before KIP-858 has no id; it gets one now, as Kafka gives it."""
    if meta.directory_id is not None:
        return meta.directory_id
    chosen = random_uuid(world.entropy)
    content = meta_properties(cluster_id=meta.cluster_id, node_id=meta.node_id, directory_id=chosen, now_ms=now_ms)
    replace_file(world.disk, f"{log_dir}/{META_PROPERTIES_FILE}", content, durable=True)
    return chosen
