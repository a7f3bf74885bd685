//! Drive descriptions: TOML in, a drive out.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use blklab_description::{
    Assumed, Kind, ReadError, Reference, SpecError, Table, one_of, read_with_reference, text, word,
};
use strum::{Display, EnumMessage, EnumString, VariantArray};

use crate::faults::{Faults, FaultyDevice};
use crate::power_states::{PowerLayer, PowerSpec};
use crate::zoned::ZoneLayer;
use crate::{Device, Identity, MODELS, Published};

/// Reads the tables of a kind of drive.
pub(crate) type ReadModel = fn(&Table<'_>, Interface) -> Result<Arc<dyn Model>, ReadError>;

/// A kind of drive.
pub(crate) struct ModelType {
    /// What descriptions call it.
    pub(crate) name: &'static str,
    /// What it is, for the reference.
    pub(crate) about: &'static str,
    /// Reads what is its own in a description.
    pub(crate) read: ReadModel,
    /// Descriptions that together have every key of this kind of drive, by name: the
    /// reference is made from them, and tests mutate them.
    pub(crate) complete: &'static [(&'static str, &'static str)],
}

/// What a drive is made of.
pub(crate) trait Model: fmt::Debug + Send + Sync {
    /// What the host sees.
    fn identity(&self) -> &Identity;

    /// Whether what it does depends on what it did before.
    fn has_state(&self) -> bool {
        true
    }

    /// The same in another state; `None` where what was written to it before makes
    /// no difference.
    fn in_state(&self, _state: DriveState) -> Option<Arc<dyn Model>> {
        None
    }

    /// What was written to it before; nothing where that makes no difference.
    fn state(&self) -> DriveState {
        DriveState::Fresh
    }

    /// A drive as described; `seed` decides whatever is left to chance inside.
    fn build(&self, seed: u64) -> Box<dyn Device>;
}

/// What was written to a drive before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumMessage, EnumString, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum DriveState {
    /// Nothing was ever written.
    Fresh,
    /// Written once from end to end.
    Filled,
    /// Written to, then overwritten until the flash is steady.
    Aged,
}

/// How a drive is attached, for the choice of its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumMessage, VariantArray)]
#[strum(serialize_all = "snake_case")]
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

impl Interface {
    /// The most commands on its one queue, and the words for that in a message; `None`
    /// where the number and depth of queues are not limited.
    fn most_commands(self) -> Option<(u32, &'static str)> {
        match self {
            Interface::Ahci => Some((32, "at most 32 where interface = \"ahci\"")),
            Interface::Mmc => Some((
                1,
                "1 where interface = \"mmc\": a card takes one command at a time",
            )),
            Interface::Loop => Some((128, "at most 128 where interface = \"loop\"")),
            Interface::Nvme | Interface::Null => None,
        }
    }

    /// Refuses queues that it does not have.
    fn check(self, identity: &Identity, root: &Table<'_>) -> Result<(), ReadError> {
        let Some((most, legal)) = self.most_commands() else {
            return Ok(());
        };
        if identity.max_queues > 1 {
            let problem = "legal is 1 where interface is not \"nvme\" or \"null\"";
            return Err(root.table("host")?.wrong("queues", problem));
        }
        match identity.queue_depth <= most {
            true => Ok(()),
            false => Err(root
                .table("host")?
                .wrong("queue_depth", format!("legal is {legal}"))),
        }
    }
}

/// Picoseconds a byte at a rate in decimal megabytes a second.
pub(crate) fn byte_ps(mb_s: f64) -> u64 {
    libm::round(1e6 / mb_s) as u64
}

/// A drive description, checked.
#[derive(Clone, Debug)]
pub struct DriveSpec {
    /// Its name: the registry's, or the file's.
    pub name: String,
    /// One line of help.
    pub description: String,
    /// How it is attached.
    pub interface: Interface,
    /// Values that nobody measured, the one that matters most first.
    pub assumed: Vec<Assumed>,
    /// What is said of it, if anything.
    pub published: Option<Published>,
    faults: Option<Faults>,
    model: Arc<dyn Model>,
    /// Zones on top of the model.
    zones: Option<ZoneLayer>,
    /// Power states on top of both.
    power: Option<PowerSpec>,
}

/// Why no zoned drive is aged.
const ZONED_IS_NOT_AGED: &str =
    "a zoned drive is written zone by zone, never overwritten; legal are \"fresh\" and \"filled\"";

impl DriveSpec {
    /// Reads a description; `name` is the file as the user named it.
    ///
    /// # Errors
    /// Where the text is no description; the message has file and line.
    pub fn parse(name: &str, text: &str) -> Result<DriveSpec, SpecError> {
        DriveSpec::parse_with_reference(name, text).map(|(spec, _)| spec)
    }

    /// The same, with all keys that such a drive can have.
    ///
    /// # Errors
    /// As [`DriveSpec::parse`].
    pub fn parse_with_reference(
        name: &str,
        text: &str,
    ) -> Result<(DriveSpec, Reference), SpecError> {
        read_with_reference(name, text, |root| DriveSpec::read(name, root))
    }

    fn read(name: &str, root: &Table<'_>) -> Result<DriveSpec, ReadError> {
        let description = root.key("description", "A line of help.", text())?;
        let interface = root.key(
            "interface",
            "How it is attached, for the choice of its driver.",
            word(),
        )?;
        let kinds = MODELS.map(|kind| (kind.name, kind.about, kind));
        let kind = root.key("model", "What it is made of.", one_of(kinds))?;
        let model = (kind.read)(root, interface)?;
        let assumed = root.assumed()?;
        let published = root.read_if_any("published", Published::read)?;
        let zones = root.read_if_any("zones", |table| {
            ZoneLayer::read(root, table, model.identity())
        })?;
        let power = root.read_if_any("power", PowerSpec::read)?;
        root.finish()?;
        interface.check(model.identity(), root)?;
        if zones.is_some() && matches!(interface, Interface::Mmc | Interface::Loop) {
            let problem = "legal is to leave this table out where interface is \"mmc\" or \
                           \"loop\": Linux has no zoned cards and no zoned loop devices";
            return Err(root.wrong("zones", problem));
        }
        if zones.is_some() && model.state() == DriveState::Aged {
            return Err(root.wrong("state", ZONED_IS_NOT_AGED));
        }
        Ok(DriveSpec {
            name: name.to_string(),
            description,
            interface,
            assumed,
            published,
            faults: None,
            model,
            zones,
            power,
        })
    }

    /// Descriptions that have, together, every key of every kind of drive, by
    /// name.
    pub fn complete() -> impl Iterator<Item = (&'static str, &'static str)> {
        MODELS.iter().flat_map(|kind| kind.complete).copied()
    }

    /// What was written to it before the first command.
    pub fn state(&self) -> DriveState {
        self.model.state()
    }

    /// Whether it holds data before the first command; a drive with zones has full ones then.
    pub fn starts_written(&self) -> bool {
        self.state() != DriveState::Fresh
    }

    /// What the host will see.
    pub fn identity(&self) -> &Identity {
        match &self.zones {
            Some(zones) => zones.identity(),
            None => self.model.identity(),
        }
    }

    /// Whether what it does depends on what it did before.
    pub fn has_state(&self) -> bool {
        self.model.has_state()
    }

    /// The drive in a state that its description does not have.
    ///
    /// # Errors
    /// Where what was written to it before makes no difference.
    pub fn in_state(mut self, state: DriveState) -> Result<DriveSpec, String> {
        let Some(model) = self.model.in_state(state) else {
            return Err(format!(
                "{}: no SSD, so what was written to it before makes no difference: leave out \
                 the state {state}",
                self.name
            ));
        };
        if self.zones.is_some() && state == DriveState::Aged {
            return Err(format!("{}: {ZONED_IS_NOT_AGED}", self.name));
        }
        self.model = model;
        Ok(self)
    }

    /// Faults that it was given.
    pub fn faults(&self) -> Option<Faults> {
        self.faults
    }

    /// The drive with faults.
    pub fn with_faults(self, faults: Faults) -> DriveSpec {
        DriveSpec {
            faults: Some(faults),
            ..self
        }
    }

    /// A drive as described; `seed` decides whatever is left to chance inside.
    pub fn build(&self, seed: u64) -> Box<dyn Device> {
        let model = self.model.build(seed);
        let device = match &self.zones {
            Some(zones) => zones.put_on(model, self.starts_written()),
            None => model,
        };
        let device = match &self.power {
            Some(power) => Box::new(PowerLayer::new(device, power)),
            None => device,
        };
        match self.faults {
            Some(faults) => Box::new(FaultyDevice::new(device, faults, seed)),
            None => device,
        }
    }
}

/// All keys of every kind of drive as a page of Markdown.
pub fn reference() -> String {
    let mut page = String::from(
        "# Drive descriptions\n\nEvery key of a file in `drives/` and of one's own, by kind of drive.\n",
    );
    for kind in MODELS {
        page += &format!("\n# `model = \"{}\"`\n\n{}\n\n", kind.name, kind.about);
        page += &keys_of(kind).markdown();
    }
    page
}

/// All keys of a kind of drive.
fn keys_of(kind: &ModelType) -> Reference {
    let mut all = Reference::default();
    for (name, text) in kind.complete {
        let read = DriveSpec::parse_with_reference(name, text);
        all.merge(read.expect("tests read it").1);
    }
    all
}

/// Whether a key, named with its table, takes whole numbers alone in every kind of drive that has
/// it.
pub fn takes_whole_numbers(key: &str) -> bool {
    let references = MODELS.map(keys_of);
    let mut kinds = references
        .iter()
        .filter_map(|all| Some(&all.key(key)?.kind));
    let is_whole = |kind: &Kind| *kind == Kind::Whole;
    kinds.next().is_some_and(is_whole) && kinds.all(is_whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry;

    #[test]
    fn whole_numbers_are_told_from_fractions() {
        for key in [
            "host.queue_depth",
            "host.capacity_bytes",
            "timing.parallelism",
        ] {
            assert!(takes_whole_numbers(key), "{key}");
        }
        for key in ["controller.read_us", "flash.read_us", "gc.policy", "no.key"] {
            assert!(!takes_whole_numbers(key), "{key}");
        }
    }

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

    #[test]
    fn the_reference_says_of_every_key_what_it_is() {
        let page = reference();
        for (name, text) in DriveSpec::complete() {
            let (_, keys) = DriveSpec::parse_with_reference(name, text).expect(name);
            for table in keys.tables() {
                for key in &table.keys {
                    assert!(!key.help.trim().is_empty(), "{}.{}", table.path, key.name);
                    assert!(
                        page.contains(&format!("| `{}` |", key.name)),
                        "{}",
                        key.name
                    );
                }
            }
        }
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

    #[test]
    fn an_interface_has_its_most_commands() {
        let text = |interface: &str, depth: u32| {
            format!(
                "description = \"x\"\ninterface = \"{interface}\"\nmodel = \"null\"\n[host]\n\
                 capacity_bytes = 1048576\nqueue_depth = {depth}\n[timing]\nread_ns = 1\n\
                 write_ns = 1\nflush_ns = 1\nparallelism = 1\n"
            )
        };
        for (interface, most) in [("ahci", 32), ("mmc", 1), ("loop", 128), ("nvme", 65535)] {
            let spec = DriveSpec::parse("x", &text(interface, most));
            let spec = spec.unwrap_or_else(|error| panic!("{error}"));
            assert!(!spec.has_state() && spec.faults().is_none());
            let error = DriveSpec::parse("x", &text(interface, most + 1)).expect_err(interface);
            assert_eq!(error.key, "host.queue_depth", "{interface}");
        }
        let ssd = registry::find("nvme").expect("listed").expect("parses");
        assert!(ssd.has_state());
    }
}
