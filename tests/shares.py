"""Which tests one worker of a test run does, one after the other, because they share what they have started.

`--dist loadgroup` is meant for this. With pytest 9.2 it leaves every test for itself, without a word: pytest-xdist 3.8
tells groups by an attribute of tests that is not read any more.
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

TOGETHER = {
    "tests/integration/pipelines/": "Spark",
    "tests/compat/test_cli_against_kafka.py": "Apache Kafka",
    "tests/compat/test_own_client.py": "Apache Kafka",
    "tests/compat/test_spoilt_batches.py": "Apache Kafka",
}
"""Several files, because of something that takes more CPU to start than most of their tests."""

APART = (
    "tests/simulation/test_quorum_seeds.py",
    "tests/simulation/test_replication_seeds.py",
    "tests/simulation/test_transaction_seeds.py",
)
"""Files whose tests start nothing for each other, and are too many for one worker."""


def share_of(test: str) -> str:
    """Tests of the same share are run by one worker: those of a file, unless it is said otherwise above."""
    file = test.partition("::")[0]
    if file in APART:
        return test
    return next((share for path, share in TOGETHER.items() if file.startswith(path)), file)


class ByShare(LoadScopeScheduling):
    """Gives whole shares to workers."""

    def _split_scope(self, nodeid: str) -> str:
        return share_of(nodeid)
