"""What all tests share: the switch that writes transcripts anew, and a keyboard that can interrupt."""

from __future__ import annotations

import signal

import pytest

# A shell that starts the tests in the background lets them ignore SIGINT, and so would every command they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write the transcripts of tests/scenarios anew; then read the diff"
    )
