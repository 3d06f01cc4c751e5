"""Whose directories these are: a lone node formats what is empty, and refuses what is another's."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.unit.metadata.building import uuid

from odradek.adapters.world import real_world
from odradek.configdef import format_properties, parse_properties
from odradek.ids import NodeId, uuid_text
from odradek.metadata.bootstrap import FormatError
from odradek.metadata.image import EMPTY_IMAGE
from odradek.server.configs.node_config import NodeConfig, load
from odradek.server.membership.identity import Identity, check_joining, join, resolve_identity, survey


def node(*directories: Path, **changes: str) -> NodeConfig:
    properties = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": ",".join(map(str, directories)),
    }
    return load({**properties, **{name.replace("_", "."): text for name, text in changes.items()}})


def settle(config: NodeConfig, cluster_id: str = "") -> Identity:
    return resolve_identity(config, real_world(), cluster_id=cluster_id)


def meta(directory: Path) -> dict[str, str]:
    return parse_properties((directory / "meta.properties").read_text())


def test_an_empty_directory_is_formatted_and_found_again(tmp_path: Path) -> None:
    config = node(tmp_path / "a", tmp_path / "b")
    first = settle(config)
    assert sorted(first.directory_ids) == [str(tmp_path / "a"), str(tmp_path / "b")]
    assert meta(tmp_path / "a") == {
        "node.id": "1",
        "directory.id": uuid_text(first.directory_ids[str(tmp_path / "a")]),
        "version": "1",
        "cluster.id": first.cluster_id,
    }
    assert (tmp_path / "a/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint").exists()
    assert not (tmp_path / "b/__cluster_metadata-0").exists()
    assert settle(config) == first


def test_a_new_cluster_may_be_given_its_name(tmp_path: Path) -> None:
    assert settle(node(tmp_path), "4L6g3nShT-eMCtK--X86sw").cluster_id == "4L6g3nShT-eMCtK--X86sw"


def test_a_static_voter_gets_no_recorded_quorum(tmp_path: Path) -> None:
    settle(node(tmp_path, controller_quorum_voters="1@127.0.0.1:9093"))
    assert not (tmp_path / "__cluster_metadata-0").exists()


def test_a_directory_that_is_added_later_joins_the_cluster(tmp_path: Path) -> None:
    first = settle(node(tmp_path / "a"))
    config = node(tmp_path / "a", tmp_path / "new")
    found = settle(config)
    assert found.joining == (str(tmp_path / "new"),)
    assert not (tmp_path / "new").exists(), "whether something was in it is not known yet"
    check_joining(found, EMPTY_IMAGE, NodeId(1))
    both = join(config, real_world(), found)
    assert both.joining == ()
    assert sorted(both.directory_ids) == [str(tmp_path / "a"), str(tmp_path / "new")]
    assert both.cluster_id == first.cluster_id
    assert meta(tmp_path / "new")["cluster.id"] == first.cluster_id


@pytest.mark.parametrize("roles", ["broker,controller", "controller", "broker"])
def test_directories_in_another_order_begin_no_second_metadata_log(tmp_path: Path, roles: str) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    changes = {"process_roles": roles, "controller_quorum_voters": "1@127.0.0.1:9093"}
    if roles == "controller":
        changes["listeners"] = "CONTROLLER://127.0.0.1:9093"
    elif roles == "broker":
        changes |= {"listeners": "PLAINTEXT://127.0.0.1:9092", "controller_quorum_voters": "2@127.0.0.1:9093"}
    first = settle(node(a, b, **changes), "4L6g3nShT-eMCtK--X86sw")
    (a / "__cluster_metadata-0").mkdir()
    with pytest.raises(FormatError, match=rf"{a} holds the metadata log .* set metadata\.log\.dir={a}"):
        settle(node(b, a, **changes))
    with pytest.raises(FormatError, match=rf"{a} holds the metadata log .* set metadata\.log\.dir={a}"):
        settle(node(tmp_path / "new", a, b, **changes))
    assert settle(node(b, a, metadata_log_dir=str(a), **changes)) == first


def test_two_metadata_logs_are_not_chosen_from(tmp_path: Path) -> None:
    settle(node(tmp_path / "a", tmp_path / "b"))
    (tmp_path / "b/__cluster_metadata-0").mkdir()
    with pytest.raises(FormatError, match=r"Both .*/a and .*/b hold a metadata log"):
        settle(node(tmp_path / "a", tmp_path / "b"))


def test_two_logs_of_one_partition_are_not_chosen_from(tmp_path: Path) -> None:
    config = node(tmp_path / "a", tmp_path / "b")
    settle(config)
    for name, topic in (("a", 1), ("b", 2)):
        (tmp_path / name / "t-0").mkdir()
        (tmp_path / name / "t-0/partition.metadata").write_text(f"version: 0\ntopic_id: {uuid_text(uuid(topic))}\n")
    settle(config)  # One of them is a deleted topic's.
    shutil.copy(tmp_path / "a/t-0/partition.metadata", tmp_path / "b/t-0/partition.metadata")
    with pytest.raises(FormatError, match=r"t-0 is in .*/a and in .*/b: move the copy away that is not to count"):
        settle(config)


@pytest.mark.parametrize("unnamed", ["a", "b"])
def test_a_log_that_does_not_say_its_topic_may_be_a_copy(tmp_path: Path, unnamed: str) -> None:
    """A power loss took `partition.metadata` of the one that is newer: the simulation's replication scenario."""
    config = node(tmp_path / "a", tmp_path / "b")
    settle(config)
    for name in ("a", "b"):
        (tmp_path / name / "t-0").mkdir()
        if name != unnamed:
            (tmp_path / name / "t-0/partition.metadata").write_text(f"version: 0\ntopic_id: {uuid_text(uuid(1))}\n")
    with pytest.raises(FormatError, match=r"t-0 is in .*/a and in .*/b"):
        settle(config)


def test_lost_metadata_is_not_papered_over_by_a_new_cluster(tmp_path: Path) -> None:
    settle(node(tmp_path / "a", tmp_path / "b"))
    (tmp_path / "a/meta.properties").unlink()
    with pytest.raises(FormatError, match="the cluster's metadata is missing"):
        settle(node(tmp_path / "a", tmp_path / "b"))


def test_someone_elses_files_are_not_formatted_over(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("…")
    with pytest.raises(FormatError, match=r"not empty \(it holds thesis\.txt\)"):
        settle(node(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_another_nodes_directory_is_refused(tmp_path: Path) -> None:
    settle(node(tmp_path))
    with pytest.raises(FormatError, match="belongs to node 1, and this is node 2"):
        settle(node(tmp_path, node_id="2"))


def test_directories_of_two_clusters_are_refused(tmp_path: Path) -> None:
    settle(node(tmp_path / "a"))
    settle(node(tmp_path / "b"))
    with pytest.raises(FormatError, match="belong to different clusters"):
        settle(node(tmp_path / "a", tmp_path / "b"))


def test_a_copied_directory_is_refused(tmp_path: Path) -> None:
    settle(node(tmp_path / "a"))
    (tmp_path / "b").mkdir()
    (tmp_path / "b/meta.properties").write_bytes((tmp_path / "a/meta.properties").read_bytes())
    with pytest.raises(FormatError, match="one is a copy of another"):
        settle(node(tmp_path / "a", tmp_path / "b"))


def test_a_directory_from_before_directory_ids_gets_one(tmp_path: Path) -> None:
    older = {"node.id": "1", "version": "1", "cluster.id": "4L6g3nShT-eMCtK--X86sw"}
    (tmp_path / "meta.properties").write_text(format_properties(older))
    found = settle(node(tmp_path))
    assert meta(tmp_path) == {**older, "directory.id": uuid_text(found.directory_ids[str(tmp_path)])}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("version=0\nbroker.id=1\ncluster.id=x\n", "has version 0; a node of a KRaft cluster has version 1"),
        ("version=1\nnode.id=1\n", "has no cluster.id"),
        ("version=1\nnode.id=one\ncluster.id=x\n", "is wrong"),
    ],
)
def test_a_damaged_meta_properties_is_told(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "meta.properties").write_text(content)
    with pytest.raises(FormatError, match=message):
        settle(node(tmp_path))


def test_a_directory_that_cannot_be_read_is_only_lost_itself(tmp_path: Path) -> None:
    settle(node(tmp_path / "a"))
    (tmp_path / "broken").write_text("a file, no directory")
    config = node(tmp_path / "a", tmp_path / "broken")
    assert survey(config, real_world().disk).failed == {str(tmp_path / "broken"): "not a directory"}
    assert list(settle(config).failed) == [str(tmp_path / "broken")]
    with pytest.raises(FormatError, match=r"cannot read .*broken: not a directory"):
        settle(node(tmp_path / "broken", tmp_path / "a"))
