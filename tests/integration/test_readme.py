"""The Python that the README shows runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from odradek.testing import RunningNode

ROOT = Path(__file__).parents[2]
SNIPPETS = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)


def test_the_quick_start(kafka: RunningNode) -> None:
    """In the order of the page: what one client writes the next one reads."""
    shown = [snippet for snippet in SNIPPETS if "def test_" not in snippet]
    assert len(shown) == 2
    for snippet in shown:
        exec(compile(snippet.replace("127.0.0.1:9092", kafka.bootstrap_servers), "README.md", "exec"), {})


def test_the_fixture(tmp_path: Path) -> None:
    """With a pytest of its own, as a user's project has it."""
    (shown,) = (snippet for snippet in SNIPPETS if "def test_" in snippet)
    (tmp_path / "test_pipeline.py").write_text(shown)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "test_pipeline.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    assert "1 passed" in ended.stdout
