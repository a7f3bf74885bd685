//! Tables as Arrow's record batches.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::types::UInt32Type;
use arrow_array::{
    ArrayRef, DictionaryArray, Float64Array, RecordBatch, StringArray, UInt32Array, UInt64Array,
};
use arrow_buffer::{BooleanBuffer, NullBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, Field, Schema};

use crate::WriteError;
use crate::column::{Column, Numbers, Table, Values};

impl From<ArrowError> for WriteError {
    fn from(error: ArrowError) -> WriteError {
        WriteError::Format(error.to_string())
    }
}

/// Makes an Arrow record batch of a table. Numbers are moved into it without a copy.
///
/// # Errors
/// If Arrow refuses the columns, which does not happen for a [`Table`].
pub fn record_batch(table: Table) -> Result<RecordBatch, WriteError> {
    let mut fields = Vec::new();
    let mut arrays: Vec<ArrayRef> = Vec::new();
    for Column { name, unit, values } in table.columns {
        let array = array(values)?;
        let mut field = Field::new(name, array.data_type().clone(), true);
        if !unit.is_empty() {
            field.set_metadata(HashMap::from([("unit".to_string(), unit.to_string())]));
        }
        fields.push(field);
        arrays.push(array);
    }
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?)
}

fn array(values: Values) -> Result<ArrayRef, ArrowError> {
    Ok(match values {
        Values::Integers(numbers) => {
            let nulls = nulls(&numbers);
            Arc::new(UInt64Array::new(ScalarBuffer::from(numbers.values), nulls))
        }
        Values::Numbers(numbers) => {
            let nulls = nulls(&numbers);
            Arc::new(Float64Array::new(ScalarBuffer::from(numbers.values), nulls))
        }
        Values::Texts(texts) => {
            let nulls = nulls(&texts.of);
            let places = UInt32Array::new(ScalarBuffer::from(texts.of.values), nulls);
            let words = Arc::new(StringArray::from(texts.words));
            Arc::new(DictionaryArray::<UInt32Type>::try_new(places, words)?)
        }
    })
}

fn nulls<T>(numbers: &Numbers<T>) -> Option<NullBuffer> {
    if numbers.missing.is_empty() {
        return None;
    }
    let rows = 0..numbers.values.len();
    let present: BooleanBuffer = rows.map(|row| !numbers.is_missing(row)).collect();
    Some(NullBuffer::new(present))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::column::Declared;
    use arrow_array::Array;

    #[test]
    fn numbers_are_moved_and_what_is_missing_is_null() {
        let declared = [Declared::integer(
            "n",
            "ns",
            "A number.",
            |row: &Option<u64>| *row,
        )];
        let table = Table::of(&declared, &[Some(7), None, Some(9)]);
        let Values::Integers(numbers) = &table.columns[0].values else {
            panic!("whole numbers");
        };
        let address = numbers.values.as_ptr();
        let batch = record_batch(table).expect("a table");
        let column = batch.column(0).as_any().downcast_ref::<UInt64Array>();
        let column = column.expect("whole numbers");
        assert_eq!(column.values().as_ptr(), address);
        assert_eq!((column.null_count(), column.value(2)), (1, 9));
        let schema = batch.schema();
        assert_eq!(schema.field(0).metadata()["unit"], "ns");
    }
}
