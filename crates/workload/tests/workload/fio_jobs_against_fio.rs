//! Compares our reading of jobs with that of the installed fio.

use blklab_workload::fio::parse_args;

use super::parse;
use super::{Scratch, have_fio, text};

/// Jobs that both accept.
const TAKEN: &[&str] = &[
    "",
    "rw=randread\nbs=4k\niodepth=32\nioengine=libaio\ndirect=1\nsize=1g",
    "readwrite=randrw:4\nrwmixread=70\nblocksize=8k,16k",
    "bs=4k,8k,\nsize=1m",
    "bs=,8k\nsize=1m",
    "bsrange=1k-4k,4k-64k\nsize=1m",
    "bsrange=64k-4k\nsize=1m",
    "bssplit=4k/60:64k/40,8k\nsize=1m",
    "bssplit=4k/10:64k/50:32k/\nsize=1m",
    "size=50%\noffset=10%\noffset_increment=1m",
    "kb_base=1000\nsize=1MiB",
    "size=1MB\nio_size=4096b\nnumber_ios=1k",
    "runtime=10s\nramp_time=500ms\nstartdelay=1-2\nthinktime=100\ntime_based",
    "runtime=1m\nthinktime=1ms\nthinktime_spin=10us\nthinktime_blocks=4\nthinktime_blocks_type=issue",
    "rate=1m,2m\nrate_process=poisson",
    "rate_iops=1k,,2k",
    "rw=randread\nrandom_distribution=zipf:1.2",
    "rw=randread\nrandom_distribution=pareto:0.9:0.5",
    "rw=randread\nrandom_distribution=normal:20",
    "rw=randread\nrandom_distribution=zoned:60/10:40/90",
    "rw=randread\nrandom_distribution=zoned_abs:60/20g:40/60g",
    "rw=randread\nnorandommap\nrandseed=17\nrandrepeat=0",
    "rw=randread\nnorandommap=0\nsoftrandommap=1\nrandom_generator=lfsr",
    "percentage_random=50,100\nrw=randrw",
    "rw=read:4k\nrw_sequencer=identical",
    "filename=/dev/sda:/dev/sdb\nfile_service_type=random:16",
    "nrfiles=4\nfilename_format=$jobname.$filenum\nfile_service_type=zipf:1.2",
    "ioengine=io_uring\nhipri\nfixedbufs\nregisterfiles=1\nsqthread_poll=1\nsqthread_poll_cpu=1",
    "cmdprio_percentage=20,10\ncmdprio_class=1\ncmdprio=2\nioengine=libaio",
    "ioengine=io_uring\ncmdprio_bssplit=4k/20/1/0:64k/10",
    "prio=4\nprioclass=2\nnice=-5\ncpus_allowed=0\ncpus_allowed_policy=split",
    "cpumask=1\nnumjobs=4\ngroup_reporting\nthread",
    "percentile_list=50:99:99.9\nlat_percentiles=1\nunified_rw_reporting=both",
    "sync=dsync\nfsync=32\nfdatasync=4\nend_fsync=1",
    "write_bw_log\nwrite_lat_log=x\nlog_avg_msec=100",
    "verify=crc32c\nverify_pattern=0xff\ndo_verify=0",
    "verifysort=1",
    "latency_target=10ms\nlatency_window=5s\nlatency_percentile=99.9\nmax_latency=1s",
    "stonewall\nexitall\nexit_what=all\nnew_group=1\nwait_for_previous=0",
    "mem=mmap:/tmp/x\nfadvise_hint=random\nfallocate=none",
    "steadystate=iops_slope:0.3%\nss_dur=10",
    "continue_on_error=all\nunlink=1\ncreate_serialize=0",
    "bs = 4k\nioengine= libaio\ndirect= 1",
    "bs=4k ; a comment\niodepth=2 # another",
    "size=$pagesize*4",
    "hugepage-size=2m\niomem_align=4k\nmem_align=512",
    "io_submit_mode=offload\nserialize_overlap=1\niodepth_batch_submit=4\niodepth_batch_complete=2",
];

/// Jobs that both refuse.
const REFUSED: &[&str] = &[
    "rw=randred",
    "rw = randread",
    "rw",
    "rw=",
    "bs=0",
    "bs=x",
    "bs",
    "bsrange=64k",
    "bssplit=foo",
    "bssplit=4k/60:64k:8k/80:1k",
    "rwmixread=101",
    "iodepth=0",
    "iodepth=x",
    "iodpeth=4",
    "direct=2",
    "direct=yes",
    "direct",
    "thread=x",
    "size=",
    "size",
    "runtime=x",
    "prio=8",
    "prioclass=4",
    "sync=2",
    "fadvise_hint=2",
    "cmdprio=3",
    "hipri",
    "ioengine=libaio\nhipri",
    "random_distribution=zipf:1",
    "random_distribution=zipf:x",
    "random_distribution=pareto:1.5",
    "random_distribution=normal:150",
    "random_distribution=zoned",
    "random_distribution=zoned:50/5:30/15",
    "random_distribution=zoned:50/60:50/60",
    "random_generator=mt19937",
    "file_service_type=zipf:1",
    "percentile_list=x",
    "rwmixcycle=5",
    "percentage_sequential=5",
    "name",
    "filename=",
    "steadystate=iops",
    "io_submit_mode=later",
    "kb_base=1",
    "no_such_option=1",
];

#[test]
fn we_take_and_refuse_what_fio_does() {
    if !have_fio() {
        return;
    }
    let scratch = Scratch::new();
    // fio is started once for all jobs that it accepts, as starting it takes most of the time.
    let all: String = TAKEN
        .iter()
        .enumerate()
        .map(|(i, options)| format!("[a{i}]\n{options}\n"))
        .collect();
    scratch.write("taken.fio", &all);
    let output = scratch.fio(&["--parse-only", "taken.fio"]);
    assert!(output.status.success(), "fio: {}", text(&output));
    for options in TAKEN {
        let ours = parse(&format!("[a]\n{options}\n"));
        assert!(ours.is_ok(), "we refuse {options}: {ours:?}");
    }
    for options in REFUSED {
        let job = format!("[a]\n{options}\n");
        scratch.write("t.fio", &job);
        let output = scratch.fio(&["--parse-only", "t.fio"]);
        assert!(!output.status.success(), "fio takes {options}");
        assert!(parse(&job).is_err(), "we take {options}");
    }
}

/// Jobs that fio refuses only when it runs them.
const REFUSED_TO_RUN: &[&str] = &[
    "bs=16k\nsize=8k",
    "rate=1m\nrate_iops=100",
    "rate=1m\nrate_min=2m",
    "rate_iops=10\nrate_iops_min=20",
    "zonesize=1m",
    "zonemode=strided",
    "wait_for=b",
    "wait_for=a",
];

#[test]
fn we_refuse_what_fio_does_not_run() {
    if !have_fio() {
        return;
    }
    let scratch = Scratch::new();
    for (options, runs) in REFUSED_TO_RUN
        .iter()
        .map(|options| (*options, false))
        .chain([("bs=4k", true), ("rate_iops=100000", true)])
    {
        let job = format!("[a]\nioengine=null\nsize=64k\n{options}\n");
        scratch.write("t.fio", &job);
        let output = scratch.fio(&["t.fio"]);
        assert_eq!(
            output.status.success(),
            runs,
            "fio: {options}: {}",
            text(&output)
        );
        assert_eq!(parse(&job).is_ok(), runs, "ours: {options}");
    }
}

#[test]
fn we_take_fios_command_line_as_it_does() {
    if !have_fio() {
        return;
    }
    let scratch = Scratch::new();
    for (line, taken) in [
        ("--name=a --rw=randread --bs=4k", true),
        ("--bs=4k --name=a --name=b --norandommap", true),
        ("--name=a --runt=10", true),
        ("-name a -rw=randread --size 4k", true),
        ("--name=a --rand=10", false),
        ("--name=a --rw", false),
        ("--name=a --foo=3", false),
        ("--name=a --rw=randred", false),
        ("--name=a --ioengine=libaio --cmdprio_percentage=10", true),
        ("--name=a --cmdprio_percentage=10", false),
        ("--name=a --readonly --max-jobs=3", true),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let mut fio = vec!["--parse-only"];
        fio.extend(&words);
        let output = scratch.fio(&fio);
        assert_eq!(
            output.status.success(),
            taken,
            "fio: {line}: {}",
            text(&output)
        );
        let words: Vec<String> = words.into_iter().map(str::to_string).collect();
        assert_eq!(parse_args(&words, &|_| None).is_ok(), taken, "ours: {line}");
    }
}
