//! blktrace's binary format, with all CPUs in one stream.

use blklab_workload::trace::BlktraceWriter;

use super::{Tool, run::DRIVE};

pub(super) static TOOL: Tool = Tool {
    name: "blktrace",
    help: "blktrace's binary form, for `blkparse -i - < FILE`, `btt -i FILE` and iowatcher",
    render: |_, events| {
        let mut writer = BlktraceWriter::new(Vec::new(), DRIVE);
        for event in events {
            let event = event.map_err(|e| e.to_string())?;
            writer.event(&event).map_err(|e| e.to_string())?;
        }
        writer.finish().map_err(|e| e.to_string())
    },
};
