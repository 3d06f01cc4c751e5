"""The offset of a time, found while the loop goes on: workers read the files, and unpack the batch that is found."""

from __future__ import annotations

from odradek.ids import NO_TIMESTAMP, Offset
from odradek.ports import Workers
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.server.partitions.hosted_partition import HostedPartition
from odradek.server.partitions.replicas import Replicas
from odradek.storage.timestamps import TimestampOffset


async def offset_by_time(
    replicas: Replicas, workers: Workers, hosted: HostedPartition, timestamp: int | None, end_offset: Offset
) -> TimestampOffset | None:
    """The first record that is as late, or of None the first with the largest timestamp.

    It may lie at `end_offset` or behind it, up to where it is only looked for. Raises `KafkaError` if the partition has
    left, or has another leader epoch, meanwhile: what was read may be of records that were cut off.
    """
    partition = hosted.partition
    log, epoch = partition.log, partition.state.leader_epoch
    from_offset = log.log_start_offset
    while from_offset < end_offset:
        with replicas.storage_errors(hosted):
            wanted = log.max_timestamp if timestamp is None else timestamp
            search = None if wanted == NO_TIMESTAMP else log.search_by_time(wanted, from_offset)
        if search is None:
            return None
        try:
            found = await workers.run(search)
        except OSError as failure:
            if not search.segment.deleted:  # Else its files may be gone, and need not be there.
                raise replicas.storage_error(hosted, failure) from failure
            found = None
        if not replicas.hosts(hosted):
            raise KafkaError(replicas.why_missing(hosted.topic, hosted.index))
        if partition.state.leader_epoch != epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if found is not None and found.offset >= log.log_start_offset:
            return found
        from_offset = max(search.end_offset if found is None else from_offset, log.log_start_offset)
    return None
