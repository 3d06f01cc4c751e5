"""Kafka's keys that this node does not honour: those that stop the start, and those that only earn a warning.

A setting that protects data or changes who may read it is never passed over in silence: better not to start than to
serve open what was meant to be closed. A setting that only tunes something that is not there yet is named in a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.configdef import ConfigError

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def refuse_what_cannot_be_honoured(properties: Mapping[str, str]) -> None:
    """Raise ConfigError for the first key whose meaning would silently be lost."""
    for name, text in properties.items():
        if not text.strip():
            continue
        bare = _without_listener_prefix(name)
        security = _security_asked_for(bare, text.strip())
        if security:
            raise ConfigError(
                f"{name} asks for {security}, which this node does not offer yet; "
                "it does not start rather than serve open what was meant to be closed.",
                name,
            )
        harmless = _REFUSED_UNLESS.get(bare)
        if harmless is not None and text.strip().lower() not in harmless[0]:
            raise ConfigError(f"{name}={text.strip()} cannot be honoured: {harmless[1]}.", name)


def warnings_for(names: Iterable[str]) -> list[str]:
    """One line for each reason why some of these keys have no effect."""
    by_reason: dict[str, list[str]] = {}
    for name in names:
        by_reason.setdefault(NO_EFFECT[name], []).append(name)
    return [
        f"{', '.join(keys)} {'has' if len(keys) == 1 else 'have'} no effect: {reason}."
        for reason, keys in by_reason.items()
    ]


def _without_listener_prefix(name: str) -> str:
    """`listener.name.internal.ssl.keystore.location` says of one listener what `ssl.keystore.location` says of all."""
    if name.startswith("listener.name."):
        return name.split(".", 3)[-1]
    return name


def _security_asked_for(name: str, text: str) -> str | None:
    for prefix, what in _SECURITY_PREFIXES.items():
        if name.startswith(prefix):
            return what
    if name == "authorizer.class.name" and text != STANDARD_AUTHORIZER:
        return f"authorization by {text}"
    if name == "security.inter.broker.protocol" and text != "PLAINTEXT":
        return f"{text} between brokers"
    if name == "connections.max.reauth.ms" and text != "0":
        return "re-authentication"
    return None


_SECURITY_PREFIXES = {
    "ssl.": "TLS",
    "sasl.": "SASL authentication",
    "oauthbearer.": "SASL authentication",
    "plain.sasl.": "SASL authentication",
    "scram-sha-256.sasl.": "SASL authentication",
    "scram-sha-512.sasl.": "SASL authentication",
    "gssapi.sasl.": "SASL authentication",
    "principal.builder.class": "authentication",
    "security.providers": "security providers",
    "delegation.token.secret.key": "delegation tokens",
    "delegation.token.master.key": "delegation tokens",
    "password.encoder.": "encrypted passwords",
}

_REFUSED_UNLESS: dict[str, tuple[tuple[str, ...], str]] = {
    "zookeeper.connect": ((), "ZooKeeper mode is not there yet, set process.roles=broker,controller instead"),
    "zookeeper.metadata.migration.enable": (("false",), "there is no ZooKeeper mode to migrate from yet"),
    "remote.log.storage.system.enable": (("false",), "tiered storage is not there"),
    "config.providers": ((), "values are taken as they stand, without config providers"),
    "create.topic.policy.class.name": ((), "a policy written in Java cannot be run"),
    "alter.config.policy.class.name": ((), "a policy written in Java cannot be run"),
    "client.quota.callback.class": ((), "a quota callback written in Java cannot be run"),
    "transaction.two.phase.commit.enable": (("false",), "two-phase commit (KIP-939) is not there"),
}


def _known(areas: Mapping[str, str]) -> dict[str, str]:
    return {name: reason for reason, names in areas.items() for name in names.split()}


NO_EFFECT = _known(
    {
        "one event loop does the work that Kafka gives to its threads": """
            background.threads num.io.threads num.network.threads num.recovery.threads.per.data.dir
            num.replica.alter.log.dirs.threads group.coordinator.threads group.coordinator.background.threads""",
        "buffers and back-pressure are sized by the node itself": """
            socket.send.buffer.bytes socket.receive.buffer.bytes socket.listen.backlog.size
            queued.max.request.bytes queued.max.requests
            fetch.purgatory.purge.interval.requests producer.purgatory.purge.interval.requests
            delete.records.purgatory.purge.interval.requests""",
        "connections are limited in all, by max.connections, and not by address or rate yet": """
            max.connections.per.ip max.connections.per.ip.overrides max.connection.creation.rate""",
        "what a group may choose for itself is bounded by Kafka's defaults": """
            group.consumer.max.assignment.interval.ms group.consumer.max.heartbeat.interval.ms
            group.consumer.max.session.timeout.ms group.consumer.min.assignment.interval.ms
            group.consumer.min.heartbeat.interval.ms group.consumer.min.session.timeout.ms""",
        "subscriptions by expression follow topics at once": """
            group.consumer.regex.refresh.interval.ms""",
        "the protocols that groups may use follow from group.version": """
            group.coordinator.rebalance.protocols""",
        "a coordinator writes each decision at once": """
            group.coordinator.append.linger.ms group.coordinator.cached.buffer.max.bytes""",
        "share groups are not there yet": """
            group.share.assignment.interval.ms group.share.assignors group.share.delivery.count.limit
            group.share.heartbeat.interval.ms group.share.initialize.retry.interval.ms
            group.share.max.assignment.interval.ms group.share.max.delivery.count.limit
            group.share.max.heartbeat.interval.ms group.share.max.partition.max.record.locks
            group.share.max.record.lock.duration.ms group.share.max.session.timeout.ms group.share.max.share.sessions
            group.share.max.size group.share.min.assignment.interval.ms group.share.min.delivery.count.limit
            group.share.min.heartbeat.interval.ms group.share.min.partition.max.record.locks
            group.share.min.record.lock.duration.ms group.share.min.session.timeout.ms
            group.share.partition.max.record.locks group.share.persister.class.name
            group.share.record.lock.duration.ms group.share.session.timeout.ms share.coordinator.append.linger.ms
            share.coordinator.cached.buffer.max.bytes share.coordinator.cold.partition.snapshot.interval.ms
            share.coordinator.load.buffer.size share.coordinator.snapshot.update.records.per.snapshot
            share.coordinator.state.topic.compression.codec share.coordinator.state.topic.min.isr
            share.coordinator.state.topic.num.partitions share.coordinator.state.topic.prune.interval.ms
            share.coordinator.state.topic.replication.factor share.coordinator.state.topic.segment.bytes
            share.coordinator.threads share.coordinator.write.timeout.ms
            share.fetch.purgatory.purge.interval.requests""",
        "streams groups are not there yet": """
            group.streams.assignment.interval.ms group.streams.heartbeat.interval.ms
            group.streams.initial.rebalance.delay.ms group.streams.max.assignment.interval.ms
            group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms group.streams.max.size
            group.streams.max.standby.replicas group.streams.min.assignment.interval.ms
            group.streams.min.heartbeat.interval.ms group.streams.min.session.timeout.ms
            group.streams.num.standby.replicas group.streams.session.timeout.ms""",
        "replicas are not moved between log directories yet": """
            alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds
            replica.alter.log.dirs.io.max.bytes.per.second""",
        "it counts only if it is set at run time": """
            follower.replication.throttled.rate leader.replication.throttled.rate""",
        "a node does without it": """
            controller.performance.always.log.threshold.ms controller.performance.sample.period.ms
            controller.quorum.append.linger.ms early.start.listeners
            log.dir.failure.timeout.ms num.replica.fetchers
            replica.socket.receive.buffer.bytes server.max.startup.time.ms
            socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms""",
        "tiered storage is not there": """
            follower.fetch.last.tiered.offset.enable log.local.retention.bytes log.local.retention.ms
            remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms
            remote.log.index.file.cache.total.size.bytes remote.log.index.file.cache.ttl.ms
            remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second
            remote.log.manager.copy.quota.window.num remote.log.manager.copy.quota.window.size.seconds
            remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second
            remote.log.manager.fetch.quota.window.num remote.log.manager.fetch.quota.window.size.seconds
            remote.log.manager.follower.thread.pool.size remote.log.manager.task.interval.ms
            remote.log.manager.task.retry.backoff.max.ms remote.log.manager.task.retry.backoff.ms
            remote.log.manager.task.retry.jitter remote.log.manager.thread.pool.size
            remote.log.metadata.custom.metadata.max.bytes remote.log.metadata.manager.class.name
            remote.log.metadata.manager.class.path remote.log.metadata.manager.impl.prefix
            remote.log.metadata.manager.listener.name remote.log.reader.max.pending.tasks remote.log.reader.threads
            remote.log.storage.manager.class.name remote.log.storage.manager.class.path
            remote.log.storage.manager.impl.prefix remote.log.storage.system.enable""",
        "metrics, quotas and telemetry are not there yet": """
            controller.quota.window.num controller.quota.window.size.seconds kafka.metrics.polling.interval.secs
            kafka.metrics.reporters metric.reporters metrics.num.samples metrics.recording.level
            metrics.sample.window.ms telemetry.max.bytes
            auto.include.jmx.reporter""",
        "security is not there yet": """
            connection.failed.authentication.delay.ms connections.max.reauth.ms
            delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms
            delegation.token.max.lifetime.ms""",
        "it belongs to Kafka's own tests": """
            internal.metadata.delete.delay.millis internal.metadata.log.segment.bytes
            internal.metadata.max.batch.size.in.bytes unstable.api.versions.enable unstable.feature.versions.enable""",
        "Kafka 4 has no such key any more, and this node follows Kafka 4": """
            inter.broker.protocol.version log.message.format.version log.message.downconversion.enable
            log.message.timestamp.difference.max.ms zookeeper.connection.timeout.ms zookeeper.session.timeout.ms
            zookeeper.max.in.flight.requests zookeeper.set.acl zookeeper.metadata.migration.enable
            broker.id.generation.enable reserved.broker.max.id group.coordinator.new.enable port host.name
            advertised.host.name advertised.port control.plane.listener.name
            controlled.shutdown.max.retries controlled.shutdown.retry.backoff.ms
            leader.imbalance.per.broker.percentage""",
    }
)
