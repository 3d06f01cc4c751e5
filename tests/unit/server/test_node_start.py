"""A start that fails half way says why and leaves nothing behind: the next one can succeed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.server.rig import Rig

from odradek.metadata.bootstrap import FormatError
from odradek.server.quorum.log import BadMetadataLog

STATE = "/data/__cluster_metadata-0/quorum-state"
BOOTSTRAP = "/data/bootstrap.checkpoint"


@pytest.mark.parametrize(
    ("path", "failure"), [(STATE, BadMetadataLog), (BOOTSTRAP, FormatError)], ids=["quorum-state", "bootstrap"]
)
def test_a_damaged_file_is_named_and_everything_is_let_go(path: str, failure: type[Exception]) -> None:
    rig = Rig()

    async def test() -> None:
        await rig.node.stop()
        disk = rig.world.disk
        sound = disk.read_file(path)
        disk.write_file(path, b"rubbish")
        with pytest.raises(failure, match=path.rpartition("/")[2]):
            await rig.start()
        assert rig.network.accept == {}, "no port is open"
        rig.world.disk.write_file(path, sound)
        await rig.start()

    rig.run(test)


@pytest.mark.parametrize("refuse", ["register", "unfence"])
def test_a_start_that_is_given_up_can_be_repeated(refuse: str) -> None:
    rig = Rig()

    async def test() -> None:
        await rig.node.stop()
        lifecycle = "odradek.server.membership.lifecycle.BrokerLifecycle"
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(f"{lifecycle}.{refuse}", _give_up)
            with pytest.raises(TimeoutError):
                await rig.start()
        assert rig.network.accept == {}
        await rig.start()

    rig.run(test)


async def _give_up(*_: object) -> Callable[[], None]:
    raise TimeoutError
