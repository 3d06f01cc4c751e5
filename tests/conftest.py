"""What all tests share: the switch that writes transcripts anew."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write the transcripts of tests/scenarios anew; then read the diff"
    )
