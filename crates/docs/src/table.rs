//! Markdown tables.

/// A table: the first column to the left, the others to the right.
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings.
    pub fn new(head: Vec<String>) -> Table {
        Table {
            head,
            rows: Vec::new(),
        }
    }

    /// Adds a row, of as many cells as there are headings.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.head.len(), "a cell for each heading");
        self.rows.push(cells);
    }

    /// As Markdown.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule: Vec<String> = (0..self.head.len())
            .map(|column| if column == 0 { "---" } else { "---:" }.to_string())
            .collect();
        let mut text = line(&self.head) + &line(&rule);
        text.extend(self.rows.iter().map(|row| line(row)));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn a_table_is_markdown() {
        let mut table = Table::new(vec!["job".into(), "MB/s".into()]);
        table.row(vec!["read".into(), "560".into()]);
        assert_eq!(
            table.markdown(),
            "| job | MB/s |\n| --- | ---: |\n| read | 560 |\n"
        );
    }
}
