//! Drive descriptions: TOML in, a drive out.

use blklab_description::{ReadError, SpecError, Table};

use crate::hdd::{Hdd, HddSpec};
use crate::null::{NullDrive, NullSpec};
use crate::ssd::{Ssd, SsdSpec};
use crate::{Device, Identity};

/// How a drive is attached, for the choice of its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    /// SATA behind AHCI: one queue of at most 32 commands.
    Ahci,
    /// SD cards behind an MMC host: one command at a time.
    Mmc,
    /// NVMe: many queues.
    Nvme,
    /// The kernel's `null_blk`: no bus at all.
    Null,
    /// A loop device: one queue before a file, and a worker thread.
    Loop,
}

/// A drive description, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct DriveSpec {
    /// Its name: the registry's, or the file's.
    pub name: String,
    /// One line of help.
    pub description: String,
    /// How it is attached.
    pub interface: Interface,
    /// What it is made of.
    pub(crate) model: Model,
}

/// The kinds of drives.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Model {
    /// Only takes time.
    Null(NullSpec),
    /// Flash behind a controller.
    Ssd(Box<SsdSpec>),
    /// Platters under an arm.
    Hdd(Box<HddSpec>),
}

impl DriveSpec {
    /// Reads a description; `name` is the file as the user named it.
    pub fn parse(name: &str, text: &str) -> Result<DriveSpec, SpecError> {
        blklab_description::read(name, text, |root| Self::read(name, root))
    }

    fn read(name: &str, root: &Table<'_>) -> Result<DriveSpec, ReadError> {
        #[derive(Clone, Copy)]
        enum Kind {
            Null,
            Ssd,
            Hdd,
        }
        let description = root.text("description")?;
        let interface = root.choice(
            "interface",
            &[
                ("ahci", Interface::Ahci),
                ("mmc", Interface::Mmc),
                ("nvme", Interface::Nvme),
                ("null", Interface::Null),
                ("loop", Interface::Loop),
            ],
        )?;
        let kinds = [("null", Kind::Null), ("ssd", Kind::Ssd), ("hdd", Kind::Hdd)];
        let model = match root.choice("model", &kinds)? {
            Kind::Null => Model::Null(NullSpec::read(root)?),
            Kind::Ssd => Model::Ssd(Box::new(SsdSpec::read(root)?)),
            Kind::Hdd => Model::Hdd(Box::new(HddSpec::read(root)?)),
        };
        root.finish()?;
        let spec = DriveSpec {
            name: name.to_string(),
            description,
            interface,
            model,
        };
        if let Model::Ssd(ssd) = &spec.model
            && ssd.nvme.is_some()
            && interface != Interface::Nvme
        {
            let problem = "legal is to leave this table out where interface is not \"nvme\"";
            return Err(root.wrong("nvme", problem));
        }
        let has_one_queue = matches!(
            interface,
            Interface::Ahci | Interface::Mmc | Interface::Loop
        );
        if has_one_queue && spec.identity().max_queues > 1 {
            let problem = "legal is 1 where interface is not \"nvme\" or \"null\"";
            return Err(root.table("host")?.wrong("queues", problem));
        }
        if interface == Interface::Ahci && spec.identity().queue_depth > 32 {
            return Err(root.table("host")?.wrong(
                "queue_depth",
                "legal is at most 32 where interface = \"ahci\"",
            ));
        }
        if interface == Interface::Mmc && spec.identity().queue_depth > 1 {
            return Err(root.table("host")?.wrong(
                "queue_depth",
                "legal is 1 where interface = \"mmc\": a card takes one command at a time",
            ));
        }
        if interface == Interface::Loop && spec.identity().queue_depth > 128 {
            return Err(root.table("host")?.wrong(
                "queue_depth",
                "legal is at most 128 where interface = \"loop\"",
            ));
        }
        Ok(spec)
    }

    /// What the host will see.
    pub fn identity(&self) -> &Identity {
        match &self.model {
            Model::Null(spec) => &spec.identity,
            Model::Ssd(spec) => &spec.identity,
            Model::Hdd(spec) => &spec.identity,
        }
    }

    /// Whether what it does depends on what it did before.
    pub fn has_state(&self) -> bool {
        !matches!(self.model, Model::Null(_))
    }

    /// A drive as described; `seed` decides whatever is left to chance inside.
    pub fn build(&self, seed: u64) -> Box<dyn Device> {
        match &self.model {
            Model::Null(spec) => Box::new(NullDrive::new(spec.clone())),
            Model::Ssd(spec) => Box::new(Ssd::new((**spec).clone(), seed)),
            Model::Hdd(spec) => Box::new(Hdd::new((**spec).clone())),
        }
    }
}

/// Reads `[host]`: what the host sees of a drive.
pub(crate) fn read_identity(
    root: &Table<'_>,
    default_physical_bytes: u64,
    volatile_write_cache: bool,
) -> Result<Identity, ReadError> {
    let host = root.table("host")?;
    let logical = host.int_or("logical_block_bytes", 512..=65536, 512)?;
    let physical = host.int_or(
        "physical_block_bytes",
        512..=1 << 20,
        default_physical_bytes.max(logical),
    )?;
    for (key, bytes) in [
        ("logical_block_bytes", logical),
        ("physical_block_bytes", physical),
    ] {
        if !bytes.is_power_of_two() {
            return Err(host.wrong(key, "legal is a power of two"));
        }
    }
    if physical < logical {
        return Err(host.wrong(
            "physical_block_bytes",
            format!("legal is no less than the logical block ({logical})"),
        ));
    }
    let capacity_bytes = host.int("capacity_bytes", 1 << 20..=1 << 54)?;
    if capacity_bytes % logical != 0 {
        return Err(host.wrong(
            "capacity_bytes",
            format!("legal is a multiple of the logical block ({logical})"),
        ));
    }
    let identity = Identity {
        capacity_sectors: capacity_bytes / 512,
        logical_block_bytes: logical as u32,
        physical_block_bytes: physical as u32,
        max_transfer_sectors: host.int_or("max_transfer_kb", 4..=1 << 20, 512)? as u32 * 2,
        max_segments: host.int_or("max_segments", 1..=65535, 168)? as u16,
        queue_depth: host.int("queue_depth", 1..=65535)? as u32,
        max_queues: host.int_or("queues", 1..=65535, 1)? as u16,
        volatile_write_cache,
        fua: host.flag_or("fua", false)?,
        discard: host.flag_or("discard", false)?,
        rotational: false,
    };
    host.finish()?;
    Ok(identity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry;

    fn error_of(from: &str, to: &str) -> SpecError {
        let text = registry::text("mx100-256").expect("listed");
        assert!(text.contains(from), "{from}");
        DriveSpec::parse("my.toml", &text.replacen(from, to, 1)).expect_err(to)
    }

    fn line_with(text: &str) -> usize {
        let whole = registry::text("mx100-256").expect("listed");
        1 + whole
            .lines()
            .position(|line| line.contains(text))
            .expect(text)
    }

    #[test]
    fn a_number_out_of_range_is_shown_with_its_line_and_the_range() {
        let error = error_of("channels = 8 ", "channels = 0 ");
        assert_eq!(
            error.to_string(),
            format!(
                "my.toml:{}: `geometry.channels`: found 0, legal is a whole number from 1 to 64",
                line_with("channels = 8 ")
            )
        );
    }

    #[test]
    fn an_unknown_key_is_shown_with_the_legal_ones() {
        let error = error_of("queue_depth = 32", "queue_depht = 3\nqueue_depth = 32");
        assert_eq!(error.key, "host.queue_depht");
        assert!(error.problem.contains("no such key") && error.problem.contains("queue_depth"));
    }

    #[test]
    fn a_missing_key_names_its_table() {
        let error = error_of("erase_us = 3800", "# ");
        assert_eq!(error.key, "flash.erase_us");
        assert_eq!(error.line, line_with("[flash]"));
        assert!(error.problem.contains("is missing"));
    }

    #[test]
    fn a_unit_left_out_is_called_that() {
        let error = error_of("erase_us = 3800", "erase = 3800");
        assert_eq!(error.key, "flash.erase_us");
        assert!(error.problem.contains("found `erase`") && error.problem.contains("unit"));
    }

    #[test]
    fn a_key_without_effect_is_refused() {
        let error = error_of("start_blocks = 12", "choices = 8\nstart_blocks = 12");
        assert_eq!(error.key, "gc.choices");
        assert!(error.problem.contains("d_choices"));
    }

    #[test]
    fn a_key_of_multi_plane_commands_is_refused_where_there_are_none() {
        let text = registry::text("mx100-256").expect("listed");
        let alone = [
            ("planes_per_die = 2", "planes_per_die = 1"),
            ("interleave = \"die\"", "interleave = \"plane\""),
        ];
        let keys = [
            ("erase_us =", "multi_plane_reach = 4"),
            ("rate_mt_s =", "plane_command_ns = 100"),
        ];
        for (before, key) in keys {
            let text = text.replacen(before, &format!("{key}\n{before}"), 1);
            DriveSpec::parse("my.toml", &text).expect("it has an effect");
            for (from, to) in alone {
                assert!(text.contains(from), "{from}");
                let text = text.replacen(from, to, 1).replacen(
                    "blocks_per_plane = 1048",
                    "blocks_per_plane = 2096",
                    1,
                );
                let error = DriveSpec::parse("my.toml", &text).expect_err(to);
                assert!(key.starts_with(error.key.rsplit('.').next().expect("one")));
                assert!(error.problem.contains("several planes"), "{error}");
            }
        }
    }

    #[test]
    fn a_key_mistyped_is_found() {
        let error = error_of("erase_us = 3800", "eraes_us = 3800");
        assert_eq!(error.key, "flash.erase_us");
        assert_eq!(error.line, line_with("erase_us = 3800"));
        assert!(
            error
                .problem
                .starts_with("found `eraes_us`; write `erase_us = ...` (")
        );
    }

    #[test]
    fn a_geometry_too_small_for_its_capacity_is_refused() {
        let error = error_of("blocks_per_plane = 1048", "blocks_per_plane = 900");
        assert_eq!(error.key, "geometry.blocks_per_plane");
        assert_eq!(error.line, line_with("blocks_per_plane"));
    }

    #[test]
    fn no_toml_at_all_is_an_error_with_its_line() {
        let error = DriveSpec::parse("x.toml", "a = 1\nb = = 2\n").expect_err("no TOML");
        assert_eq!((error.file.as_str(), error.line), ("x.toml", 2));
    }

    #[test]
    fn ncq_has_32_tags() {
        let error = error_of("queue_depth = 32", "queue_depth = 64");
        assert_eq!(error.key, "host.queue_depth");
        let error = error_of("queue_depth = 32", "queues = 4\nqueue_depth = 32");
        assert_eq!(error.key, "host.queues");
    }

    #[test]
    fn a_bus_has_8_or_16_wires_and_codewords_fit_a_page() {
        let error = error_of("codeword_bytes = 2048", "codeword_bytes = 32768");
        assert!(error.problem.contains("at most a page"), "{error}");
        let error = error_of(
            "codeword_bytes = 2048",
            "width_bits = 12\ncodeword_bytes = 2048",
        );
        assert!(error.problem.contains("8 or 16"), "{error}");
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(
            from in 0usize..4000, to in 0usize..4000, with in "\\PC{0,12}",
        ) {
            let text = registry::text("mx100-256").expect("listed");
            let (from, to) = (from.min(to).min(text.len()), from.max(to).min(text.len()));
            let changed = format!("{}{with}{}", &text[..from], &text[to..]);
            let _ = DriveSpec::parse("x.toml", &changed);
        }
    }
}
