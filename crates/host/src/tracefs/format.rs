//! Parser for the files that describe the layout of binary events: `events/header_page` and
//! `events/block/*/format` (Documentation/trace/events.rst, 2.3). Offsets differ between kernels,
//! so only these files are used.

/// A malformed description, such as a bad line `field:TYPE NAME; offset:N; size:N; signed:N;`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FormatFault(pub String);

/// A field of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name, without brackets.
    pub name: String,
    /// Offset in bytes.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
}

/// The format of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventFormat {
    /// Name of the event.
    pub name: String,
    /// Number at the beginning of its records.
    pub id: u16,
    /// All fields, common fields first.
    pub fields: Vec<Field>,
}

impl EventFormat {
    /// Parses a `format` file.
    pub fn parse(text: &str) -> Result<EventFormat, FormatFault> {
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key));
            line.map(str::trim)
                .ok_or_else(|| FormatFault(format!("no line {key:?}")))
        };
        let id = value("ID:")?;
        let id = id
            .parse()
            .map_err(|_| FormatFault(format!("ID: {id:?} is no event's number")))?;
        Ok(EventFormat {
            name: value("name:")?.to_string(),
            id,
            fields: fields(text)?,
        })
    }

    /// Finds a field by name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// Finds a field by name and checks its size.
    pub fn sized(&self, name: &str, size: usize) -> Result<&Field, FormatFault> {
        let event = &self.name;
        let field = self.field(name);
        let field = field.ok_or_else(|| FormatFault(format!("{event} has no field {name}")))?;
        match field.size == size {
            true => Ok(field),
            false => Err(FormatFault(format!(
                "{event}.{name} is {} bytes long, expected {size}",
                field.size
            ))),
        }
    }
}

fn fields(text: &str) -> Result<Vec<Field>, FormatFault> {
    let lines = text.lines().map(str::trim);
    lines
        .filter(|line| line.starts_with("field"))
        .map(field)
        .collect()
}

fn field(line: &str) -> Result<Field, FormatFault> {
    let fault = || {
        FormatFault(format!(
            "{line:?} is not `field:TYPE NAME; offset:N; size:N;`"
        ))
    };
    let mut parts = line.split(';').map(str::trim);
    let (_, declaration) = parts
        .next()
        .and_then(|p| p.split_once(':'))
        .ok_or_else(fault)?;
    let name = declaration.split_whitespace().last().ok_or_else(fault)?;
    let name = name
        .split('[')
        .next()
        .unwrap_or(name)
        .trim_start_matches('*');
    let (mut offset, mut size) = (None, None);
    for part in parts {
        match part.split_once(':') {
            Some(("offset", value)) => offset = value.parse().ok(),
            Some(("size", value)) => size = value.parse().ok(),
            _ => {}
        }
    }
    Ok(Field {
        name: name.to_string(),
        offset: offset.ok_or_else(fault)?,
        size: size.ok_or_else(fault)?,
    })
}

/// Layout of a page of the ring buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageFormat {
    /// Size of the `commit` word, 4 or 8 bytes (the kernel's `long`).
    pub commit_bytes: usize,
    /// Offset of the first event.
    pub data_offset: usize,
    /// Size of a page in bytes.
    pub page_bytes: usize,
}

impl PageFormat {
    /// Parses `events/header_page`.
    pub fn parse(text: &str) -> Result<PageFormat, FormatFault> {
        let fields = fields(text)?;
        let find = |name: &str| {
            let found = fields.iter().find(|field| field.name == name);
            found.ok_or_else(|| FormatFault(format!("the page has no field {name}")))
        };
        let (timestamp, commit, data) = (find("timestamp")?, find("commit")?, find("data")?);
        let page_bytes = data.offset.checked_add(data.size);
        let page_bytes = page_bytes.filter(|bytes| bytes.is_power_of_two() && *bytes >= 4096);
        let sound = (timestamp.offset, timestamp.size, commit.offset) == (0, 8, 8)
            && matches!(commit.size, 4 | 8)
            && data.offset == 8 + commit.size;
        match (sound, page_bytes) {
            (true, Some(page_bytes)) => Ok(PageFormat {
                commit_bytes: commit.size,
                data_offset: data.offset,
                page_bytes,
            }),
            _ => Err(FormatFault(
                "the page does not begin with a time stamp and a commit word".to_string(),
            )),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) const HEADER_PAGE: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
        \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
        \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
        \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";

    /// From Linux 6.18, without the print format.
    pub(crate) const ISSUE: &str = "name: block_rq_issue\nID: 2104\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned int nr_sector;\toffset:24;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned int bytes;\toffset:28;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned short ioprio;\toffset:32;\tsize:2;\tsigned:0;\n\
        \tfield:char rwbs[10];\toffset:34;\tsize:10;\tsigned:0;\n\
        \tfield:char comm[16];\toffset:44;\tsize:16;\tsigned:0;\n\
        \tfield:__data_loc char[] cmd;\toffset:60;\tsize:4;\tsigned:0;\n";

    #[test]
    fn formats_read_as_the_kernel_writes_them() {
        let format = EventFormat::parse(ISSUE).unwrap();
        assert_eq!((format.name.as_str(), format.id), ("block_rq_issue", 2104));
        let rwbs = format.field("rwbs").unwrap();
        assert_eq!((rwbs.offset, rwbs.size), (34, 10));
        assert_eq!(format.sized("sector", 8).unwrap().offset, 16);
        assert!(format.sized("sector", 4).is_err());
        assert_eq!(format.field("cmd").unwrap().offset, 60);
        let page = PageFormat::parse(HEADER_PAGE).unwrap();
        assert_eq!(
            (page.commit_bytes, page.data_offset, page.page_bytes),
            (8, 16, 4096)
        );
    }

    #[test]
    fn other_pages_are_refused() {
        let odd = HEADER_PAGE.replace("size:4080", "size:100");
        assert!(PageFormat::parse(&odd).is_err());
        let huge = HEADER_PAGE.replace("size:4080", "size:18446744073709551615");
        assert!(PageFormat::parse(&huge).is_err());
        assert!(PageFormat::parse("").is_err());
        assert!(EventFormat::parse("name: x\nID: 70000\n").is_err());
        assert!(EventFormat::parse("name: x\nID: 7\nfield:int a; size:4;\n").is_err());
    }

    proptest! {
        #[test]
        fn no_text_is_a_panic(text in "((name|ID):[ a-z0-9]{0,6}\n|field:.{0,30}\n|.{0,20}){0,6}") {
            let _ = EventFormat::parse(&text);
            let _ = PageFormat::parse(&text);
        }
    }
}
