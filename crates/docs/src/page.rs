//! The evidence pages.

use std::path::{Path, PathBuf};

use crate::block::Block;
use crate::program::Program;

/// An evidence page.
pub struct Page {
    /// The page's name, without `.md`.
    pub name: &'static str,
    /// The folder of measured data that the page needs, if any.
    pub set: Option<&'static str>,
    pub(crate) template: &'static str,
}

macro_rules! page {
    ($name:literal, $set:expr) => {
        Page {
            name: $name,
            set: $set,
            template: include_str!(concat!("../pages/", $name, ".md")),
        }
    };
}

/// All pages.
pub const ALL: &[Page] = &[
    page!("thesis", Some("thesis")),
    page!("studies", None),
    page!("pi4-ext2", None),
    page!("pi4-assumed", None),
    page!("drive-choices", None),
    page!("ac2", None),
    page!("isolation", None),
    page!("kernel-traces", Some("kernel-traces")),
    page!("page-cache", Some("page-cache-traces")),
    page!("mmc-traces", Some("mmc-traces")),
    page!("nvme-980pro", Some("nvme-980pro")),
    page!(
        "engines-schedulers-optane",
        Some("engines-schedulers-optane")
    ),
    page!("iouring-kioxia-cm7", Some("iouring-kioxia-cm7")),
    page!("nvme-rocket4plus", Some("nvme-rocket4plus")),
    page!("hdd-raid-controller", Some("hdd-raid-controller")),
    page!("sd-cards", Some("sd-cards")),
    page!("disksim-hdds", Some("disksim-hdds")),
    page!("iocost-models", Some("iocost-models")),
    page!("questions", Some("questions")),
    page!("front-ends", Some("front-ends")),
    page!("kernel-module", Some("kernel-module")),
    page!("servers", Some("servers")),
    page!("ssd-write-amplification", Some("ssd-write-amplification")),
    page!("page-cache-workflows", Some("page-cache-workflows")),
];

/// Finds the page called `name`.
pub fn find(name: &str) -> Option<&'static Page> {
    ALL.iter().find(|page| page.name == name)
}

const BEGIN: &str = "```evidence\n";
const END: &str = "```\n";

impl Page {
    /// Returns the folder of data that the page needs, if it is missing.
    pub fn missing(&self, data: &Path) -> Option<PathBuf> {
        let folder = data.join(self.set?);
        (!folder.is_dir()).then_some(folder)
    }

    /// Makes the page by running its blocks, and gives the summary lines of each to `show` as
    /// soon as they are known. A block that fails does not keep the others from theirs.
    ///
    /// # Errors
    /// If the template has a mistake or a command fails; the message names all that failed.
    pub fn make(&self, program: &Program, show: &mut dyn FnMut(&str)) -> Result<String, String> {
        let (mut text, mut failed) = (String::new(), Vec::new());
        let mut rest = self.template;
        while let Some((prose, block)) = rest.split_once(BEGIN) {
            let (block, after) = block
                .split_once(END)
                .ok_or_else(|| format!("{}: a block without end", self.name))?;
            let block: Block = toml::from_str(block).map_err(|e| format!("{}: {e}", self.name))?;
            match block.make(program) {
                Ok(part) => {
                    part.groups.iter().for_each(|line| show(line));
                    text += prose;
                    text += &part.text;
                }
                Err(why) => failed.push(format!("{}: {why}", self.name)),
            }
            rest = after;
        }
        text += rest;
        match failed.is_empty() {
            true => Ok(text),
            false => Err(failed.join("\n")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ALL, BEGIN, END};
    use crate::block::Block;

    /// Limit on the words of prose that a page may have beside its tables.
    const WORDS: usize = 1500;

    #[test]
    fn every_template_is_read() {
        for page in ALL {
            let mut words = 0;
            for (n, piece) in page.template.split(BEGIN).enumerate() {
                let prose = if n == 0 {
                    piece
                } else {
                    let (block, after) = piece.split_once(END).expect("an end");
                    let block: Result<Block, _> = toml::from_str(block);
                    block
                        .map(drop)
                        .unwrap_or_else(|e| panic!("{}: {e}", page.name));
                    after
                };
                words += prose.split_whitespace().count();
            }
            assert!(words <= WORDS, "{}: {words} words", page.name);
        }
    }
}
