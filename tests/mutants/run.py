#!/usr/bin/env python3
"""Draws a sample of the changes that cargo-mutants makes, and tells which of them no test notices.

All mutants of the sample are in one build (weave.py). Each is then chosen for the tests of its own
crate and of conform, until one fails, or they take longer than any run without a mutant would.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from weave import Tree, listed

ROOT = Path(__file__).resolve().parents[2]
JUDGE = "conform"
# A mutant that allocates without end must not take the machine with it.
MEMORY_KB = 6 << 20


def sample(crates, share, seed):
    """The same mutants for the same sources, share and seed."""
    drawn = []
    for crate in crates:
        of_crate = listed(ROOT, crate)
        count = max(1, round(len(of_crate) * share / 100))
        drawn += random.Random(f"{seed} {crate}").sample(of_crate, count)
    for number, mutant in enumerate(drawn, 1):
        mutant.number = number
    return drawn


def build(tree, mutants, crates):
    """Builds the tests without those mutants that do not compile. Returns the mutants that do, and
    the test programs of each crate."""
    packages = [word for crate in crates for word in ("--package", f"blklab-{crate}")]
    command = ["cargo", "build", "--tests", "--locked", "--keep-going", "--message-format", "json"]
    while True:
        tree.weave(mutants)
        run = subprocess.run(
            [*command, *packages, "--target-dir", tree.folder / "target"],
            cwd=tree.folder,
            capture_output=True,
            text=True,
        )
        rows = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
        if run.returncode == 0:
            return mutants, programs(rows)
        errors = [row["message"] for row in rows if row["reason"] == "compiler-message"]
        errors = [message for message in errors if message["level"] == "error"]
        blamed = set().union(*(tree.blamed(message) for message in errors))
        if not blamed:
            sys.exit("".join(message["rendered"] for message in errors) or run.stderr)
        mutants = [mutant for mutant in mutants if mutant.number not in blamed]


def programs(rows):
    """Test programs with the folder that they run in, by crate."""
    found = {}
    for row in rows:
        if row["reason"] == "compiler-artifact" and row["executable"] and row["profile"]["test"]:
            folder = Path(row["manifest_path"]).parent
            found.setdefault(folder.name, []).append((row["executable"], folder))
    return found


def passes(program, mutant, limit_s):
    """Whether a test program passes within a time. Its first failure ends it."""
    executable, folder = program
    environment = {
        **os.environ,
        "MUTANT": str(mutant),
        "RUST_BACKTRACE": "0",
        "RUST_TEST_THREADS": "1",
        "INSTA_UPDATE": "no",
        "PROPTEST_RNG_SEED": "1",
        "PROPTEST_MAX_SHRINK_ITERS": "0",
        "PROPTEST_DISABLE_FAILURE_PERSISTENCE": "true",
    }
    process = subprocess.Popen(
        ["sh", "-c", f'ulimit -v {MEMORY_KB}; exec "$0"', executable],
        cwd=folder,
        env=environment,
        start_new_session=True,
        text=True,
        errors="replace",
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    timer = threading.Timer(limit_s, os.killpg, (process.pid, signal.SIGKILL))
    timer.start()
    for line in process.stdout:
        if line.endswith("... FAILED\n"):
            os.killpg(process.pid, signal.SIGKILL)
            break
    timer.cancel()
    return process.wait() == 0


def baseline(of_crate, pool):
    """The time that each program may take with a mutant."""

    def limit_s(program):
        start = time.monotonic()
        if not passes(program, 0, 3600):
            sys.exit(f"without a mutant, {program[0]} fails")
        return 20 + 5 * (time.monotonic() - start)

    programs = [program for of_one in of_crate.values() for program in of_one]
    return dict(zip(programs, pool.map(limit_s, programs)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("crates", nargs="+")
    parser.add_argument("--seed", default="1", help="draws the sample")
    parser.add_argument("--share", type=float, default=1, help="of all mutants, in percent")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants at a time")
    options = parser.parse_args()

    drawn = sample(options.crates, options.share, options.seed)
    tree = Tree(ROOT, ROOT / "target" / "mutants", options.crates)
    mutants, of_crate = build(tree, drawn, dict.fromkeys([*options.crates, JUDGE]))
    print(f"seed {options.seed}: {len(drawn)} mutants drawn, {len(mutants)} compile", flush=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        limits_s = baseline(of_crate, pool)

        def caught(mutant):
            own = dict.fromkeys([*of_crate[mutant.crate], *of_crate[JUDGE]])
            found = not all(passes(program, mutant.number, limits_s[program]) for program in own)
            if not found:
                print(f"missed: {mutant.name}", flush=True)
            return found

        results = list(pool.map(caught, mutants))
    for crate in [*options.crates, "all"]:
        judged = [found for of, found in zip(mutants, results) if crate in (of.crate, "all")]
        print(f"{crate} caught {sum(judged)} of {len(judged)}")


if __name__ == "__main__":
    main()
