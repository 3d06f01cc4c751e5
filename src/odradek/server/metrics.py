"""What a node tells Prometheus, under the names that the JMX exporter's example rules give Kafka's own metrics.

Nothing is kept for it but plain integers where the work is done (bytes and appends a partition, requests an endpoint);
everything else is looked up when someone asks, so an unwatched node pays nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isnan
from typing import TYPE_CHECKING, Any

from odradek.server.net.latency import QUANTILES, Latencies
from odradek.values import value

if TYPE_CHECKING:
    from odradek.server.coordinators.coordinator import Coordinator
    from odradek.server.partitions.hosted_partition import HostedPartition
    from odradek.server.rooms import Rooms

GAUGE = "gauge"
COUNTER = "counter"
SUMMARY = "summary"

LATE_BEYOND_TIMEOUT_MS = 300_000
"""A transaction may take as long as the longest timeout and until its markers are written: Kafka's margin."""

Labels = tuple[tuple[str, str], ...]
Sample = tuple[str, Labels, float]
"""What is added to the family's name, labels, value."""


@value
class Family:
    """All samples of one name."""

    name: str
    kind: str
    doc: str
    samples: tuple[Sample, ...]


def exposition(rooms: Rooms) -> str:
    """The page that Prometheus reads."""
    lines: list[str] = []
    for family in families(rooms):
        lines.append(f"# HELP {family.name} {family.doc}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        for suffix, labels, number in family.samples:
            shown = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels)
            lines.append(f"{family.name}{suffix}{'{' + shown + '}' if shown else ''} {_number(number)}")
    return "\n".join(lines) + "\n"


def families(rooms: Rooms) -> Iterator[Family]:
    """Everything there is to tell."""
    yield from _topics(rooms)
    yield from _logs(rooms)
    yield from _cleaner(rooms)
    yield from _replica_manager(rooms)
    yield from _controller(rooms)
    yield from _requests(rooms)
    yield from _connections(rooms)
    yield from _coordinators(rooms)
    yield from _transactions(rooms)
    yield from _features(rooms)
    yield from _contained(rooms)


def _topics(rooms: Rooms) -> Iterator[Family]:
    """BrokerTopicMetrics: a line for the broker, and one for each topic that was used."""
    traffic = rooms.replicas.traffic()
    total = rooms.replicas.total_traffic()
    for name, doc in (
        ("messages_in", "Records appended."),
        ("bytes_in", "Bytes of record batches appended."),
        ("bytes_out", "Bytes of record batches read by consumers."),
        ("produce_requests", "Appends, a partition at a time."),
        ("failed_produce_requests", "Appends that were refused."),
        ("fetch_requests", "Reads, a partition at a time."),
        ("replication_bytes_in", "Bytes of record batches fetched from leaders."),
        ("replication_bytes_out", "Bytes of record batches fetched by followers."),
    ):
        samples: list[Sample] = [("", (), getattr(total, name))]
        samples += [("", (("topic", topic),), getattr(counted, name)) for topic, counted in traffic.items()]
        yield Family(f"kafka_server_brokertopicmetrics_{_KAFKA_NAMES[name]}_total", COUNTER, doc, tuple(samples))


_KAFKA_NAMES = {
    "messages_in": "messagesin",
    "bytes_in": "bytesin",
    "bytes_out": "bytesout",
    "produce_requests": "totalproducerequests",
    "failed_produce_requests": "failedproducerequests",
    "fetch_requests": "totalfetchrequests",
    "replication_bytes_in": "replicationbytesin",
    "replication_bytes_out": "replicationbytesout",
}


def _logs(rooms: Rooms) -> Iterator[Family]:
    hosted = list(rooms.replicas)
    labels: list[Labels] = [(("topic", each.topic), ("partition", str(each.index))) for each in hosted]
    logs = [each.partition.log for each in hosted]
    for name, doc, numbers in (
        ("size", "Bytes of a partition's log.", [log.size_bytes for log in logs]),
        ("logstartoffset", "The first offset of a partition.", [log.log_start_offset for log in logs]),
        ("logendoffset", "The offset that the next record gets.", [log.log_end_offset for log in logs]),
        ("numlogsegments", "Segments of a partition's log.", [len(log.segments) for log in logs]),
    ):
        samples = [("", label, number) for label, number in zip(labels, numbers, strict=True)]
        yield Family(f"kafka_log_log_{name}", GAUGE, doc, tuple(samples))
    offline = sum(not directory.online for directory in rooms.replicas.directories)
    yield _gauge("kafka_log_logmanager_offlinelogdirectorycount", "Log directories that have failed.", offline)


def _cleaner(rooms: Rooms) -> Iterator[Family]:
    """LogCleaner and LogCleanerManager: compaction, of which a round is one log cleaned once."""
    cleaner = rooms.cleaner
    last = cleaner.last_cleanings
    prefix = "kafka_log_logcleaner_"
    for name, doc, number in (
        (
            "cleaner_recopy_percent",
            "What the last rounds have left, of a hundred bytes.",
            100 * sum(each.bytes_written for each in last) // max(sum(each.bytes_read for each in last), 1),
        ),
        (
            "max_buffer_utilization_percent",
            "How full the memory for keys was in the fullest of the last rounds.",
            int(100 * max((each.buffer_utilization for each in last), default=0.0)),
        ),
        (
            "max_clean_time_secs",
            "How long the longest of the last rounds has taken.",
            max((each.duration_ms for each in last), default=0) // 1000,
        ),
        (
            "max_compaction_delay_secs",
            "By how much a record has outlived max.compaction.lag.ms.",
            cleaner.max_overdue_ms // 1000,
        ),
        ("deadthreadcount", "Cleaners that have ended by an error.", cleaner.dead_count),
    ):
        yield _gauge(prefix + name, doc, number)
    prefix = "kafka_log_logcleanermanager_"
    percent = int(100 * cleaner.max_dirty_ratio)
    yield _gauge(prefix + "max_dirty_percent", "How much of the dirtiest log is new since it was cleaned.", percent)
    yield _gauge(prefix + "time_since_last_run_ms", "Since it was looked what there is to clean.", cleaner.idle_ms)
    left = cleaner.uncleanable()
    counts: list[Sample] = [("", (("logdirectory", path),), len(hosted)) for path, hosted in left.items()]
    doc = "Partitions that are not compacted, since something in them cannot be read."
    yield Family(prefix + "uncleanable_partitions_count", GAUGE, doc, tuple(counts))
    sizes: list[Sample] = [
        ("", (("logdirectory", path),), sum(each.partition.log.size_bytes for each in hosted))
        for path, hosted in left.items()
    ]
    yield Family(prefix + "uncleanable_bytes", GAUGE, "Bytes of such partitions.", tuple(sizes))


def _replica_manager(rooms: Rooms) -> Iterator[Family]:
    """Who is in sync is told by the leader, so that every partition counts once in a cluster."""
    led = [hosted.partition for hosted in rooms.replicas if hosted.partition.is_leader]
    enough = [min(each.log.config.min_insync_replicas, len(each.state.replicas)) for each in led]
    counts = [len(each.state.isr) for each in led]
    prefix = "kafka_server_replicamanager_"
    yield _gauge(prefix + "partitioncount", "Partitions on this broker.", sum(1 for _ in rooms.replicas))
    yield _gauge(prefix + "leadercount", "Partitions that this broker leads.", len(led))
    moves = [_move(rooms, hosted) for hosted in rooms.replicas if hosted.partition.is_leader]
    behind = sum(
        count < len(each.state.replicas) - adding for count, each, (adding, _) in zip(counts, led, moves, strict=True)
    )
    yield _gauge(prefix + "underreplicatedpartitions", "Led partitions with replicas that are not in sync.", behind)
    moving = sum(adding + removing > 0 for adding, removing in moves)
    yield _gauge(prefix + "reassigningpartitions", "Led partitions that move to other brokers.", moving)
    below = sum(count < needed for count, needed in zip(counts, enough, strict=True))
    yield _gauge(prefix + "underminisrpartitioncount", "Led partitions with fewer in sync than needed.", below)
    at = sum(count == needed for count, needed in zip(counts, enough, strict=True))
    yield _gauge(prefix + "atminisrpartitioncount", "Led partitions with just as many in sync as needed.", at)
    yield _gauge(prefix + "offlinereplicacount", "Replicas on failed directories.", rooms.replicas.offline_count)
    changes = rooms.isr_changes
    for name, doc, count in (
        ("isrexpands", "Followers that caught up.", changes.expands),
        ("isrshrinks", "Followers that fell behind.", changes.shrinks),
        ("failedisrupdates", "ISR changes that the controller refused.", changes.refusals),
    ):
        yield Family(f"{prefix}{name}_total", COUNTER, doc, (("", (), count),))
    sent, taken = rooms.replicas.throttles.rates()
    name = "kafka_server_{}replication_byte_rate"
    yield _gauge(name.format("leader"), "Bytes a second of throttled replicas that this broker sends.", sent)
    yield _gauge(name.format("follower"), "Bytes a second of throttled replicas that this broker fetches.", taken)
    lag = rooms.fetchers.max_lag()
    yield _gauge("kafka_server_replicafetchermanager_maxlag", "Records that a follower here lacks at most.", lag)


def _move(rooms: Rooms, hosted: HostedPartition) -> tuple[int, int]:
    """How many replicas a partition gets by a move under way, which are not missed yet, and how many it loses."""
    topic = rooms.replicas.image.topics.by_id.get(hosted.topic_id)
    if topic is None or hosted.index >= len(topic.partitions):
        return 0, 0
    partition = topic.partitions[hosted.index]
    return len(partition.adding_replicas), len(partition.removing_replicas)


def _controller(rooms: Rooms) -> Iterator[Family]:
    image = rooms.image
    brokers = list(image.cluster.brokers.values())
    partitions = [partition for topic in image.topics.by_name.values() for partition in topic.partitions]
    prefix = "kafka_controller_kafkacontroller_"
    yield _gauge(prefix + "activecontrollercount", "1 on the active controller.", int(rooms.quorum.is_active))
    yield _gauge(prefix + "activebrokercount", "Brokers that are not fenced.", sum(not each.fenced for each in brokers))
    yield _gauge(prefix + "fencedbrokercount", "Brokers that are fenced.", sum(each.fenced for each in brokers))
    yield _gauge(prefix + "globaltopiccount", "Topics in the cluster.", len(image.topics.by_name))
    yield _gauge(prefix + "globalpartitioncount", "Partitions in the cluster.", len(partitions))
    leaderless = sum(each.leader < 0 for each in partitions)
    yield _gauge(prefix + "offlinepartitionscount", "Partitions without a leader.", leaderless)
    astray = sum(bool(each.replicas) and each.leader != each.replicas[0] for each in partitions)
    yield _gauge(prefix + "preferredreplicaimbalancecount", "Partitions not led by their first replica.", astray)
    yield _gauge(prefix + "lastappliedrecordoffset", "The newest metadata record applied.", image.provenance.offset)


def _requests(rooms: Rooms) -> Iterator[Family]:
    counted: list[Sample] = []
    timed: list[Sample] = []
    for request, version, served, latencies in rooms.listeners.served_requests():
        counted.append(("", (("request", request), ("version", str(version))), served))
        labels = (("request", request), ("version", str(version)))
        timed += _summary(labels, served, latencies)
    name = "kafka_network_requestmetrics_"
    yield Family(name + "requests_total", COUNTER, "Requests answered.", tuple(counted))
    yield Family(name + "totaltimems", SUMMARY, "Milliseconds from a request's arrival to its answer.", tuple(timed))


def _summary(labels: Labels, served: int, latencies: Latencies) -> Iterable[Sample]:
    for quantile in QUANTILES:
        yield "", (*labels, ("quantile", str(quantile))), latencies.quantile(quantile, served)
    yield "_count", labels, served


def _connections(rooms: Rooms) -> Iterator[Family]:
    samples = [
        ("", (("listener", name),), len(listener.scope.connections))
        for name, listener in rooms.listeners.by_name.items()
    ]
    yield Family("kafka_server_socketservermetrics_connectioncount", GAUGE, "Open connections.", tuple(samples))
    name = "kafka_server_fetchsessioncache_"
    yield _gauge(name + "numincrementalfetchsessions", "Fetch sessions.", len(rooms.fetch_sessions))
    watched = sum(len(session.partitions) for session in rooms.fetch_sessions)
    yield _gauge(name + "numincrementalfetchpartitionscached", "Partitions in fetch sessions.", watched)
    purgatory = "kafka_server_delayedoperationpurgatory_purgatorysize"
    yield _gauge(purgatory, "Requests that wait.", len(rooms.purgatory))


def _coordinators(rooms: Rooms) -> Iterator[Family]:
    groups, offsets = rooms.groups.counts()
    prefix = "kafka_coordinator_group_groupmetadatamanager_"
    yield _gauge(prefix + "numgroups", "Groups that this broker coordinates.", groups)
    yield _gauge(prefix + "numoffsets", "Offsets that they have committed.", offsets)
    kinds: tuple[tuple[str, Coordinator[Any]], ...] = (("group", rooms.groups), ("transaction", rooms.transactions))
    for kind, coordinator in kinds:
        longest, mean = coordinator.load_times.recent()
        name = f"kafka_server_{kind}_coordinator_metrics_partition_load_time_"
        loading = "Milliseconds until a partition that was taken over lately was loaded"
        yield _gauge(name + "max", f"{loading}, at most.", longest)
        yield _gauge(name + "avg", f"{loading}, on average.", mean)


def _transactions(rooms: Rooms) -> Iterator[Family]:
    """What holds up transactions: of this broker's partitions, of its coordinators, of what it asks of others."""
    now_ms = rooms.world.clock.now_ms()
    late_ms = rooms.config.transaction_max_timeout_ms + LATE_BEYOND_TIMEOUT_MS
    late = sum(
        hosted.partition.is_leader and hosted.partition.log.producers.has_late_transaction(now_ms, late_ms)
        for hosted in rooms.replicas
    )
    known = sum(len(hosted.partition.log.producers) for hosted in rooms.replicas)
    prefix = "kafka_server_replicamanager_"
    yield _gauge(prefix + "partitionswithlatetransactionscount", "Led partitions in which a transaction hangs.", late)
    yield _gauge(prefix + "produceridcount", "Producers that the partitions of this broker remember.", known)
    prefix = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"
    waiting = rooms.transactions.markers_without_leader
    yield _gauge(prefix + "unknowndestinationqueuesize", "Markers whose partition has no leader.", waiting)
    refused = rooms.transactions.refused_ends
    yield _gauge(prefix + "logappendretryqueuesize", "Ends of transactions that the log has refused.", refused)
    verifier = rooms.verifier
    prefix = "kafka_server_addpartitionstotxnmanager_"
    yield Family(
        prefix + "verificationfailurerate_count",
        COUNTER,
        "Partitions in which a transaction could not begin, since its coordinator did not agree.",
        (("", (), verifier.unverified),),
    )
    yield Family(
        prefix + "verificationtimems",
        SUMMARY,
        "Milliseconds that coordinators were asked for.",
        tuple(_summary((), verifier.asked, verifier.latencies)),
    )


def _features(rooms: Rooms) -> Iterator[Family]:
    served = rooms.image.features.served(rooms.quorum.kraft_version)
    samples = [("", (("featureName", _feature_label(name)),), level) for name, level in served.items()]
    doc = "Levels of features that the cluster has agreed on."
    yield Family("kafka_server_metadataloader_finalizedlevel", GAUGE, doc, tuple(samples))


def _feature_label(name: str) -> str:
    """`transactionVersion` for `transaction.version`, as in Kafka."""
    first, *others = name.split(".")
    return first + "".join(map(str.capitalize, others))


def _contained(rooms: Rooms) -> Iterator[Family]:
    """Of Odradek alone."""
    samples = [("", (("cost", cost.value),), count) for cost, count in rooms.containment.counts.items()]
    doc = "Errors in Odradek itself, by what each has cost; the log has their tracebacks."
    yield Family("odradek_unexpectedfailures_total", COUNTER, doc, tuple(samples))


def _gauge(name: str, doc: str, number: float) -> Family:
    return Family(name, GAUGE, doc, (("", (), number),))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(number: float) -> str:
    if isnan(number):
        return "NaN"
    return str(number) if isinstance(number, int) else repr(float(number))
