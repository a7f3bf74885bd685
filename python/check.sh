#!/bin/sh
# Checks the package's Python without building it.
set -eu
cd "$(dirname "$0")"
python=../target/python/bin/python
if ! "$python" -c "import mypy, ruff" 2>/dev/null; then
    echo "SKIPPED: the checks of python/ (\`make setup\` makes target/python; mypy or ruff is missing there)"
    [ "${BLKLAB_JUDGES:-}" != required ]
    exit
fi
"$python" -m ruff check --quiet .
"$python" -m ruff format --quiet --check .
"$python" -m mypy
