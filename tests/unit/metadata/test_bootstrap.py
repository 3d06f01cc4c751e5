"""Formatting, against what Apache Kafka's storage tool wrote."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tests.unit.metadata.building import entropy

from odradek.configdef import parse_properties
from odradek.ids import NodeId, parse_uuid
from odradek.metadata.bootstrap import (
    FormatError,
    FormatRequest,
    activation_records,
    default_bootstrap_records,
    meta_properties,
    plan_format,
    read_bootstrap,
    read_meta_properties,
)
from odradek.metadata.raft.snapshot import read_snapshot
from odradek.metadata.raft.voters import Voter
from odradek.metadata.records import BeginTransactionRecord, ConfigRecord, EndTransactionRecord, FeatureLevelRecord
from odradek.protocol.records.batch import iter_batches, read_header

GOLDEN = Path(__file__).parent / "golden"
DIRECTORY = parse_uuid("gKkNLb-OTa23IedVuQL8WQ")
CLUSTER = "4L6g3nShT-eMCtK--X86sw"
NOW_MS = 1_794_781_740_380

STATIC = FormatRequest(
    cluster_id=CLUSTER,
    node_id=NodeId(1),
    log_dirs=("/a", "/b"),
    metadata_log_dir="/a",
    controller_listener_name="CONTROLLER",
    features={},
    release_version=None,
    initial_controllers=None,
)
STANDALONE = dataclasses.replace(STATIC, initial_controllers=(Voter(NodeId(1), "127.0.0.1", 29193, DIRECTORY),))


def plan(request: FormatRequest, *directories: str) -> dict[str, dict[str, bytes]]:
    made = plan_format(request, unformatted=directories or ("/a", "/b"), entropy=entropy(), now_ms=NOW_MS)
    return {directory.log_dir: dict(directory.files) for directory in made.directories}


def headers_but_for_time(content: bytes) -> list[tuple[object, ...]]:
    return [
        (header.base_offset, header.size, header.leader_epoch, header.attributes, header.records_count)
        for header in map(read_header, iter_batches(content))
    ]


def test_the_voters_snapshot_is_kafkas() -> None:
    kafkas = (GOLDEN / "standalone-voters.checkpoint").read_bytes()
    ours = plan(STANDALONE)["/a"]["__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"]
    assert headers_but_for_time(ours) == headers_but_for_time(kafkas)
    theirs, mine = read_snapshot(kafkas), read_snapshot(ours)
    assert dataclasses.replace(theirs, last_contained_timestamp_ms=0) == dataclasses.replace(
        mine, last_contained_timestamp_ms=0
    )


def test_kafkas_bootstrap_can_be_read_and_ours_has_its_layout() -> None:
    kafkas = (GOLDEN / "bootstrap.checkpoint").read_bytes()
    levels = {record.name: record.feature_level for record in read_bootstrap(kafkas)}  # type: ignore[attr-defined]
    assert levels["metadata.version"] == 30
    assert len(levels) == 6
    ours = plan(STATIC)["/b"]["bootstrap.checkpoint"]
    assert read_bootstrap(ours) == (
        FeatureLevelRecord(name="metadata.version", feature_level=30),
        FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1),
        FeatureLevelRecord(name="group.version", feature_level=1),
        FeatureLevelRecord(name="transaction.version", feature_level=2),
    )
    first, _, last = headers_but_for_time(ours)
    assert first == headers_but_for_time(kafkas)[0]
    assert last[1:] == headers_but_for_time(kafkas)[-1][1:]


def test_a_damaged_bootstrap_is_told_in_one_sentence() -> None:
    with pytest.raises(FormatError, match=r"bootstrap\.checkpoint is damaged: it has no footer\."):
        read_bootstrap((GOLDEN / "bootstrap.checkpoint").read_bytes()[:100])


def test_every_directory_gets_an_id_of_its_own_and_the_voter_the_one_it_has() -> None:
    files = plan(STANDALONE)
    assert list(files["/a"]) == [
        "bootstrap.checkpoint",
        "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint",
        "meta.properties",
    ]
    assert list(files["/b"]) == ["bootstrap.checkpoint", "meta.properties"]
    read = [
        read_meta_properties(parse_properties(files[name]["meta.properties"].decode()), log_dir=name)
        for name in ["/a", "/b"]
    ]
    assert read[0].directory_id == DIRECTORY
    assert read[1].directory_id not in (None, DIRECTORY)
    assert {each.cluster_id for each in read} == {CLUSTER}


def test_a_static_quorum_has_no_voters_on_record() -> None:
    assert list(plan(STATIC)["/a"]) == ["bootstrap.checkpoint", "meta.properties"]


def test_a_node_that_is_no_voter_still_learns_who_is() -> None:
    request = dataclasses.replace(STANDALONE, node_id=NodeId(7))
    made = plan_format(request, unformatted=["/a"], entropy=entropy(), now_ms=NOW_MS)
    assert made.directories[0].kind == "dynamic metadata directory"
    assert made.directories[0].directory_id != DIRECTORY


def test_meta_properties_is_kafkas_file() -> None:
    assert meta_properties(cluster_id=CLUSTER, node_id=NodeId(1), directory_id=DIRECTORY, now_ms=NOW_MS) == (
        b"#\n#Sun Nov 15 22:29:00 UTC 2026\nnode.id=1\ndirectory.id=gKkNLb-OTa23IedVuQL8WQ\nversion=1\n"
        b"cluster.id=4L6g3nShT-eMCtK--X86sw\n"
    )


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"cluster_id": ""}, "You must specify the cluster id"),
        ({"features": {"nope.version": 1}}, "Unsupported feature: nope.version. Supported features are: eligible"),
        ({"features": {"metadata.version": 31}}, "No feature:metadata.version with feature level 31"),
        ({"features": {"metadata.version": 6}}, "No feature:metadata.version with feature level 6"),
        ({"features": {"kraft.version": 1}}, "Cannot set kraft.version to 1 unless KIP-853 configuration is present"),
        ({"release_version": "9.9"}, "Unknown release version '9.9'"),
        ({"release_version": "4.1", "features": {"metadata.version": 30}}, "not both"),
    ],
)
def test_options_that_cannot_be(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(FormatError, match=complaint):
        plan(dataclasses.replace(STATIC, **changes))  # type: ignore[arg-type]


def test_a_dynamic_quorum_needs_kraft_version_1() -> None:
    with pytest.raises(FormatError, match=r"Cannot set kraft\.version to 0 if KIP-853 configuration is present"):
        plan(dataclasses.replace(STANDALONE, features={"kraft.version": 0}))


def test_an_older_release() -> None:
    made = plan_format(
        dataclasses.replace(STATIC, release_version="3.9-IV0"), unformatted=["/a"], entropy=entropy(), now_ms=0
    )
    assert (made.metadata_version, made.release) == (21, "3.9-IV0")
    assert made.records == (FeatureLevelRecord(name="metadata.version", feature_level=21),)


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ("version=0\nbroker.id=1", "has version 0"),
        ("version=1\nnode.id=1", "has no cluster.id"),
        ("version=1\ncluster.id=x\nnode.id=one", "is wrong"),
        ("version=1\ncluster.id=x\nnode.id=1\ndirectory.id=short", "is wrong"),
    ],
)
def test_a_meta_properties_that_cannot_be(lines: str, complaint: str) -> None:
    with pytest.raises(FormatError, match=complaint):
        read_meta_properties(parse_properties(lines), log_dir="/a")


def test_the_first_batch_is_a_transaction_where_the_release_has_them() -> None:
    first, level, eligible, groups, transactions, minimum, last = activation_records(
        default_bootstrap_records(), min_insync_replicas=1
    )
    assert isinstance(first, BeginTransactionRecord)
    assert first.name == "Bootstrap records"
    assert level == FeatureLevelRecord(name="metadata.version", feature_level=30)
    assert eligible == FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1)
    assert groups == FeatureLevelRecord(name="group.version", feature_level=1)
    assert transactions == FeatureLevelRecord(name="transaction.version", feature_level=2)
    assert isinstance(minimum, ConfigRecord)
    assert isinstance(last, EndTransactionRecord)
    old = [FeatureLevelRecord(name="metadata.version", feature_level=11)]
    assert activation_records(old, min_insync_replicas=1) == old


def test_kafkas_eligible_leaders_need_min_insync_replicas_on_record() -> None:
    records = activation_records(read_bootstrap((GOLDEN / "bootstrap.checkpoint").read_bytes()), min_insync_replicas=2)
    assert records[-2] == ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2")
