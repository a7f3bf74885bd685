//! The arithmetic that fio takes in place of a number: `(2 * 4k + 1)`.
//!
//! fio's manual, "Parameter types": addition, subtraction, multiplication,
//! division, modulus and exponentiation (`^`), with parentheses.

use super::error::Fault;

/// How deep parentheses may nest; no person writes that many.
const DEPTH_LIMIT: u32 = 32;

/// The value of `text`, whose numbers (with their units) `number` reads.
pub(crate) fn evaluate(
    text: &str,
    number: &dyn Fn(&str) -> Result<f64, Fault>,
) -> Result<f64, Fault> {
    let mut parser = Parser {
        rest: text,
        number,
        depth: 0,
    };
    let value = parser.sum()?;
    parser.skip_blanks();
    if !parser.rest.is_empty() {
        return Err(Fault::new(format!(
            "`{}` does not belong after the expression",
            parser.rest
        )));
    }
    Ok(value)
}

struct Parser<'a> {
    rest: &'a str,
    number: &'a dyn Fn(&str) -> Result<f64, Fault>,
    depth: u32,
}

impl Parser<'_> {
    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, operators: &[char]) -> Option<char> {
        self.skip_blanks();
        let c = self.rest.chars().next()?;
        if !operators.contains(&c) {
            return None;
        }
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn sum(&mut self) -> Result<f64, Fault> {
        let mut value = self.product()?;
        while let Some(operator) = self.take(&['+', '-']) {
            let right = self.product()?;
            value = if operator == '+' {
                value + right
            } else {
                value - right
            };
        }
        Ok(value)
    }

    fn product(&mut self) -> Result<f64, Fault> {
        let mut value = self.power()?;
        while let Some(operator) = self.take(&['*', '/', '%']) {
            let right = self.power()?;
            if operator != '*' && right == 0.0 {
                return Err(Fault::new("division by zero"));
            }
            value = match operator {
                '*' => value * right,
                '/' => value / right,
                _ => value % right,
            };
        }
        Ok(value)
    }

    fn power(&mut self) -> Result<f64, Fault> {
        let base = self.term()?;
        match self.take(&['^']) {
            Some(_) => Ok(base.powf(self.nested(Parser::power)?)),
            None => Ok(base),
        }
    }

    fn term(&mut self) -> Result<f64, Fault> {
        if self.take(&['-']).is_some() {
            return Ok(-self.nested(Parser::term)?);
        }
        if self.take(&['(']).is_some() {
            let value = self.nested(Parser::sum)?;
            return match self.take(&[')']) {
                Some(_) => Ok(value),
                None => Err(Fault::new("a `(` is not closed")),
            };
        }
        self.skip_blanks();
        let end = self
            .rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '.'))
            .unwrap_or(self.rest.len());
        let (number, rest) = self.rest.split_at(end);
        if number.is_empty() {
            return Err(Fault::new("a number is missing in the expression"));
        }
        self.rest = rest;
        (self.number)(number)
    }

    fn nested(&mut self, parse: fn(&mut Self) -> Result<f64, Fault>) -> Result<f64, Fault> {
        if self.depth == DEPTH_LIMIT {
            return Err(Fault::new("the expression nests too deeply"));
        }
        self.depth += 1;
        let value = parse(self);
        self.depth -= 1;
        value
    }
}
