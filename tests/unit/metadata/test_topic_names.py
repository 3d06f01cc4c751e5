from __future__ import annotations

import pytest

from odradek.metadata.topic_names import check_name, collision_key, is_internal, may_collide, name_error
from odradek.protocol.errors import ErrorCode, KafkaError


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "x" * 249, "__consumer_offsets"])
def test_names_that_may_be(name: str) -> None:
    assert name_error(name) is None
    check_name(name)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, "longer than the max allowed length 249"),
        ("a/b", "'a/b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("ä", "'ä' contains"),
        ("a b", "'a b' contains"),
        ("a\0", "contains"),
    ],
)
def test_names_that_may_not(name: str, why: str) -> None:
    with pytest.raises(KafkaError, match="Topic name is invalid") as refused:
        check_name(name)
    assert why in refused.value.message
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_dots_and_underscores_give_one_metric_name() -> None:
    assert collision_key("a.b_c") == collision_key("a_b.c") != collision_key("ab_c")
    assert may_collide("a.b")
    assert not may_collide("a-b")


def test_internal_topics() -> None:
    assert is_internal("__consumer_offsets")
    assert not is_internal("__mine")
