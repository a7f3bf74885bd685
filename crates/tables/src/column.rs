//! `Table`: columns of numbers and words.

use std::collections::HashMap;

/// A column of a table of rows `R`, declared once.
pub struct Declared<R> {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) meaning: &'static str,
    pub(crate) of: Of<R>,
}

/// What a row has in a column, if it has anything there.
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

    /// A column of words.
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

    /// What the reference tells of it.
    pub(crate) fn described(&self) -> [&'static str; 3] {
        [self.name, self.unit, self.meaning]
    }

    fn values(&self, rows: &[R]) -> Values {
        match self.of {
            Of::Integer(of) => Values::Integers(rows.iter().map(of).collect()),
            Of::Number(of) => Values::Numbers(rows.iter().map(of).collect()),
            Of::Text(of) => Values::Texts(rows.iter().map(of).collect()),
        }
    }
}

/// Numbers, of which some may be missing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Numbers<T> {
    /// Zero where one is missing.
    pub(crate) values: Vec<T>,
    /// By row; shorter than the values where all that follow are there.
    pub(crate) missing: Vec<bool>,
}

impl<T: Default> Numbers<T> {
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
        values.into_iter().for_each(|value| numbers.push(value));
        numbers
    }
}

/// Words, each kept once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Texts {
    pub(crate) words: Vec<String>,
    place: HashMap<String, u32>,
    /// By row, the place of its word.
    pub(crate) of: Numbers<u32>,
}

impl Texts {
    fn push(&mut self, text: Option<&str>) {
        let place = text.map(|text| match self.place.get(text) {
            Some(place) => *place,
            None => {
                let place = self.words.len() as u32;
                self.words.push(text.to_string());
                self.place.insert(text.to_string(), place);
                place
            }
        });
        self.of.push(place);
    }

    /// The word of a row.
    pub(crate) fn get(&self, row: usize) -> Option<&str> {
        match self.of.is_missing(row) {
            true => None,
            false => Some(&self.words[self.of.values[row] as usize]),
        }
    }
}

impl<'a> FromIterator<Option<&'a str>> for Texts {
    fn from_iter<I: IntoIterator<Item = Option<&'a str>>>(values: I) -> Texts {
        let mut texts = Texts::default();
        values.into_iter().for_each(|text| texts.push(text));
        texts
    }
}

/// What a column holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Whole numbers.
    Integers(Numbers<u64>),
    /// Numbers.
    Numbers(Numbers<f64>),
    /// Words.
    Texts(Texts),
}

impl Values {
    /// How many rows it has.
    pub fn len(&self) -> usize {
        match self {
            Values::Integers(numbers) => numbers.values.len(),
            Values::Numbers(numbers) => numbers.values.len(),
            Values::Texts(texts) => texts.of.values.len(),
        }
    }

    /// Whether it has no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a row as JSON has it; null where it is missing.
    pub fn json(&self, row: usize) -> serde_json::Value {
        match self {
            Values::Integers(numbers) if !numbers.is_missing(row) => numbers.values[row].into(),
            Values::Numbers(numbers) if !numbers.is_missing(row) => numbers.values[row].into(),
            Values::Texts(texts) => texts.get(row).into(),
            Values::Integers(_) | Values::Numbers(_) => serde_json::Value::Null,
        }
    }

    /// Adds a row with a value of [`Values::json`]'s; missing where it is of another kind.
    pub fn push_json(&mut self, value: Option<&serde_json::Value>) {
        match self {
            Values::Integers(numbers) => numbers.push(value.and_then(|value| value.as_u64())),
            Values::Numbers(numbers) => numbers.push(value.and_then(|value| value.as_f64())),
            Values::Texts(texts) => texts.push(value.and_then(|value| value.as_str())),
        }
    }

    /// One of the same kind without rows.
    pub fn none_yet(&self) -> Values {
        match self {
            Values::Integers(_) => Values::Integers(Numbers::default()),
            Values::Numbers(_) => Values::Numbers(Numbers::default()),
            Values::Texts(_) => Values::Texts(Texts::default()),
        }
    }
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Its name, unique in its table.
    pub name: String,
    /// What it is counted in; empty for words and plain numbers.
    pub unit: &'static str,
    /// By row.
    pub values: Values,
}

/// Columns of one length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// The columns.
    pub columns: Vec<Column>,
}

impl Table {
    /// The table that the declared columns have for these rows.
    pub fn of<R>(declared: &[Declared<R>], rows: &[R]) -> Table {
        let columns = declared.iter().map(|column| Column {
            name: column.name.to_string(),
            unit: column.unit,
            values: column.values(rows),
        });
        Table {
            columns: columns.collect(),
        }
    }

    /// How many rows it has.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |column| column.values.len())
    }

    /// The column of that name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// Puts a column of words before the others; a row has nothing there where there
    /// is no word.
    pub fn prepend_texts<'a>(
        &mut self,
        name: String,
        texts: impl IntoIterator<Item = Option<&'a str>>,
    ) {
        let column = Column {
            name,
            unit: "",
            values: Values::Texts(texts.into_iter().collect()),
        };
        self.columns.insert(0, column);
    }

    /// A row as JSON: names and values, without those that are missing.
    pub fn json_row(&self, row: usize) -> serde_json::Map<String, serde_json::Value> {
        let cells = self.columns.iter().map(|column| {
            let value = column.values.json(row);
            (column.name.clone(), value)
        });
        cells.filter(|(_, value)| !value.is_null()).collect()
    }

    /// Adds a row that [`Table::json_row`] made.
    pub fn push_json(&mut self, row: &serde_json::Map<String, serde_json::Value>) {
        for column in &mut self.columns {
            column.values.push_json(row.get(&column.name));
        }
    }
}
