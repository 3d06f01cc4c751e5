"""How a command says what went wrong."""

from __future__ import annotations


class Sentence(Exception):
    """Ends the command; the message is all that a person gets to see, without a traceback."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code
