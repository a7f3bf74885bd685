#!/usr/bin/env python3
"""Draws a sample of the changes that cargo-mutants makes, and tells which of them no test notices.

All mutants of the sample are in one build (weave.py). A run of every test without a mutant tells
how long it takes and which mutants it reaches. Each mutant is then chosen for those tests of its
own crate and of conform that reach it, the quickest first, until one fails or does not end.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from weave import Tree, listed

ROOT = Path(__file__).resolve().parents[2]
JUDGE = "conform"
# A mutant that allocates without end must not take the machine with it.
MEMORY_KB = 6 << 20
CAUGHT, TIMED_OUT, MISSED = "caught", "timed out", "missed"
NOT_REACHED, NOT_COMPILED = "not reached", "not compiled"


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


@dataclass
class Test:
    """A test by itself, what it takes without a mutant, and the mutants that it reaches."""

    program: str
    folder: Path
    name: str
    took_s: float = 0
    reaches: frozenset = frozenset()

    def run(self, environment, limit_s):
        """How it ends: caught if it fails, timed out, or missed if it passes."""
        process = subprocess.Popen(
            ["sh", "-c", f'ulimit -v {MEMORY_KB}; exec "$@"', "sh", self.program]
            + ["--exact", self.name, "--test-threads", "1"],
            cwd=self.folder,
            env={
                **os.environ,
                "RUST_BACKTRACE": "0",
                "INSTA_UPDATE": "no",
                "PROPTEST_RNG_SEED": "1",
                "PROPTEST_MAX_SHRINK_ITERS": "0",
                "PROPTEST_DISABLE_FAILURE_PERSISTENCE": "true",
                **environment,
            },
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            return CAUGHT if process.wait(limit_s) else MISSED
        except subprocess.TimeoutExpired:
            return TIMED_OUT
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def measure(self, reached):
        """Runs it without a mutant. `reached` is a file for the mutants that it comes to."""
        reached.write_text("")
        start = time.monotonic()
        if self.run({"MUTANTS_REACHED": str(reached)}, 3600) != MISSED:
            sys.exit(f"without a mutant, {self.name} of {self.program} does not pass")
        self.took_s = time.monotonic() - start
        self.reaches = frozenset(map(int, reached.read_text().split()))
        reached.unlink()

    def judge(self, mutant):
        return self.run({"MUTANT": str(mutant.number)}, 20 + 5 * self.took_s)


def tests_of(program, folder):
    """The tests of a program; lines other than `name: test` are not about one."""
    lines = subprocess.check_output([program, "--list"], cwd=folder, text=True).splitlines()
    names = [line.removesuffix(": test") for line in lines if line.endswith(": test")]
    return [Test(program, folder, name) for name in names]


def judge(mutant, tests):
    """What the tests say of a mutant."""
    reaching = [test for test in tests if mutant.number in test.reaches]
    for test in sorted(reaching, key=lambda test: test.took_s):
        found = test.judge(mutant)
        if found != MISSED:
            return found
    return MISSED if reaching else NOT_REACHED


def summary(of, outcomes):
    """A line of counts and the share that is caught; one that does not end is caught too."""
    counts = Counter(outcomes)
    judged = len(outcomes) - counts[NOT_COMPILED]
    found = counts[CAUGHT] + counts[TIMED_OUT]
    share = 100 * found / judged if judged else 100
    parts = (CAUGHT, TIMED_OUT, MISSED, NOT_REACHED, NOT_COMPILED)
    told = ", ".join(f"{counts[part]} {part}" for part in parts)
    return f"{of}: {told}: {found} of {judged}, {share:.1f} %", share


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("crates", nargs="+")
    parser.add_argument("--seed", default="1", help="draws the sample")
    parser.add_argument("--share", type=float, default=1, help="of all mutants, in percent")
    parser.add_argument("--least", type=float, default=95, help="percent to be caught for success")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="tests at a time")
    options = parser.parse_args()

    drawn = sample(options.crates, options.share, options.seed)
    folder = ROOT / "target" / "mutants"
    print(f"seed {options.seed}: {len(drawn)} mutants drawn, building", flush=True)
    mutants, of_crate = build(
        Tree(ROOT, folder, options.crates), drawn, dict.fromkeys([*options.crates, JUDGE])
    )
    tests = {
        crate: [test for program in of for test in tests_of(*program)]
        for crate, of in of_crate.items()
    }
    every = [test for of in tests.values() for test in of]
    print(f"{len(mutants)} compile, running {len(every)} tests without them", flush=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(lambda at: every[at].measure(folder / f"reached-{at}"), range(len(every))))

        def told(mutant):
            own = [test for crate in dict.fromkeys([mutant.crate, JUDGE]) for test in tests[crate]]
            found = judge(mutant, own)
            if found != CAUGHT:
                print(f"{found}: {mutant.name}", flush=True)
            return mutant.number, found

        outcomes = dict(pool.map(told, mutants))
    for crate in [*options.crates, "all"]:
        of = [mutant for mutant in drawn if crate in (mutant.crate, "all")]
        line, share = summary(crate, [outcomes.get(m.number, NOT_COMPILED) for m in of])
        print(line)
    sys.exit(share < options.least)


if __name__ == "__main__":
    main()
