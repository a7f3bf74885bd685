//! The values of a description for programs: each key with what the text gives it, or with its
//! default.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use toml::de::{DeTable, DeValue};

use crate::assumed;
use crate::reference::Reference;

/// A value of a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Whole(i64),
    /// A number with a fraction.
    Number(f64),
    /// `true` or `false`.
    Flag(bool),
    /// Text, or words that say what the default is.
    Text(String),
    /// An array.
    List(Vec<Value>),
    /// No value: the key is optional and has no default.
    Nothing,
}

/// Returns all keys that a description can have, each named with its table, and their values: those
/// of the reference in its order, then those that stand for a name of the text's own.
///
/// # Errors
/// If the text is not TOML.
pub fn values(text: &str, reference: &Reference) -> Result<Vec<(String, Value)>, String> {
    let root = DeTable::parse(text).map_err(|error| error.message().to_string())?;
    let mut given = Vec::new();
    flatten(root.get_ref(), "", &mut given);
    let mut all = Vec::new();
    for table in reference.tables() {
        for key in &table.keys {
            let name = joined(&table.path, &key.name);
            if name.split('.').any(|part| part == "NAME") {
                continue;
            }
            let found = given.iter().position(|(known, _)| *known == name);
            let value = match found {
                Some(at) => given.swap_remove(at).1,
                None => of_default(key.default.as_deref().unwrap_or_default()),
            };
            all.push((name, value));
        }
    }
    given.sort_by(|(a, _), (b, _)| a.cmp(b));
    all.extend(given);
    Ok(all)
}

fn joined(table: &str, name: &str) -> String {
    match table {
        "" => name.to_string(),
        table => format!("{table}.{name}"),
    }
}

fn flatten(table: &DeTable<'_>, path: &str, all: &mut Vec<(String, Value)>) {
    for (name, value) in table {
        let name = joined(path, name.get_ref());
        match value.get_ref() {
            DeValue::Table(_) if name == assumed::TABLE => {}
            DeValue::Table(inner) => flatten(inner, &name, all),
            value => all.push((name, of_toml(value))),
        }
    }
}

fn of_toml(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(digits) => {
            let number = i64::from_str_radix(digits.as_str(), digits.radix());
            number.map_or_else(|_| Value::Text(digits.as_str().to_string()), Value::Whole)
        }
        DeValue::Float(digits) => {
            let number = digits.as_str().parse();
            number.map_or_else(|_| Value::Text(digits.as_str().to_string()), Value::Number)
        }
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Datetime(time) => Value::Text(time.to_string()),
        DeValue::Array(items) => {
            Value::List(items.iter().map(|item| of_toml(item.get_ref())).collect())
        }
        DeValue::Table(table) => {
            let mut all = Vec::new();
            flatten(table, "", &mut all);
            let pair = |(name, value)| Value::List([Value::Text(name), value].into());
            Value::List(all.into_iter().map(pair).collect())
        }
    }
}

/// Returns the value of a default, which is words where it depends on other keys.
fn of_default(shown: &str) -> Value {
    if shown.is_empty() {
        return Value::Nothing;
    }
    let text = format!("x = {shown}");
    let parsed = DeTable::parse(&text).ok();
    let value = parsed.as_ref().and_then(|table| table.get_ref().get("x"));
    value.map_or_else(
        || Value::Text(shown.to_string()),
        |value| of_toml(value.get_ref()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{number, read_with_reference, text, whole};

    const TEXT: &str = "name = \"x\"\nsizes = [1, 2.5]\n[gc]\npace = 0x10\n[assumed]\n\"gc.pace\" = [1]\n\
                        [costs.own]\nns = 1_000\n";

    #[test]
    fn every_key_has_the_text_s_value_or_its_default() {
        let (_, reference) = read_with_reference("x.toml", "name = \"x\"\n", |root| {
            root.key("name", "", text())?;
            root.key("depth", "", whole(1..=9_u32).or(4))?;
            root.key("share", "", number(0.0..=1.0).or_derived(0.5, "half of it"))?;
            root.key("limit", "", number(0.0..=1.0).optional())?;
            Ok(())
        })
        .expect("legal");
        let all = values(TEXT, &reference).expect("TOML");
        let word = |text: &str| Value::Text(text.to_string());
        let expected = [
            ("name", word("x")),
            ("depth", Value::Whole(4)),
            ("share", word("half of it")),
            ("limit", Value::Nothing),
            ("costs.own.ns", Value::Whole(1000)),
            ("gc.pace", Value::Whole(16)),
            (
                "sizes",
                Value::List([Value::Whole(1), Value::Number(2.5)].into()),
            ),
        ];
        let expected = expected.map(|(key, value)| (key.to_string(), value));
        assert_eq!(all, expected);
        assert!(values("x = = 1", &reference).is_err());
    }
}
