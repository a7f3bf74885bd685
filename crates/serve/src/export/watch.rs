//! Learns of threads of a server that panic, while the others go on.

use std::sync::{Arc, Mutex, PoisonError};

/// What is called once a thread has panicked.
type OnPanic = Box<dyn FnOnce(&str) + Send>;

#[derive(Default)]
struct Watched {
    /// The thread that panicked first.
    panicked: Option<String>,
    on_panic: Option<OnPanic>,
}

/// Watches the threads of a server.
#[derive(Clone, Default)]
pub(crate) struct PanicWatch {
    watched: Arc<Mutex<Watched>>,
}

impl PanicWatch {
    /// A thread to be watched; `name` is given to who learns of its panic.
    pub(crate) fn thread(&self, name: &str) -> WatchedThread {
        WatchedThread {
            watch: self.clone(),
            name: name.to_string(),
        }
    }

    /// Has a function called with the name of the first thread that panics, or has panicked.
    pub(crate) fn on_panic(&self, on_panic: OnPanic) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        match &watched.panicked {
            Some(name) => on_panic(name),
            None => watched.on_panic = Some(on_panic),
        }
    }

    fn panicked(&self, name: &str) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.panicked.get_or_insert_with(|| name.to_string());
        if let Some(on_panic) = watched.on_panic.take() {
            on_panic(name);
        }
    }
}

/// A thread that is watched.
pub(crate) struct WatchedThread {
    watch: PanicWatch,
    name: String,
}

impl WatchedThread {
    /// Does the thread's work; the watch learns if that panics.
    pub(crate) fn run<T>(self, work: impl FnOnce() -> T) -> T {
        work()
    }
}

impl Drop for WatchedThread {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.watch.panicked(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn the_first_thread_that_panics_is_reported() {
        let (watch, (sender, panicked)) = (PanicWatch::default(), mpsc::channel());
        watch.on_panic(Box::new(move |name| {
            sender.send(name.to_string()).expect("heard")
        }));
        let run = |name: &str, panics: bool| {
            let thread = watch.thread(name);
            let ended = std::thread::spawn(move || thread.run(|| assert!(!panics, "meant to")));
            assert_eq!(ended.join().is_err(), panics);
        };
        run("a", false);
        assert!(panicked.try_recv().is_err());
        run("b", true);
        run("c", true);
        assert_eq!(panicked.recv(), Ok("b".to_string()));
        assert!(panicked.recv().is_err(), "it is called once");
        let (sender, later) = mpsc::channel();
        watch.on_panic(Box::new(move |name| {
            sender.send(name.to_string()).expect("heard")
        }));
        assert_eq!(later.recv(), Ok("b".to_string()));
    }
}
