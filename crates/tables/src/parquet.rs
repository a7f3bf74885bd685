//! Tables as Parquet, with the low-level writer of its library, because the writer for
//! Arrow's record batches takes three times as long to build.

use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;

use crate::WriteError;
use crate::column::{Column, Numbers, Table, Values};

/// Rows of a row group; readers load one group at a time.
const GROUP_ROWS: usize = 1 << 20;

impl From<ParquetError> for WriteError {
    fn from(error: ParquetError) -> WriteError {
        WriteError::Format(error.to_string())
    }
}

/// Writes a table.
pub(crate) fn write(table: &Table, out: &mut (impl Write + Send)) -> Result<(), WriteError> {
    let mut writer = ParquetWriter::new(table, out)?;
    writer.write(table)?;
    writer.finish()
}

/// A Parquet file that is written table by table, so that not all its rows need be in memory.
pub struct ParquetWriter<W: Write + Send>(SerializedFileWriter<W>);

impl<W: Write + Send> ParquetWriter<W> {
    /// Begins a file with the columns of this table.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn new(table: &Table, out: W) -> Result<ParquetWriter<W>, WriteError> {
        let fields = table
            .columns
            .iter()
            .map(|column| Ok(Arc::new(field(column)?)));
        let fields = fields.collect::<Result<Vec<_>, ParquetError>>()?;
        let schema = Type::group_type_builder("blklab")
            .with_fields(fields)
            .build()?;
        let units = table
            .columns
            .iter()
            .filter(|column| !column.unit.is_empty());
        let units = units.map(|column| KeyValue {
            key: format!("unit.{}", column.name),
            value: Some(column.unit.to_string()),
        });
        let properties = WriterProperties::builder()
            .set_writer_version(WriterVersion::PARQUET_2_0)
            .set_created_by(concat!("blklab version ", env!("CARGO_PKG_VERSION")).to_string())
            .set_key_value_metadata(Some(units.collect()))
            .build();
        let writer = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))?;
        Ok(ParquetWriter(writer))
    }

    /// Adds the rows of a table with the same columns, as row groups of their own.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn write(&mut self, table: &Table) -> Result<(), WriteError> {
        for first in (0..table.rows()).step_by(GROUP_ROWS) {
            let rows = first..table.rows().min(first + GROUP_ROWS);
            let mut group = self.0.next_row_group()?;
            for column in &table.columns {
                if let Some(mut writer) = group.next_column()? {
                    write_column(&mut writer, &column.values, rows.clone())?;
                    writer.close()?;
                }
            }
            group.close()?;
        }
        Ok(())
    }

    /// Ends the file.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn finish(self) -> Result<(), WriteError> {
        self.0.close()?;
        Ok(())
    }
}

fn field(column: &Column) -> Result<Type, ParquetError> {
    let (physical, logical) = match column.values {
        Values::Integers(_) => {
            let unsigned = LogicalType::Integer {
                bit_width: 64,
                is_signed: false,
            };
            (Physical::INT64, Some(unsigned))
        }
        Values::Numbers(_) => (Physical::DOUBLE, None),
        Values::Texts(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
    };
    Type::primitive_type_builder(&column.name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(logical)
        .build()
}

fn write_column(
    writer: &mut SerializedColumnWriter<'_>,
    values: &Values,
    rows: Range<usize>,
) -> Result<(), ParquetError> {
    match values {
        Values::Integers(numbers) => {
            let as_stored = |value: &u64| *value as i64;
            write_values::<Int64Type, _>(writer, numbers, rows, as_stored)
        }
        Values::Numbers(numbers) => {
            write_values::<DoubleType, _>(writer, numbers, rows, |value| *value)
        }
        Values::Texts(texts) => {
            let words = texts
                .words
                .iter()
                .map(|word| ByteArray::from(word.as_str()));
            let words: Vec<ByteArray> = words.collect();
            let word = |place: &u32| words[*place as usize].clone();
            write_values::<ByteArrayType, _>(writer, &texts.of, rows, word)
        }
    }
}

/// Writes the present values of rows, and their definition levels.
fn write_values<D: DataType, T>(
    writer: &mut SerializedColumnWriter<'_>,
    numbers: &Numbers<T>,
    rows: Range<usize>,
    stored: impl Fn(&T) -> D::T,
) -> Result<(), ParquetError> {
    let present = |row: &usize| !numbers.is_missing(*row);
    let values = rows.clone().filter(present);
    let values: Vec<D::T> = values.map(|row| stored(&numbers.values[row])).collect();
    let levels: Vec<i16> = rows.map(|row| i16::from(present(&row))).collect();
    writer
        .typed::<D>()
        .write_batch(&values, Some(&levels), None)?;
    Ok(())
}
