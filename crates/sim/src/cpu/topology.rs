//! Which CPUs share a core, and which a socket.

use strum::{Display, EnumMessage, VariantArray};

/// How the CPUs of cores with several threads are numbered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Display, EnumMessage, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Numbering {
    /// The first thread of every core, then the second of every core: servers and desktops.
    #[default]
    CoresFirst,
    /// The threads of a core one behind the other: many notebooks.
    CoreByCore,
}

/// The CPUs of a machine: as many sockets, cores and threads as it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    pub(crate) cpus: u32,
    pub(crate) sockets: u32,
    pub(crate) threads_per_core: u32,
    pub(crate) numbering: Numbering,
}

impl Topology {
    /// One socket of cores with one thread each.
    pub(crate) fn of_cores(cpus: u32) -> Topology {
        Topology {
            cpus,
            sockets: 1,
            threads_per_core: 1,
            numbering: Numbering::default(),
        }
    }

    fn cores(&self) -> usize {
        (self.cpus / self.threads_per_core).max(1) as usize
    }

    /// The core that a CPU is a thread of.
    #[inline]
    pub(crate) fn core_of(&self, cpu: usize) -> usize {
        match (self.threads_per_core, self.numbering) {
            (1, _) => cpu,
            (_, Numbering::CoresFirst) => cpu % self.cores(),
            (threads, Numbering::CoreByCore) => cpu / threads as usize,
        }
    }

    /// The socket of a CPU. The cores of a socket follow each other.
    #[inline]
    pub(crate) fn socket_of(&self, cpu: usize) -> usize {
        let cores_per_socket = (self.cores() / self.sockets as usize).max(1);
        self.core_of(cpu) / cores_per_socket
    }

    /// The other threads of a CPU's core.
    pub(crate) fn siblings_of(&self, cpu: usize) -> impl Iterator<Item = usize> {
        let (core, cores, threads) = (
            self.core_of(cpu),
            self.cores(),
            self.threads_per_core as usize,
        );
        let of_core = move |thread: usize| match self.numbering {
            Numbering::CoresFirst => core + thread * cores,
            Numbering::CoreByCore => core * threads + thread,
        };
        (0..threads).map(of_core).filter(move |&other| other != cpu)
    }

    /// These CPUs in the order in which new programs come to them: no core has a second one
    /// before every core has its first (`sched_balance_find_dst_cpu`).
    pub(crate) fn by_idle_core(&self, cpus: &mut [usize]) {
        if self.threads_per_core > 1 && self.numbering == Numbering::CoreByCore {
            cpus.sort_by_key(|&cpu| (cpu % self.threads_per_core as usize, cpu));
        }
    }

    /// The first CPU of a socket.
    pub(crate) fn first_of(&self, socket: usize) -> usize {
        let mut cpus = 0..self.cpus as usize;
        cpus.find(|&cpu| self.socket_of(cpu) == socket).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topology(numbering: Numbering) -> Topology {
        Topology {
            cpus: 8,
            sockets: 2,
            threads_per_core: 2,
            numbering,
        }
    }

    fn siblings(topology: Topology, cpu: usize) -> Vec<usize> {
        topology.siblings_of(cpu).collect()
    }

    #[test]
    fn siblings_are_where_the_numbering_says() {
        let far = topology(Numbering::CoresFirst);
        assert_eq!([1, 5].map(|cpu| siblings(far, cpu)), [vec![5], vec![1]]);
        let near = topology(Numbering::CoreByCore);
        assert_eq!([2, 3].map(|cpu| siblings(near, cpu)), [vec![3], vec![2]]);
        assert_eq!(siblings(Topology::of_cores(4), 1), [0; 0]);
    }

    #[test]
    fn a_core_is_in_one_socket_with_all_its_threads() {
        for numbering in [Numbering::CoresFirst, Numbering::CoreByCore] {
            let topology = topology(numbering);
            for cpu in 0..8 {
                let sibling = siblings(topology, cpu)[0];
                assert_eq!(topology.socket_of(cpu), topology.socket_of(sibling));
                assert_eq!(topology.core_of(cpu), topology.core_of(sibling));
            }
            let first = (0..8).filter(|&cpu| topology.socket_of(cpu) == 0);
            assert_eq!(first.count(), 4);
        }
        assert_eq!(topology(Numbering::CoresFirst).first_of(1), 2);
        assert_eq!(topology(Numbering::CoreByCore).first_of(1), 4);
    }

    #[test]
    fn programs_come_to_each_core_once_first() {
        let mut cpus: Vec<usize> = (0..8).collect();
        topology(Numbering::CoresFirst).by_idle_core(&mut cpus);
        assert_eq!(cpus, [0, 1, 2, 3, 4, 5, 6, 7]);
        topology(Numbering::CoreByCore).by_idle_core(&mut cpus);
        assert_eq!(cpus, [0, 2, 4, 6, 1, 3, 5, 7]);
    }
}
