//! The formats in which tracefs, blktrace and blkparse give events themselves.

use blklab_workload::trace::tracefs::HEADER;
use blklab_workload::trace::{BlkparseWriter, BlktraceWriter};

use super::{Tool, run::DRIVE};

/// tracefs text, as in the kernel's `trace` file.
pub(super) static TRACEFS: Tool = Tool {
    name: "text",
    help: "tracefs text, which `compare`, `run` and `replay` read",
    render: |_, events| {
        let mut text = HEADER.to_string();
        for event in events {
            let event = event.map_err(|e| e.to_string())?;
            text.push_str(&format!("{event}\n"));
        }
        Ok(text.into_bytes())
    },
};

/// blktrace's binary format, with all CPUs in one stream.
pub(super) static BLKTRACE: Tool = Tool {
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

/// blkparse's text, without the summary at its end.
pub(super) static BLKPARSE: Tool = Tool {
    name: "blkparse",
    help: "what blkparse -q prints",
    render: |_, events| {
        let mut writer = BlkparseWriter::new(Vec::new(), DRIVE);
        for event in events {
            let event = event.map_err(|e| e.to_string())?;
            writer.event(&event).map_err(|e| e.to_string())?;
        }
        Ok(writer.finish())
    },
};
