"""The house rules that no linter knows: door plates, file lengths, no dead files, nothing of one machine."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "odradek"
MODULES = sorted(SOURCE.rglob("*.py"))
LONGEST_FILE = 800
"""Four hundred lines is the habit; at twice that, no clarity is left to argue with."""


def tracked_texts() -> list[Path]:
    """Every text file of the repository, as git sees it; new files count before they are committed."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git work tree, so there is no list of its files")
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_every_room_has_a_door_plate_and_every_module_a_purpose() -> None:
    """Told in full sentences: at the top of `__init__.py` for a room, of the file for a module."""
    plates = {module_name(path): ast.get_docstring(ast.parse(path.read_text())) for path in MODULES}
    assert [name for name, plate in plates.items() if not plate or not re.search(r"[.:]\Z|\.\s", plate)] == []


def test_no_file_has_outgrown_the_head() -> None:
    long = {module_name(path): len(path.read_text().splitlines()) for path in MODULES}
    assert {name: lines for name, lines in long.items() if lines > LONGEST_FILE} == {}


def test_every_module_is_reached() -> None:
    """A module that nothing imports, no test names and no entry point starts is dead."""
    texts = [path.read_text() for path in MODULES]
    texts += [
        path.read_text() for room in ("tests", "bench", "tools", "examples") for path in (ROOT / room).rglob("*.py")
    ]
    texts.append((ROOT / "pyproject.toml").read_text())
    everything = "\n".join(texts)
    dead = []
    for path in MODULES:
        name = module_name(path)
        parent, _, last = name.rpartition(".")
        if path.name in ("__init__.py", "__main__.py") or _imported_by_table(name):
            continue
        taken = rf"from {re.escape(parent)} import (?:[^\n(]*|\([^)]*)\b{last}\b"
        if not re.search(rf"{re.escape(name)}\b|{taken}", everything):
            dead.append(name)
    assert dead == []


def _imported_by_table(name: str) -> bool:
    """Messages and handlers are found by their API's name, when it is first asked for."""
    return name.startswith(("odradek.protocol.messages.", "odradek.server.handlers."))


def test_the_native_module_has_one_door() -> None:
    """Where it is not installed everything works, so nobody else may need it."""
    importing = re.compile(r"^\s*(?:import|from) odradek_native\b", re.MULTILINE)
    found = [module_name(path) for path in MODULES if importing.search(path.read_text())]
    assert found == ["odradek.protocol.records.native"]


BANNED = {
    "a path of one machine": re.compile(r"/(?:work|root|home)/(?!kafka\b)[a-z]"),
    "a package registry's host": re.compile(
        r"(?:pypi|pythonhosted|registry\.npmjs|artifactory|nexus|jfrog)\.[a-z]", re.I
    ),
    "an index address": re.compile(r"--(?:extra-)?index-url|--find-links|--trusted-host"),
    "work that was left": re.compile(r"\b(?:TODO|FIXME|XXX)\b(?! #[0-9])"),
}


@pytest.mark.parametrize("what", BANNED)
def test_no_file_holds(what: str) -> None:
    found = []
    for path in tracked_texts():
        if path == Path(__file__) or path.suffix in (".png", ".bin", ".gz"):
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if BANNED[what].search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert found == []
