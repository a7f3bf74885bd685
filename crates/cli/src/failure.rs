//! A command's failure and its exit status: 2 for a user's mistake, 130 after Ctrl-C and other
//! signals, 1 for anything else.

use std::fmt::{self, Display, Formatter};
use std::process::ExitCode;

use blklab_experiment::Error;
use blklab_host::HostError;

/// The exit status after Ctrl-C: 128 and the signal's number, as shells set it.
pub(crate) const INTERRUPTED: i32 = 130;

/// The reason for which a command failed.
#[derive(Debug)]
pub enum Failure {
    /// A mistake that the user can correct; the message says how.
    Mistake(String),
    /// A failure that is not the user's mistake.
    Broken(String),
    /// The requested check failed; its report has been printed already.
    CheckFailed,
    /// Ctrl-C ended the command; the results up to then have been printed.
    Interrupted,
    /// A signal ended the command before there were results; the message names it.
    Stopped(String),
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Failure::Mistake(message) | Failure::Broken(message) | Failure::Stopped(message) => {
                message
            }
            Failure::CheckFailed => "the check failed",
            Failure::Interrupted => "interrupted",
        })
    }
}

impl Failure {
    pub(crate) fn mistake(message: impl Display) -> Failure {
        Failure::Mistake(message.to_string())
    }

    pub(crate) fn report(self) -> ExitCode {
        match self {
            Failure::Mistake(message) => {
                eprintln!("blklab: {message}");
                ExitCode::from(2)
            }
            Failure::Broken(message) => {
                eprintln!("blklab: {message}");
                ExitCode::FAILURE
            }
            Failure::CheckFailed => ExitCode::FAILURE,
            Failure::Stopped(message) => {
                eprintln!("blklab: {message}");
                ExitCode::from(INTERRUPTED as u8)
            }
            Failure::Interrupted => ExitCode::from(INTERRUPTED as u8),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error.is_mistake() {
            true => Failure::mistake(error),
            false if error.is_interruption() => Failure::Stopped(error.to_string()),
            false => Failure::Broken(error.to_string()),
        }
    }
}

impl From<HostError> for Failure {
    fn from(error: HostError) -> Failure {
        Failure::from(Error::from(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blklab_blk::{Elevator, ElevatorQueue, RequestId, SchedCtx};
    use blklab_device::registry;
    use blklab_elevator::{ElevatorType, SchedulerChoice};
    use blklab_sim::{Machine, Setup, SetupError, Workload};
    use blklab_stats::Results;
    use blklab_workload::fio;

    /// A scheduler that loses every request.
    struct LosesRequests(ElevatorQueue);

    impl Elevator for LosesRequests {
        fn queue(&self) -> &ElevatorQueue {
            &self.0
        }
        fn queue_mut(&mut self) -> &mut ElevatorQueue {
            &mut self.0
        }
        fn add_request(&mut self, _: &mut SchedCtx<'_>, _: usize, _: RequestId) {}
        fn dispatch_request(&mut self, _: &mut SchedCtx<'_>, _: usize) -> Option<RequestId> {
            None
        }
        fn has_work(&self, _: usize) -> bool {
            false
        }
    }

    const LOSES_REQUESTS: ElevatorType = ElevatorType {
        name: "loses",
        help: "for a test",
        source: "none",
        tunables: &[],
        attributes: &[],
        costs: None,
        build: Some(&|_| Box::new(LosesRequests(ElevatorQueue::new("loses", &[])))),
    };

    fn results(text: &str, kind: &'static ElevatorType) -> Result<Results, SetupError> {
        let job = fio::parse_str("t.fio", text, &|_| None, &|_, f| Err(f.to_string()))
            .unwrap_or_else(|error| panic!("{error}"));
        let machine = Machine::find("generic-8").expect("known").expect("valid");
        let (drive, _) = registry::load("null").expect("known");
        let scheduler = SchedulerChoice {
            kind,
            ..SchedulerChoice::named("none").expect("known")
        };
        let work = Workload::Job(&job);
        blklab_sim::run(&Setup::new(work, &machine, &drive, &scheduler))
    }

    fn failure_of(error: SetupError) -> Failure {
        Failure::from(Error::from(error))
    }

    /// No job and no drive can stall a run, so a scheduler has to.
    #[test]
    fn a_run_that_gets_nowhere_is_no_mistake_of_the_users() {
        let text = "[a]\nfilename=/dev/x\ndirect=1\nrw=randread\nnumber_ios=10\nsize=1m\n";
        let failure = failure_of(results(text, &LOSES_REQUESTS).expect_err("it never ends"));
        let Failure::Broken(message) = &failure else {
            panic!("{failure:?}");
        };
        assert!(message.contains("stands still"), "{message}");
        assert_eq!(failure.report(), ExitCode::FAILURE);
        // A job that reaches beyond the drive's end is a user's mistake.
        let none = blklab_elevator::find("none").expect("known");
        let text = text.replace("size=1m", "size=1m\noffset=999999g");
        let failure = failure_of(results(&text, none).expect_err("beyond the end"));
        assert!(matches!(failure, Failure::Mistake(_)), "{failure:?}");
        assert_eq!(failure.report(), ExitCode::from(2));
    }
}
