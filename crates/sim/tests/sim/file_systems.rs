//! Jobs on files of a file system, checked by what must add up and by what Linux does.

use blklab_sim::{Caching, FileSystemKind, Workload};
use blklab_stats::{CacheStats, Results};

use crate::{On, job_file};

const KINDS: [FileSystemKind; 2] = [FileSystemKind::Ext2, FileSystemKind::Vfat];

fn run(kind: FileSystemKind, text: &str) -> Results {
    let on = On {
        machine: "generic-8",
        drive: "nvme",
        scheduler: "none",
    };
    let caching = Caching {
        file_system: kind,
        ..Caching::default()
    };
    on.run_with(Workload::Job(&job_file(text)), caching)
        .unwrap_or_else(|e| panic!("{e}"))
}

fn cache(results: &Results) -> &CacheStats {
    results.page_cache.as_ref().expect("it was used")
}

/// Sectors of reads and writes.
fn sectors(results: &Results) -> [u64; 2] {
    let sectors = results.disks[0].queue.sectors;
    [sectors[0], sectors[1]]
}

#[test]
fn a_file_costs_more_reads_than_its_data() {
    for kind in KINDS {
        let results = run(kind, "[a]\nrw=read\nbs=64k\nsize=16m\n");
        assert_eq!(results.jobs[0].read.bytes, 16 << 20, "{kind:?}");
        let data = (16 << 20) / 512;
        let blocks = cache(&results).blocks_read;
        assert!(blocks > 3, "{kind:?}: root, inode and map, {blocks}");
        let block_sectors = match kind {
            FileSystemKind::Vfat => 1,
            _ => 8,
        };
        assert_eq!(
            sectors(&results)[0],
            data + blocks * block_sectors,
            "{kind:?}"
        );
    }
}

#[test]
fn every_engine_reads_and_writes_files() {
    for kind in KINDS {
        for engine in ["psync", "libaio", "posixaio", "io_uring"] {
            for direct in [0, 1] {
                let text = format!(
                    "[global]\nioengine={engine}\niodepth=8\nrw=randrw\nbs=4k\nsize=4m\n\
                     nrfiles=2\nnumber_ios=300\nend_fsync=1\ndirect={direct}\n[a]\n[b]\n"
                );
                let results = run(kind, &text);
                let ios: u64 = results.jobs.iter().map(|j| j.read.ios + j.write.ios).sum();
                assert_eq!(ios, 600, "{kind:?} {engine} direct={direct}");
                let errors: Vec<_> = results.jobs.iter().map(|job| job.error).collect();
                assert_eq!(errors, [0, 0], "{kind:?} {engine} direct={direct}");
                let counts = cache(&results);
                assert!(
                    counts.blocks_written > 0,
                    "{kind:?} {engine} direct={direct}"
                );
                assert_eq!(counts.read_pages > 0, direct == 0);
            }
        }
    }
}

/// What is written to a new file needs blocks: bitmaps and maps change, and are written
/// when somebody waits for them.
#[test]
fn a_new_file_gets_blocks_as_it_is_written() {
    for kind in KINDS {
        let text = "[a]\nrw=write\nbs=64k\nsize=8m\ncreate_on_open=1\nend_fsync=1\n";
        let results = run(kind, text);
        assert_eq!(results.jobs[0].write.bytes, 8 << 20, "{kind:?}");
        let counts = cache(&results);
        assert!(counts.blocks_written > 0, "{kind:?}: {counts:?}");
        let [_, written] = sectors(&results);
        assert!(written >= (8 << 20) / 512, "{kind:?}");
        let synced = run(kind, &format!("{text}fsync=1\n"));
        assert!(
            cache(&synced).blocks_written > 10 * counts.blocks_written,
            "{kind:?}: each fsync writes the map again: {} and {}",
            cache(&synced).blocks_written,
            counts.blocks_written
        );
    }
}

#[test]
fn a_run_on_files_is_repeatable() {
    let text = "[a]\nrw=randrw\nbs=4k\nsize=8m\nfsync=8\nnumjobs=3\nnumber_ios=400\nunlink=1\n";
    for kind in KINDS {
        let once = || format!("{:?}", run(kind, text));
        assert_eq!(once(), once(), "{kind:?}");
    }
}

/// A mapped file is read around its faults, each page once; what is written through the
/// mapping is written back.
#[test]
fn a_mapped_file_is_read_and_written_by_pages() {
    for kind in [
        FileSystemKind::Raw,
        FileSystemKind::Ext2,
        FileSystemKind::Vfat,
    ] {
        let results = run(kind, "[a]\nioengine=mmap\nrw=read\nbs=4k\nsize=8m\n");
        assert_eq!(results.jobs[0].read.bytes, 8 << 20, "{kind:?}");
        let [read, _] = sectors(&results);
        let data = (8 << 20) / 512;
        assert!((data..data + 2048).contains(&read), "{kind:?}: {read}");
        let requests = results.disks[0].queue.ios[0];
        assert!(requests < 300, "{kind:?}: read ahead, {requests}");
        let text = "[a]\nioengine=mmap\nrw=randrw\nbs=4k\nsize=4m\nend_fsync=1\n";
        let results = run(kind, text);
        let counts = cache(&results);
        let written = results.jobs[0].write.ios;
        assert!(counts.dirtied_pages >= written, "{kind:?}: {counts:?}");
        assert!(sectors(&results)[1] >= written * 8, "{kind:?}: {counts:?}");
    }
}
