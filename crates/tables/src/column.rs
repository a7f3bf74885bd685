//! `Table`: columns of numbers and of text.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::panic::resume_unwind;

/// Rows that are added to all columns before the next ones, so that they stay in the CPU's
/// cache.
const ROWS_IN_CACHE: usize = 1024;

/// Of fewer rows one thread makes all columns sooner than others have begun.
const ROWS_FOR_THREADS: usize = 100_000;

/// The declaration of a column for rows `R`.
pub struct Declared<R> {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) meaning: &'static str,
    pub(crate) of: Of<R>,
}

/// How a row's value in a column is computed; `None` is a missing value.
pub(crate) enum Of<R> {
    Integer(fn(&R) -> Option<u64>),
    Number(fn(&R) -> Option<f64>),
    Text(fn(&R) -> Option<&str>),
}

impl<R> Declared<R> {
    /// A column of whole numbers.
    pub(crate) fn integer(
        name: &'static str,
        unit: &'static str,
        meaning: &'static str,
        of: fn(&R) -> Option<u64>,
    ) -> Declared<R> {
        Declared {
            name,
            unit,
            meaning,
            of: Of::Integer(of),
        }
    }

    /// A column of numbers.
    pub(crate) fn number(
        name: &'static str,
        unit: &'static str,
        meaning: &'static str,
        of: fn(&R) -> Option<f64>,
    ) -> Declared<R> {
        Declared {
            name,
            unit,
            meaning,
            of: Of::Number(of),
        }
    }

    /// A column of text.
    pub(crate) fn text(
        name: &'static str,
        meaning: &'static str,
        of: fn(&R) -> Option<&str>,
    ) -> Declared<R> {
        Declared {
            name,
            unit: "",
            meaning,
            of: Of::Text(of),
        }
    }

    /// Returns its name, unit and meaning for the reference.
    pub(crate) fn described(&self) -> [&'static str; 3] {
        [self.name, self.unit, self.meaning]
    }

    /// Returns an empty column with capacity for this many rows.
    fn column(&self, rows: usize) -> Column {
        let values = match self.of {
            Of::Integer(_) => Values::Integers(Numbers::with_capacity(rows)),
            Of::Number(_) => Values::Numbers(Numbers::with_capacity(rows)),
            Of::Text(_) => Values::Texts(Texts {
                of: Numbers::with_capacity(rows),
                ..Texts::default()
            }),
        };
        Column {
            name: self.name.to_string(),
            unit: self.unit,
            values,
        }
    }

    /// Appends rows to a column that [`Declared::column`] made.
    fn append(&self, column: &mut Column, rows: &[R]) {
        match (&self.of, &mut column.values) {
            (Of::Integer(of), Values::Integers(column)) => column.extend(rows.iter().map(of)),
            (Of::Number(of), Values::Numbers(column)) => column.extend(rows.iter().map(of)),
            (Of::Text(of), Values::Texts(column)) => column.extend(rows.iter().map(of)),
            _ => {}
        }
    }
}

/// Numbers, some of which may be missing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Numbers<T> {
    /// The values by row; 0 for a missing one.
    pub(crate) values: Vec<T>,
    /// Whether the value of a row is missing; ends with the last missing value.
    pub(crate) missing: Vec<bool>,
}

impl<T: Default> Numbers<T> {
    fn with_capacity(rows: usize) -> Numbers<T> {
        Numbers {
            values: Vec::with_capacity(rows),
            missing: Vec::new(),
        }
    }

    fn push(&mut self, value: Option<T>) {
        if value.is_none() {
            self.missing.resize(self.values.len(), false);
            self.missing.push(true);
        }
        self.values.push(value.unwrap_or_default());
    }
}

impl<T> Numbers<T> {
    pub(crate) fn is_missing(&self, row: usize) -> bool {
        self.missing.get(row).copied().unwrap_or(false)
    }
}

impl<T: Default> FromIterator<Option<T>> for Numbers<T> {
    fn from_iter<I: IntoIterator<Item = Option<T>>>(values: I) -> Numbers<T> {
        let mut numbers = Numbers::default();
        numbers.extend(values);
        numbers
    }
}

impl<T: Default> Extend<Option<T>> for Numbers<T> {
    fn extend<I: IntoIterator<Item = Option<T>>>(&mut self, values: I) {
        values.into_iter().for_each(|value| self.push(value));
    }
}

/// Texts, with each different one stored once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Texts {
    pub(crate) words: Vec<String>,
    /// The index of each text in `words`.
    place: HashMap<String, u32>,
    /// The index in `words` of the text of each row.
    pub(crate) of: Numbers<u32>,
}

impl Texts {
    fn push(&mut self, text: Option<&str>) {
        let place = text.map(|text| self.place_of(text));
        self.of.push(place);
    }

    /// Returns the index of a text in `words`; a new text is added.
    fn place_of(&mut self, text: &str) -> u32 {
        // Most rows have the same text as the row before.
        if let Some(&last) = self.of.values.last()
            && self
                .words
                .get(last as usize)
                .is_some_and(|word| word == text)
        {
            return last;
        }
        if let Some(place) = self.place.get(text) {
            return *place;
        }
        let place = self.words.len() as u32;
        self.words.push(text.to_string());
        self.place.insert(text.to_string(), place);
        place
    }

    /// Returns the text of a row.
    pub(crate) fn get(&self, row: usize) -> Option<&str> {
        match self.of.is_missing(row) {
            true => None,
            false => Some(&self.words[self.of.values[row] as usize]),
        }
    }
}

impl<'a> Extend<Option<&'a str>> for Texts {
    fn extend<I: IntoIterator<Item = Option<&'a str>>>(&mut self, values: I) {
        values.into_iter().for_each(|text| self.push(text));
    }
}

/// The values of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Whole numbers.
    Integers(Numbers<u64>),
    /// Numbers.
    Numbers(Numbers<f64>),
    /// Texts.
    Texts(Texts),
}

impl Values {
    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        match self {
            Values::Integers(numbers) => numbers.values.len(),
            Values::Numbers(numbers) => numbers.values.len(),
            Values::Texts(texts) => texts.of.values.len(),
        }
    }

    /// Returns whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the value of a row as JSON; null if it is missing.
    pub fn json(&self, row: usize) -> serde_json::Value {
        match self {
            Values::Integers(numbers) if !numbers.is_missing(row) => numbers.values[row].into(),
            Values::Numbers(numbers) if !numbers.is_missing(row) => numbers.values[row].into(),
            Values::Texts(texts) => texts.get(row).into(),
            Values::Integers(_) | Values::Numbers(_) => serde_json::Value::Null,
        }
    }

    /// Adds a row with a value from [`Values::json`]; a value of another type is stored as
    /// missing.
    pub fn push_json(&mut self, value: Option<&serde_json::Value>) {
        match self {
            Values::Integers(numbers) => numbers.push(value.and_then(|value| value.as_u64())),
            Values::Numbers(numbers) => numbers.push(value.and_then(|value| value.as_f64())),
            Values::Texts(texts) => texts.push(value.and_then(|value| value.as_str())),
        }
    }
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Its name, unique in its table.
    pub name: String,
    /// Its unit; empty for texts and plain numbers.
    pub unit: &'static str,
    /// Its values by row.
    pub values: Values,
}

/// Columns of the same length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// The columns.
    pub columns: Vec<Column>,
}

/// The declared columns, for these rows.
fn columns_of<R>(declared: &[Declared<R>], rows: &[R]) -> Vec<Column> {
    let columns = declared.iter().map(|declared| declared.column(rows.len()));
    let mut columns: Vec<Column> = columns.collect();
    for rows in rows.chunks(ROWS_IN_CACHE) {
        for (declared, column) in declared.iter().zip(&mut columns) {
            declared.append(column, rows);
        }
    }
    columns
}

impl Table {
    /// Makes a table of the declared columns for these rows. Of many rows each CPU makes some of
    /// the columns.
    pub fn of<R: Sync>(declared: &[Declared<R>], rows: &[R]) -> Table {
        let cpus = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        if rows.len() < ROWS_FOR_THREADS || cpus == 1 {
            return Table {
                columns: columns_of(declared, rows),
            };
        }
        let share = declared.len().div_ceil(cpus).max(1);
        let columns = std::thread::scope(|scope| {
            let parts = declared.chunks(share);
            let begun: Vec<_> = parts
                .map(|part| scope.spawn(move || columns_of(part, rows)))
                .collect();
            let ended = begun.into_iter().map(|part| part.join());
            ended
                .map(|part| part.unwrap_or_else(|panic| resume_unwind(panic)))
                .collect::<Vec<_>>()
        });
        Table {
            columns: columns.into_iter().flatten().collect(),
        }
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |column| column.values.len())
    }

    /// Returns the column with a name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// Inserts a column of texts before the others.
    pub fn prepend_texts<'a>(
        &mut self,
        name: String,
        texts: impl IntoIterator<Item = Option<&'a str>>,
    ) {
        let mut values = Texts::default();
        values.extend(texts);
        let column = Column {
            name,
            unit: "",
            values: Values::Texts(values),
        };
        self.columns.insert(0, column);
    }

    /// Returns a row as JSON without missing values.
    pub fn json_row(&self, row: usize) -> serde_json::Map<String, serde_json::Value> {
        let cells = self.columns.iter().map(|column| {
            let value = column.values.json(row);
            (column.name.clone(), value)
        });
        cells.filter(|(_, value)| !value.is_null()).collect()
    }

    /// Adds a row from [`Table::json_row`].
    pub fn push_json(&mut self, row: &serde_json::Map<String, serde_json::Value>) {
        for column in &mut self.columns {
            column.values.push_json(row.get(&column.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_rows_have_the_columns_of_few() {
        let declared = [
            Declared::integer("plain", "", "", |row: &u64| Some(*row)),
            Declared::number("half", "", "", |row| {
                (row % 3 > 0).then_some(*row as f64 / 2.0)
            }),
            Declared::text("parity", "", |row| {
                Some(["even", "odd"][(row % 2) as usize])
            }),
        ];
        let rows: Vec<u64> = (0..ROWS_FOR_THREADS as u64 + 7).collect();
        let table = Table::of(&declared, &rows);
        assert_eq!(table.columns, columns_of(&declared, &rows));
        assert_eq!((table.rows(), table.columns.len()), (rows.len(), 3));
    }
}
