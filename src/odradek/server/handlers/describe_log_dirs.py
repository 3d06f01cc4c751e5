"""DescribeLogDirs, versions 1 to 5: this broker's log directories, how full they are, and the sizes of their logs.

A directory that has failed is listed with KAFKA_STORAGE_ERROR and nothing in it.
"""

from __future__ import annotations

from odradek.protocol.api import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import allowed
from odradek.server.handlers.context import Context
from odradek.server.net.routes import Role, serves
from odradek.server.partitions.hosted_partition import HostedPartition


@serves(ApiKey.DESCRIBE_LOG_DIRS, on=Role.BROKER)
async def handle(ctx: Context, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    if not allowed(ctx.caller, Operation.DESCRIBE, ResourceType.CLUSTER):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wanted: dict[tuple[str, int], None] | None = None
    if request.topics is not None:
        wanted = {(topic.topic, index): None for topic in request.topics for index in topic.partitions}
    by_directory: dict[str, dict[str, list[DescribeLogDirsPartition]]] = {}
    for hosted in ctx.rooms.replicas:
        if wanted is None or (hosted.topic, hosted.index) in wanted:
            topics = by_directory.setdefault(hosted.directory.path, {})
            topics.setdefault(hosted.topic, []).append(_partition(hosted))
    online = {directory.path: directory for directory in ctx.rooms.replicas.directories if directory.online}
    results = []
    for path in ctx.rooms.config.log_dirs:
        try:
            if path not in online:
                raise OSError
            usage = ctx.rooms.world.disk.usage(path)
        except OSError:
            results.append(DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path, topics=[]))
            continue
        results.append(
            DescribeLogDirsResult(
                log_dir=path,
                topics=[
                    DescribeLogDirsTopic(name=name, partitions=partitions)
                    for name, partitions in by_directory.get(path, {}).items()
                ],
                total_bytes=usage.total_bytes,
                usable_bytes=usage.usable_bytes,
                is_cordoned=ctx.rooms.config.is_cordoned(path),
            )
        )
    return DescribeLogDirsResponse(results=results)


def _partition(hosted: HostedPartition) -> DescribeLogDirsPartition:
    log = hosted.partition.log
    return DescribeLogDirsPartition(
        partition_index=hosted.index,
        partition_size=log.size_bytes,
        offset_lag=max(log.high_watermark - log.log_end_offset, 0),
        is_future_key=False,
    )
