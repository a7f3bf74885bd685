//! The parts of pages that blocks make, and their tables.

/// The part of a page that a block makes.
#[derive(Default)]
pub struct PagePart {
    /// Markdown.
    pub text: String,
    /// A summary line for each group of rows, for standard output.
    pub groups: Vec<String>,
}

impl PagePart {
    /// Adds what of a set could not be simulated, and why.
    pub fn add_left_out(&mut self, set: &str, left_out: &[String]) {
        if left_out.is_empty() {
            return;
        }
        self.text += "\nNot simulated:\n\n";
        for why in left_out {
            self.text += &format!("- {why}\n");
            self.groups.push(format!("{set} not simulated: {why}"));
        }
    }
}

/// A Markdown table: the first column is aligned left, the others right.
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with these headings.
    pub fn new(head: Vec<String>) -> Table {
        Table {
            head,
            rows: Vec::new(),
        }
    }

    /// Adds a row, which must have one cell for each heading.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.head.len(), "a cell for each heading");
        self.rows.push(cells);
    }

    /// Returns the table as Markdown.
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
