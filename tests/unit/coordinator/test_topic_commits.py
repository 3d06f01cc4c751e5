"""A commit of one topic is written as the declared messages would write it, and read back as they would be."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from odradek.coordinator.group.offsets import VALUE_VERSION, offset_record, offset_value
from odradek.coordinator.group.records import OffsetCommitKey
from odradek.coordinator.group.settings import GroupSettings
from odradek.coordinator.group.shard import GroupShard
from odradek.coordinator.group.topic_commits import TopicCommit
from odradek.coordinator.record_format import decode_record, encode_batch, encode_key, encode_value
from odradek.coordinator.shard import Moment
from odradek.decisions import Ticket
from odradek.ids import Uuid
from odradek.protocol.errors import MalformedFrame
from odradek.protocol.fast.offset_commit import PartitionCommit
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.records.batch import HEADER_SIZE

int64 = st.integers(-(1 << 63), (1 << 63) - 1)
names = st.text(st.characters(codec="utf-8"), max_size=60)
partitions = st.tuples(
    st.integers(0, (1 << 31) - 1), int64, st.integers(-1, (1 << 31) - 1), st.one_of(st.just(""), names)
)
topic_ids = st.binary(min_size=16, max_size=16).filter(any)


def topic_of(topic: str, topic_id: bytes, parts: list[PartitionCommit]) -> OffsetCommitRequestTopic:
    return OffsetCommitRequestTopic(
        name=topic,
        topic_id=Uuid(topic_id),
        partitions=[
            OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=offset,
                committed_leader_epoch=epoch,
                committed_metadata=metadata,
            )
            for index, offset, epoch, metadata in parts
        ],
    )


@given(names, names, topic_ids, st.lists(partitions, min_size=1, max_size=70), st.integers(0, 1 << 50))
def test_the_batch_is_the_declared_one(
    group_id: str, topic: str, topic_id: bytes, parts: list[PartitionCommit], now_ms: int
) -> None:
    declared = topic_of(topic, topic_id, parts)
    records = [offset_record(group_id, declared, part, now_ms=now_ms, retention_ms=-1) for part in declared.partitions]
    commit = TopicCommit(group_id, "", None, -1, 9, topic, Uuid(topic_id), parts)
    batch = encode_batch(records, timestamp_ms=now_ms)
    assert commit.count == len(records)
    assert commit.encode(0, now_ms) == batch[HEADER_SIZE:]
    twice = encode_batch([*records, *records], timestamp_ms=now_ms)
    assert commit.encode(0, now_ms) + commit.encode(len(records), now_ms) == twice[HEADER_SIZE:]


@given(
    names,
    names,
    st.integers(-(1 << 31), (1 << 31) - 1),
    int64,
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.sampled_from(["", "", "m", "m" * 16]),
    int64,
    int64,
    st.binary(min_size=16, max_size=16),
    st.integers(0, 4),
    st.lists(st.tuples(st.integers(0, 41), st.integers(0, 255)), max_size=1),
)
def test_what_is_loaded_as_it_is_encoded_is_what_the_declared_messages_say(
    group_id: str,
    topic: str,
    index: int,
    offset: int,
    epoch: int,
    metadata: str,
    time_ms: int,
    expire_ms: int,
    topic_id: bytes,
    version: int,
    spoilt: list[tuple[int, int]],
) -> None:
    key = encode_key(OffsetCommitKey(group=group_id, topic=topic, partition=index))
    value = offset_value(offset, epoch, metadata, Uuid(topic_id), now_ms=time_ms, expire_ms=expire_ms)
    content = bytearray(encode_value(value, version))
    for place, byte in spoilt:
        content[place % len(content)] = byte
    shards = [GroupShard(GroupSettings()), GroupShard(GroupSettings())]
    taken = shards[0].replay_encoded(key, bytes(content))
    assert taken or version != 4 or metadata or not any(topic_id) or spoilt
    try:
        record = decode_record(GroupShard.kinds, key, bytes(content))
    except MalformedFrame:
        assert not taken
        return
    assert record is not None
    if taken:
        shards[1].replay(record)
    assert shards[0].offsets.of(group_id) == shards[1].offsets.of(group_id)
    assert list(shards[0].groups) == list(shards[1].groups)
    assert shards[0]._to_forget == shards[1]._to_forget


@given(st.binary(max_size=40))
@example(b"\0\1\xff\0\1t\0\0\0\5")
@example(b"\0\1g\0\1\xff\0\0\0\5")
@example(b"\0\1g\0\1t\0\0\0\5")
@example(b"\0\1g\0\1t\0\0\0\5.")
@example(b"\0\1g\0\1t\0\0\0")
def test_keys_that_are_none_are_left_to_the_declared_messages(key: bytes) -> None:
    content = encode_value(offset_value(1, 1, "", Uuid(b"t" * 16), now_ms=5), VALUE_VERSION)
    shard = GroupShard(GroupSettings())
    if not shard.replay_encoded(b"\0\1" + key, content):
        return
    record = decode_record(GroupShard.kinds, b"\0\1" + key, content)
    assert record is not None
    assert isinstance(record.key, OffsetCommitKey)
    assert list(shard.groups) == [record.key.group]
    assert shard.offsets.of(record.key.group)[record.key.topic].keys() == {record.key.partition}


def test_both_ways_leave_the_same_state() -> None:
    now = Moment(1_000, 50)
    topic_id = Uuid(b"t" * 16)
    parts = [(0, 5, -1, ""), (3, 7, 2, "here"), (0, 6, -1, "")]
    shards = [GroupShard(GroupSettings()), GroupShard(GroupSettings())]
    request = OffsetCommitRequest(group_id="g", member_id="", topics=[topic_of("t", topic_id, parts)])
    for shard in shards:
        first = OffsetCommitRequest(group_id="g", member_id="", topics=[topic_of("t", topic_id, [(9, 1, -1, "")])])
        for record in shard.commit(Ticket(1), first, 9, now).records:
            shard.replay(record)
    for record in shards[0].commit(Ticket(2), request, 9, now).records:
        shards[0].replay(record)
    commit = TopicCommit("g", "", None, -1, 9, "t", topic_id, parts)
    assert commit.check(shards[1], now)
    assert shards[1].offsets.of("g") != shards[0].offsets.of("g")
    commit.replay(shards[1], now)
    assert shards[1].offsets.of("g") == shards[0].offsets.of("g")


def test_a_group_that_is_yet_to_be_made_is_left_to_the_generic_path() -> None:
    shard = GroupShard(GroupSettings())
    commit = TopicCommit("g", "", None, -1, 9, "t", Uuid(b"t" * 16), [(0, 5, -1, "")])
    assert not commit.check(shard, Moment(1_000, 50))
