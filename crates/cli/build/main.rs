//! Tells the program which sources it was built from: results of different ones are never
//! mixed, and those of the same ones are, on whatever machine they were built.

mod sources;

use std::env;
use std::path::PathBuf;

use sources::Sources;

fn main() {
    let own = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let workspace = PathBuf::from(own).join("../..");
    let sources = Sources::of(&workspace, "crates/cli");
    for place in &sources.watched {
        println!("cargo:rerun-if-changed={}", place.display());
    }
    println!("cargo:rustc-env=BLKLAB_SOURCES={:016x}", sources.hash);
    let profile = env::var("PROFILE").unwrap_or_default();
    println!("cargo:rustc-env=BLKLAB_PROFILE={profile}");
}
