"""`python -m odradek` is `odradek`."""

from __future__ import annotations

import sys

from odradek.apps.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
