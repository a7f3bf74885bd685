#!/bin/sh
# Builds the extension beside the package's Python: as the tests of the rest are built, or, with
# `release`, as users have it.
set -eu
cd "$(dirname "$0")/.."
profile=${1:-debug}
as=
[ "$profile" = debug ] || as=--$profile
${CARGO:-cargo} build --manifest-path python/Cargo.toml --target-dir target --locked $as
cp --remove-destination "target/$profile/lib_blklab.so" python/blklab/_blklab.abi3.so
