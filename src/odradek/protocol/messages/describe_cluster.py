"""DescribeCluster: the cluster's id, controller and nodes."""

from __future__ import annotations

from odradek.protocol.codec import Message, Struct, field
from odradek.protocol.primitives import BrokerId, boolean, int8, int16, int32, string


class DescribeClusterRequest(Message, api_key=60, versions="0-2", flexible="0+"):
    include_cluster_authorized_operations: boolean
    endpoint_type: int8 = field(versions="1+", default=1)
    include_fenced_brokers: boolean = field(versions="2+", default=False)


class DescribeClusterBroker(Struct):
    broker_id: BrokerId
    host: string
    port: int32
    rack: string | None = field(nullable="0+", default=None)
    is_fenced: boolean = field(versions="2+", default=False)


class DescribeClusterResponse(Message, api_key=60, versions="0-2", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = field(nullable="0+", default=None)
    endpoint_type: int8 = field(versions="1+", default=1)
    cluster_id: string = ""
    controller_id: BrokerId = -1
    brokers: list[DescribeClusterBroker] = field(default_factory=list)
    cluster_authorized_operations: int32 = -2147483648
