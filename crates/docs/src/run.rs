//! Tables of single runs, from the JSON that `blklab run` prints as fio does.

use serde::Deserialize;
use serde_json::Value;

use crate::part::{PagePart, Table};
use crate::program::Program;

/// A table with a row for each run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Block {
    /// The command's arguments; `JOB` stands for a row's job.
    command: String,
    /// The jobs, by name or as fio's options.
    rows: Vec<String>,
    /// The labels of the rows.
    labels: Vec<String>,
    /// The figures of each run.
    columns: Vec<Column>,
}

/// A figure of each run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Column {
    title: String,
    /// Where it is in the JSON (RFC 6901), such as `/jobs/0/sys_cpu`.
    pointer: String,
    #[serde(default)]
    decimals: usize,
    /// The same of each row in the document from which the job is taken, and its place there.
    document: Option<Document>,
}

/// Figures of a document.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    place: String,
    values: Vec<String>,
}

impl Block {
    /// Makes all runs.
    ///
    /// # Errors
    /// If a run fails, its JSON lacks a figure, or the document has not one for each row.
    pub fn make(&self, program: &Program) -> Result<PagePart, String> {
        let mut head = vec!["job".to_string()];
        for column in &self.columns {
            head.push(column.title.clone());
            if let Some(document) = &column.document {
                head.push(format!("the document ({})", document.place));
            }
        }
        let mut table = Table::new(head);
        for (n, (job, label)) in self.rows.iter().zip(&self.labels).enumerate() {
            let run: Value = program.json(&self.command.replace("JOB", job))?;
            let mut row = vec![label.clone()];
            for column in &self.columns {
                row.extend(column.cells(&run, n).map_err(|e| format!("{label}: {e}"))?);
            }
            table.row(row);
        }
        Ok(PagePart {
            text: format!("    blklab {}\n\n{}", self.command, table.markdown()),
            groups: Vec::new(),
        })
    }
}

impl Column {
    /// The cells of the n-th row.
    fn cells(&self, run: &Value, n: usize) -> Result<Vec<String>, String> {
        let value = run.pointer(&self.pointer).and_then(Value::as_f64);
        let value = value.ok_or_else(|| format!("the run has no {}", self.pointer))?;
        let mut cells = vec![format!("{value:.*}", self.decimals)];
        if let Some(document) = &self.document {
            let there = document.values.get(n);
            cells.push(there.ok_or("the document has no figure for it")?.clone());
        }
        Ok(cells)
    }
}

#[cfg(test)]
mod tests {
    use super::{Column, Document};

    #[test]
    fn a_figure_stands_beside_the_documents() {
        let run = serde_json::json!({"jobs": [{"sys_cpu": 41.44}]});
        let column = |pointer: &str| Column {
            title: String::new(),
            pointer: pointer.to_string(),
            decimals: 1,
            document: Some(Document {
                place: "p. 1".to_string(),
                values: vec!["42".to_string()],
            }),
        };
        let sys = column("/jobs/0/sys_cpu");
        assert_eq!(sys.cells(&run, 0), Ok(vec!["41.4".into(), "42".into()]));
        assert!(sys.cells(&run, 1).is_err(), "a row without a figure there");
        assert!(column("/jobs/1/sys_cpu").cells(&run, 0).is_err());
    }
}
