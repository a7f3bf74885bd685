//! tracefs text, as the kernel's `trace` file has it.

use super::Tool;

const HEADER: &str =
    "# tracer: nop\n#\n#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION\n";

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
