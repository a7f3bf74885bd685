//! Jobs whose I/O goes through the page cache, checked by what must add up and by what
//! Linux does.

use blklab_blk::Nanos;
use blklab_sim::{Caching, FileSystemKind, Workload};
use blklab_stats::{CacheStats, Results};

use crate::{On, job_file};

const PAGE: u64 = 4096;

fn run(on: On<'_>, text: &str, caching: Caching) -> Results {
    on.run_with(Workload::Job(&job_file(text)), caching)
        .unwrap_or_else(|e| panic!("{e}"))
}

fn on<'a>(machine: &'a str, drive: &'a str) -> On<'a> {
    On {
        machine,
        drive,
        scheduler: "mq-deadline",
    }
}

fn nvme(text: &str) -> Results {
    run(on("generic-8", "nvme"), text, Caching::default())
}

fn cache(results: &Results) -> &CacheStats {
    results.page_cache.as_ref().expect("it was used")
}

/// Requests of reads and writes.
fn requests(results: &Results) -> [u64; 2] {
    let ios = results.disks[0].queue.ios;
    [ios[0], ios[1]]
}

#[test]
fn readahead_makes_few_requests_of_many_reads() {
    let text = "[a]\nfilename=/dev/x\nrw=read\nbs=4k\nsize=16m\n";
    let bandwidth = |read_ahead_kb| {
        let caching = Caching {
            read_ahead_kb,
            ..Caching::default()
        };
        let results = run(on("i7-3770k", "mx100-256"), text, caching);
        let read = &results.jobs[0].read;
        assert_eq!(read.bytes, 16 << 20);
        let bandwidth = read.bytes as f64 / read.runtime_ns as f64;
        (bandwidth, requests(&results)[0], cache(&results).clone())
    };
    let (without, single, _) = bandwidth(0);
    let (with, merged, counts) = bandwidth(128);
    assert_eq!(single, 4096, "each page alone");
    // fio has told that it reads in order, which doubles the window to 64 pages.
    assert!(merged <= 4096 / 64 + 8, "{merged}");
    // The drive reads ahead in any case.
    assert!(with > 2.5 * without, "{with} with it, {without} without");
    assert_eq!(counts.read_pages, 4096);
    // The first page is what the first call asks for.
    assert_eq!(counts.readahead_used, 4095);
    assert!(counts.hits > 3900, "{counts:?}");
}

#[test]
fn what_is_cached_is_read_once_unless_it_is_dropped() {
    // The last close of a block device drops its pages too, and a mount holds it open.
    let (raw, ext2) = (FileSystemKind::Raw, FileSystemKind::Ext2);
    for (file, option, file_system, times) in [
        ("filename_format=x", "invalidate=0", raw, 1),
        ("filename_format=x", "invalidate=1", raw, 2),
        ("filename=/dev/x", "invalidate=0", raw, 2),
        ("filename=/dev/x", "invalidate=0", ext2, 1),
    ] {
        let text =
            format!("[global]\n{file}\nrw=read\nbs=16k\nsize=8m\n[a]\n[b]\nstonewall\n{option}\n");
        let caching = Caching {
            file_system,
            ..Caching::default()
        };
        let results = run(on("generic-8", "nvme"), &text, caching);
        let sectors = results.disks[0].queue.sectors[0];
        let once = (8 << 20) / 512;
        // Each job may have two windows read beyond the end of its part.
        let most = times * once + 4 * 512;
        assert!((times * once..=most).contains(&sectors), "{sectors}");
    }
}

#[test]
fn a_file_that_was_read_before_costs_no_request_later() {
    let text = "[a]\nsize=4m\nbs=4k\nrw=randread\npre_read=1\n";
    let results = nvme(text);
    let counts = cache(&results);
    assert_eq!(results.jobs[0].read.ios, 1024);
    assert_eq!(counts.read_pages, 2048, "{counts:?}");
    assert_eq!(results.disks[0].queue.sectors[0], (4 << 20) / 512);
}

/// fio takes its CPU time from where the job begins, after `pre_read`.
#[test]
fn what_reads_files_first_is_no_part_of_the_job() {
    let text = "[a]\nsize=4m\nbs=4k\nrw=randread\npre_read=1\n";
    let results = run(on("i7-3770k", "mx100-256"), text, Caching::default());
    let (cpu, runtime_ns) = (&results.jobs[0].cpu, results.jobs[0].read.runtime_ns);
    assert_eq!(cpu.context_switches, 0, "all is cached: {cpu:?}");
    let busy_ns = cpu.user_ns + cpu.system_ns;
    assert!(
        (runtime_ns * 9 / 10..=runtime_ns).contains(&busy_ns),
        "{cpu:?} of {runtime_ns}"
    );
}

#[test]
fn every_engine_reads_and_writes_the_same_pages() {
    for engine in [
        "sync", "psync", "vsync", "pvsync2", "libaio", "posixaio", "io_uring",
    ] {
        for machine in ["generic-8", "i7-3770k"] {
            let text = format!(
                "[global]\nioengine={engine}\niodepth=8\nrw=randrw\nbs=4k\nsize=8m\nnrfiles=2\n\
                 filename_format=f.$filenum\nnumber_ios=600\nnorandommap\nend_fsync=1\n\
                 [a]\n[b]\n"
            );
            let results = run(on(machine, "nvme"), &text, Caching::default());
            let ios: u64 = results.jobs.iter().map(|j| j.read.ios + j.write.ios).sum();
            assert_eq!(ios, 1200, "{engine} on {machine}");
            let reads: u64 = results.jobs.iter().map(|j| j.read.ios).sum();
            let counts = cache(&results);
            assert_eq!(counts.read_pages, reads, "{engine} on {machine}");
            assert_eq!(counts.dirtied_pages, counts.written_pages, "{engine}");
            assert_eq!(
                results.disks[0].queue.sectors[1] * 512,
                counts.written_pages * PAGE
            );
        }
    }
}

/// Of a page that is written in part the rest is read first, once.
#[test]
fn a_page_written_in_part_is_read_first() {
    let results = nvme("[a]\nfilename=/dev/x\nrw=write\nbs=1k\nsize=1m\nend_fsync=1\n");
    assert_eq!(results.disks[0].queue.sectors, [2048, 2048, 0, 0]);
    let results = nvme("[a]\nfilename=/dev/x\nrw=write\nbs=4k\nsize=1m\nend_fsync=1\n");
    assert_eq!(results.disks[0].queue.sectors, [0, 2048, 0, 0]);
}

/// Writers are held back before more is dirty than may be, and then write as fast as
/// the drive does.
#[test]
fn dirty_memory_stays_below_its_limit() {
    let mut caching = Caching::default();
    caching.set("vm.dirty_bytes", "33554432").expect("legal");
    caching
        .set("vm.dirty_background_bytes", "16777216")
        .expect("legal");
    let text = "[a]\nfilename=/dev/x\nrw=write\nbs=64k\nsize=4g\nruntime=4\ntime_based\n";
    for machine in ["generic-8", "i7-3770k"] {
        let results = run(on(machine, "mx100-256"), text, caching);
        let counts = cache(&results);
        let slack = 4 << 20;
        assert!(counts.dirty_max_bytes <= (32 << 20) + slack, "{counts:?}");
        assert!(counts.throttled_ns > 1_000_000_000, "{counts:?}");
        assert!(
            counts.flusher_pages > counts.dirtied_pages / 2,
            "{counts:?}"
        );
        let behind = (counts.dirtied_pages - counts.written_pages) * PAGE;
        assert!(behind <= (32 << 20) + slack, "{counts:?}");
    }
}

/// The flusher's pages are among those that were written, whenever a run is looked at: at its
/// end, and at that of its ramp time, some are under way.
#[test]
fn the_flusher_has_not_written_more_than_was_written() {
    let mut caching = Caching {
        file_system: FileSystemKind::Ext2,
        ..Caching::default()
    };
    caching.set("vm.dirty_bytes", "67108864").expect("legal");
    let text = "[a]\nrw=write\nbs=64k\nsize=4g\nruntime=1\ntime_based\n";
    for more in ["", "ramp_time=1s\n"] {
        let text = text.to_string() + more;
        let results = run(on("generic-8", "mx100-256"), &text, caching);
        let counts = cache(&results);
        assert!(counts.flusher_pages > 10_000, "{counts:?}");
        assert!(counts.flusher_pages <= counts.written_pages, "{counts:?}");
    }
}

/// A small file that is read again and again beside one that is read once through: by
/// generations more of it stays cached than by an active and an inactive list.
#[test]
fn reclaim_is_by_the_chosen_policy() {
    let text = "[global]\nfilename=/dev/x\nbs=4k\ntime_based\nruntime=4\n[hot]\nrw=randread\n\
                size=48m\nrandom_distribution=zipf:1.1\n[scan]\nrw=read\noffset=1g\nsize=8g\n";
    let hits = |enabled: &str| {
        let mut caching = Caching::default().with_memory(64 << 20).expect("legal");
        caching.set("mm.lru_gen.enabled", enabled).expect("legal");
        let results = run(on("i7-3770k", "mx100-256"), text, caching);
        let counts = cache(&results).clone();
        assert!(counts.evicted_pages > 100_000, "{counts:?}");
        results.jobs[0].read.ios
    };
    let (classic, generations) = (hits("n"), hits("y"));
    assert!(
        generations > classic * 21 / 20,
        "{generations} reads, not {classic}"
    );
}

/// A flusher that looks for old pages every second writes those of a slow writer; one
/// that never looks does not.
#[test]
fn the_flusher_writes_what_is_old() {
    let written = |interval: &str| {
        let mut caching = Caching::default();
        caching
            .set("vm.dirty_expire_centisecs", "100")
            .expect("legal");
        caching
            .set("vm.dirty_writeback_centisecs", interval)
            .expect("legal");
        let text = "[a]\nfilename=/dev/x\nrw=randwrite\nbs=4k\nsize=64m\nrate_iops=100\n\
                    runtime=20\ntime_based\n";
        let results = run(on("generic-8", "nvme"), text, caching);
        cache(&results).flusher_pages
    };
    let often = written("100");
    assert!(often > 1_500, "{often}");
    assert_eq!(written("0"), 0);
}

#[test]
fn calls_that_sync_leave_nothing_dirty() {
    let writes = "[a]\nsize=4m\nrw=randwrite\nbs=4k\nnumber_ios=256\n";
    for (option, flushes) in [
        ("fsync=1", 256),
        ("fdatasync=1", 256),
        ("sync=1", 256),
        ("sync=dsync", 256),
        ("fsync_on_close=1", 1),
        ("sync_file_range=write,wait_after:1", 0),
    ] {
        let results = nvme(&format!("{writes}{option}\n"));
        let counts = cache(&results);
        let queue = &results.disks[0].queue;
        // fio does not sync behind the last write.
        let left = counts.dirtied_pages - counts.written_pages;
        assert!(left <= 1, "{option}: {counts:?}");
        let off = u64::abs_diff(flushes, queue.ios[3]);
        assert!(off <= 1, "{option}: {:?}", queue.ios);
    }
}

#[test]
fn memory_that_is_short_evicts_what_was_read() {
    let caching = Caching::default().with_memory(32 << 20).expect("legal");
    let text = "[a]\nfilename=/dev/x\nrw=read\nbs=64k\nsize=128m\n[b]\nfilename=/dev/x\n\
                stonewall\ninvalidate=0\nrw=randread\nbs=4k\nsize=128m\nnumber_ios=2000\n";
    let results = run(on("generic-8", "nvme"), text, caching);
    let counts = cache(&results);
    assert!(counts.evicted_pages > (96 << 20) / PAGE, "{counts:?}");
    let most = counts
        .samples
        .iter()
        .map(|sample| sample.cached_bytes)
        .max();
    assert!(most <= Some(32 << 20), "{most:?}");
    assert!(counts.misses > 1000, "{counts:?}");
}

/// A write of a file that others write too waits for its lock; of a block device there
/// is none.
#[test]
fn writers_of_a_file_take_turns() {
    let text = |file: &str| {
        format!("[global]\n{file}\nrw=randwrite\nbs=2k\nsize=64m\nnumber_ios=100\n[a]\nnumjobs=8\n")
    };
    let elapsed = |file| nvme(&text(file)).elapsed_ns;
    let (file, device) = (
        elapsed("filename_format=shared"),
        elapsed("filename=/dev/x"),
    );
    assert!(file > 3 * device, "{file} and {device}");
}

#[test]
fn the_same_run_twice_is_the_same() {
    let text = "[global]\nfilename=/dev/x\nrw=randrw\nbs=6k\nsize=32m\nruntime=1\ntime_based\n\
                [a]\nnumjobs=3\n[b]\nioengine=io_uring\niodepth=4\n[c]\nioengine=libaio\niodepth=4\n";
    let once = || {
        format!(
            "{:?}",
            run(on("i7-3770k", "mx100-256"), text, Caching::default())
        )
    };
    assert_eq!(once(), once());
}

#[test]
fn a_loss_of_power_takes_the_page_cache_with_it() {
    let job = job_file("[a]\nfilename=/dev/x\nrw=write\nsize=1m\n");
    let error = on("generic-8", "nvme").lose_power(&job, Nanos::from_millis(1));
    let error = error.expect_err("refused").to_string();
    assert!(
        error.starts_with("t.fio:1: job a: a loss of power"),
        "{error}"
    );
}
