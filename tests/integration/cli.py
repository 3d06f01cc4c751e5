"""`odradek` as people and scripts run it: a process, with a node to talk to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PATIENCE_S = 60.0


class Ran:
    """How a command ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    def __repr__(self) -> str:
        return f"exit code {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"

    @property
    def rows(self) -> list[list[str]]:
        """A table's cells; only for cells without blanks."""
        return [line.split() for line in self.out.splitlines()]


class Cli:
    """Runs commands against one cluster, with a place of its own for profiles."""

    def __init__(self, bootstrap: str, home: Path) -> None:
        self.bootstrap = bootstrap
        self.home = home
        home.mkdir(exist_ok=True)

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("KAFKA_", "ODRADEK_"))}
        kept.pop("PYTHONDONTWRITEBYTECODE", None)  # Hundreds of commands need not compile the same modules each.
        return {**kept, "ODRADEK_BOOTSTRAP": self.bootstrap, "XDG_CONFIG_HOME": str(self.home), "TZ": "UTC", **more}

    def run(self, *arguments: object, stdin: str | bytes = b"", **variables: str) -> Ran:
        """A command that is expected to end by itself."""
        ended = subprocess.run(
            self.command(*arguments),
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            env=self.environment(**variables),
            cwd=self.home,
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )
        ran = Ran(ended.returncode, ended.stdout.decode(), ended.stderr.decode())
        assert "Traceback" not in ran.err, ran
        return ran

    def ok(self, *arguments: object, stdin: str | bytes = b"", **variables: str) -> Ran:
        """A command that is expected to succeed."""
        ran = self.run(*arguments, stdin=stdin, **variables)
        assert ran.code == 0, ran
        return ran

    def json(self, *arguments: object, stdin: str | bytes = b"") -> Any:
        """What a command says to programs."""
        return json.loads(self.ok(*arguments, "--format", "json", stdin=stdin).out)

    def json_lines(self, *arguments: object) -> list[Any]:
        return [json.loads(line) for line in self.ok(*arguments, "--format", "json").out.splitlines()]

    def refused(self, *arguments: object, code: int = 1, stdin: str | bytes = b"", **variables: str) -> str:
        """The one sentence of a command that is expected to fail."""
        ran = self.run(*arguments, stdin=stdin, **variables)
        assert ran.code == code, ran
        assert ran.err.count("\n") == 1, ran
        assert ran.err.startswith("odradek: "), ran
        return ran.err.removeprefix("odradek: ").strip()

    def command(self, *arguments: object) -> list[str]:
        return [sys.executable, "-m", "odradek", *map(str, arguments)]
