"""Declaring everything must cost nothing until it is used: `bench/import_cost.py` has the figure, this its causes."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("inspect", "dataclasses", "uuid", "asyncio", "logging", "ast", "json", "pathlib", "hashlib", "datetime")


def loaded_after(program: str) -> set[str]:
    """Modules in an interpreter that starts without site-packages, whose .pth files may load anything."""
    report = "\nimport sys; print('\\n'.join(sys.modules))"
    command = [sys.executable, "-I", "-S", "-c", program + report]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def messages_in(loaded: set[str]) -> list[str]:
    return [name for name in loaded if name.startswith("odradek.protocol.messages.")]


def importing(statement: str) -> str:
    return f"import sys; sys.path[:0] = {[path for path in sys.path if path]!r}\n{statement}"


def test_the_registry_and_the_codec_import_no_messages_and_nothing_heavy() -> None:
    loaded = loaded_after(importing("import odradek.protocol.api, odradek.protocol.codec, odradek.protocol.frame"))
    assert "odradek.protocol.api" in loaded
    assert not messages_in(loaded)
    assert not loaded & set(HEAVY)


def test_one_api_imports_its_own_messages_only() -> None:
    program = importing(
        "from odradek.protocol.api import *\nfrom odradek.protocol.codec import *\n"
        "decoder(request_class(ApiKey.PRODUCE), 9); encoder(response_class(ApiKey.PRODUCE), 9)"
    )
    loaded = loaded_after(program)
    assert [name for name in loaded if name.startswith("odradek.protocol.messages.")] == [
        "odradek.protocol.messages.produce"
    ]
    assert not loaded & set(HEAVY)


def test_declaring_compiles_nothing() -> None:
    program = importing(
        "from odradek.protocol import declare\nimport odradek.protocol.messages.fetch as fetch\n"
        "assert not declare._layouts and not declare._defaults\n"
        "assert '__init__' not in fetch.FetchRequest.__dict__\n"
        "fetch.FetchPartition(partition=1, fetch_offset=2, partition_max_bytes=3)\n"
        "assert '__init__' in fetch.FetchPartition.__dict__ and '__init__' not in fetch.FetchRequest.__dict__"
    )
    assert "odradek.protocol.messages.fetch" in loaded_after(program)
