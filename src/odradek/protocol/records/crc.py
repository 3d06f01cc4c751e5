"""CRC-32C, the checksum of record batches and of producer snapshots."""

from __future__ import annotations

from collections.abc import Callable

from fastcrc.crc32 import iscsi

crc32c: Callable[[bytes | bytearray | memoryview], int] = iscsi
"""The checksum of all bytes handed in; views are read where they are, without a copy."""
