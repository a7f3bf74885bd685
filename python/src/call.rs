//! `call`: runs a command, given by its arguments, in a separate thread, so that Python can
//! handle Ctrl-C and show progress.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use blklab_command::{Call, DescriptionSource, Failure, NamedText, Observer, RunOutput};
use blklab_description::Value;
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyList};

use crate::scheduler;
use crate::table::PyTable;

create_exception!(
    blklab,
    Error,
    PyException,
    "A command failed; the message is its own."
);
create_exception!(
    blklab,
    UsageError,
    Error,
    "Something asked for that cannot be had; the message says what can."
);

/// The interval between checks for signals.
const LOOK: Duration = Duration::from_millis(50);

/// The steps of progress in a run.
const STEPS: f64 = 1000.0;

/// The result of a command.
#[pyclass(module = "blklab", frozen)]
pub struct Found {
    /// The text that the command prints.
    #[pyo3(get)]
    text: String,
    /// Whether the exit status of the command would be 0.
    #[pyo3(get)]
    holds: bool,
    ran: Option<RunOutput>,
    /// The name and description of the drive that was fitted or probed.
    #[pyo3(get)]
    drive: Option<NamedText>,
    /// The name and description of the machine that was fitted.
    #[pyo3(get)]
    machine: Option<NamedText>,
    /// How many of `conform`'s events agree, and of how many.
    #[pyo3(get)]
    agreement: Option<(u64, u64)>,
}

impl Found {
    pub(crate) fn ran(&self) -> PyResult<&RunOutput> {
        let none = || Error::new_err("this command runs no job");
        self.ran.as_ref().ok_or_else(none)
    }
}

#[pymethods]
impl Found {
    /// The output of the command with `--output-format json`.
    #[getter]
    fn json(&self) -> PyResult<&str> {
        Ok(&self.ran()?.json)
    }

    /// The number of runs, those of settings that were left out among them.
    #[getter]
    fn runs(&self) -> PyResult<usize> {
        Ok(self.ran()?.runs)
    }

    /// What to do, with the commands that do it; empty if there is no advice.
    #[getter]
    fn advice(&self) -> PyResult<String> {
        Ok(self.ran()?.advice())
    }

    /// The best setting, in a sentence.
    #[getter]
    fn headline(&self) -> PyResult<&str> {
        Ok(self.ran()?.headline())
    }

    /// The report as an HTML page.
    fn page(&self, py: Python<'_>) -> PyResult<String> {
        let ran = self.ran()?;
        Ok(py.detach(|| ran.page()))
    }

    /// The results of each job in each run, as a table.
    fn results(own: &Bound<'_, Self>) -> PyResult<PyTable> {
        PyTable::new(own, RunOutput::results)
    }

    /// The requests of the first runs as a table, if they were kept.
    fn requests(own: &Bound<'_, Self>) -> PyResult<PyTable> {
        PyTable::new(own, RunOutput::requests)
    }

    /// What of the requests is missing, a sentence for each setting.
    fn notes_on_requests(&self) -> PyResult<Vec<String>> {
        Ok(self.ran()?.notes_on_requests())
    }

    /// The time series as a table.
    fn series(own: &Bound<'_, Self>) -> PyResult<PyTable> {
        PyTable::new(own, RunOutput::series)
    }
}

/// A setting: its label, and its keys with their values.
type NamedRow = (String, Vec<(String, String)>);

/// Runs a command, given by its arguments. `rows` are the settings that `tune` tries. `progress` is called with the number of finished
/// runs and the number of all runs.
#[pyfunction]
#[pyo3(signature = (words, job_text=None, keep_requests=false, progress=None, rows=Vec::new()))]
pub fn call(
    py: Python<'_>,
    words: Vec<String>,
    job_text: Option<String>,
    keep_requests: bool,
    progress: Option<Bound<'_, PyAny>>,
    rows: Vec<NamedRow>,
) -> PyResult<Found> {
    let values = rows
        .iter()
        .flat_map(|(_, keys)| keys)
        .map(|(_, value)| value);
    let runs_python = scheduler::may_be_run_by(words.iter().chain(values).map(String::as_str));
    let asked = Call {
        words,
        job_text,
        keep_requests,
        rows,
    };
    let found = watched(py, progress, runs_python, |observer| {
        blklab_command::call(asked, observer)
    })?;
    Ok(Found {
        text: found.text,
        holds: found.holds,
        ran: found.ran,
        drive: found.drive,
        machine: found.machine,
        agreement: found.agreement,
    })
}

/// Does `work` in a separate thread without Python's lock (GIL). Meanwhile checks Python's
/// signals, so that Ctrl-C ends it, and calls `progress`. Calls that run schedulers in Python
/// take turns.
pub(crate) fn watched<T: Send>(
    py: Python<'_>,
    progress: Option<Bound<'_, PyAny>>,
    runs_python: bool,
    work: impl FnOnce(Observer<'_>) -> Result<T, Failure> + Send,
) -> PyResult<T> {
    let (done_steps, runs) = (AtomicU64::new(0), AtomicUsize::new(0));
    let stop = AtomicBool::new(false);
    let turn = match runs_python {
        true => Some(scheduler::Turn::take(py, LOOK)?),
        false => None,
    };
    let note = |done: f64, all: usize| {
        done_steps.store((done * STEPS) as u64, Ordering::Relaxed);
        runs.store(all, Ordering::Relaxed);
    };
    let tell = || match &progress {
        None => Ok(()),
        Some(progress) => {
            let done = done_steps.load(Ordering::Relaxed) as f64 / STEPS;
            let all = runs.load(Ordering::Relaxed);
            progress.call1((done, all)).map(drop)
        }
    };
    let ended = std::thread::scope(|scope| {
        let (sender, receiver) = channel();
        let observer = Observer {
            progress: &note,
            stop: &stop,
        };
        scope.spawn(move || {
            // The receiver exists until this thread has ended.
            let _ = sender.send(work(observer));
        });
        let receiver = Mutex::new(receiver);
        let next = || {
            let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
            receiver.recv_timeout(LOOK)
        };
        let ended = loop {
            match py.detach(next) {
                Ok(ended) => break Ok(ended),
                Err(RecvTimeoutError::Disconnected) => {
                    break Err(Error::new_err("the command has ended without an answer"));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if turn.as_ref().is_some_and(scheduler::Turn::has_failed) {
                stop.store(true, Ordering::Relaxed);
            }
            if let Err(error) = py.check_signals().and_then(|()| tell()) {
                stop.store(true, Ordering::Relaxed);
                break Err(error);
            }
        };
        // The scope joins the thread, which may need Python's lock.
        py.detach(|| while next().is_err_and(|why| why == RecvTimeoutError::Timeout) {});
        ended
    })?;
    if let Some(error) = turn.as_ref().and_then(scheduler::Turn::take_failure) {
        return Err(error);
    }
    let found = ended.map_err(raised)?;
    tell()?;
    Ok(found)
}

/// Returns the Python exception for an error.
pub(crate) fn raised(failure: Failure) -> PyErr {
    match failure {
        Failure::Mistake(message) => UsageError::new_err(message),
        other => Error::new_err(other.to_string()),
    }
}

/// Returns the text of a drive's or machine's description with some values changed. It is that of
/// the name, unless a text is given.
#[pyfunction]
#[pyo3(signature = (kind, name, values, text=None))]
pub fn description(
    kind: &str,
    name: &str,
    values: Vec<(String, String)>,
    text: Option<&str>,
) -> PyResult<String> {
    let source = DescriptionSource { kind, name, text };
    blklab_command::description(source, &values).map_err(raised)
}

/// Returns all keys of a description's text with their values.
#[pyfunction]
pub fn description_values(
    py: Python<'_>,
    kind: &str,
    name: &str,
    text: &str,
) -> PyResult<Vec<(String, Py<PyAny>)>> {
    let text = Some(text);
    let source = DescriptionSource { kind, name, text };
    let values = blklab_command::description_values(source).map_err(raised)?;
    let values = values.into_iter();
    values
        .map(|(key, value)| Ok((key, python_value(py, value)?)))
        .collect()
}

fn python_value(py: Python<'_>, value: Value) -> PyResult<Py<PyAny>> {
    Ok(match value {
        Value::Whole(number) => number.into_pyobject(py)?.into_any().unbind(),
        Value::Number(number) => number.into_pyobject(py)?.into_any().unbind(),
        Value::Flag(flag) => PyBool::new(py, flag).to_owned().into_any().unbind(),
        Value::Text(text) => text.into_pyobject(py)?.into_any().unbind(),
        Value::List(values) => {
            let values = values.into_iter().map(|value| python_value(py, value));
            let values = values.collect::<PyResult<Vec<Py<PyAny>>>>()?;
            PyList::new(py, values)?.into_any().unbind()
        }
        Value::Nothing => py.None(),
    })
}

/// Returns the end of a message on an unknown name: the nearest known one, or nothing.
#[pyfunction]
pub fn hint(typed: &str, known: Vec<String>) -> String {
    blklab_description::hint(typed, known.iter().map(String::as_str))
}

/// The identity of the sources, which the command has too.
#[pyfunction]
pub fn program() -> &'static str {
    blklab_command::program()
}
