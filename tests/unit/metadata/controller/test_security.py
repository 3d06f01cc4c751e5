"""Quotas, SCRAM credentials and levels of features: what is written, and what is refused with which words."""

from __future__ import annotations

import pytest
from tests.unit.metadata.building import broker, cluster, replayed, uuid

from odradek.ids import NodeId
from odradek.metadata.controller.features import update_features
from odradek.metadata.controller.quotas import alter_client_quotas
from odradek.metadata.controller.scram import alter_scram_credentials
from odradek.metadata.image import Image
from odradek.metadata.image.client_quotas import quota_record
from odradek.metadata.image.cluster import ControllerRegistration, FeatureRange, register_controller_record
from odradek.metadata.records import ClientQuotaRecord, FeatureLevelRecord, UserScramCredentialRecord
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    OpData,
    RequestedEntryData,
)
from odradek.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from odradek.values import replace


def quotas(
    image: Image, entity: dict[str, str | None], *ops: tuple[str, float | None], validate_only: bool = False
) -> tuple[dict[str, float | None], int, str | None]:
    entry = RequestedEntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[OpData(key=key, value=limit or 0.0, remove=limit is None) for key, limit in ops],
    )
    decision = alter_client_quotas(image, AlterClientQuotasRequest(entries=[entry], validate_only=validate_only))
    (answer,) = decision.answers[0][1].entries
    written = {
        record.key: None if record.remove else record.value
        for record in decision.records
        if isinstance(record, ClientQuotaRecord)
    }
    return written, answer.error_code, answer.error_message


def test_quotas_are_set_and_removed_and_what_stays_is_not_written() -> None:
    image = replayed(cluster(), [quota_record((("user", "alice"),), "producer_byte_rate", 5.0)])
    alice: dict[str, str | None] = {"user": "alice"}
    assert quotas(image, alice, ("producer_byte_rate", 5.0), ("request_percentage", 1.5)) == (
        {"request_percentage": 1.5},
        0,
        None,
    )
    assert quotas(image, alice, ("producer_byte_rate", None)) == ({"producer_byte_rate": None}, 0, None)
    assert quotas(image, alice, ("consumer_byte_rate", None)) == ({}, 0, None)
    assert quotas(image, alice, ("consumer_byte_rate", 9.0), validate_only=True) == ({}, 0, None)
    assert quotas(image, {"ip": "::1"}, ("connection_creation_rate", 9.0))[1] == 0


@pytest.mark.parametrize(
    ("entity", "key", "limit", "message"),
    [
        ({}, "producer_byte_rate", 1.0, "Invalid empty client quota entity"),
        ({"team": "x"}, "producer_byte_rate", 1.0, "Unhandled client quota entity type: team"),
        ({"user": ""}, "producer_byte_rate", 1.0, "Empty user not supported"),
        ({"user": "x", "ip": "1.2.3.4"}, "connection_creation_rate", 1.0, "Invalid quota entity combination"),
        ({"ip": "somewhere"}, "connection_creation_rate", 1.0, "somewhere is not a valid IP"),
        ({"ip": "1.2.3.4"}, "producer_byte_rate", 1.0, "Invalid configuration key producer_byte_rate"),
        ({"user": "x"}, "connection_creation_rate", 1.0, "Invalid configuration key connection_creation_rate"),
        ({"user": "x"}, "producer_byte_rate", -1.0, "must be greater than 0"),
        ({"user": "x"}, "producer_byte_rate", float("nan"), "must be greater than 0"),
        ({"user": "x"}, "producer_byte_rate", 1.5, "cannot be a fractional value"),
        ({"user": "x"}, "producer_byte_rate", 1e300, "too large for a LONG"),
        ({"ip": None}, "connection_creation_rate", 1e10, "too large for an INT"),
    ],
)
def test_quotas_that_cannot_be(entity: dict[str, str | None], key: str, limit: float, message: str) -> None:
    written, code, told = quotas(cluster(), entity, (key, limit))
    assert (written, code) == ({}, ErrorCode.INVALID_REQUEST)
    assert message in (told or "")


def test_an_entity_is_changed_once_in_a_request() -> None:
    entry = RequestedEntryData(
        entity=[EntityData(entity_type="user", entity_name="x")],
        ops=[OpData(key="producer_byte_rate", value=1.0, remove=False)],
    )
    request = AlterClientQuotasRequest(entries=[entry, entry], validate_only=False)
    decision = alter_client_quotas(cluster(), request)
    assert [each.error_code for each in decision.answers[0][1].entries] == [0, ErrorCode.INVALID_REQUEST]
    assert len(decision.records) == 1


def upsertion(name: str, *, mechanism: int = 1, iterations: int = 4096) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=b"salted"
    )


def test_credentials_are_kept_and_deleted() -> None:
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion("alice"), upsertion("bob")])
    decision = alter_scram_credentials(cluster(), request)
    image = replayed(cluster(), decision.records)
    assert list(image.scram.credentials) == [(1, "alice"), (1, "bob")]
    assert isinstance(decision.records[0], UserScramCredentialRecord)
    assert b"salted" not in (decision.records[0].stored_key, decision.records[0].server_key)
    gone = AlterUserScramCredentialsRequest(
        deletions=[
            ScramCredentialDeletion(name="alice", mechanism=1),
            ScramCredentialDeletion(name="carol", mechanism=1),
        ],
        upsertions=[],
    )
    decision = alter_scram_credentials(image, gone)
    codes = {result.user: result.error_code for result in decision.answers[0][1].results}
    assert codes == {"alice": 0, "carol": ErrorCode.RESOURCE_NOT_FOUND}
    assert list(replayed(image, decision.records).scram.credentials) == [(1, "bob")]


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("x", iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("x", iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("x", mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion("x", mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ],
)
def test_credentials_that_cannot_be(wrong: ScramCredentialUpsertion, code: ErrorCode) -> None:
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[wrong, upsertion("good")])
    decision = alter_scram_credentials(cluster(), request)
    codes = {result.user: result.error_code for result in decision.answers[0][1].results}
    assert codes == {wrong.name: code, "good": 0}
    assert len(decision.records) == 1


def test_a_user_named_twice_and_a_cluster_too_old_for_scram() -> None:
    twice = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name="x", mechanism=1)], upsertions=[upsertion("x"), upsertion("y")]
    )
    decision = alter_scram_credentials(cluster(), twice)
    codes = {result.user: result.error_code for result in decision.answers[0][1].results}
    assert codes == {"y": 0, "x": ErrorCode.DUPLICATE_RESOURCE}
    old = alter_scram_credentials(cluster(metadata_version=10), twice)
    assert old.records == ()
    assert {result.error_code for result in old.answers[0][1].results} == {
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.DUPLICATE_RESOURCE,
    }


def update(
    image: Image, *levels: tuple[str, int, int], api_version: int = 2, validate_only: bool = False
) -> tuple[list[tuple[str, int]], UpdateFeaturesResponse]:
    """Of features: name, level, and 1 to raise it, 2 to lower it safely, 3 to lower it anyway."""
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind, allow_downgrade=kind > 1)
            for name, level, kind in levels
        ],
        validate_only=validate_only,
    )
    decision = update_features(image, request, api_version=api_version, kraft_version=1, min_insync_replicas=1)
    written = [(each.name, each.feature_level) for each in decision.records if isinstance(each, FeatureLevelRecord)]
    return written, decision.answers[0][1]


def test_levels_are_raised_and_lowered_where_nothing_is_lost() -> None:
    old = cluster(metadata_version=26)
    assert update(old, ("metadata.version", 28, 1))[0] == [("metadata.version", 28)]
    assert update(old, ("metadata.version", 26, 1))[0] == []
    assert update(old, ("metadata.version", 24, 2))[0] == [("metadata.version", 24)]
    assert update(old, ("metadata.version", 28, 1), validate_only=True)[0] == []
    written, answer = update(old, ("metadata.version", 24, 2), api_version=0)
    assert (written, [each.feature for each in answer.results]) == ([("metadata.version", 24)], ["metadata.version"])


@pytest.mark.parametrize(
    ("name", "level", "kind", "message"),
    [
        ("metadata.version", 25, 1, "Can't downgrade the version of this feature without"),
        ("metadata.version", 28, 2, "Can't downgrade to a newer version"),
        ("metadata.version", 22, 2, "it might delete metadata information"),
        ("metadata.version", 22, 3, "Unsafe metadata downgrade is not supported"),
        ("metadata.version", 31, 1, "only supports versions 7-30"),
        ("metadata.version", -1, 1, "cannot be less than 0"),
        ("metadata.version", 26, 0, "does not support the given upgrade type"),
        ("metadata.version", 26, 9, "does not support the given upgrade type"),
        ("kraft.version", 0, 2, "cannot be made static again"),
        ("no.such", 1, 1, "does not support this feature"),
    ],
)
def test_levels_that_cannot_be_had_change_nothing_at_all(name: str, level: int, kind: int, message: str) -> None:
    written, answer = update(cluster(metadata_version=26), ("metadata.version", 27, 1), (name, level, kind))
    assert written == []
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert message in (answer.error_message or "")


def test_every_node_must_be_able_to_work_with_a_level() -> None:
    old = replace(broker(2), features=(FeatureRange("metadata.version", 7, 27),))
    image = cluster(broker(1), old, metadata_version=26)
    assert update(image, ("metadata.version", 27, 1))[0] == [("metadata.version", 27)]
    _, answer = update(image, ("metadata.version", 28, 1))
    assert "Broker 2 only supports versions 7-27" in (answer.error_message or "")
    _, answer = update(image, ("group.version", 1, 1))
    assert "Broker 2 does not support this feature" in (answer.error_message or "")
    controller = ControllerRegistration(NodeId(9), uuid(1), False, (), (FeatureRange("metadata.version", 7, 26),))
    image = replayed(cluster(broker(1), metadata_version=26), [register_controller_record(controller)])
    _, answer = update(image, ("metadata.version", 27, 1))
    assert "Controller 9 only supports versions 7-26" in (answer.error_message or "")
