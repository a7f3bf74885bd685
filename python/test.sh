#!/bin/sh
# Builds the package as the tests of the rest are built, and tests it in the Python that
# tests/setup.sh makes.
set -eu
cd "$(dirname "$0")/.."
python=$PWD/target/python/bin/python
if ! "$python" -c "import pytest" 2>/dev/null; then
    echo "SKIPPED: the tests of python/ (\`make setup\` makes target/python; pytest is missing there)"
    [ "${BLKLAB_JUDGES:-}" != required ]
    exit
fi
${CARGO:-cargo} build --manifest-path python/Cargo.toml --target-dir target --locked
cp target/debug/lib_blklab.so python/blklab/_blklab.abi3.so
export PYTHONPATH="$PWD/python" BLKLAB="${BLKLAB:-$PWD/target/release/blklab}"
cd python
exec "$python" -m pytest -q -rs "$@" tests
