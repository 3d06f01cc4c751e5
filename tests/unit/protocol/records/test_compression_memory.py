"""What unpacking may cost: by what comes out, never by what is allowed to come out."""

from __future__ import annotations

import tracemalloc

import pytest

from odradek.protocol.records.compression import Compression, compress, decompress


@pytest.mark.parametrize("codec", Compression)
def test_memory_follows_the_output(codec: Compression) -> None:
    packed = compress(codec, b"a few bytes")
    decompress(codec, packed)  # Imports its library.
    tracemalloc.start()
    try:
        assert decompress(codec, packed) == b"a few bytes"
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1024 * 1024
