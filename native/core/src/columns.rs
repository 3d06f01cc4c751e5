//! What compaction wants to know of records, in columns.

use crate::md5::{digest, digests_of_short, DIGEST_BYTES, LANES, SHORT_BYTES};
use crate::records::read_record;

pub const HAS_KEY: u8 = 1;
pub const HAS_VALUE: u8 = 2;

/// An entry a record; of `positions` one more, since a record ends where the next one starts.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Columns {
    pub offsets: Vec<i64>,
    pub timestamps: Vec<i64>,
    pub positions: Vec<i64>,
    pub flags: Vec<u8>,
    /// Sixteen bytes a record, zeros if it has no key.
    pub hashes: Vec<u8>,
}

/// What a batch says of its records' offsets and timestamps.
#[derive(Clone, Copy)]
pub struct Bounds {
    pub base_offset: i64,
    pub base_timestamp: i64,
    /// The offset before those that are read.
    pub above: i64,
    pub last: i64,
}

/// Of up to `most` records from a position on. It stops at the first that is not whole, or whose offset is not above the
/// one before it, or beyond the last.
pub fn read_columns(data: &[u8], mut at: usize, most: usize, bounds: Bounds) -> Columns {
    let Bounds { base_offset, base_timestamp, mut above, last } = bounds;
    let mut columns = Columns::default();
    let mut short = Lanes::default();
    columns.positions.push(at as i64);
    while columns.flags.len() < most {
        let Some(record) = read_record(data, at) else { break };
        let Some(offset) = base_offset.checked_add(i64::from(record.offset_delta)) else { break };
        if offset <= above || offset > last {
            break;
        }
        let index = columns.flags.len();
        columns.hashes.extend([0; DIGEST_BYTES]);
        if let Some(key) = record.key {
            if key.len() <= SHORT_BYTES {
                short.add(index, key, &mut columns.hashes);
            } else {
                put(&mut columns.hashes, index, digest(key));
            }
        }
        let has_key = if record.key.is_some() { HAS_KEY } else { 0 };
        let has_value = if record.value.is_some() { HAS_VALUE } else { 0 };
        columns.flags.push(has_key | has_value);
        columns.offsets.push(offset);
        columns.timestamps.push(base_timestamp.wrapping_add(record.timestamp_delta));
        columns.positions.push(record.end as i64);
        above = offset;
        at = record.end;
    }
    short.flush(&mut columns.hashes);
    columns
}

fn put(hashes: &mut [u8], index: usize, hash: [u8; DIGEST_BYTES]) {
    hashes[index * DIGEST_BYTES..][..DIGEST_BYTES].copy_from_slice(&hash);
}

/// Short keys until there are enough to be hashed together.
#[derive(Default)]
struct Lanes<'a> {
    indexes: [usize; LANES],
    keys: [&'a [u8]; LANES],
    filled: usize,
}

impl<'a> Lanes<'a> {
    #[inline(always)]
    fn add(&mut self, index: usize, key: &'a [u8], hashes: &mut [u8]) {
        self.indexes[self.filled] = index;
        self.keys[self.filled] = key;
        self.filled += 1;
        if self.filled == LANES {
            self.flush(hashes);
        }
    }

    fn flush(&mut self, hashes: &mut [u8]) {
        let digests = digests_of_short(self.keys);
        for (index, hash) in self.indexes.into_iter().zip(digests).take(self.filled) {
            put(hashes, index, hash);
        }
        self.filled = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{write_record, Draft};

    fn written(records: &[(i32, Option<&[u8]>, Option<&[u8]>)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (delta, key, value) in records {
            let draft = Draft { timestamp_delta: i64::from(*delta) * 10, key: *key, value: *value, headers: &[] };
            write_record(&mut out, &draft, *delta);
        }
        out
    }

    fn bounds(above: i64, last: i64) -> Bounds {
        Bounds { base_offset: 100, base_timestamp: 1_000, above, last }
    }

    #[test]
    fn what_is_there_stands_in_columns() {
        let long = [7u8; 200];
        let keys: [Option<&[u8]>; 7] = [Some(b"a"), None, Some(&long), Some(b""), Some(b"b"), Some(b"c"), Some(b"d")];
        let mut records = Vec::new();
        for (index, key) in keys.into_iter().enumerate() {
            let value: Option<&[u8]> = if index == 4 { None } else { Some(b"value") };
            records.push((index as i32 * 2, key, value));
        }
        let data = written(&records);
        let columns = read_columns(&data, 0, 10, bounds(99, 112));
        assert_eq!(columns.offsets, [100, 102, 104, 106, 108, 110, 112]);
        assert_eq!(columns.timestamps, [1_000, 1_020, 1_040, 1_060, 1_080, 1_100, 1_120]);
        assert_eq!(columns.flags, [3, 2, 3, 3, 1, 3, 3]);
        assert_eq!((columns.positions[0], columns.positions[7]), (0, data.len() as i64));
        for (hash, key) in columns.hashes.chunks(DIGEST_BYTES).zip(keys) {
            assert_eq!(hash, key.map_or([0; DIGEST_BYTES], digest));
        }
        let behind = read_columns(&data, columns.positions[3] as usize, 2, bounds(104, 112));
        assert_eq!(behind.offsets, [106, 108]);
        assert_eq!(behind.hashes, columns.hashes[3 * DIGEST_BYTES..5 * DIGEST_BYTES]);
    }

    #[test]
    fn it_stops_at_what_is_not_whole_and_at_offsets_that_do_not_rise() {
        let data = written(&[(0, Some(b"k"), None), (3, Some(b"k"), None), (3, Some(b"k"), None)]);
        assert_eq!(read_columns(&data, 0, 10, bounds(99, 109)).offsets, [100, 103]);
        assert_eq!(read_columns(&data, 0, 10, bounds(99, 102)).offsets, [100]);
        let nothing = Columns { positions: vec![0], ..Columns::default() };
        assert_eq!(read_columns(&data, 0, 10, bounds(100, 109)), nothing);
        let at_the_end = Bounds { base_offset: i64::MAX - 2, ..bounds(99, i64::MAX) };
        assert_eq!(read_columns(&data, 0, 10, at_the_end).offsets, [i64::MAX - 2]);
        for cut in 0..data.len() {
            let columns = read_columns(&data[..cut], 0, 10, bounds(99, 109));
            assert!(*columns.positions.last().unwrap() <= cut as i64);
            assert_eq!(columns.positions.len(), columns.flags.len() + 1);
        }
        assert_eq!(read_columns(&data, data.len() + 1, 10, bounds(99, 109)).flags, []);
    }
}
