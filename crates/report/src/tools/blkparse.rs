//! blkparse's text, without the summary at its end.

use blklab_workload::trace::BlkparseWriter;

use super::{Tool, run::DRIVE};

pub(super) static TOOL: Tool = Tool {
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
