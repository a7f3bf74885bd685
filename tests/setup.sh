#!/bin/sh
# Installs what some tests judge by; with `python`, what those of python/ need too. Nothing
# here is needed to build or run.
set -u

want() { # command package
    command -v "$1" >/dev/null 2>&1 && return
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        apt-get install -y --no-install-recommends "$2" >/dev/null 2>&1 ||
            { apt-get update >/dev/null 2>&1 &&
              apt-get install -y --no-install-recommends "$2" >/dev/null 2>&1; }
    fi
    command -v "$1" >/dev/null 2>&1 ||
        echo "SKIPPED: tests that compare with $1 (install the package $2 to run them)"
}

want fio fio
want faketime faketime
want strace strace
# It counts instructions in `make step-costs`.
want valgrind valgrind
# Job files, not a program: an image may be set up to leave documentation out.
if [ ! -d /usr/share/doc/fio/examples ]; then
    [ "$(id -u)" != 0 ] || apt-get install -y --no-install-recommends fio-examples >/dev/null 2>&1
    [ -d /usr/share/doc/fio/examples ] ||
        echo "SKIPPED: the test of fio's examples (install the package fio-examples to run it)"
fi
want blkparse blktrace
want mpstat sysstat
want nbdinfo libnbd-bin
want nbdsh python3-libnbd
want nbdkit nbdkit
want qemu-img qemu-utils
want mkfs.ext4 e2fsprogs
want fsck.vfat dosfstools
want mcopy mtools
# For tests in a guest, whose kernel `blklab guest setup` fetches.
want qemu-system-x86_64 qemu-system-x86
want busybox busybox-static
want xz xz-utils
want depmod kmod
want sg_readcap sg3-utils

# Readers of tables, and what checks and tests python/, in a Python of their own.
python=target/python/bin/python
modules() { # what they are for, names to install, modules to import
    "$python" -c "import $3" 2>/dev/null && return
    [ -x "$python" ] || python3 -m venv target/python >/dev/null 2>&1
    "$python" -m pip install --quiet $2 >/dev/null 2>&1
    "$python" -c "import $3" 2>/dev/null ||
        echo "SKIPPED: $1 (python3 -m venv target/python, and pip install $2 there)"
}
modules "tests that read tables" "duckdb polars pandas pyarrow" "duckdb, polars, pandas, pyarrow"
modules "checks of python/" "mypy ruff" "mypy, ruff"
[ "${1:-}" = python ] || exit 0
modules "tests of python/" pytest pytest
modules "example notebooks" "nbclient ipykernel matplotlib tqdm" "nbclient, ipykernel, matplotlib, tqdm"
modules "tests of blklab[tune]" optuna optuna
modules "tests of blklab[ray]" ray ray
modules "tests of blklab[postgresql]" "psycopg[binary] sqlalchemy>=2.1" psycopg
want pg_ctlcluster postgresql
