//! `call`: a command by its words, in a thread of its own, so that Python goes on to see
//! Ctrl-C and is told how far it is.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use blklab_command::{Call, Failure, Observer, RunOutput};
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

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

/// Between two looks at signals.
const LOOK: Duration = Duration::from_millis(50);

/// Parts of a run that progress counts.
const STEPS: f64 = 1000.0;

/// What a command found.
#[pyclass(module = "blklab", frozen)]
pub struct Found {
    /// What it prints.
    #[pyo3(get)]
    text: String,
    /// Whether the command would end with exit status 0.
    #[pyo3(get)]
    holds: bool,
    ran: Option<RunOutput>,
}

impl Found {
    pub(crate) fn ran(&self) -> PyResult<&RunOutput> {
        let none = || Error::new_err("this command runs no job");
        self.ran.as_ref().ok_or_else(none)
    }
}

#[pymethods]
impl Found {
    /// What the command prints with `--output-format json`.
    #[getter]
    fn json(&self) -> PyResult<&str> {
        Ok(&self.ran()?.json)
    }

    /// Who is best, in a sentence.
    #[getter]
    fn headline(&self) -> PyResult<&str> {
        Ok(self.ran()?.headline())
    }

    /// All of it as a page of HTML.
    fn page(&self, py: Python<'_>) -> PyResult<String> {
        let ran = self.ran()?;
        Ok(py.detach(|| ran.page()))
    }

    /// What each job got in each run.
    fn results(own: &Bound<'_, Self>) -> PyResult<PyTable> {
        PyTable::new(own, RunOutput::results)
    }

    /// The requests of the first runs one by one, where they were kept.
    fn requests(own: &Bound<'_, Self>) -> PyResult<PyTable> {
        PyTable::new(own, RunOutput::requests)
    }

    /// What was going on over time.
    fn series(own: &Bound<'_, Self>) -> PyResult<PyTable> {
        PyTable::new(own, RunOutput::series)
    }
}

/// Calls a command by its words. `progress` is told how many runs are done and how many
/// there are.
#[pyfunction]
#[pyo3(signature = (words, job_text=None, keep_requests=false, progress=None))]
pub fn call(
    py: Python<'_>,
    words: Vec<String>,
    job_text: Option<String>,
    keep_requests: bool,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<Found> {
    let asked = Call {
        words,
        job_text,
        keep_requests,
    };
    let found = watched(py, progress, |observer| {
        blklab_command::call(asked, observer)
    })?;
    Ok(Found {
        text: found.text,
        holds: found.holds,
        ran: found.ran,
    })
}

/// Does `work` in a thread of its own, without Python's lock. Meanwhile Python's signals
/// are looked at, so that Ctrl-C ends it, and `progress` is called.
pub(crate) fn watched<T: Send>(
    py: Python<'_>,
    progress: Option<Bound<'_, PyAny>>,
    work: impl FnOnce(Observer<'_>) -> Result<T, Failure> + Send,
) -> PyResult<T> {
    let (done_steps, runs) = (AtomicU64::new(0), AtomicUsize::new(0));
    let stop = AtomicBool::new(false);
    drop(scheduler::take_failure());
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
            // Who waits is there until this has ended.
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
            if scheduler::has_failed() {
                stop.store(true, Ordering::Relaxed);
            }
            if let Err(error) = py.check_signals().and_then(|()| tell()) {
                stop.store(true, Ordering::Relaxed);
                break Err(error);
            }
        };
        // The scope waits for the thread, which may wait for Python.
        py.detach(|| while next().is_err_and(|why| why == RecvTimeoutError::Timeout) {});
        ended
    })?;
    if let Some(error) = scheduler::take_failure() {
        return Err(error);
    }
    let found = ended.map_err(raised)?;
    tell()?;
    Ok(found)
}

/// The exception of a failure.
pub(crate) fn raised(failure: Failure) -> PyErr {
    match failure {
        Failure::Mistake(message) => UsageError::new_err(message),
        other => Error::new_err(other.to_string()),
    }
}

/// The text of a drive's or machine's description with some of its values changed.
#[pyfunction]
pub fn description(kind: &str, name: &str, values: Vec<(String, String)>) -> PyResult<String> {
    blklab_command::description(kind, name, &values).map_err(raised)
}
