"""The short doors that users name, `odradek.clients` and `odradek.pipelines`: where they lead, and what they cost."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from odradek import clients, pipelines
from odradek.apps import clients as inner_clients
from odradek.apps.pipelines import pipeline, schemas, sinks, sources, transforms

ROOT = Path(__file__).parents[3]


def test_the_doors_lead_where_they_say() -> None:
    assert pipelines.Pipeline is pipeline.Pipeline
    assert (pipelines.schemas, pipelines.sinks, pipelines.sources) == (schemas, sinks, sources)
    assert pipelines.transforms is transforms
    assert clients.connect is inner_clients.connect


@pytest.mark.parametrize(
    ("door", "unneeded"),
    [
        (
            "odradek.pipelines",
            ("pyspark", "py4j", "pandas", "argparse", "asyncio", "odradek.apps.cli.", "odradek.client"),
        ),
        ("odradek.clients", ("pyspark", "argparse", "odradek.apps.cli.", "odradek.server")),
        ("odradek.apps.pipelines.command", ("pyspark", "py4j", "pandas", "odradek.apps.cli.")),
    ],
)
def test_what_a_door_does_not_import(door: str, unneeded: tuple[str, ...]) -> None:
    program = f"import sys, {door}; print([n for n in sys.modules if n.startswith({unneeded!r})])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_what_users_read_names_the_short_doors() -> None:
    places = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.py")]
    places.append(ROOT / "src" / "odradek" / "apps" / "pipelines" / "scaffold.py")
    long_way = re.compile(r"from odradek\.apps\.(clients|pipelines) import")
    assert [str(each.relative_to(ROOT)) for each in places if long_way.search(each.read_text())] == []
