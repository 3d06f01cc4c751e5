"""Receive buffers are shared, sized in powers of two, and not hoarded."""

from __future__ import annotations

import pytest

from odradek.server.net.buffers import (
    LARGEST_POOLED_BUFFER,
    POOLED_BYTES_PER_SIZE,
    SMALLEST_BUFFER,
    BufferPool,
)


@pytest.mark.parametrize(
    ("asked", "size"),
    [
        (0, SMALLEST_BUFFER),
        (1, SMALLEST_BUFFER),
        (262_144, 262_144),
        (262_145, 524_288),
        (1_000_000, 1_048_576),
        (5_000_000, 8_388_608),
    ],
)
def test_a_buffer_is_the_next_power_of_two(asked: int, size: int) -> None:
    buffer = BufferPool().take(asked)
    assert buffer.size == len(buffer.view) == size
    assert not buffer.view.readonly


def test_what_comes_back_is_given_out_again() -> None:
    pool = BufferPool()
    first, second = pool.take(0), pool.take(0)
    assert first is not second
    pool.give_back(first, 0)
    assert pool.take(100) is first
    assert pool.take(100) is not first


@pytest.mark.parametrize("size", [SMALLEST_BUFFER, LARGEST_POOLED_BUFFER, 2 * LARGEST_POOLED_BUFFER])
def test_a_bounded_number_is_kept(size: int) -> None:
    pool = BufferPool()
    taken = [pool.take(size) for _ in range(POOLED_BYTES_PER_SIZE // size + 3)]
    for buffer in taken:
        pool.give_back(buffer, 0)
    again = [pool.take(size) for _ in taken]
    kept = sum(any(buffer is old for old in taken) for buffer in again)
    assert kept == (POOLED_BYTES_PER_SIZE // size if size <= LARGEST_POOLED_BUFFER else 0)


def test_poison_shows_a_view_that_outlived_its_request() -> None:
    pool = BufferPool(poison=True)
    buffer = pool.take(0)
    buffer.view[:5] = b"hello"
    stale = buffer.view[:5]
    pool.give_back(buffer, 5)
    assert bytes(stale) == b"\xdd" * 5
