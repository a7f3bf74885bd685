//! The schedulers by name.

use blklab_blk::{Attribute, Elevator, QueueInfo, Tunable};

use crate::single_queue::SingleQueue;
use crate::{
    ac, ac2, adios, bfq, bp, cfq, deadline, fios, irbw, kyber, mq_deadline, noop, sio, stb,
};

/// A kind of scheduler.
#[derive(Clone, Copy)]
pub struct ElevatorType {
    /// As `queue/scheduler` shows it.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Where its decisions come from.
    pub source: &'static str,
    /// Its tunables.
    pub tunables: &'static [Tunable],
    /// Its files in sysfs that are not one number.
    pub attributes: &'static [Attribute],
    /// What makes one; `None` for `none`.
    pub build: Option<Build>,
}

/// Makes a scheduler for a queue.
pub type Build = fn(&QueueInfo) -> Box<dyn Elevator>;

impl ElevatorType {
    /// A scheduler of this kind for a queue; `None` for `none`.
    pub fn build(&self, info: &QueueInfo) -> Option<Box<dyn Elevator>> {
        self.build.map(|build| build(info))
    }
}

/// All schedulers, in the order in which lists show them.
pub fn all() -> &'static [ElevatorType] {
    ALL
}

/// The scheduler called `name`.
pub fn find(name: &str) -> Option<&'static ElevatorType> {
    ALL.iter().find(|t| t.name == name)
}

const ALL: &[ElevatorType] = &[
    ElevatorType {
        name: "none",
        help: "no scheduler: software queues straight to the driver",
        source: "Linux 6.12, block/blk-mq.c",
        tunables: &[],
        attributes: &[],
        build: None,
    },
    ElevatorType {
        name: "noop",
        help: "order of arrival, with merging",
        source: "Linux 4.x, block/noop-iosched.c",
        tunables: noop::TUNABLES,
        attributes: &[],
        build: Some(|_| SingleQueue::of(noop::Noop::new())),
    },
    ElevatorType {
        name: "deadline",
        help: "sorted batches with a deadline a request, one queue",
        source: "Linux 4.x, block/deadline-iosched.c",
        tunables: deadline::TUNABLES,
        attributes: &[],
        build: Some(|_| SingleQueue::of(deadline::Deadline::new())),
    },
    ElevatorType {
        name: "mq-deadline",
        help: "sorted batches with a deadline a request, three priority classes",
        source: "Linux 6.12, block/mq-deadline.c",
        tunables: mq_deadline::TUNABLES,
        attributes: &[],
        build: Some(|info| Box::new(mq_deadline::MqDeadline::new(info))),
    },
    ElevatorType {
        name: "bfq",
        help: "a budget of service a process in turn, shares by weight, low latency for who just started",
        source: "Linux 6.12, block/bfq-iosched.c and bfq-wf2q.c; Valente and Andreolini, SYSTOR 2012",
        tunables: bfq::TUNABLES,
        attributes: &[],
        build: Some(|info| Box::new(bfq::Bfq::new(info))),
    },
    ElevatorType {
        name: "kyber",
        help: "few requests in the drive, so that reads and writes meet their latency targets",
        source: "Linux 6.12, block/kyber-iosched.c",
        tunables: kyber::TUNABLES,
        attributes: &[],
        build: Some(|info| Box::new(kyber::Kyber::new(info))),
    },
    ElevatorType {
        name: "ac",
        help: "reads spread over an SSD's channels, writes gathered by channel, deadlines",
        source: "K. Okumura, master's thesis, Tokyo Institute of Technology 2016, chapter 4",
        tunables: ac::TUNABLES,
        attributes: &[],
        build: Some(|info| SingleQueue::of(ac::Ac::new(info))),
    },
    ElevatorType {
        name: "sio",
        help: "four queues in order of arrival with a deadline each kind, no sorting",
        source: "M. Boton's module sio-iosched, version 0.2 of 2012",
        tunables: sio::TUNABLES,
        attributes: &[],
        build: Some(|_| SingleQueue::of(sio::Sio::new())),
    },
    ElevatorType {
        name: "irbw",
        help: "reads one by one and first, writes in bundles by erase block",
        source: "J. Kim and others, EMSOFT 2009",
        tunables: irbw::TUNABLES,
        attributes: &[],
        build: Some(|_| SingleQueue::of(irbw::Irbw::new())),
    },
    ElevatorType {
        name: "stb",
        help: "sync before async, bundles of asynchronous writes, a timeout a request",
        source: "S. Kang, H. Park, C. Yoo, ICCE 2011",
        tunables: stb::TUNABLES,
        attributes: &[],
        build: Some(|_| SingleQueue::of(stb::Stb::new())),
    },
    ElevatorType {
        name: "bp",
        help: "writes stay in the erase block of the last one; batches and deadlines",
        source: "M. Dunn, N. Reddy, Texas A&M University 2009",
        tunables: bp::TUNABLES,
        attributes: &[],
        build: Some(|_| SingleQueue::of(bp::Bp::new())),
    },
    ElevatorType {
        name: "cfq",
        help: "a queue and slices of time a process, by priority; waits for sequential readers",
        source: "Linux 4.2, block/cfq-iosched.c",
        tunables: cfq::TUNABLES,
        attributes: &[],
        build: Some(|info| Box::new(cfq::Cfq::new(info))),
    },
    ElevatorType {
        name: "adios",
        help: "deadlines from a learned model of what requests take, in batches",
        source: "M. Suzuki, ADIOS 3.1.9 for Linux 6.12",
        tunables: adios::TUNABLES,
        attributes: adios::ATTRIBUTES,
        build: Some(|info| Box::new(adios::Adios::new(info))),
    },
    ElevatorType {
        name: "fios",
        help: "equal time on the drive for each task, in epochs; reads before writes",
        source: "S. Park, K. Shen, FAST 2012",
        tunables: fios::TUNABLES,
        attributes: &[],
        build: Some(|_| SingleQueue::of(fios::Fios::new())),
    },
    ElevatorType {
        name: "ac2",
        help: "reads to the least loaded channel, light submitters first, writes by erase block",
        source: "this project; goes on from ac",
        tunables: ac2::TUNABLES,
        attributes: &[],
        build: Some(|info| SingleQueue::of(ac2::Ac2::new(info))),
    },
];
