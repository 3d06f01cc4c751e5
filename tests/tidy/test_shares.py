"""Who runs what when several workers share the tests."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from tests.shares import APART, TOGETHER, share_of

ROOT = Path(__file__).parents[2]
QUICK = "tests/unit/testing", "tests/unit/protocol/records"


def test_the_tests_of_a_file_are_run_by_one_worker() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "2", "--no-loadscope-reorder", "-v", "-p", "no:cacheprovider", *QUICK],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    workers = defaultdict(set)
    for worker, file in re.findall(r"^\[(gw\d)\].* PASSED (\S+\.py)::", ran.stdout, re.MULTILINE):
        workers[file].add(worker)
    assert len(workers) > 2
    assert {file: at for file, at in workers.items() if len(at) > 1} == {}
    assert set.union(*workers.values()) == {"gw0", "gw1"}


def test_files_that_share_something_are_one_share_and_seeds_are_many() -> None:
    assert share_of("tests/unit/test_ids.py::test_a[b::c]") == "tests/unit/test_ids.py"
    assert share_of("tests/integration/pipelines/test_runs.py::test_a") == "Spark"
    assert share_of(f"{APART[0]}::test_a") != share_of(f"{APART[0]}::test_b")


def test_what_is_shared_is_there() -> None:
    assert [path for path in (*TOGETHER, *APART) if not (ROOT / path).exists()] == []
