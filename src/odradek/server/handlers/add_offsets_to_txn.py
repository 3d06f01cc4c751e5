"""AddOffsetsToTxn, versions 0 to 4: a transaction is about to commit a group's offsets.

That is one more partition of it: the one of `__consumer_offsets` in which the group's offsets are. Producers that leave
partitions to brokers (KIP-890) leave this to the group's coordinator.
"""

from __future__ import annotations

from odradek.metadata.topic_names import GROUP_TOPIC
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from odradek.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from odradek.security.acl import Operation, ResourceType
from odradek.server.access.authorizer import require
from odradek.server.handlers.context import Context
from odradek.server.handlers.transaction_codes import known_code
from odradek.server.net.routes import Role, serves


@serves(ApiKey.ADD_OFFSETS_TO_TXN, on=Role.BROKER)
async def handle(ctx: Context, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    try:
        require(ctx.caller, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        require(ctx.caller, Operation.READ, ResourceType.GROUP, request.group_id)
    except KafkaError as refused:
        return AddOffsetsToTxnResponse(error_code=refused.code)
    offsets = AddPartitionsToTxnTopic(name=GROUP_TOPIC, partitions=[ctx.rooms.groups.partition_of(request.group_id)])
    asked = AddPartitionsToTxnTransaction(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        topics=[offsets],
    )
    result = await ctx.rooms.transactions.partitions(asked, client_version=0)
    code = result.topic_results[0].results_by_partition[0].partition_error_code
    return AddOffsetsToTxnResponse(error_code=known_code(code, ctx.api_version))
