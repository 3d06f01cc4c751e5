"""What is written says what is so: generated pages are current, links lead somewhere, listed commands exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools import api_reference, config_reference

from odradek.server.configs.settings import NODE_CONFIGS

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "changes").rglob("*.md")])
MAKEFILE = (ROOT / "Makefile").read_text()


def test_the_configuration_reference_is_current() -> None:
    assert config_reference.PAGE.read_text() == config_reference.page(), "run `make docs`"


def test_the_list_of_apis_is_current() -> None:
    assert api_reference.PAGE.read_text() == api_reference.page(), "run `make docs`"


def test_no_api_is_both_served_and_listed_as_missing() -> None:
    rows = re.findall(r"^\|[^|]*\|([^|]*)\|", (ROOT / "docs" / "GAPS.md").read_text(), re.M)
    gaps = "\n".join(rows)
    served = re.findall(r"^\| \d+ \| (\w+) \|", api_reference.page(), re.M)
    assert len(served) >= 13
    assert [name for name in served if re.search(rf"\b{name}\b(?! with)", gaps) and name not in PARTLY_MISSING] == []


PARTLY_MISSING = ("Produce", "Fetch")
"""Served, and named in the gaps for what of them is not."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert (page.parent / target).exists(), f"{target} is not there"


SOURCE = ROOT / "src" / "odradek"
ROOMS = (
    *(ROOT, ROOT / "docs", ROOT / "src", SOURCE, SOURCE / "coordinator" / "group", SOURCE / "apps" / "pipelines"),
    *(path for path in SOURCE.glob("*") if path.is_dir()),
)
"""Where a path may begin: a page about a room names what is in it."""

PLACE = re.compile(r"(?<![\w/.(-])(?:[a-z_]+/)+[a-z_]*(?:\.(?:py|txt))?(?![\w*<-])")
"""A path of the repository, or of a room in it, as pages name it: `storage/log.py`, handlers/produce, `tests/unit`."""


@pytest.mark.parametrize(
    "page",
    [ROOT / "docs" / "architecture.md", *sorted((ROOT / "docs" / "internals").glob("*.md"))],
    ids=lambda page: page.name,
)
def test_places_that_pages_name_exist(page: Path) -> None:
    named = dict.fromkeys(PLACE.findall(re.sub(r"</?br?/?>|\]\([^)]*\)", "", page.read_text())))
    assert named
    assert [place for place in named if not any(_is_there(room / place) for room in ROOMS)] == []


def _is_there(path: Path) -> bool:
    """A module may be named without its ending."""
    return path.exists() or path.with_suffix(".py").exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_make_targets_that_pages_name_exist(page: Path) -> None:
    named = re.findall(r"(?:`|^\$ |^)make ([a-z-]+)", page.read_text(), re.M)
    assert [name for name in named if not re.search(rf"^{name}:", MAKEFILE, re.M)] == []


def test_every_target_is_listed_by_help() -> None:
    targets = re.findall(r"^([a-z-]+):", MAKEFILE, re.M)
    assert [name for name in targets if not re.search(rf"^{name}:.*## \S", MAKEFILE, re.M)] == []


def test_every_honoured_key_is_read_somewhere() -> None:
    """A key in the table that nothing reads would be a promise that is not kept."""
    rooms = [path for path in (ROOT / "src").rglob("*.py") if path.name != "settings.py"]
    everything = "\n".join(path.read_text() for path in rooms)
    unread = [name for name in NODE_CONFIGS if not re.search(rf"\.{name.replace('.', '_')}\b|\"{name}\"", everything)]
    assert unread == []


DIFFERENCES = (ROOT / "docs" / "differences.md").read_text()


def test_every_difference_from_kafka_has_its_page() -> None:
    rows: list[str] = re.findall(r"^\|(.*)\|$", DIFFERENCES, re.M)[2:]
    pages = [re.findall(r"\]\((adr/\d{4}-[a-z-]+\.md)\)", row) for row in rows]
    assert len(rows) > 10
    assert [row for row, named in zip(rows, pages, strict=True) if not named] == []
    assert [page for named in pages for page in named if not (ROOT / "docs" / page).exists()] == []


def test_every_key_of_our_own_is_a_difference_that_is_listed() -> None:
    named = re.findall(r"`(odradek\.[a-z.]+)`", DIFFERENCES)
    assert sorted({*named}) == sorted(name for name in NODE_CONFIGS if name.startswith("odradek."))
