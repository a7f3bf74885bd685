//! The processes of a job file, numbered as fio numbers them.

use crate::fio::{JobFile, JobSpec};

/// One process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Which of [`JobFile::jobs`] it runs.
    pub job: usize,
    /// Which of the job's `numjobs` processes it is, from 0: what
    /// `offset_increment` and `$jobnum` count by.
    pub number: u32,
    /// Its number in the whole job file, from 1: what seeds and
    /// `cpus_allowed_policy=split` count by.
    pub thread_number: u32,
}

/// All processes of a job file, in the order fio starts them.
///
/// fio adds the first process of a job, then the last, and so on down, which
/// shows in their thread numbers.
pub fn processes(file: &JobFile) -> Vec<Process> {
    let mut processes = Vec::new();
    for (job, spec) in file.jobs.iter().enumerate() {
        for number in std::iter::once(0).chain((1..spec.processes).rev()) {
            processes.push(Process {
                job,
                number,
                thread_number: processes.len() as u32 + 1,
            });
        }
    }
    processes
}

impl Process {
    /// The CPUs it may run on; empty: any.
    pub fn cpus(&self, spec: &JobSpec) -> Vec<u32> {
        match spec.cpus.len() {
            n if spec.cpus_split && n > 0 => {
                vec![spec.cpus[(self.thread_number as usize - 1) % n]]
            }
            _ => spec.cpus.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio::parse_str;

    #[test]
    fn numbered_as_fio_does() {
        let text = "[a]\nnumjobs=3\n[b]\ncpus_allowed=2-5\ncpus_allowed_policy=split\n";
        let file = parse_str("t", text, &|_| None, &|_, _| Err(String::new())).unwrap();
        let processes = processes(&file);
        let numbers: Vec<_> = processes
            .iter()
            .map(|p| (p.job, p.number, p.thread_number))
            .collect();
        assert_eq!(numbers, [(0, 0, 1), (0, 2, 2), (0, 1, 3), (1, 0, 4)]);
        assert_eq!(processes[3].cpus(&file.jobs[1]), [5]);
        assert!(processes[0].cpus(&file.jobs[0]).is_empty());
    }
}
