"""What is done record by record, in Python: the twin of the native module, and what there is where that is not.

Both answer alike, whatever the bytes (`tests/unit/protocol/records/test_twins.py`). Neither knows a rule of the
protocol: they say what is wrong with which record, and `check.py` says what that means. Here most records go through
`_hop`, which is as quick as Python can be about records as producers write them; whatever is unusual goes through
`_step`, byte by byte, which alone decides what is wrong.
"""

from __future__ import annotations

from array import array
from enum import IntEnum
from hashlib import md5
from typing import TypeAlias

from odradek.ids import NO_TIMESTAMP


class Fault(IntEnum):
    """Why bytes are no records; the native module has the same numbers."""

    NONE = 0
    ENDS_EARLY = 1
    """The records end in the middle of one, or before as many came as are declared."""
    LEFT_OVER = 2
    """Something follows the last of the declared records."""
    LENGTH_NUMBER = 3
    """A record's length takes more than five bytes."""
    NUMBER = 4
    """A number in a record takes more bytes than it may, or any has more bits."""
    LENGTH = 5
    """A record's fields do not fill it exactly."""
    FIELD = 6
    """A key, value or header is longer than what is left of its record, or its length is below -1."""
    HEADERS = 7
    """The number of headers is negative or more than could be there, or one has no name."""
    OFFSET = 8
    """Offset deltas do not count up from 0."""


NEEDS_KEY = 1
FIXED_TIMESTAMP = 2
"""Every record has the timestamp that is given as the base."""
REFUSES_TIMESTAMP = 4
"""No timestamp is right, whatever it is."""

MAX_RECORD_ERRORS = 1_000
"""Of one batch: whoever sent so many need not be told of each."""

RecordFault: TypeAlias = tuple[int, int | None]
"""The number of a record, and its timestamp if that is what is wrong; None: it has no key."""

Refused: TypeAlias = tuple[int, int, list[RecordFault]]
"""A fault and the number of the record that has it; without one, the records that are whole and yet wrong."""

Columns: TypeAlias = tuple["array[int]", "array[int]", "array[int]", bytes, bytes]
"""Of records: offsets; timestamps; positions, of which there is one more, since a record ends where the next one
starts; flags, a byte a record; and the MD5 of the keys, 16 bytes a record, zeros where there is none."""

HAS_KEY = 1
HAS_VALUE = 2

HASH_BYTES = 16

_MIN_INT64, _MAX_INT64 = -(1 << 63), (1 << 63) - 1

_NO_HASH = bytes(HASH_BYTES)

# The fields of a record, in their order.
_LENGTH, _ATTRIBUTES, _TIMESTAMP, _OFFSET, _KEY, _VALUE, _HEADERS, _NAME, _CONTENT = range(9)


class Check:
    """Looks at the records of one batch, piece by piece as they are unpacked; it keeps nothing of the pieces."""

    __slots__ = (
        "_base_timestamp",
        "_count",
        "_delta",
        "_errors",
        "_fault",
        "_field",
        "_flags",
        "_has_key",
        "_headers",
        "_highest",
        "_index",
        "_left",
        "_lowest",
        "_newest",
        "_number",
        "_shift",
        "_skip",
    )

    def __init__(self, base_timestamp: int, count: int, flags: int, lowest: int, highest: int) -> None:
        """Of records that are `count`, with timestamps from `lowest` to `highest`, or none."""
        self._base_timestamp = base_timestamp
        self._count = count
        self._flags = flags
        self._lowest = lowest
        self._highest = highest
        self._newest = NO_TIMESTAMP
        self._errors: list[RecordFault] = []
        self._fault = 0
        self._index = 0
        # The record that a piece ends in: its field, what is known of the field's number, and bytes left.
        self._field = _LENGTH
        self._number = self._shift = self._skip = self._left = 0
        self._delta = self._headers = 0
        self._has_key = False

    def feed(self, piece: bytes | bytearray | memoryview) -> bool:
        """Look at what comes next; whether anything after it matters."""
        data = bytes(piece)
        at, end = 0, len(data)
        while at < end and not self._fault:
            if self._field == _LENGTH and not self._shift:
                at = self._hop(data, at)
                if at == end:
                    break
            at = self._step(data, at)
        return not self._fault

    def finish(self) -> int | Refused:
        """The largest timestamp; or what is wrong."""
        if not self._fault and self._index < self._count:
            self._fault = Fault.ENDS_EARLY
        if self._fault:
            return int(self._fault), self._index, []
        return (0, 0, self._errors) if self._errors else self._newest

    def _hop(self, data: bytes, at: int) -> int:
        """Over whole records as they should be; where the first one starts that is anything else."""
        index, count = self._index, self._count
        newest, lowest, highest = self._newest, self._lowest, self._highest
        base_timestamp, flags = self._base_timestamp, self._flags
        end = len(data)
        start = at
        try:
            while index < count:
                number = data[at]
                at += 1
                if number > 127:
                    byte = data[at]
                    at += 1
                    number += (byte << 7) - 128
                    if byte > 127:
                        number, at = _more(data, at, number - 16384, 14)
                stop = at + (number >> 1)
                if number & 1 or stop > end:
                    break
                at += 2
                number = data[at - 1]  # Behind the attributes, of which none is used.
                if number > 127:
                    byte = data[at]
                    at += 1
                    number += (byte << 7) - 128
                    if byte > 127:
                        number, at = _more(data, at, number - 16384, 14, 63)
                timestamp = base_timestamp + ((number >> 1) ^ -(number & 1))
                number = data[at]
                at += 1
                if number > 127:
                    byte = data[at]
                    at += 1
                    number += (byte << 7) - 128
                    if byte > 127:
                        number, at = _more(data, at, number - 16384, 14)
                if number != index << 1:
                    break
                number = data[at]
                at += 1
                if number > 127:
                    byte = data[at]
                    at += 1
                    number += (byte << 7) - 128
                    if byte > 127:
                        number, at = _more(data, at, number - 16384, 14)
                key = number
                if not number & 1:
                    at += number >> 1
                elif number != 1:
                    break
                number = data[at]
                at += 1
                if number > 127:
                    byte = data[at]
                    at += 1
                    number += (byte << 7) - 128
                    if byte > 127:
                        number, at = _more(data, at, number - 16384, 14)
                if not number & 1:
                    at += number >> 1
                elif number != 1:
                    break
                if data[at]:
                    at = _hop_headers(data, at)
                else:
                    at += 1
                if at != stop:
                    break
                if lowest <= timestamp <= highest and not (flags and (flags != NEEDS_KEY or key == 1)):
                    if timestamp > newest:
                        newest = timestamp
                else:
                    self._newest = newest
                    self._judge(index, timestamp, has_key=key != 1)
                    newest = self._newest
                index += 1
                start = at
        except (IndexError, OverflowError):
            pass
        self._index = index
        self._newest = newest
        return start

    def _step(self, data: bytes, at: int) -> int:
        """Through at most one record, from wherever in it the last piece ended; the position behind what was taken."""
        end = len(data)
        if self._index == self._count:
            self._fault = Fault.LEFT_OVER
            return end
        while at < end:
            if self._skip:
                taken = min(self._skip, end - at)
                at += taken
                self._skip -= taken
                self._left -= taken
                if self._skip:
                    return end
                if self._behind_field():
                    return at
                continue
            byte = data[at]
            at += 1
            field = self._field
            if field:
                self._left -= 1
            if field == _ATTRIBUTES:
                if self._behind_field():
                    return at
                continue
            self._number |= (byte & 0x7F) << self._shift
            if byte > 127:
                self._shift += 7
                if self._shift > (63 if field == _TIMESTAMP else 28):
                    self._fault = Fault.NUMBER if field else Fault.LENGTH_NUMBER
                elif field and not self._left:
                    self._fault = Fault.LENGTH
            else:
                zigzag = self._number
                self._number = self._shift = 0
                if zigzag >> (64 if field == _TIMESTAMP else 32):
                    self._fault = Fault.NUMBER
                elif self._take((zigzag >> 1) ^ -(zigzag & 1)) and not self._skip and self._behind_field():
                    return at
            if self._fault:
                return end
        return end

    def _take(self, number: int) -> bool:
        """The number of the field it stands in; whether it can be that."""
        field = self._field
        if field == _LENGTH:
            self._left = number
            if number <= 0:
                self._fault = Fault.LENGTH
        elif field == _TIMESTAMP:
            self._delta = number
        elif field == _OFFSET:
            if number != self._index:
                self._fault = Fault.OFFSET
        elif field == _HEADERS:
            self._headers = number
            if not 0 <= number <= self._left:
                self._fault = Fault.HEADERS
        elif field == _NAME and number < 0:
            self._fault = Fault.HEADERS
        elif number < -1 or number > self._left:
            self._fault = Fault.FIELD
        else:
            self._skip = max(number, 0)
            if field == _KEY:
                self._has_key = number >= 0
        return not self._fault

    def _behind_field(self) -> bool:
        """One field is through; whether it was the record's last, or is wrong."""
        field = self._field
        if field == _CONTENT:
            self._headers -= 1
        if field < _HEADERS:
            self._field = field + 1
        elif self._headers:
            self._field = _CONTENT if field == _NAME else _NAME
        elif self._left:
            self._fault = Fault.LENGTH
            return True
        else:
            self._judge(self._index, self._base_timestamp + self._delta, has_key=self._has_key)
            self._index += 1
            self._field = _LENGTH
            return True
        if not self._left:
            self._fault = Fault.LENGTH
        return bool(self._fault)

    def _judge(self, index: int, timestamp: int, *, has_key: bool) -> None:
        """A record is whole; whether it is also as it must be."""
        if self._flags & FIXED_TIMESTAMP:
            timestamp = self._base_timestamp
        timestamp = (timestamp - _MIN_INT64) % (1 << 64) + _MIN_INT64
        if self._flags & NEEDS_KEY and not has_key:
            found: RecordFault = (index, None)
        elif self._flags & REFUSES_TIMESTAMP or not (
            timestamp == NO_TIMESTAMP or self._lowest <= timestamp <= self._highest
        ):
            found = (index, timestamp)
        else:
            self._newest = max(self._newest, timestamp)
            return
        if len(self._errors) < MAX_RECORD_ERRORS:
            self._errors.append(found)


def check(
    payload: bytes | bytearray | memoryview, base_timestamp: int, count: int, flags: int, lowest: int, highest: int
) -> int | Refused:
    """`Check` of records that are in one piece."""
    looking = Check(base_timestamp, count, flags, lowest, highest)
    looking.feed(payload)
    return looking.finish()


def offsets_keys_hashes(
    payload: bytes, position: int, most: int, base_offset: int, base_timestamp: int, above: int, last: int
) -> Columns:
    """What compaction wants to know of up to `most` records from a position on, also of a batch that was cleaned.

    It stops at the first that is not whole, or whose offset is not above the one before it (`above`, at first), or
    beyond the last: the caller knows how many there must be.
    """
    data = payload
    at, end = position, len(data)
    offsets = array("q")
    timestamps = array("q")
    positions = array("q", (position,))
    flags = bytearray()
    hashes: list[bytes] = []
    try:
        while len(flags) < most:
            number = data[at]
            at += 1
            if number > 127:
                byte = data[at]
                at += 1
                number += (byte << 7) - 128
                if byte > 127:
                    number, at = _more(data, at, number - 16384, 14)
            stop = at + (number >> 1)
            if number & 1 or stop > end:
                break
            at += 2
            number = data[at - 1]  # Behind the attributes, of which none is used.
            if number > 127:
                byte = data[at]
                at += 1
                number += (byte << 7) - 128
                if byte > 127:
                    number, at = _more(data, at, number - 16384, 14, 63)
            timestamp = base_timestamp + ((number >> 1) ^ -(number & 1))
            number = data[at]
            at += 1
            if number > 127:
                byte = data[at]
                at += 1
                number += (byte << 7) - 128
                if byte > 127:
                    number, at = _more(data, at, number - 16384, 14)
            offset = base_offset + ((number >> 1) ^ -(number & 1))
            if not above < offset <= last:
                break
            number = data[at]
            at += 1
            if number > 127:
                byte = data[at]
                at += 1
                number += (byte << 7) - 128
                if byte > 127:
                    number, at = _more(data, at, number - 16384, 14)
            if not number & 1:
                start = at
                at += number >> 1
                flag = HAS_KEY
                key_hash = md5(data[start:at]).digest()
            elif number == 1:
                flag = 0
                key_hash = _NO_HASH
            else:
                break
            number = data[at]
            at += 1
            if number > 127:
                byte = data[at]
                at += 1
                number += (byte << 7) - 128
                if byte > 127:
                    number, at = _more(data, at, number - 16384, 14)
            if not number & 1:
                at += number >> 1
                flag |= HAS_VALUE
            elif number != 1:
                break
            at = _hop_headers(data, at) if data[at] else at + 1
            if at != stop:
                break
            if not _MIN_INT64 <= timestamp <= _MAX_INT64:
                timestamp = (timestamp - _MIN_INT64) % (1 << 64) + _MIN_INT64
            offsets.append(offset)
            timestamps.append(timestamp)
            positions.append(at)
            flags.append(flag)
            hashes.append(key_hash)
            above = offset
    except (IndexError, OverflowError):
        pass
    return offsets, timestamps, positions, bytes(flags), b"".join(hashes)


def _more(data: bytes, at: int, number: int, shift: int, last_shift: int = 28) -> tuple[int, int]:
    """The rest of a zigzag number of which two bytes are known; OverflowError if it is longer than it may be."""
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 128:
            break
        shift += 7
        if shift > last_shift:
            raise OverflowError
    if number >> (64 if last_shift == 63 else 32):
        raise OverflowError
    return number, at


def _number(data: bytes, at: int) -> tuple[int, int]:
    """The zigzag number of 32 bits at this position, and the position behind it."""
    number = data[at]
    return (number, at + 1) if number < 128 else _more(data, at + 1, number & 0x7F, 7)


def _hop_headers(data: bytes, at: int) -> int:
    """The position behind a record's headers; OverflowError if anything about them is unusual."""
    number, at = _number(data, at)
    if number & 1 or number >> 1 > len(data) - at:
        raise OverflowError
    for _ in range(number >> 1):
        number, at = _number(data, at)
        if number & 1:
            raise OverflowError
        number, at = _number(data, at + (number >> 1))
        if not number & 1:
            at += number >> 1
        elif number != 1:
            raise OverflowError
    return at
