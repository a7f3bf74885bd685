//! How many cases a property test tries.

use proptest::prelude::ProptestConfig;

/// So many, or what `PROPTEST_CASES` says.
pub fn cases(usual: u32) -> ProptestConfig {
    let config = ProptestConfig::default();
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => config,
        None => ProptestConfig {
            cases: usual,
            ..config
        },
    }
}
