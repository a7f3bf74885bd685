#!/bin/sh
# Builds the package, and tests it in the Python that tests/setup.sh makes.
set -eu
cd "$(dirname "$0")/.."
python=$PWD/target/python/bin/python
if ! "$python" -c "import pytest" 2>/dev/null; then
    echo "SKIPPED: the tests of python/ (\`make setup\` makes target/python; pytest is missing there)"
    [ "${BLKLAB_JUDGES:-}" != required ]
    exit
fi
./python/build.sh
export PYTHONPATH="$PWD/python" BLKLAB="${BLKLAB:-$PWD/target/release/blklab}"
cd python
exec "$python" -m pytest -q -rs "$@" tests
