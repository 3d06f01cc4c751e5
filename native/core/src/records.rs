//! Records themselves: read into their parts, and written.

use crate::numbers::{read_i32, read_i64, size_of, write};

/// A record that is to be written.
pub struct Draft<'a> {
    pub timestamp_delta: i64,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: &'a [(&'a [u8], Option<&'a [u8]>)],
}

/// How many bytes `write_record` takes for it.
pub fn size_of_record(record: &Draft, offset_delta: i32) -> usize {
    let length = length_of_record(record, offset_delta);
    size_of(length as i64) + length
}

fn length_of_record(record: &Draft, offset_delta: i32) -> usize {
    let mut length = 1 + size_of(record.timestamp_delta) + size_of(i64::from(offset_delta));
    length += size_of_field(record.key) + size_of_field(record.value) + size_of(record.headers.len() as i64);
    for (name, content) in record.headers {
        length += size_of_field(Some(name)) + size_of_field(*content);
    }
    length
}

/// Append one record, with its length in front.
pub fn write_record(out: &mut Vec<u8>, record: &Draft, offset_delta: i32) {
    write(out, length_of_record(record, offset_delta) as i64);
    out.push(0); // Attributes, of which no bit is used yet.
    write(out, record.timestamp_delta);
    write(out, i64::from(offset_delta));
    write_field(out, record.key);
    write_field(out, record.value);
    write(out, record.headers.len() as i64);
    for (name, content) in record.headers {
        write_field(out, Some(name));
        write_field(out, *content);
    }
}

fn size_of_field(content: Option<&[u8]>) -> usize {
    content.map_or(1, |bytes| size_of(bytes.len() as i64) + bytes.len())
}

fn write_field(out: &mut Vec<u8>, content: Option<&[u8]>) {
    match content {
        None => out.push(1), // Zigzag of -1.
        Some(bytes) => {
            write(out, bytes.len() as i64);
            out.extend_from_slice(bytes);
        }
    }
}

/// The parts of a record, as they lie in the bytes it was read from.
#[derive(Debug, PartialEq, Eq)]
pub struct Parts<'a> {
    pub timestamp_delta: i64,
    pub offset_delta: i32,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    /// How many, and from where on.
    pub headers: (i32, usize),
    /// Where the record ends.
    pub end: usize,
}

/// The record at this position; none if it is not whole, or not one.
#[inline]
pub fn read_record(data: &[u8], at: usize) -> Option<Parts<'_>> {
    let (length, at) = read_i32(data, at)?;
    let end = at.checked_add(usize::try_from(length).ok()?)?;
    let record = data.get(..end)?;
    let (timestamp_delta, at) = read_i64(record, at + 1)?;
    let (offset_delta, at) = read_i32(record, at)?;
    let (key, at) = read_field(record, at)?;
    let (value, at) = read_field(record, at)?;
    let (count, start) = read_i32(record, at)?;
    if count < 0 || count as usize > end - start {
        return None;
    }
    let mut at = start;
    for _ in 0..count {
        let (name, behind) = read_field(record, at)?;
        name?;
        at = read_field(record, behind)?.1;
    }
    (at == end).then_some(Parts { timestamp_delta, offset_delta, key, value, headers: (count, start), end })
}

/// The bytes of a field with its length in front, and the position behind them.
#[inline]
pub fn read_field(data: &[u8], at: usize) -> Option<(Option<&[u8]>, usize)> {
    let (length, at) = read_i32(data, at)?;
    if length == -1 {
        return Some((None, at));
    }
    let end = at.checked_add(usize::try_from(length).ok()?)?;
    Some((Some(data.get(at..end)?), end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let headers: [(&[u8], Option<&[u8]>); 2] = [(b"name", Some(b"content")), (b"none", None)];
        let draft = Draft { timestamp_delta: -70, key: None, value: Some(b"value"), headers: &headers };
        let mut out = vec![9, 9];
        write_record(&mut out, &draft, 300);
        assert_eq!(out.len(), 2 + size_of_record(&draft, 300));
        let parts = read_record(&out, 2).unwrap();
        assert_eq!((parts.timestamp_delta, parts.offset_delta, parts.key), (-70, 300, None));
        assert_eq!((parts.value, parts.headers.0, parts.end), (Some(&b"value"[..]), 2, out.len()));
        let (name, at) = read_field(&out, parts.headers.1).unwrap();
        assert_eq!((name, read_field(&out, at).unwrap().0), (Some(&b"name"[..]), Some(&b"content"[..])));
        for cut in 2..out.len() {
            assert_eq!(read_record(&out[..cut], 2), None);
        }
    }
}
