//! Tables as Arrow's IPC file (Feather version 2), as the Columnar Format of Apache Arrow, section
//! "IPC File Format", and its FlatBuffers schemas (`Schema.fbs`, `Message.fbs`, `File.fbs`) have
//! it. With Arrow's own writer this crate and what it needs take twice as long to build.

use std::io::Write;

use flatbuffers::{
    FlatBufferBuilder, ForwardsUOffset, TableFinishedWIPOffset as Finished, UnionWIPOffset, Vector,
    WIPOffset,
};

use crate::WriteError;
use crate::column::{Column, Numbers, Table, Values};

const MAGIC: &[u8] = b"ARROW1";
/// `MetadataVersion.V5`.
const VERSION: i16 = 4;
/// Buffers and messages begin at multiples of this, so that readers can map them.
const ALIGN: usize = 64;

/// The types of a message's header (`MessageHeader`).
const SCHEMA: u8 = 1;
const DICTIONARY_BATCH: u8 = 2;
const RECORD_BATCH: u8 = 3;
/// The types of a column (`Type`).
const INT: u8 = 2;
const FLOATING_POINT: u8 = 3;
const UTF8: u8 = 5;
/// `Precision.DOUBLE`.
const DOUBLE: i16 = 2;

type Offset = WIPOffset<Finished>;
type Offsets<'b> = WIPOffset<Vector<'b, ForwardsUOffset<Finished>>>;

/// Returns the place of a table's n-th field, as the schemas number them.
const fn slot(n: u16) -> u16 {
    4 + 2 * n
}

/// Where a message is in the file (`Block`).
struct Block {
    offset: u64,
    metadata_bytes: u64,
    body_bytes: u64,
}

/// Writes a table as one record batch, with a dictionary for each column of texts.
pub(crate) fn write(table: &Table, out: &mut impl Write) -> Result<(), WriteError> {
    let mut file = File { out, length: 0 };
    file.put(MAGIC)?;
    file.pad(8)?;
    let mut schema = FlatBufferBuilder::new();
    let root = schema_of(&mut schema, table);
    file.message(schema, SCHEMA, root, &Body::default())?;
    let mut dictionaries = Vec::new();
    for (id, column) in table.columns.iter().enumerate() {
        if let Values::Texts(texts) = &column.values {
            let mut body = Body::default();
            body.texts(&texts.words);
            let mut message = FlatBufferBuilder::new();
            let batch = record_batch(&mut message, texts.words.len(), &body);
            let start = message.start_table();
            message.push_slot_always(slot(0), id as i64);
            message.push_slot_always(slot(1), batch);
            let batch = message.end_table(start);
            dictionaries.push(file.message(message, DICTIONARY_BATCH, batch, &body)?);
        }
    }
    let mut body = Body::default();
    for column in &table.columns {
        match &column.values {
            Values::Integers(of) => body.numbers(of, |value| value.to_le_bytes()),
            Values::Numbers(of) => body.numbers(of, |value| value.to_le_bytes()),
            Values::Texts(texts) => body.numbers(&texts.of, |value| value.to_le_bytes()),
        }
    }
    let mut message = FlatBufferBuilder::new();
    let batch = record_batch(&mut message, table.rows(), &body);
    let batch = file.message(message, RECORD_BATCH, batch, &body)?;
    file.end(table, &dictionaries, &[batch])
}

/// A file that is being written.
struct File<'a, W> {
    out: &'a mut W,
    length: u64,
}

impl<W: Write> File<'_, W> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.out.write_all(bytes)?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Goes on at a multiple of this many bytes.
    fn pad(&mut self, align: usize) -> Result<(), WriteError> {
        let end = self.length.next_multiple_of(align as u64);
        self.put(&[0; ALIGN][..(end - self.length) as usize])
    }

    /// Writes a message and its body.
    fn message(
        &mut self,
        mut message: FlatBufferBuilder<'_>,
        kind: u8,
        header: Offset,
        body: &Body,
    ) -> Result<Block, WriteError> {
        let start = message.start_table();
        message.push_slot_always(slot(3), body.length());
        message.push_slot_always(slot(2), header);
        message.push_slot_always(slot(0), VERSION);
        message.push_slot_always(slot(1), kind);
        let root = message.end_table(start);
        message.finish_minimal(root);
        let data = message.finished_data();
        let offset = self.length;
        // A prefix of eight bytes, and padding up to the body.
        let end = (offset as usize + 8 + data.len()).next_multiple_of(ALIGN);
        let metadata_bytes = end - offset as usize;
        self.put(&[0xff; 4])?;
        self.put(&((metadata_bytes - 8) as u32).to_le_bytes())?;
        self.put(data)?;
        self.pad(ALIGN)?;
        for buffer in &body.buffers {
            self.put(buffer)?;
            self.pad(ALIGN)?;
        }
        Ok(Block {
            offset,
            metadata_bytes: metadata_bytes as u64,
            body_bytes: body.length() as u64,
        })
    }

    /// Writes the end of the messages, and where each of them is.
    fn end(
        &mut self,
        table: &Table,
        dictionaries: &[Block],
        batches: &[Block],
    ) -> Result<(), WriteError> {
        self.put(&[0xff; 4])?;
        self.put(&[0; 4])?;
        let mut footer = FlatBufferBuilder::new();
        let schema = schema_of(&mut footer, table);
        let dictionaries = blocks(&mut footer, dictionaries);
        let batches = blocks(&mut footer, batches);
        let start = footer.start_table();
        footer.push_slot_always(slot(1), schema);
        footer.push_slot_always(slot(2), dictionaries);
        footer.push_slot_always(slot(3), batches);
        footer.push_slot_always(slot(0), VERSION);
        let root = footer.end_table(start);
        footer.finish_minimal(root);
        let data = footer.finished_data();
        self.put(data)?;
        self.put(&(data.len() as u32).to_le_bytes())?;
        self.put(MAGIC)
    }
}

/// The buffers of a batch.
#[derive(Default)]
struct Body {
    buffers: Vec<Vec<u8>>,
    /// The rows of each column, and how many of them are missing (`FieldNode`).
    nodes: Vec<[i64; 2]>,
}

impl Body {
    /// Adds a column of numbers: a bit for each row that is not missing, then the values.
    fn numbers<T, const N: usize>(&mut self, of: &Numbers<T>, bytes: impl Fn(&T) -> [u8; N]) {
        let rows = of.values.len();
        let missing = (0..rows).filter(|row| of.is_missing(*row)).count();
        let mut present = Vec::new();
        if missing > 0 {
            present.resize(rows.div_ceil(8), 0_u8);
            for row in (0..rows).filter(|row| !of.is_missing(*row)) {
                present[row / 8] |= 1 << (row % 8);
            }
        }
        self.buffers.push(present);
        self.buffers
            .push(of.values.iter().flat_map(bytes).collect());
        self.nodes.push([rows as i64, missing as i64]);
    }

    /// Adds a column of texts: no missing ones, where each begins and the last ends, the texts.
    fn texts(&mut self, words: &[String]) {
        let ends = words.iter().scan(0, |end, word| {
            *end += word.len() as i32;
            Some(*end)
        });
        let offsets = std::iter::once(0).chain(ends);
        self.buffers.push(Vec::new());
        self.buffers
            .push(offsets.flat_map(i32::to_le_bytes).collect());
        self.buffers.push(words.concat().into_bytes());
        self.nodes.push([words.len() as i64, 0]);
    }

    /// Returns where each buffer begins, and its length (`Buffer`).
    fn places(&self) -> impl DoubleEndedIterator<Item = [i64; 2]> + ExactSizeIterator {
        let mut at = 0;
        let places = self.buffers.iter().map(|buffer| {
            let place = [at, buffer.len() as i64];
            at += buffer.len().next_multiple_of(ALIGN) as i64;
            place
        });
        places.collect::<Vec<_>>().into_iter()
    }

    fn length(&self) -> i64 {
        let bytes = self
            .buffers
            .iter()
            .map(|buffer| buffer.len().next_multiple_of(ALIGN));
        bytes.sum::<usize>() as i64
    }
}

/// Adds a vector of structs, whose fields are numbers of eight bytes, or shorter ones that are
/// padded to eight.
fn structs<'b, const N: usize>(
    to: &mut FlatBufferBuilder<'b>,
    structs: impl DoubleEndedIterator<Item = [i64; N]> + ExactSizeIterator,
) -> WIPOffset<Vector<'b, i64>> {
    let count = structs.len();
    to.start_vector::<i64>(count * N);
    for fields in structs.rev() {
        for field in fields.into_iter().rev() {
            to.push(field);
        }
    }
    to.end_vector::<i64>(count)
}

fn blocks<'b>(to: &mut FlatBufferBuilder<'b>, blocks: &[Block]) -> WIPOffset<Vector<'b, i64>> {
    let fields = |block: &Block| {
        [block.offset, block.metadata_bytes, block.body_bytes].map(|bytes| bytes as i64)
    };
    structs(to, blocks.iter().map(fields))
}

fn record_batch(to: &mut FlatBufferBuilder<'_>, rows: usize, body: &Body) -> Offset {
    let nodes = structs(to, body.nodes.iter().copied());
    let buffers = structs(to, body.places());
    let start = to.start_table();
    to.push_slot_always(slot(0), rows as i64);
    to.push_slot_always(slot(1), nodes);
    to.push_slot_always(slot(2), buffers);
    to.end_table(start)
}

fn schema_of(to: &mut FlatBufferBuilder<'_>, table: &Table) -> Offset {
    let columns = table.columns.iter().enumerate();
    let fields: Vec<Offset> = columns.map(|(id, column)| field(to, id, column)).collect();
    let fields: Offsets<'_> = to.create_vector(&fields);
    let start = to.start_table();
    to.push_slot_always(slot(1), fields);
    to.end_table(start)
}

fn field(to: &mut FlatBufferBuilder<'_>, id: usize, column: &Column) -> Offset {
    let name = to.create_string(&column.name);
    let (kind, of_type) = match column.values {
        Values::Integers(_) => (INT, unsigned(to, 64)),
        Values::Numbers(_) => {
            let start = to.start_table();
            to.push_slot_always(slot(0), DOUBLE);
            (FLOATING_POINT, to.end_table(start))
        }
        Values::Texts(_) => {
            let start = to.start_table();
            (UTF8, to.end_table(start))
        }
    };
    let dictionary = matches!(column.values, Values::Texts(_)).then(|| {
        let index = unsigned(to, 32);
        let start = to.start_table();
        to.push_slot_always(slot(0), id as i64);
        to.push_slot_always(slot(1), index);
        to.end_table(start)
    });
    let children: Offsets<'_> = to.create_vector::<Offset>(&[]);
    let metadata = (!column.unit.is_empty()).then(|| {
        let (key, value) = (to.create_string("unit"), to.create_string(column.unit));
        let start = to.start_table();
        to.push_slot_always(slot(0), key);
        to.push_slot_always(slot(1), value);
        let pair = to.end_table(start);
        let pairs: Offsets<'_> = to.create_vector(&[pair]);
        pairs
    });
    let start = to.start_table();
    to.push_slot_always(slot(0), name);
    to.push_slot_always(slot(3), WIPOffset::<UnionWIPOffset>::new(of_type.value()));
    to.push_slot_always(slot(5), children);
    if let Some(dictionary) = dictionary {
        to.push_slot_always(slot(4), dictionary);
    }
    if let Some(metadata) = metadata {
        to.push_slot_always(slot(6), metadata);
    }
    to.push_slot_always(slot(1), true);
    to.push_slot_always(slot(2), kind);
    to.end_table(start)
}

/// The type of a whole number without a sign.
fn unsigned(to: &mut FlatBufferBuilder<'_>, bits: i32) -> Offset {
    let start = to.start_table();
    to.push_slot_always(slot(0), bits);
    to.push_slot_always(slot(1), false);
    to.end_table(start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::column::Declared;

    #[test]
    fn messages_and_buffers_are_aligned_and_the_footer_says_where_they_are() {
        let declared: [Declared<Option<u64>>; 2] = [
            Declared::integer("n", "ns", "A number.", |row: &Option<u64>| *row),
            Declared::text("t", "A text.", |row| row.map(|_| "text")),
        ];
        let table = Table::of(&declared, &[Some(7), None, Some(9)]);
        let mut bytes = Vec::new();
        write(&table, &mut bytes).expect("written");
        assert!(bytes.starts_with(b"ARROW1\0\0") && bytes.ends_with(b"ARROW1"));
        let number = |at: usize| {
            let four = bytes[at..at + 4].try_into().expect("four bytes");
            u32::from_le_bytes(four) as usize
        };
        let footer = number(bytes.len() - 10);
        let end = bytes.len() - 10 - footer;
        assert_eq!((number(end - 8), number(end - 4)), (u32::MAX as usize, 0));
        // The values of the one batch, and the bits of those that are there.
        let values: Vec<u8> = [7_u64, 0, 9].iter().flat_map(|n| n.to_le_bytes()).collect();
        let at = bytes.windows(24).position(|window| window == values);
        let at = at.expect("the values are there");
        assert!(at.is_multiple_of(ALIGN) && at < end);
        assert_eq!(bytes[at - ALIGN], 0b101);
    }
}
