"""`odradek topic describe`: partitions with replicas, offsets and sizes, and how uneven the sizes are."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from typing import Any

from odradek.apps.cli.partition_states import is_under_replicated, least_in_sync, moves_under_way
from odradek.apps.terminal.options import topic_partitions
from odradek.apps.terminal.output import complain, emit, fields, plural, size_text, table
from odradek.apps.terminal.sentence import Sentence
from odradek.apps.terminal.session import LISTING_PATIENCE_MS, unknown_topic
from odradek.client.admin import Admin
from odradek.client.admin.cluster import ConfigResource, ResourceType
from odradek.client.cluster import TopicInfo, TopicPartition
from odradek.client.leaders import EARLIEST, LATEST, Answers, FoundOffset
from odradek.ids import uuid_text
from odradek.protocol.errors import ErrorCode, KafkaError

LACKS = {
    "under-replicated": "have replicas that are not in sync",
    "under-min-isr": "have fewer in sync than min.insync.replicas, or no leader",
    "at-min-isr": "have as many in sync as min.insync.replicas",
    "unavailable": "have no leader",
}
"""What may be wrong with partitions, as kafka-topics names it."""

TOPIC_CONFIG_SOURCE = 1
"""DescribeConfigs' number for a setting that the topic itself has."""


async def describe_topics(admin: Admin, options: argparse.Namespace) -> int:
    """All that the cluster tells about topics; what a broker does not serve, or soon enough, is left out."""
    lacks = [name for name in LACKS if getattr(options, f"{name.replace('-', '_')}_partitions")]
    if lacks:
        return await _describe_lacking(admin, options, lacks)
    topics = await (known_topics(admin, options.topics) if options.topics else admin.list_topics())
    starts, ends, sizes, configs = await asyncio.gather(
        _offsets(admin, topics, EARLIEST),
        _offsets(admin, topics, LATEST),
        partition_sizes(admin),
        _own_configs(admin, topics),
    )
    # Leaders may have moved meanwhile; who told the offsets is known by now.
    topics = [admin.cluster.topics.get(topic.name, topic) for topic in topics]
    data = [topic_data(topic, starts, ends, sizes, configs.get(topic.name)) for topic in topics]
    lines: list[str] = []
    for each in data:
        lines += [""] if lines else []
        lines += topic_lines(each)
    emit(options, data, lines if data else ["No topics yet: odradek topic create NAME"])
    return 0


async def _describe_lacking(admin: Admin, options: argparse.Namespace, lacks: Sequence[str]) -> int:
    """Only the partitions that lack something, by kafka-topics' rules; no leader need be there to tell."""
    topics = await (known_topics(admin, options.topics) if options.topics else admin.list_topics())
    least = await least_in_sync(admin, [topic.name for topic in topics])
    under_way = await moves_under_way(admin)
    live = [broker.broker_id for broker in (await admin.describe_cluster()).brokers]
    data = []
    for topic in topics:
        for each in topic.partitions:
            in_sync, wanted = len(each.isr), least.get(topic.name, 1)
            holds = {
                "under-replicated": is_under_replicated(topic.name, each, under_way),
                "under-min-isr": each.leader < 0 or in_sync < wanted,
                "at-min-isr": in_sync == wanted,
                "unavailable": each.leader not in live,
            }
            if any(holds[lack] for lack in lacks):
                leader = each.leader if each.leader >= 0 else None
                shown = {"leader": leader, "replicas": list(each.replicas), "isr": list(each.isr)}
                data.append({"topic": topic.name, "partition": each.partition, **shown})
    rows = [
        (f"{each['topic']}-{each['partition']}", each["leader"], each["replicas"], each["isr"] or "none")
        for each in data
    ]
    lines = table(("PARTITION", "LEADER", "REPLICAS", "ISR"), rows)
    emit(options, data, lines if data else ["There are no such partitions."])
    return 0


async def known_topics(admin: Admin, names: Sequence[str]) -> list[TopicInfo]:
    """The topics of these names, or a Sentence about the first that does not exist."""
    found = await admin.describe_topics(list(dict.fromkeys(names)))
    topics = []
    for name, topic in found.items():
        if isinstance(topic, KafkaError):
            if topic.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
                raise await unknown_topic(admin, name)
            raise topic
        topics.append(topic)
    return topics


async def named_partitions(admin: Admin, texts: Sequence[str], command: str) -> list[TopicPartition]:
    """The partitions that `TOPIC[:PARTITION,...]` texts name, or a Sentence about the first that there is not."""
    try:
        named = [topic_partitions(text) for text in texts]
    except argparse.ArgumentTypeError as wrong:
        raise Sentence(f"{command} takes {wrong}.", 2) from None
    counts = {topic.name: len(topic.partitions) for topic in await known_topics(admin, [topic for topic, _ in named])}
    chosen: dict[TopicPartition, None] = {}
    for topic, some in named:
        for index in some or range(counts[topic]):
            if index >= counts[topic]:
                raise Sentence(f"{topic} has {plural(counts[topic], 'partition')}: {index} is not there.")
            chosen[TopicPartition(topic, index)] = None
    return list(chosen)


async def _offsets(admin: Admin, topics: Sequence[TopicInfo], at: int) -> Answers[FoundOffset]:
    """Of the partitions that have a leader: without one there is nobody to ask, and who only looks does not wait."""
    led = [
        TopicPartition(topic.name, each.partition) for topic in topics for each in topic.partitions if each.leader >= 0
    ]
    return await admin.list_offsets(dict.fromkeys(led, at), timeout_ms=LISTING_PATIENCE_MS)


async def partition_sizes(admin: Admin) -> dict[tuple[TopicPartition, int], int] | None:
    """Bytes by partition and broker; None where the brokers do not tell."""
    described = await admin.describe_log_dirs(timeout_ms=LISTING_PATIENCE_MS)
    for broker, refused in described.items():
        if isinstance(refused, KafkaError) and refused.code.retriable:
            complain(f"broker {broker} does not answer: offsets and sizes of what it leads are not known.")
    if all(isinstance(directories, KafkaError) for directories in described.values()):
        return None
    return {
        (TopicPartition(topic.name, each.partition_index), broker): each.partition_size
        for broker, directories in described.items()
        if not isinstance(directories, KafkaError)
        for directory in directories
        for topic in directory.topics
        for each in topic.partitions
        if not each.is_future_key
    }


def skew(amounts: Sequence[int]) -> float | None:
    """How many times the mean the largest is: 1 is even; None where there is nothing to compare."""
    total = sum(amounts)
    return round(max(amounts) * len(amounts) / total, 2) if total and len(amounts) > 1 else None


async def _own_configs(admin: Admin, topics: Sequence[TopicInfo]) -> dict[str, dict[str, str | None]]:
    """The settings that topics have of their own; nothing where the brokers do not tell."""
    try:
        described = await admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic.name) for topic in topics])
    except KafkaError as refused:
        if refused.code is ErrorCode.UNSUPPORTED_VERSION:
            return {}
        raise
    return {
        resource.name: {each.name: each.value for each in configs if each.config_source == TOPIC_CONFIG_SOURCE}
        for resource, configs in described.items()
        if not isinstance(configs, KafkaError)
    }


def topic_data(
    topic: TopicInfo,
    starts: Answers[FoundOffset],
    ends: Answers[FoundOffset],
    sizes: dict[tuple[TopicPartition, int], int] | None,
    configs: dict[str, str | None] | None,
) -> dict[str, Any]:
    """A topic and its partitions for programs; None where nobody could tell."""
    partitions = []
    for each in topic.partitions:
        partition = TopicPartition(topic.name, each.partition)
        start, end = _offset(starts.get(partition)), _offset(ends.get(partition))
        partitions.append(
            {
                "partition": each.partition,
                "leader": each.leader if each.leader >= 0 else None,
                "leader_epoch": each.leader_epoch,
                "replicas": list(each.replicas),
                "isr": list(each.isr),
                "offline": list(each.offline),
                "start_offset": start,
                "end_offset": end,
                "records": None if start is None or end is None else end - start,
                "size_bytes": None if sizes is None else sizes.get((partition, each.leader)),
            }
        )
    known_sizes = [each["size_bytes"] for each in partitions if isinstance(each["size_bytes"], int)]
    known_counts = [each["records"] for each in partitions if isinstance(each["records"], int)]
    return {
        "name": topic.name,
        "topic_id": uuid_text(topic.topic_id),
        "internal": topic.internal,
        "replication_factor": max((len(each.replicas) for each in topic.partitions), default=0),
        "configs": configs,
        "size_bytes": sum(known_sizes) if known_sizes else None,
        "size_skew": skew(known_sizes),
        "records_skew": skew(known_counts),
        "partitions": partitions,
    }


def topic_lines(topic: dict[str, Any]) -> list[str]:
    """A head, then a row a partition; the last column draws the share of the topic's bytes, or else of its records."""
    partitions = topic["partitions"]
    measure = "records" if topic["size_bytes"] is None else "size_bytes"
    most = max((each[measure] or 0 for each in partitions), default=0)
    head: list[tuple[str, object]] = [
        ("Topic", topic["name"]),
        ("Id", topic["topic_id"]),
        ("Partitions", f"{len(partitions)}, {plural(topic['replication_factor'], 'replica')} each"),
    ]
    if topic["configs"]:
        head.append(("Settings", ", ".join(f"{key}={text}" for key, text in topic["configs"].items())))
    if topic["size_bytes"] is not None:
        head.append(("Size", size_text(topic["size_bytes"])))
    ratio = topic["records_skew"] if topic["size_bytes"] is None else topic["size_skew"]
    if ratio is not None:
        head.append(("Skew", f"the largest partition has {ratio:.2f} times the mean"))
    rows = [
        (
            each["partition"],
            each["leader"] if each["leader"] is not None else "none",
            each["leader_epoch"],
            each["replicas"],
            each["isr"],
            each["start_offset"],
            each["end_offset"],
            None if each["size_bytes"] is None else size_text(each["size_bytes"]),
            "#" * round(10 * (each[measure] or 0) / most) if most else "",
        )
        for each in partitions
    ]
    headings = ("PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "START", "END", "SIZE", "SHARE")
    return [*fields(head), *table(headings, rows)]


def _offset(found: FoundOffset | KafkaError | None) -> int | None:
    return found.offset if isinstance(found, FoundOffset) else None
