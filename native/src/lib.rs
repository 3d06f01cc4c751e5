//! The Python side of `odradek-records`: arguments in, results out.

use odradek_records::check::{check as check_payload, Check as Looking, Outcome, Rules};
use odradek_records::columns::{read_columns, Bounds};
use odradek_records::records::{read_field, read_record, size_of_record, write_record, Draft};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBytes, PyList, PyTuple};

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

/// As `record.encode_in_python`.
#[pyfunction]
fn encode<'py>(
    py: Python<'py>,
    timestamp_delta: i64,
    offset_delta: i32,
    key: Option<PyBackedBytes>,
    value: Option<PyBackedBytes>,
    headers: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyBytes>> {
    // Most records have none, and a list of nothing would cost as much as all the rest.
    let headers: Vec<(PyBackedStr, Option<PyBackedBytes>)> =
        if headers.len()? == 0 { Vec::new() } else { headers.extract()? };
    let pairs: Vec<(&[u8], Option<&[u8]>)> =
        headers.iter().map(|(name, content)| (name.as_bytes(), content.as_deref())).collect();
    let draft = Draft { timestamp_delta, key: key.as_deref(), value: value.as_deref(), headers: &pairs };
    let mut out = Vec::with_capacity(size_of_record(&draft, offset_delta));
    write_record(&mut out, &draft, offset_delta);
    Ok(PyBytes::new(py, &out))
}

/// Up to `most` records from a position on, as arguments of `record.Record`, and the position behind them. It stops at
/// the first that is unusual: whoever asked has to see to that one. (Of `bytes`, which nobody can change meanwhile.)
#[pyfunction]
fn decode<'py>(
    py: Python<'py>,
    payload: &Bound<'py, PyBytes>,
    mut position: usize,
    most: usize,
    base_offset: i64,
    base_timestamp: i64,
) -> PyResult<(Bound<'py, PyList>, usize)> {
    let data = payload.as_bytes();
    let records = PyList::empty(py);
    let none = PyTuple::empty(py);
    while records.len() < most {
        let Some(parts) = read_record(data, position) else { break };
        let headers = if parts.headers.0 == 0 {
            none.clone()
        } else {
            let Some(headers) = read_headers(py, data, parts.headers)? else { break };
            headers
        };
        records.append((
            parts.key.map(|bytes| PyBytes::new(py, bytes)),
            parts.value.map(|bytes| PyBytes::new(py, bytes)),
            headers,
            base_timestamp.wrapping_add(parts.timestamp_delta),
            base_offset.wrapping_add(i64::from(parts.offset_delta)),
        ))?;
        position = parts.end;
    }
    Ok((records, position))
}

/// As `pure.offsets_keys_hashes`. (Of `bytes`, which nobody can change meanwhile, with or without the interpreter's lock.)
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "they are those of its twin, and all of them numbers")]
fn offsets_keys_hashes<'py>(
    py: Python<'py>,
    payload: &Bound<'py, PyBytes>,
    position: usize,
    most: usize,
    base_offset: i64,
    base_timestamp: i64,
    above: i64,
    last: i64,
) -> PyResult<Bound<'py, PyTuple>> {
    let bounds = Bounds { base_offset, base_timestamp, above, last };
    let columns = if payload.as_bytes().len().saturating_sub(position) <= LARGE_BYTES {
        read_columns(payload.as_bytes(), position, most, bounds)
    } else {
        let held = PyBackedBytes::from(payload.clone());
        py.detach(|| read_columns(&held, position, most, bounds))
    };
    let array = py.import("array")?.getattr("array")?;
    let parts = [
        array.call1(("q", int64s(py, &columns.offsets)?))?,
        array.call1(("q", int64s(py, &columns.timestamps)?))?,
        array.call1(("q", int64s(py, &columns.positions)?))?,
        PyBytes::new(py, &columns.flags).into_any(),
        PyBytes::new(py, &columns.hashes).into_any(),
    ];
    PyTuple::new(py, parts)
}

fn int64s<'py>(py: Python<'py>, numbers: &[i64]) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, size_of_val(numbers), |out| {
        for (place, number) in out.chunks_exact_mut(size_of::<i64>()).zip(numbers) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        Ok(())
    })
}

/// None if a name is no text.
fn read_headers<'py>(
    py: Python<'py>,
    data: &[u8],
    (count, mut at): (i32, usize),
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let mut headers = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let Some((Some(name), behind_name)) = read_field(data, at) else { return Ok(None) };
        let Some((content, behind)) = read_field(data, behind_name) else { return Ok(None) };
        let Ok(name) = std::str::from_utf8(name) else { return Ok(None) };
        headers.push((name, content.map(|bytes| PyBytes::new(py, bytes))));
        at = behind;
    }
    PyTuple::new(py, headers).map(Some)
}

#[pymodule]
fn odradek_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(check, module)?)?;
    module.add_function(wrap_pyfunction!(encode, module)?)?;
    module.add_function(wrap_pyfunction!(decode, module)?)?;
    module.add_function(wrap_pyfunction!(offsets_keys_hashes, module)?)?;
    module.add_class::<Check>()
}
