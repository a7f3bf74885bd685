//! Makes the pages of `docs/reference` from declarations, and those of `docs/evidence`
//! from runs of the `blklab` command, so that no figure in them is typed by hand.
//!
//! An evidence page is a template in `pages/`: prose, and fenced blocks marked
//! `evidence` that name commands and which parts of their output to show.

mod block;
mod calibrate;
mod compare;
mod conform;
mod map;
mod measured;
mod page;
mod part;
mod program;
mod questions;
mod recorded;
mod reference;
mod run;
mod set;
mod share;
#[cfg(test)]
mod tidy;
mod worlds;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use program::Program;

/// The project's own folder of measured data.
const OWN_DATA: &str = "tests/data";

/// Makes the pages of docs/reference and docs/evidence.
#[derive(Parser)]
#[command(name = "blklab-docs")]
enum Args {
    /// Write the reference pages from the declarations
    Reference {
        /// The folder of the pages
        #[arg(long, value_name = "DIR", default_value = "docs/reference")]
        out: PathBuf,
    },
    /// Fit descriptions to those rows of a set that are meant for it, and print the
    /// fitted keys
    Fit {
        /// The name of the set
        set: String,
        /// The keys to fit, as in `blklab calibrate --fit`
        #[arg(long, value_name = "KEYS", default_value = "costs.*")]
        keys: String,
        /// How often the fit may simulate all rows
        #[arg(long, value_name = "N", default_value_t = 60)]
        evaluations: usize,
        /// The folder of measured data, with one folder for each set
        #[arg(long, value_name = "DIR", default_value = OWN_DATA)]
        data: PathBuf,
    },
    /// Run the commands of the evidence pages and write the pages anew
    Evidence(EvidenceArgs),
}

#[derive(clap::Args)]
struct EvidenceArgs {
    /// The blklab command to run
    #[arg(long, value_name = "FILE", default_value = "target/release/blklab")]
    blklab: PathBuf,
    /// The folder of measured data, with one folder for each set; pages whose set is
    /// missing stay as they are
    #[arg(long, value_name = "DIR", default_value = OWN_DATA)]
    data: PathBuf,
    /// The folder of the pages
    #[arg(long, value_name = "DIR", default_value = "docs/evidence")]
    out: PathBuf,
    /// Make only these pages; otherwise all, but with another folder of data those that
    /// have a set
    pages: Vec<String>,
}

fn main() -> ExitCode {
    let made = match Args::parse() {
        Args::Reference { out } => make_reference(&out),
        Args::Fit {
            set,
            keys,
            evaluations,
            data,
        } => set::fit(&set, &data, &keys, evaluations).map(|text| print!("{text}")),
        Args::Evidence(args) => make_evidence(&args),
    };
    match made {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("blklab-docs: {message}");
            ExitCode::FAILURE
        }
    }
}

fn make_reference(out: &Path) -> Result<(), String> {
    std::fs::create_dir_all(out).map_err(|e| format!("{}: {e}", out.display()))?;
    for page in reference::ALL {
        let path = out.join(page.name).with_extension("md");
        std::fs::write(&path, (page.make)()).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}

fn make_evidence(args: &EvidenceArgs) -> Result<(), String> {
    if let Some(unknown) = (args.pages.iter()).find(|name| page::find(name).is_none()) {
        let names: Vec<&str> = page::ALL.iter().map(|page| page.name).collect();
        return Err(format!(
            "there is no page called {unknown}; there are {}",
            names.join(", ")
        ));
    }
    let program = Program::new(&args.blklab, &args.data)?;
    std::fs::create_dir_all(&args.out).map_err(|e| format!("{}: {e}", args.out.display()))?;
    let is_own = args.data == Path::new(OWN_DATA);
    let wanted = |page: &&page::Page| match args.pages.is_empty() {
        true => is_own || page.set.is_some(),
        false => args.pages.iter().any(|name| name == page.name),
    };
    let mut failed = Vec::new();
    for page in page::ALL.iter().filter(wanted) {
        if let Some(missing) = page.missing(&args.data) {
            println!("SKIPPED {}: {} is not there", page.name, missing.display());
            continue;
        }
        let path = args.out.join(page.name).with_extension("md");
        match page.make(&program, &mut |line| println!("{line}")) {
            Ok(text) => {
                std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
            }
            Err(why) => {
                eprintln!("blklab-docs: {why}");
                failed.push(page.name);
            }
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "pages that are as they were: {}",
            failed.join(", ")
        )),
    }
}
