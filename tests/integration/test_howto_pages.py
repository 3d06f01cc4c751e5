"""What the how-to pages about CI and metrics promise."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
import urllib.request
from pathlib import Path

import pytest

from odradek.testing import running_node
from odradek.testing.ports import free_port

PAGES = Path(__file__).parents[2] / "docs" / "howto"


def test_the_step_that_starts_a_node_in_ci(tmp_path: Path) -> None:
    """As it stands, but on ports of the test's own; the next step finds the node."""
    if shutil.which("curl") is None:
        pytest.skip("NOT TESTED: curl not installed, so the recipe for CI cannot run here")
    (step,) = re.findall(r"^      - run: \|\n((?: {10}.*\n)+)", (PAGES / "ci.md").read_text(), re.M)
    (after,) = re.findall(r"^      - run: (odradek topic .*)$", (PAGES / "ci.md").read_text(), re.M)
    node, http = free_port(), free_port()
    script = f"{textwrap.dedent(step)}\n{after} --bootstrap-server 127.0.0.1:{node}\nkill $!\nwait $!\n"
    script = script.replace("odradek start", f"odradek start --port {node}").replace(":9404", f":{http}")
    ended = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=tmp_path,
        env=os.environ | {"RUNNER_TEMP": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert '"status": "ok"' in ended.stdout
    assert (tmp_path / "kafka" / "orders-2").is_dir()
    assert "Stopped cleanly" in (tmp_path / "kafka.log").read_text()


def test_metrics_have_the_names_on_the_page() -> None:
    page = (PAGES / "metrics.md").read_text()
    whole, ends = set(re.findall(r"\bkafka_\w+", page)), set(re.findall(r"`…(_\w+)`", page))
    assert whole
    assert ends
    window = f"http://127.0.0.1:{free_port()}"
    with (
        running_node(properties={"odradek.http.listener": window}),
        urllib.request.urlopen(f"{window}/metrics", timeout=10) as response,
    ):
        told = response.read().decode()
    names = set(re.findall(r"^# TYPE (\w+)", told, re.M))
    assert whole - names == set()
    assert [end for end in ends if not any(name.endswith(end) for name in names)] == []
