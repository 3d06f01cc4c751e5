//! What is done record by record, on bytes that anyone may have sent.
//!
//! No protocol rule, no I/O, nothing unsafe, and no Python: so that `cargo test`, a fuzzer and Miri reach all of it. Its
//! twin is `odradek/protocol/records/pure.py`; the two are held equal, answer by answer.

#![forbid(unsafe_code)]

pub mod check;
pub mod columns;
pub mod md5;
pub mod numbers;
pub mod records;
