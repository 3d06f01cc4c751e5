"""Metadata, versions 0 to 13: live brokers, and topics with their partitions' leaders, by name or (from 12 on) by id.

Asking for a topic that does not exist may create it (`auto.create.topics.enable`, and the client allows it). Kafka's
brokers answer UNKNOWN_TOPIC_OR_PARTITION meanwhile and the client asks again; here the answer waits for the controller
and this node's hearing of the topic, and already describes it. Internal topics are left to the coordinators that own
them.
"""

from __future__ import annotations

from contextlib import suppress

from odradek.ids import ZERO_UUID, Uuid
from odradek.metadata.controller.brokers import live_controller
from odradek.metadata.image import Image
from odradek.metadata.image.cluster import BrokerRegistration
from odradek.metadata.image.topics import TopicImage
from odradek.metadata.topic_names import is_internal, name_error
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorized_operations import NOT_ASKED_FOR, TOPIC_OPERATIONS
from odradek.server.access.authorizer import allowed, allowed_operations, cluster_operations, topic_check
from odradek.server.handlers.context import Context
from odradek.server.handlers.forwarding import forward_as_client
from odradek.server.handlers.listener_view import ListenerView
from odradek.server.handlers.metadata_cache import Entry, answer_encoder, describe_topic
from odradek.server.net.routes import Role, serves

_NULL_MEANS_ALL_SINCE = 1
_TOPIC_IDS_SINCE = 12


@serves(ApiKey.METADATA, on=Role.BROKER, encode=answer_encoder)
async def handle(ctx: Context, request: MetadataRequest) -> MetadataResponse:
    version = ctx.api_version
    while left_ms := ctx.rooms.fetchers.doubt_left_ms():
        await ctx.rooms.next_image(timeout_ms=left_ms)
    wanted = request.topics
    if version < _TOPIC_IDS_SINCE and any(topic.name is None or topic.topic_id != ZERO_UUID for topic in wanted or ()):
        return _malformed(request)
    if wanted is None or (version < _NULL_MEANS_ALL_SINCE and not wanted):
        entries = _all_topics(ctx)
    else:
        ids = dict.fromkeys(topic.topic_id for topic in wanted if topic.topic_id != ZERO_UUID)
        if ids:
            entries = _topics_by_id(ctx, list(ids))
        elif any(topic.name is None for topic in wanted):
            return _malformed(request)
        else:
            names = list(dict.fromkeys(topic.name for topic in wanted if topic.name is not None))
            entries = await _topics_by_name(ctx, names, may_create=request.allow_auto_topic_creation)
    image = ctx.rooms.image
    topics: list[MetadataResponseTopic]
    if request.include_topic_authorized_operations:
        topics = _with_operations(ctx, image, entries)
    elif entries is None:
        topics = await ctx.rooms.metadata_cache.all_topics(image, listener_name=ctx.caller.listener, version=version)
    else:
        topics = await ctx.rooms.metadata_cache.some_topics(
            image, entries, listener_name=ctx.caller.listener, version=version
        )
    departed = ctx.rooms.replicas.departures.still_named()
    return MetadataResponse(
        brokers=_live_brokers([*image.cluster.alive_brokers(), *departed], ctx.caller.listener),
        cluster_id=ctx.rooms.cluster_id,
        controller_id=live_controller(image, ctx.rooms.node_id, ctx.rooms.world.entropy),
        topics=topics,
        cluster_authorized_operations=(
            cluster_operations(ctx.caller) if request.include_cluster_authorized_operations else NOT_ASKED_FOR
        ),
    )


def _with_operations(ctx: Context, image: Image, entries: list[Entry] | None) -> list[MetadataResponseTopic]:
    """What each client may do differs, so this is made anew for each."""
    view = ListenerView(image.cluster, ctx.caller.listener)
    topics = []
    for entry in list(image.topics.by_name.values()) if entries is None else entries:
        topic = describe_topic(view, entry, ctx.api_version) if isinstance(entry, TopicImage) else entry
        if topic.name is not None and topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            topic.topic_authorized_operations = allowed_operations(
                ctx.caller, ResourceType.TOPIC, topic.name, TOPIC_OPERATIONS
            )
        topics.append(topic)
    return topics


def _all_topics(ctx: Context) -> list[Entry] | None:
    """None is all there are."""
    may_describe = topic_check(ctx.caller, Operation.DESCRIBE)
    if may_describe is None:
        return None
    return [topic for topic in ctx.rooms.image.topics.by_name.values() if may_describe(topic.name)]


def _topics_by_id(ctx: Context, ids: list[Uuid]) -> list[Entry]:
    topics: list[Entry] = []
    for topic_id in ids:
        topic = ctx.rooms.image.topics.by_id.get(topic_id)
        if topic is None or not allowed(ctx.caller, Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            topics.append(_error_topic(None, ErrorCode.UNKNOWN_TOPIC_ID, topic_id))
        else:
            topics.append(topic)
    return topics


async def _topics_by_name(ctx: Context, names: list[str], *, may_create: bool) -> list[Entry]:
    denied = _denied(ctx, names)
    missing = [name for name in names if name not in ctx.rooms.image.topics.by_name and name not in denied]
    if missing and may_create and ctx.rooms.config.auto_create_topics_enable:
        creatable = [name for name in missing if name_error(name) is None and not is_internal(name)]
        permitted = [name for name in creatable if _may_create(ctx, name)]
        denied |= dict.fromkeys(name for name in creatable if name not in permitted)
        if permitted:
            await _create(ctx, permitted)
    topics: list[Entry] = []
    for name in names:
        topic = ctx.rooms.image.topics.by_name.get(name)
        if name in denied:
            topics.append(_error_topic(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        elif topic is not None:
            topics.append(topic)
        elif name_error(name) is not None:
            topics.append(_error_topic(name, ErrorCode.INVALID_TOPIC_EXCEPTION))
        else:
            topics.append(_error_topic(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    return topics


def _denied(ctx: Context, names: list[str]) -> dict[str, None]:
    may_describe = topic_check(ctx.caller, Operation.DESCRIBE)
    return {} if may_describe is None else dict.fromkeys(name for name in names if not may_describe(name))


def _may_create(ctx: Context, name: str) -> bool:
    return allowed(ctx.caller, Operation.CREATE, ResourceType.CLUSTER) or allowed(
        ctx.caller, Operation.CREATE, ResourceType.TOPIC, name
    )


async def _create(ctx: Context, names: list[str]) -> None:
    """Ask for topics with the broker's defaults; one that cannot be is simply unknown afterwards, as in Kafka."""
    config = ctx.rooms.config
    topics = [
        CreatableTopic(
            name=name,
            num_partitions=config.num_partitions,
            replication_factor=config.default_replication_factor,
            assignments=[],
            configs=[],
        )
        for name in names
    ]
    request = CreateTopicsRequest(topics=topics)
    with suppress(KafkaError):
        await forward_as_client(ctx, request, request.max_stable_version)


def _live_brokers(alive: list[BrokerRegistration], listener_name: str) -> list[MetadataResponseBroker]:
    brokers = []
    for broker in alive:
        endpoint = broker.endpoint(listener_name)
        if endpoint is not None:
            brokers.append(
                MetadataResponseBroker(
                    node_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack
                )
            )
    return brokers


def _error_topic(name: str | None, code: ErrorCode, topic_id: Uuid = ZERO_UUID) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=code,
        name=name,
        topic_id=topic_id,
        is_internal=name is not None and is_internal(name),
        partitions=[],
    )


def _malformed(request: MetadataRequest) -> MetadataResponse:
    """Before version 12 names may not be null, nor ids given; after it one of the two must be."""
    return MetadataResponse(
        error_code=ErrorCode.INVALID_REQUEST,
        topics=[
            _error_topic(topic.name or "", ErrorCode.INVALID_REQUEST, topic.topic_id) for topic in request.topics or ()
        ],
    )
