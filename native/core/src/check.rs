//! Whether the bytes behind a batch's header are the records that the header declares.

use crate::numbers::{read_i32, read_i64, zigzag_i64};

/// Why bytes are no records; the numbers are those of `pure.Fault`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    EndsEarly = 1,
    LeftOver = 2,
    LengthNumber = 3,
    Number = 4,
    Length = 5,
    Field = 6,
    Headers = 7,
    Offset = 8,
}

pub const NEEDS_KEY: u8 = 1;
pub const FIXED_TIMESTAMP: u8 = 2;
pub const REFUSES_TIMESTAMP: u8 = 4;

/// Of one batch: whoever sent so many need not be told of each.
pub const MAX_RECORD_ERRORS: usize = 1_000;

const NO_TIMESTAMP: i64 = -1;

/// The number of a record, and its timestamp if that is what is wrong; none: it has no key.
pub type RecordFault = (i32, Option<i64>);

#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All is well, and this is the largest timestamp.
    Sound(i64),
    /// These are no records, and this is the number of the one that shows it.
    Malformed(Fault, i32),
    /// Records they are, and not such as may be here.
    Unwanted(Vec<RecordFault>),
}

/// What a record must be beside whole.
#[derive(Clone, Copy)]
pub struct Rules {
    pub base_timestamp: i64,
    pub count: i32,
    pub flags: u8,
    pub lowest: i64,
    pub highest: i64,
}

#[derive(Clone, Copy, PartialEq)]
enum Field {
    Length,
    Attributes,
    Timestamp,
    Offset,
    Key,
    Value,
    Headers,
    Name,
    Content,
}

/// Looks at records piece by piece as they are unpacked; it keeps nothing of the pieces.
pub struct Check {
    rules: Rules,
    index: i32,
    newest: i64,
    errors: Vec<RecordFault>,
    fault: Option<Fault>,
    // The record that a piece ends in: its field, what is known of the field's number, and bytes left.
    field: Field,
    number: u64,
    shift: u32,
    skip: i64,
    left: i64,
    delta: i64,
    headers: i64,
    has_key: bool,
}

impl Check {
    pub fn new(rules: Rules) -> Self {
        Check {
            rules,
            index: 0,
            newest: NO_TIMESTAMP,
            errors: Vec::new(),
            fault: None,
            field: Field::Length,
            number: 0,
            shift: 0,
            skip: 0,
            left: 0,
            delta: 0,
            headers: 0,
            has_key: false,
        }
    }

    /// Look at what comes next; whether anything after it matters.
    pub fn feed(&mut self, data: &[u8]) -> bool {
        let mut at = 0;
        while at < data.len() && self.fault.is_none() {
            if self.field == Field::Length && self.shift == 0 {
                at = self.hop(data, at);
                if at == data.len() {
                    break;
                }
            }
            at = self.step(data, at);
        }
        self.fault.is_none()
    }

    pub fn finish(self) -> Outcome {
        if let Some(fault) = self.fault {
            Outcome::Malformed(fault, self.index)
        } else if self.index < self.rules.count {
            Outcome::Malformed(Fault::EndsEarly, self.index)
        } else if self.errors.is_empty() {
            Outcome::Sound(self.newest)
        } else {
            Outcome::Unwanted(self.errors)
        }
    }

    /// Over whole records as they should be; where the first one starts that is anything else.
    fn hop(&mut self, data: &[u8], mut at: usize) -> usize {
        while self.index < self.rules.count {
            let Some((behind, delta, has_key)) = whole_record(data, at, self.index) else {
                break;
            };
            self.judge(delta, has_key);
            self.index += 1;
            at = behind;
        }
        at
    }

    /// Through at most one record, from wherever in it the last piece ended; the position behind what was taken. It
    /// alone decides what is wrong.
    fn step(&mut self, data: &[u8], mut at: usize) -> usize {
        let end = data.len();
        if self.index >= self.rules.count {
            self.fault = Some(Fault::LeftOver);
            return end;
        }
        while at < end {
            if self.skip > 0 {
                let taken = self.skip.min((end - at) as i64);
                at += taken as usize;
                self.skip -= taken;
                self.left -= taken;
                if self.skip > 0 {
                    return end;
                }
                if self.behind_field() {
                    return at;
                }
                continue;
            }
            if self.field == Field::Name && self.shift == 0 {
                at = self.hop_headers(data, at);
                if at == end {
                    return end;
                }
            }
            let byte = data[at];
            at += 1;
            let in_record = self.field != Field::Length;
            if in_record {
                self.left -= 1;
            }
            if self.field == Field::Attributes {
                if self.behind_field() {
                    return at;
                }
                continue;
            }
            let is_long = self.field == Field::Timestamp;
            let too_long = if in_record { Fault::Number } else { Fault::LengthNumber };
            if self.shift == 63 && byte & 0x7f > 1 {
                // More than 64 bits; with a bit that says there is more, it is too long all the same.
                self.fault = Some(too_long);
                return end;
            }
            self.number |= u64::from(byte & 0x7f) << self.shift;
            if byte > 0x7f {
                self.shift += 7;
                if self.shift > if is_long { 63 } else { 28 } {
                    self.fault = Some(too_long);
                } else if in_record && self.left == 0 {
                    self.fault = Some(Fault::Length);
                }
            } else {
                let raw = self.number;
                self.number = 0;
                self.shift = 0;
                if !is_long && raw > u64::from(u32::MAX) {
                    self.fault = Some(Fault::Number);
                } else if self.take(zigzag_i64(raw)) && self.skip == 0 && self.behind_field() {
                    return at;
                }
            }
            if self.fault.is_some() {
                return end;
            }
        }
        end
    }

    /// Over whole headers as they should be, of a record that does not lie in one piece; but for its last one.
    fn hop_headers(&mut self, data: &[u8], mut at: usize) -> usize {
        while self.headers > 1 {
            let Some(next) = whole_header(data, at) else { break };
            let size = (next - at) as i64;
            if next > data.len() || size >= self.left {
                break;
            }
            self.left -= size;
            self.headers -= 1;
            at = next;
        }
        at
    }

    /// The number of the field it stands in; whether it can be that.
    fn take(&mut self, number: i64) -> bool {
        match self.field {
            Field::Length => {
                self.left = number;
                if number <= 0 {
                    self.fault = Some(Fault::Length);
                }
            }
            Field::Timestamp => self.delta = number,
            Field::Offset => {
                if number != i64::from(self.index) {
                    self.fault = Some(Fault::Offset);
                }
            }
            Field::Headers => {
                self.headers = number;
                if number < 0 || number > self.left {
                    self.fault = Some(Fault::Headers);
                }
            }
            Field::Name if number < 0 => self.fault = Some(Fault::Headers),
            _ if number < -1 || number > self.left => self.fault = Some(Fault::Field),
            field => {
                self.skip = number.max(0);
                if field == Field::Key {
                    self.has_key = number >= 0;
                }
            }
        }
        self.fault.is_none()
    }

    /// One field is through; whether it was the record's last, or is wrong.
    fn behind_field(&mut self) -> bool {
        if self.field == Field::Content {
            self.headers -= 1;
        }
        self.field = match self.field {
            Field::Length => Field::Attributes,
            Field::Attributes => Field::Timestamp,
            Field::Timestamp => Field::Offset,
            Field::Offset => Field::Key,
            Field::Key => Field::Value,
            Field::Value => Field::Headers,
            Field::Name => Field::Content,
            _ if self.headers > 0 => Field::Name,
            _ => {
                if self.left > 0 {
                    self.fault = Some(Fault::Length);
                } else {
                    self.judge(self.delta, self.has_key);
                    self.index += 1;
                    self.field = Field::Length;
                }
                return true;
            }
        };
        if self.left == 0 {
            self.fault = Some(Fault::Length);
        }
        self.fault.is_some()
    }

    /// A record is whole; whether it is also as it must be.
    #[inline(always)]
    fn judge(&mut self, delta: i64, has_key: bool) {
        let rules = &self.rules;
        let timestamp = if rules.flags & FIXED_TIMESTAMP != 0 {
            rules.base_timestamp
        } else {
            rules.base_timestamp.wrapping_add(delta)
        };
        let found = if rules.flags & NEEDS_KEY != 0 && !has_key {
            None
        } else if rules.flags & REFUSES_TIMESTAMP != 0
            || (timestamp != NO_TIMESTAMP && (timestamp < rules.lowest || timestamp > rules.highest))
        {
            Some(timestamp)
        } else {
            self.newest = self.newest.max(timestamp);
            return;
        };
        if self.errors.len() < MAX_RECORD_ERRORS {
            self.errors.push((self.index, found));
        }
    }
}

/// The position behind the record, its timestamp delta and whether it has a key, if it is whole and all is well with it.
#[inline(always)]
fn whole_record(data: &[u8], at: usize, index: i32) -> Option<(usize, i64, bool)> {
    let (length, at) = read_i32(data, at)?;
    let stop = at.checked_add(usize::try_from(length).ok()?)?;
    let record = data.get(..stop)?;
    let (delta, at) = read_i64(record, at + 1)?;
    let (offset, at) = read_i32(record, at)?;
    if offset != index {
        return None;
    }
    let (key_length, at) = read_i32(record, at)?;
    let at = behind(key_length, at)?;
    let (value_length, at) = read_i32(record, at)?;
    let at = behind(value_length, at)?;
    let (headers, mut at) = read_i32(record, at)?;
    if headers < 0 || headers as usize > record.len() - at {
        return None;
    }
    for _ in 0..headers {
        at = whole_header(record, at)?;
    }
    (at == stop).then_some((stop, delta, key_length >= 0))
}

/// The position behind the header, which may lie beyond the data.
#[inline(always)]
fn whole_header(data: &[u8], at: usize) -> Option<usize> {
    let (name_length, name) = read_i32(data, at)?;
    if name_length < 0 {
        return None;
    }
    let (content_length, content) = read_i32(data, behind(name_length, name)?)?;
    behind(content_length, content)
}

/// The position behind so many bytes, of which -1 is none.
#[inline(always)]
fn behind(length: i32, at: usize) -> Option<usize> {
    match length {
        -1 => Some(at),
        _ => at.checked_add(usize::try_from(length).ok()?),
    }
}

/// `Check` of records that are in one piece.
pub fn check(payload: &[u8], rules: Rules) -> Outcome {
    let mut looking = Check::new(rules);
    looking.feed(payload);
    looking.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::{read_columns, Bounds};
    use crate::records::{write_record, Draft};

    fn rules(count: i32) -> Rules {
        Rules { base_timestamp: 1_000, count, flags: 0, lowest: i64::MIN, highest: i64::MAX }
    }

    fn sound(count: i32) -> Vec<u8> {
        let mut out = Vec::new();
        for index in 0..count {
            let content = vec![7u8; (index as usize * 37) % 300];
            let headers: &[(&[u8], Option<&[u8]>)] =
                if index % 3 == 0 { &[(b"name", Some(b"content")), (b"", None)] } else { &[] };
            let key: Option<&[u8]> = if index % 5 == 4 { None } else { Some(b"key") };
            let value: Option<&[u8]> = if index % 7 == 6 { None } else { Some(&content) };
            write_record(&mut out, &Draft { timestamp_delta: i64::from(index), key, value, headers }, index);
        }
        out
    }

    fn in_pieces(payload: &[u8], rules: Rules, size: usize) -> Outcome {
        let mut looking = Check::new(rules);
        for piece in payload.chunks(size) {
            if !looking.feed(piece) {
                break;
            }
        }
        looking.finish()
    }

    #[test]
    fn sound_records_are_sound_in_pieces_of_any_size() {
        let payload = sound(30);
        for size in [1, 2, 3, 7, 64, 1 << 20] {
            assert_eq!(in_pieces(&payload, rules(30), size), Outcome::Sound(1_029), "{size}");
        }
    }

    #[test]
    fn headers_that_cannot_be_are_found_in_pieces_of_any_size() {
        let headers: [(&[u8], Option<&[u8]>); 6] =
            [(b"a", None), (b"", Some(b"b")), (b"", None), (b"c", Some(b"")), (b"d", Some(b"e")), (b"", None)];
        let mut payload = Vec::new();
        write_record(&mut payload, &Draft { timestamp_delta: 0, key: None, value: None, headers: &headers }, 0);
        for at in 0..payload.len() {
            for byte in 0..=255 {
                let mut spoilt = payload.clone();
                spoilt[at] = byte;
                let whole = check(&spoilt, rules(1));
                for size in [1, 2, 3, 5, 8, 13] {
                    assert_eq!(in_pieces(&spoilt, rules(1), size), whole, "{at} {byte} {size}");
                }
            }
        }
    }

    #[test]
    fn every_cut_ends_early() {
        let payload = sound(8);
        for cut in 0..payload.len() {
            match check(&payload[..cut], rules(8)) {
                Outcome::Malformed(Fault::EndsEarly, _) => {}
                other => panic!("{cut}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_count_that_lies_is_seen() {
        let payload = sound(3);
        assert_eq!(check(&payload, rules(2)), Outcome::Malformed(Fault::LeftOver, 2));
        assert_eq!(check(&payload, rules(4)), Outcome::Malformed(Fault::EndsEarly, 3));
        assert_eq!(check(&payload, rules(i32::MAX)), Outcome::Malformed(Fault::EndsEarly, 3));
    }

    #[test]
    fn records_without_keys_and_times_out_of_range_are_named() {
        let payload = sound(6);
        let keyed = Rules { flags: NEEDS_KEY, highest: 1_002, ..rules(6) };
        let expected = vec![(3, Some(1_003)), (4, None), (5, Some(1_005))];
        assert_eq!(check(&payload, keyed), Outcome::Unwanted(expected));
        let fixed = Rules { flags: FIXED_TIMESTAMP, ..rules(6) };
        assert_eq!(check(&payload, fixed), Outcome::Sound(1_000));
    }

    #[test]
    fn errors_are_bounded() {
        let payload = sound(3_000);
        let refused = Rules { flags: REFUSES_TIMESTAMP, ..rules(3_000) };
        match check(&payload, refused) {
            Outcome::Unwanted(errors) => assert_eq!(errors.len(), MAX_RECORD_ERRORS),
            other => panic!("{other:?}"),
        }
    }

    /// Spoilt bytes, from a generator that needs no crate; what is found must not depend on how the bytes are cut, and
    /// what is sound has columns, whether they are asked for at once or in two parts.
    #[test]
    fn spoilt_records_are_judged_alike_however_they_are_cut() {
        let wanted = std::env::var("ODRADEK_SPOILT_BATCHES").ok().and_then(|text| text.parse().ok());
        let rounds = if cfg!(miri) { 200 } else { wanted.unwrap_or(200_000) };
        let payload = sound(9);
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut draw = move |bound: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % bound as u64) as usize
        };
        let mut refused = 0;
        for _ in 0..rounds {
            let mut spoilt = payload.clone();
            for _ in 0..=draw(3) {
                let at = draw(spoilt.len());
                match draw(3) {
                    0 => spoilt[at] = draw(256) as u8,
                    1 => spoilt[at] ^= 1 << draw(8),
                    _ => spoilt.truncate(at + 1),
                }
            }
            let whole = check(&spoilt, rules(9));
            assert_eq!(whole, in_pieces(&spoilt, rules(9), 1 + draw(40)), "{spoilt:?}");
            let is_sound = matches!(whole, Outcome::Sound(_));
            refused += usize::from(!is_sound);
            let bounds = Bounds { base_offset: 0, base_timestamp: 1_000, above: -1, last: 8 };
            let columns = read_columns(&spoilt, 0, 9, bounds);
            assert!(!is_sound || columns.flags.len() == 9, "{spoilt:?}");
            let first = read_columns(&spoilt, 0, 1 + draw(8), bounds);
            let place = first.positions[first.flags.len()];
            let rest = Bounds { above: *first.offsets.last().unwrap_or(&-1), ..bounds };
            let second = read_columns(&spoilt, place as usize, 9, rest);
            assert_eq!([first.offsets, second.offsets].concat(), columns.offsets, "{spoilt:?}");
            assert_eq!([first.hashes, second.hashes].concat(), columns.hashes, "{spoilt:?}");
        }
        assert!(refused > rounds / 3);
    }
}
