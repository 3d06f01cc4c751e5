//! The Python side of `odradek-records`: arguments in, results out.

use odradek_records::check::{check as check_payload, Check as Looking, Outcome, Rules};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;

/// Beyond so many bytes they are copied, and looked at without the interpreter's lock: some 0.1 ms with it at worst.
const LARGE_BYTES: usize = 256 * 1024;

/// What a buffer of Python's holds, for as long as `use_it` runs, which runs no Python.
fn with_bytes<R>(buffer: &PyBuffer<u8>, use_it: impl FnOnce(&[u8]) -> R) -> PyResult<R> {
    if !buffer.is_c_contiguous() {
        return Err(PyBufferError::new_err("the bytes must be contiguous"));
    }
    if buffer.len_bytes() == 0 {
        return Ok(use_it(&[]));
    }
    // SAFETY: the buffer is exported to us, so it stays where it is while `buffer` lives; it has `len_bytes` bytes without
    // gaps; and the interpreter's lock is held until `use_it`, which runs no Python, is through, so nobody writes to it.
    let bytes = unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), buffer.len_bytes()) };
    Ok(use_it(bytes))
}

fn refused<'py>(py: Python<'py>, outcome: Outcome) -> PyResult<Bound<'py, PyAny>> {
    let nothing: Vec<(i32, Option<i64>)> = Vec::new();
    match outcome {
        Outcome::Sound(newest) => Ok(newest.into_pyobject(py)?.into_any()),
        Outcome::Malformed(fault, index) => Ok((fault as i32, index, nothing).into_pyobject(py)?.into_any()),
        Outcome::Unwanted(errors) => Ok((0, 0, errors).into_pyobject(py)?.into_any()),
    }
}

/// As `pure.check`.
#[pyfunction]
fn check<'py>(
    py: Python<'py>,
    payload: PyBuffer<u8>,
    base_timestamp: i64,
    count: i32,
    flags: u8,
    lowest: i64,
    highest: i64,
) -> PyResult<Bound<'py, PyAny>> {
    let rules = Rules { base_timestamp, count, flags, lowest, highest };
    let outcome = if payload.len_bytes() <= LARGE_BYTES {
        with_bytes(&payload, |bytes| check_payload(bytes, rules))?
    } else {
        let copy = with_bytes(&payload, <[u8]>::to_vec)?;
        py.detach(|| check_payload(&copy, rules))
    };
    refused(py, outcome)
}

/// As `pure.Check`.
#[pyclass(module = "odradek_native")]
struct Check {
    looking: Option<Looking>,
}

#[pymethods]
impl Check {
    #[new]
    fn new(base_timestamp: i64, count: i32, flags: u8, lowest: i64, highest: i64) -> Self {
        Check { looking: Some(Looking::new(Rules { base_timestamp, count, flags, lowest, highest })) }
    }

    fn feed(&mut self, py: Python<'_>, piece: PyBuffer<u8>) -> PyResult<bool> {
        let looking = self.looking.as_mut().ok_or_else(finished)?;
        if piece.len_bytes() <= LARGE_BYTES {
            return with_bytes(&piece, |bytes| looking.feed(bytes));
        }
        let copy = with_bytes(&piece, <[u8]>::to_vec)?;
        Ok(py.detach(|| looking.feed(&copy)))
    }

    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        refused(py, self.looking.take().ok_or_else(finished)?.finish())
    }
}

fn finished() -> PyErr {
    PyValueError::new_err("it is finished")
}

#[pymodule]
fn odradek_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(check, module)?)?;
    module.add_class::<Check>()
}
