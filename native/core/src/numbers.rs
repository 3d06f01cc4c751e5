//! Zigzag numbers of variable length: seven bits a byte, the lowest first.

/// The number of at most 32 bits at this position, and the position behind it; none if it is longer or cut off.
#[inline(always)]
pub fn read_i32(data: &[u8], at: usize) -> Option<(i32, usize)> {
    let first = *data.get(at)?;
    if first < 0x80 {
        return Some((zigzag_i32(u32::from(first)), at + 1));
    }
    let (number, behind) = read_raw(data, at, 28)?;
    Some((zigzag_i32(u32::try_from(number).ok()?), behind))
}

/// The number of at most 64 bits at this position, and the position behind it.
#[inline(always)]
pub fn read_i64(data: &[u8], at: usize) -> Option<(i64, usize)> {
    let (number, behind) = read_raw(data, at, 63)?;
    Some((zigzag_i64(number), behind))
}

pub fn write(out: &mut Vec<u8>, number: i64) {
    let mut rest = ((number << 1) ^ (number >> 63)) as u64;
    while rest > 0x7f {
        out.push((rest as u8 & 0x7f) | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// How many bytes `write` takes for it.
pub fn size_of(number: i64) -> usize {
    let raw = ((number << 1) ^ (number >> 63)) as u64;
    (70 - (raw | 1).leading_zeros() as usize) / 7
}

#[inline(always)]
pub fn zigzag_i32(raw: u32) -> i32 {
    (raw >> 1) as i32 ^ -((raw & 1) as i32)
}

#[inline(always)]
pub fn zigzag_i64(raw: u64) -> i64 {
    (raw >> 1) as i64 ^ -((raw & 1) as i64)
}

#[inline(always)]
fn read_raw(data: &[u8], mut at: usize, last_shift: u32) -> Option<(u64, usize)> {
    let mut number = 0u64;
    let mut shift = 0;
    loop {
        let byte = *data.get(at)?;
        at += 1;
        if shift == 63 && byte > 1 {
            return None;
        }
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some((number, at));
        }
        shift += 7;
        if shift > last_shift {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: [i64; 13] = [
        0, 1, -1, 63, 64, -64, -65, 8191, 1 << 20, i32::MAX as i64, i32::MIN as i64, i64::MAX, i64::MIN,
    ];

    #[test]
    fn there_and_back() {
        for number in NUMBERS {
            let mut out = Vec::new();
            write(&mut out, number);
            assert_eq!(out.len(), size_of(number), "{number}");
            assert_eq!(read_i64(&out, 0), Some((number, out.len())));
            assert_eq!(
                read_i32(&out, 0),
                i32::try_from(number).ok().map(|small| (small, out.len()))
            );
        }
    }

    #[test]
    fn what_is_cut_off_or_too_long_is_no_number() {
        assert_eq!(read_i64(&[], 0), None);
        assert_eq!(read_i64(&[0x80; 9], 0), None);
        assert_eq!(read_i64(&[0xff; 11], 0), None);
        assert_eq!(read_i64(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2], 0), None);
        assert_eq!(read_i32(&[0xff, 0xff, 0xff, 0xff, 0x1f], 0), None);
        assert_eq!(read_i32(&[0xff, 0xff, 0xff, 0xff, 0x0f], 0), Some((i32::MIN, 5)));
        assert_eq!(read_i32(&[0x80, 0x80, 0x80, 0x80, 0x80, 0], 0), None);
    }
}
