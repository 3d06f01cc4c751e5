from __future__ import annotations

import pytest
from tests.unit.server.rig import Rig

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

BROKER_PORT, CONTROLLER_PORT = 9092, 9093


def describe(port: int, version: int, **more: object) -> tuple[Rig, DescribeClusterResponse]:
    fields: dict[str, object] = {"include_cluster_authorized_operations": False, **more}
    rig = Rig()

    async def run() -> DescribeClusterResponse:
        request = DescribeClusterRequest(**fields)  # type: ignore[arg-type]
        answer: DescribeClusterResponse = await rig.connect(port).ask(request, version)
        return answer

    return rig, rig.run(run)


@pytest.mark.parametrize("version", range(3))
def test_brokers(version: int) -> None:
    rig, response = describe(BROKER_PORT, version)
    assert (response.error_code, response.cluster_id, response.controller_id) == (0, rig.node.rooms.cluster_id, 1)
    assert [(node.broker_id, node.host, node.port, node.is_fenced) for node in response.brokers] == [
        (1, "node", 9092, False)
    ]
    assert response.cluster_authorized_operations == -(1 << 31)


@pytest.mark.parametrize("version", [1, 2])
def test_controllers(version: int) -> None:
    _, response = describe(CONTROLLER_PORT, version, endpoint_type=2)
    assert (response.error_code, response.endpoint_type, response.controller_id) == (0, 2, 1)
    assert [(node.broker_id, node.port) for node in response.brokers] == [(1, 9093)]


def test_operations() -> None:
    _, response = describe(BROKER_PORT, 2, include_cluster_authorized_operations=True, include_fenced_brokers=True)
    assert response.cluster_authorized_operations == 8096
    assert len(response.brokers) == 1


@pytest.mark.parametrize(
    ("port", "endpoint_type", "code", "message"),
    [
        (BROKER_PORT, 7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, "Unsupported endpoint type 7"),
        (
            BROKER_PORT,
            2,
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        ),
        (
            CONTROLLER_PORT,
            1,
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER",
        ),
    ],
)
def test_the_wrong_door(port: int, endpoint_type: int, code: ErrorCode, message: str) -> None:
    _, response = describe(port, 2, endpoint_type=endpoint_type)
    assert (response.error_code, response.error_message, response.brokers) == (code, message, [])


def test_before_endpoint_types_existed_the_controllers_door_was_simply_wrong() -> None:
    _, response = describe(CONTROLLER_PORT, 0)
    assert response.error_code == ErrorCode.INVALID_REQUEST
