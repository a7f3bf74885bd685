//! tracefs text, as in the kernel's `trace` file.

use blklab_workload::trace::tracefs::HEADER;

use super::Tool;

pub(super) static TOOL: Tool = Tool {
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
