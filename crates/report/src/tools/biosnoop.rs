//! biosnoop of bcc: a line for each completed request.

use blklab_blk::Op;

use super::requests::{EndedRequest, Requests};
use super::{Source, Tool};

pub(super) static TOOL: Tool = Tool {
    name: "biosnoop",
    help: "biosnoop -Q of bcc: a line a request, with its time in the queue and in the drive",
    render: |source, events| {
        let mut text = format!(
            "{:<11} {:<14} {:<7} {:<9} {:<1} {:<10} {:<7}{:>7} {:>7}\n",
            "TIME(s)", "COMM", "PID", "DISK", "T", "SECTOR", "BYTES", "QUE(ms)", "LAT(ms)"
        );
        let mut requests = Requests::default();
        let mut first_ns = None;
        for event in events {
            let event = event.map_err(|e| e.to_string())?;
            // The kernel's accounting does not count flushes of the write-back cache as
            // I/O, and biosnoop sees no issue of a write that only flushes.
            let ended = requests.event(&event);
            let ended = ended.filter(|ended| ended.op != Some(Op::Flush));
            let Some((ended, issued_ns)) = ended.and_then(|ended| {
                let issued_ns = ended.issued_ns?;
                Some((ended, issued_ns))
            }) else {
                continue;
            };
            let first_ns = *first_ns.get_or_insert(ended.ended_ns);
            text.push_str(&line(source, &ended, issued_ns, first_ns));
        }
        Ok(text.into_bytes())
    },
};

fn line(source: &Source<'_>, ended: &EndedRequest, issued_ns: u64, first_ns: u64) -> String {
    let ms = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e6;
    // biosnoop distinguishes writes only, and shows everything else as reads.
    let direction = match ended.op {
        Some(Op::Write) => 'W',
        _ => 'R',
    };
    format!(
        "{:<11.6} {:<14.14} {:<7} {:<9} {direction} {:<10} {:<7}{:>7.2} {:>7.2}\n",
        ended.ended_ns.saturating_sub(first_ns) as f64 / 1e9,
        ended.comm,
        ended.pid,
        source.drive_name(ended.dev),
        ended.sector.0,
        ended.bytes,
        ms(ended.made_ns, issued_ns),
        ms(issued_ns, ended.ended_ns),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use blklab_workload::trace::tracefs::events;

    #[test]
    fn a_line_is_laid_out_as_bcc_does() {
        let text = "\
 fio-7 [001] ..... 1.000000000: block_getrq: 259,0 WS 800 + 8 [fio]
 fio-7 [001] ..... 1.001000000: block_rq_issue: 259,0 WS 4096 () 800 + 8 none,0,0 [fio]
 i-0 [001] d.h.. 1.003500000: block_rq_complete: 259,0 WS () 800 + 8 none,0,0 [0]
 fio-7 [001] ..... 2.000000000: block_rq_issue: 259,0 FF 0 () 0 + 0 none,0,0 [fio]
 i-0 [001] d.h.. 2.000100000: block_rq_complete: 259,0 FF () 0 + 0 none,0,0 [0]
";
        let source = Source {
            drives: &["nvme0n1".to_string()],
            cpus: None,
        };
        let printed = TOOL.render(&source, &mut events(text, "memory")).unwrap();
        assert_eq!(
            String::from_utf8(printed).unwrap(),
            "TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  QUE(ms) LAT(ms)\n\
             0.000000    fio            7       nvme0n1   W 800        4096      1.00    2.50\n"
        );
    }
}
