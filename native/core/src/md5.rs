//! MD5 (RFC 1321), as compaction knows keys by it: of four at once, since one alone leaves a processor waiting for itself.

use std::array::from_fn;

/// How many keys are hashed side by side.
pub const LANES: usize = 4;
/// The longest content that one block holds beside its padding.
pub const SHORT_BYTES: usize = BLOCK_BYTES - 9;
pub const DIGEST_BYTES: usize = 16;

const BLOCK_BYTES: usize = 64;

const START: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

const ROTATIONS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// Of step n: the whole part of 2^32 times the sine of n + 1, without its sign.
#[rustfmt::skip]
const SINES: [u32; 64] = [
    0xd76a_a478, 0xe8c7_b756, 0x2420_70db, 0xc1bd_ceee, 0xf57c_0faf, 0x4787_c62a, 0xa830_4613, 0xfd46_9501,
    0x6980_98d8, 0x8b44_f7af, 0xffff_5bb1, 0x895c_d7be, 0x6b90_1122, 0xfd98_7193, 0xa679_438e, 0x49b4_0821,
    0xf61e_2562, 0xc040_b340, 0x265e_5a51, 0xe9b6_c7aa, 0xd62f_105d, 0x0244_1453, 0xd8a1_e681, 0xe7d3_fbc8,
    0x21e1_cde6, 0xc337_07d6, 0xf4d5_0d87, 0x455a_14ed, 0xa9e3_e905, 0xfcef_a3f8, 0x676f_02d9, 0x8d2a_4c8a,
    0xfffa_3942, 0x8771_f681, 0x6d9d_6122, 0xfde5_380c, 0xa4be_ea44, 0x4bde_cfa9, 0xf6bb_4b60, 0xbebf_bc70,
    0x289b_7ec6, 0xeaa1_27fa, 0xd4ef_3085, 0x0488_1d05, 0xd9d4_d039, 0xe6db_99e5, 0x1fa2_7cf8, 0xc4ac_5665,
    0xf429_2244, 0x432a_ff97, 0xab94_23a7, 0xfc93_a039, 0x655b_59c3, 0x8f0c_cc92, 0xffef_f47d, 0x8584_5dd1,
    0x6fa8_7e4f, 0xfe2c_e6e0, 0xa301_4314, 0x4e08_11a1, 0xf753_7e82, 0xbd3a_f235, 0x2ad7_d2bb, 0xeb86_d391,
];

/// The same word of every lane.
type Words<const N: usize> = [u32; N];

pub fn digest(content: &[u8]) -> [u8; DIGEST_BYTES] {
    let mut state = START.map(|word| [word]);
    let mut blocks = content.chunks_exact(BLOCK_BYTES);
    for block in &mut blocks {
        state = after_block(state, [words_of(block)]);
    }
    let rest = blocks.remainder();
    if rest.len() > SHORT_BYTES {
        // The padding begins in this block, and the length that ends it stands in the next.
        let mut block = [0; BLOCK_BYTES];
        block[..rest.len()].copy_from_slice(rest);
        block[rest.len()] = 0x80;
        state = after_block(state, [words_of(&block)]);
        state = after_block(state, [words_of(&with_length([0; BLOCK_BYTES], content.len()))]);
    } else {
        state = after_block(state, [words_of(&last_block(rest, content.len()))]);
    }
    bytes_of(state, 0)
}

/// Of contents that are `SHORT_BYTES` at most.
pub fn digests_of_short(contents: [&[u8]; LANES]) -> [[u8; DIGEST_BYTES]; LANES] {
    let blocks = contents.map(|content| words_of(&last_block(content, content.len())));
    let state = after_block(START.map(|word| [word; LANES]), blocks);
    from_fn(|lane| bytes_of(state, lane))
}

fn last_block(rest: &[u8], length: usize) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    block[..rest.len()].copy_from_slice(rest);
    block[rest.len()] = 0x80;
    with_length(block, length)
}

fn with_length(mut block: [u8; BLOCK_BYTES], length: usize) -> [u8; BLOCK_BYTES] {
    block[BLOCK_BYTES - 8..].copy_from_slice(&(length as u64).wrapping_mul(8).to_le_bytes());
    block
}

fn words_of(block: &[u8]) -> [u32; 16] {
    from_fn(|n| u32::from_le_bytes(from_fn(|byte| block[n * 4 + byte])))
}

fn bytes_of<const N: usize>(state: [Words<N>; 4], lane: usize) -> [u8; DIGEST_BYTES] {
    from_fn(|byte| state[byte / 4][lane].to_le_bytes()[byte % 4])
}

#[inline(always)]
fn after_block<const N: usize>(state: [Words<N>; 4], blocks: [[u32; 16]; N]) -> [Words<N>; 4] {
    let words: [Words<N>; 16] = from_fn(|n| from_fn(|lane| blocks[lane][n]));
    let mut now = state;
    now = round::<0, N>(now, &words, |b, c, d| (b & c) | (!b & d), |n| n);
    now = round::<1, N>(now, &words, |b, c, d| (b & d) | (c & !d), |n| (5 * n + 1) % 16);
    now = round::<2, N>(now, &words, |b, c, d| b ^ c ^ d, |n| (3 * n + 5) % 16);
    now = round::<3, N>(now, &words, |b, c, d| c ^ (b | !d), |n| (7 * n) % 16);
    from_fn(|n| from_fn(|lane| state[n][lane].wrapping_add(now[n][lane])))
}

#[inline(always)]
fn round<const ROUND: usize, const N: usize>(
    [mut a, mut b, mut c, mut d]: [Words<N>; 4],
    words: &[Words<N>; 16],
    mix: impl Fn(u32, u32, u32) -> u32,
    place: impl Fn(usize) -> usize,
) -> [Words<N>; 4] {
    for n in 0..16 {
        let word = &words[place(n)];
        let sine = SINES[ROUND * 16 + n];
        let rotation = ROTATIONS[ROUND][n % 4];
        let turned: Words<N> = from_fn(|lane| {
            let sum = a[lane].wrapping_add(mix(b[lane], c[lane], d[lane])).wrapping_add(word[lane]).wrapping_add(sine);
            b[lane].wrapping_add(sum.rotate_left(rotation))
        });
        (a, d, c, b) = (d, c, b, turned);
    }
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(digest: [u8; DIGEST_BYTES]) -> String {
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn as_the_standard_gives_it() {
        let digits = "1234567890".repeat(8);
        for (content, expected) in [
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("a", "0cc175b9c0f1b6a831c399e269772661"),
            ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
            ("abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b"),
            (&digits, "57edf4a22be3c955ac49da2e2107b67a"),
        ] {
            assert_eq!(hex(digest(content.as_bytes())), expected);
        }
    }

    #[test]
    fn side_by_side_as_alone() {
        let content: Vec<u8> = (0..=SHORT_BYTES as u8).collect();
        for length in 0..=SHORT_BYTES {
            let contents = from_fn(|lane| &content[..length.saturating_sub(lane)]);
            assert_eq!(digests_of_short(contents), contents.map(digest));
        }
    }
}
