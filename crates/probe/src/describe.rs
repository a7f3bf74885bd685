//! Conversion of a probe's findings to a drive's description, which `blklab calibrate` can refine.

use std::fmt::Write;

use crate::Probed;
use crate::finding::{Finding, Mapping};

/// Assumptions of a description for what was not found.
const PAGES_PER_BLOCK: u64 = 512;
const PROGRAM_US: f64 = 900.0;
const CONTROLLER_US: f64 = 5.0;
const LINK_US: f64 = 1.0;
const BUFFER_BYTES: u64 = 16 << 20;

/// Ratio of physical to visible capacity, typical of consumer drives.
const SPARE: f64 = 1.08;

/// Returns the description in TOML; `None` for a disk, because a probe does not find zones and seek
/// times.
pub fn describe(probed: &Probed, name: &str) -> Option<String> {
    if probed.is_rotational {
        return None;
    }
    match (probed.layout.chunk.value, probed.layout.parallel.value) {
        (Some(chunk), Some(parallel)) => Some(ssd(probed, name, chunk, parallel)),
        _ => Some(plain(probed, name)),
    }
}

/// The source of a value, for a comment.
fn source<T>(finding: &Finding<T>) -> String {
    match finding.value {
        Some(_) => format!("probed, {:.0} % agree", finding.confidence * 100.0),
        None => "assumed".to_string(),
    }
}

fn read_ns(probed: &Probed) -> f64 {
    let alone = probed.speedup.value.as_ref().and_then(|s| s.iops.first());
    alone.map_or(1e5, |(_, iops)| 1e9 / iops.max(1.0))
}

/// A description with times only.
fn plain(probed: &Probed, name: &str) -> String {
    let read_ns = read_ns(probed).max(1.0) as u64;
    let factor = probed.speedup.value.as_ref().map_or(1.0, |s| s.factor);
    let parallelism = factor.round().clamp(1.0, 64.0) as u64;
    format!(
        "description = \"{name} as probed: nothing inside was to be told apart\"\n\
         interface = \"null\"\n\
         model = \"null\"\n\n\
         [host]\n\
         capacity_bytes = {capacity}\n\
         queue_depth = 1024    # assumed\n\
         queues = 64           # assumed\n\
         max_transfer_kb = 1280 # assumed\n\
         max_segments = 128    # assumed\n\
         fua = true            # assumed\n\
         discard = true        # assumed\n\n\
         [timing]\n\
         read_ns = {read_ns}   # probed: random reads one at a time\n\
         write_ns = {read_ns}  # assumed: as reads\n\
         flush_ns = 0          # assumed\n\
         parallelism = {parallelism} # probed: {seen}\n",
        capacity = probed.capacity_bytes,
        seen = probed.speedup.seen,
    )
}

/// The parts of an SSD that follow from its observed behaviour.
struct Inside {
    channels: u64,
    packages: u64,
    blocks: u64,
    page_kb: u64,
    mapping: &'static str,
    read_us: f64,
    program_us: f64,
    program_source: &'static str,
    buffer_kb: u64,
}

impl Inside {
    fn of(probed: &Probed, chunk: u64, parallel: u64) -> Inside {
        let ranges = match probed.layout.mapping.value {
            Some(Mapping::Ranges(bytes)) => Some((probed.capacity_bytes / bytes.max(1)).max(1)),
            _ => None,
        };
        let channels = ranges.unwrap_or_else(|| channels_of(parallel));
        let packages = (parallel / channels).max(1);
        let page_kb = (chunk >> 10).clamp(4, 64);
        let plane_bytes = probed.capacity_bytes as f64 * SPARE / (channels * packages) as f64;
        let stripe_bytes = (channels * packages * page_kb * 1024) as f64;
        let before_cliff = "probed: from the rate of random writes before the cliff";
        let (program_us, program_source) = match &probed.cliff.value {
            Some(cliff) => (stripe_bytes * 1e6 / cliff.before.max(1.0), before_cliff),
            None => (PROGRAM_US, "assumed"),
        };
        Inside {
            channels,
            packages,
            blocks: (plane_bytes / (PAGES_PER_BLOCK * page_kb * 1024) as f64).ceil() as u64,
            page_kb,
            mapping: ranges.map_or("striped", |_| "ranges"),
            read_us: (read_ns(probed) / 1e3 - CONTROLLER_US - LINK_US).max(1.0),
            program_us,
            program_source,
            buffer_kb: probed.buffer.value.unwrap_or(BUFFER_BYTES).max(1 << 20) >> 10,
        }
    }
}

fn ssd(probed: &Probed, name: &str, chunk: u64, parallel: u64) -> String {
    let layout = &probed.layout;
    let Inside {
        channels,
        packages,
        blocks,
        page_kb,
        mapping,
        read_us,
        program_us,
        program_source,
        buffer_kb,
    } = Inside::of(probed, chunk, parallel);
    let mut text = String::new();
    let _ = write!(
        text,
        "description = \"{name} as probed from outside\"\n\
         interface = \"nvme\" # assumed\n\
         model = \"ssd\"\n\
         state = \"filled\" # assumed: a drive in use\n\n\
         [host]\n\
         capacity_bytes = {capacity}\n\
         queue_depth = {depth} # probed: more gains nothing, doubled\n\
         queues = 64 # assumed\n\
         max_transfer_kb = 512 # assumed\n\
         max_segments = 127 # assumed\n\
         fua = true # assumed\n\
         discard = true # assumed\n\n\
         [link]\n\
         bandwidth_mb_s = 3282 # assumed: PCIe 3.0 x4\n\
         full_duplex = true # assumed\n\
         submit_us = 0.5 # assumed\n\
         complete_us = 0.5 # assumed\n\n\
         [controller]\n\
         read_us = {CONTROLLER_US} # assumed\n\
         write_us = {CONTROLLER_US} # assumed\n\
         interval_us = {interval:.2} # probed: the most random reads a second\n\
         scheduling = \"out_of_order\" # assumed\n\n\
         [geometry]\n\
         channels = {channels} # {parallel_source}: {parallel} chunks in parallel\n\
         packages_per_channel = {packages} # likewise\n\
         dies_per_package = 1 # assumed\n\
         planes_per_die = 1 # assumed\n\
         blocks_per_plane = {blocks} # from the capacity and 8 % to spare\n\
         pages_per_block = {PAGES_PER_BLOCK} # assumed\n\
         page_kb = {page_kb} # {chunk_source}: the chunk\n\n\
         [flash]\n\
         cell = \"slc\" # assumed: one time for all pages\n\
         read_us = [{read_us:.1}] # probed: a read alone, less controller and link\n\
         program_us = [{program_us:.1}] # {program_source}\n\
         erase_us = 5000 # assumed\n\
         interleave = \"die\" # assumed\n\
         multi_plane = \"none\" # assumed\n\n\
         [channel]\n\
         rate_mt_s = 800 # assumed\n\
         codeword_bytes = 4096 # assumed\n\n\
         [ftl]\n\
         map_unit_bytes = 4096 # assumed\n\
         order = \"CWDP\" # assumed\n\
         layout = \"{mapping}\" # {mapping_source}\n\n\
         [write_cache]\n\
         enabled = true # assumed\n\
         size_kb = {buffer_kb} # {buffer_source}\n\
         bandwidth_mb_s = 3000 # assumed\n\
         access_ns = 50 # assumed\n\n\
         [gc]\n\
         policy = \"greedy\" # assumed\n\
         start_blocks = 12 # assumed\n\
         reserve_blocks = 2 # assumed\n\
         preemptible = true # assumed\n",
        capacity = probed.capacity_bytes,
        depth = queue_depth(probed),
        interval = interval_us(probed),
        parallel_source = source(&layout.parallel),
        chunk_source = source(&layout.chunk),
        mapping_source = source(&layout.mapping),
        buffer_source = source(&probed.buffer),
    );
    text
}

/// The number of channels for this many dies: how dies are divided makes little difference to a
/// host, and eight channels are common.
fn channels_of(parallel: u64) -> u64 {
    [8, 4, 2]
        .into_iter()
        .find(|n| parallel.is_multiple_of(*n))
        .unwrap_or(1)
}

fn queue_depth(probed: &Probed) -> usize {
    probed.speedup.value.as_ref().map_or(32, |s| s.depth * 2)
}

fn interval_us(probed: &Probed) -> f64 {
    let most = probed.speedup.value.as_ref();
    let most = most.map(|s| s.iops.iter().map(|(_, iops)| *iops).fold(1.0, f64::max));
    // The controller is not the bottleneck at that rate; it may take as much.
    most.map_or(1.0, |iops| (0.5e6 / iops).max(0.05))
}
