"""Configuration is changed a resource at a time: all that was asked for it, or nothing and why."""

from __future__ import annotations

from collections.abc import Mapping

from tests.unit.metadata.building import cluster, replayed, uuid

from odradek.configdef import ConfigKey, ConfigTable, ConfigType
from odradek.metadata.controller.configs import ConfigRules, Operation, alter_configs, incremental_alter_configs
from odradek.metadata.image import Image
from odradek.metadata.image.configs import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE, Resource
from odradek.metadata.records import ConfigRecord, TopicRecord
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages import alter_configs as whole
from odradek.protocol.messages import incremental_alter_configs as incremental

TABLE = ConfigTable(
    [ConfigKey("words", ConfigType.LIST, ("one",), "A list."), ConfigKey("number", ConfigType.INT, 7, "A number.")]
)


def _check(resource: Resource, configs: Mapping[str, str]) -> None:
    for name in configs:
        if name not in TABLE:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown {name}")


RULES = ConfigRules(dict.fromkeys((TOPIC_RESOURCE, BROKER_RESOURCE, GROUP_RESOURCE), TABLE), _check)


def _image(**configs: str) -> Image:
    topic = TopicRecord(name="t", topic_id=uuid(1))
    return replayed(
        cluster(),
        [topic]
        + [
            ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="t", name=name, value=text)
            for name, text in configs.items()
        ],
    )


def _change(
    image: Image,
    *changes: tuple[str, int, str | None],
    resource: Resource = (TOPIC_RESOURCE, "t"),
    validate_only: bool = False,
) -> tuple[dict[str, str | None], int, str | None]:
    """What is written, the error code and its message."""
    request = incremental.IncrementalAlterConfigsRequest(
        resources=[
            incremental.AlterConfigsResource(
                resource_type=resource[0],
                resource_name=resource[1],
                configs=[
                    incremental.AlterableConfig(name=name, config_operation=operation, value=text)
                    for name, operation, text in changes
                ],
            )
        ],
        validate_only=validate_only,
    )
    decision = incremental_alter_configs(image, request, rules=RULES)
    ((_, response),) = decision.answers
    (answer,) = response.responses
    written = {record.name: record.value for record in decision.records if isinstance(record, ConfigRecord)}
    return written, answer.error_code, answer.error_message


def test_keys_are_set_deleted_appended_to_and_subtracted_from() -> None:
    image = _image(words="a,b", number="1")
    assert _change(image, ("number", Operation.SET, "2")) == ({"number": "2"}, 0, None)
    assert _change(image, ("number", Operation.SET, "1")) == ({}, 0, None)
    assert _change(image, ("number", Operation.DELETE, None)) == ({"number": None}, 0, None)
    assert _change(image, ("words", Operation.APPEND, "b,c")) == ({"words": "a,b,c"}, 0, None)
    assert _change(image, ("words", Operation.SUBTRACT, "a,x")) == ({"words": "b"}, 0, None)
    assert _change(_image(), ("words", Operation.APPEND, "two")) == ({"words": "one,two"}, 0, None)


def test_nothing_is_written_where_something_is_wrong() -> None:
    image = _image()
    refusals = [
        (_change(image, ("number", Operation.SET, "2"), ("other", Operation.SET, "1")), ErrorCode.INVALID_CONFIG),
        (_change(image, ("number", Operation.APPEND, "2")), ErrorCode.INVALID_CONFIG),
        (_change(image, ("number", Operation.SET, None)), ErrorCode.INVALID_REQUEST),
        (_change(image, ("number", 9, "2")), ErrorCode.INVALID_REQUEST),
        (_change(image, ("number", Operation.SET, "2"), ("number", Operation.SET, "3")), ErrorCode.INVALID_REQUEST),
        (_change(image, resource=(TOPIC_RESOURCE, "")), ErrorCode.INVALID_REQUEST),
        (_change(image, resource=(TOPIC_RESOURCE, "a/b")), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (_change(image, resource=(TOPIC_RESOURCE, "gone")), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (_change(image, resource=(GROUP_RESOURCE, "")), ErrorCode.INVALID_REQUEST),
        (_change(image, resource=(99, "t")), ErrorCode.INVALID_REQUEST),
    ]
    for (written, code, message), expected in refusals:
        assert (written, code) == ({}, expected)
        assert message


def test_a_resource_named_twice_is_refused_both_times() -> None:
    one = incremental.AlterConfigsResource(
        resource_type=TOPIC_RESOURCE,
        resource_name="t",
        configs=[incremental.AlterableConfig(name="number", config_operation=0, value="3")],
    )
    request = incremental.IncrementalAlterConfigsRequest(resources=[one, one], validate_only=False)
    decision = incremental_alter_configs(_image(), request, rules=RULES)
    assert decision.records == ()
    assert [each.error_code for each in decision.answers[0][1].responses] == [ErrorCode.INVALID_REQUEST] * 2


def test_only_checking_writes_nothing() -> None:
    assert _change(_image(), ("number", Operation.SET, "2"), validate_only=True) == ({}, 0, None)


def test_a_brokers_key_is_written_again_even_unchanged() -> None:
    image = replayed(
        cluster(), [ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="1", name="number", value="1")]
    )
    written = _change(image, ("number", Operation.SET, "1"), resource=(BROKER_RESOURCE, "1"))
    assert written == ({"number": "1"}, 0, None)


def test_what_another_release_put_on_record_does_not_stand_in_the_way() -> None:
    image = _image(strange="x")
    assert _change(image, ("number", Operation.SET, "2")) == ({"number": "2"}, 0, None)
    assert _change(image, ("strange", Operation.SET, "y"))[1] == ErrorCode.INVALID_CONFIG
    assert _change(image, ("strange", Operation.DELETE, None)) == ({"strange": None}, 0, None)


def test_altering_as_a_whole_deletes_what_is_not_named() -> None:
    request = whole.AlterConfigsRequest(
        resources=[
            whole.AlterConfigsResource(
                resource_type=TOPIC_RESOURCE,
                resource_name="t",
                configs=[whole.AlterableConfig(name="number", value="2")],
            )
        ],
        validate_only=False,
    )
    decision = alter_configs(_image(words="a", number="1"), request, rules=RULES)
    written = {record.name: record.value for record in decision.records if isinstance(record, ConfigRecord)}
    assert written == {"number": "2", "words": None}
    assert [each.error_code for each in decision.answers[0][1].responses] == [0]
