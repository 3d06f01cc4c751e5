"""ApiVersions: exactly what is served is announced. (Unknown versions: see the tests of connections.)"""

from __future__ import annotations

import pytest
from tests.unit.server.rig import Rig

from odradek.protocol.api import ApiKey
from odradek.protocol.codec import encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from odradek.server.net.routes import Role, route_of, routes_of

SOMEBODY = ApiVersionsRequest(client_software_name="odradek-test", client_software_version="1.0")


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize(("port", "role"), [(9092, Role.BROKER), (9093, Role.CONTROLLER)])
def test_a_listener_announces_what_it_serves(port: int, role: Role, version: int) -> None:
    rig = Rig()

    async def test() -> None:
        response = await rig.connect(port).ask(SOMEBODY, version)
        assert response.error_code == 0
        announced = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        served = {key: (route.min_version, route.max_version) for key, route in routes_of(role).items()}
        if role is Role.BROKER:
            assert announced.pop(ApiKey.PRODUCE) == (0, 13)
            del served[ApiKey.PRODUCE]
        assert announced == served
        assert list(announced) == sorted(announced)

    rig.run(test)


@pytest.mark.parametrize("version", [3, 4])
def test_features_are_told_from_version_3_on(version: int) -> None:
    rig = Rig()

    async def test() -> None:
        response = await rig.connect().ask(SOMEBODY, version)
        finalized = {each.name: each.max_version_level for each in response.finalized_features}
        supported = {each.name: (each.min_version, each.max_version) for each in response.supported_features}
        assert response.finalized_features_epoch == rig.node.rooms.image.provenance.offset
        low, high = supported["metadata.version"]
        assert low <= finalized["metadata.version"] <= high
        if version == 3:
            assert all(low > 0 for low, _ in supported.values())
        else:
            assert any(low == 0 for low, _ in supported.values())

    rig.run(test)


@pytest.mark.parametrize("name", ["", "-x", "x-", "a b", "é", "x\n"])
def test_software_without_a_proper_name_is_refused(name: str) -> None:
    rig = Rig()

    async def test() -> None:
        client = rig.connect()
        for wrong in (
            ApiVersionsRequest(client_software_name=name, client_software_version="1"),
            ApiVersionsRequest(client_software_name="x", client_software_version=name),
        ):
            response = await client.ask(wrong, 3)
            assert response.error_code == ErrorCode.INVALID_REQUEST
            assert (await client.ask(wrong, 2)).error_code == 0

    rig.run(test)


@pytest.mark.parametrize("version", range(5))
def test_an_answer_whose_list_is_known_has_the_bytes_of_one_that_is_made_anew(version: int) -> None:
    make = route_of(ApiKey.API_VERSIONS, Role.BROKER).encode
    assert make is not None
    encode_known = make(version)
    lists = [
        [ApiVersion(api_key=key, min_version=0, max_version=key) for key in range(count)] for count in (0, 1, 90, 200)
    ]
    for epoch in (-1, 7, 8):
        for keys in (*lists, *lists):
            response = ApiVersionsResponse(error_code=35, api_keys=keys, finalized_features_epoch=epoch)
            assert encode_known(response) == [encode(response, version)]
            assert response.api_keys is keys
