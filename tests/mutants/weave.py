"""Mutants woven into the sources: one build has all of them, and MUTANT=7 chooses the seventh.

A function with mutants gets its body several times, one of which a condition at its start chooses.
So any change that cargo-mutants lists works, whatever the grammar around it.
"""

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

# What chooses a body, appended to each crate's lib.rs. Without a choice, it notes which mutants a
# run comes to.
CHOOSER = """
mod mutants {
    extern crate std;

    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::{env, format, fs, io::Write};

    static CHOSEN: OnceLock<u32> = OnceLock::new();
    static REACHED: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];

    pub(crate) fn chosen(number: u32) -> bool {
        let read = || env::var("MUTANT").ok()?.parse().ok();
        let chosen = *CHOSEN.get_or_init(|| read().unwrap_or(0));
        if chosen == 0 && !REACHED[number as usize].load(Relaxed) {
            note(number);
        }
        chosen == number
    }

    #[cold]
    fn note(number: u32) {
        if let Some(path) = env::var_os("MUTANTS_REACHED") {
            let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
            file.write_all(format!("{number}\\n").as_bytes()).unwrap();
        }
        REACHED[number as usize].store(true, Relaxed);
    }
}
"""

# Comments, strings and characters, in which a brace is no brace.
OPAQUE = re.compile(
    r"""//[^\n]*|/\*.*?\*/"""
    r"""|b?r(?P<hashes>\#*)".*?"(?P=hashes)|b?"(?:\\.|[^"\\])*"|b?'(?:\\[^']+|[^\\'])'""",
    re.DOTALL,
)


@dataclass
class Mutant:
    """A change that cargo-mutants lists. Places are offsets in the file's text."""

    number: int
    crate: str
    file: str
    name: str
    body: tuple[int, int]
    changed: tuple[int, int]
    replacement: str


def offset(text, place):
    """The offset of a line and column, both from 1."""
    start = 0
    for _ in range(place["line"] - 1):
        start = text.index("\n", start) + 1
    return start + place["column"] - 1


def offsets(text, span):
    return offset(text, span["start"]), offset(text, span["end"])


def body_of(text, function):
    """The function's body with its braces; None without `fn`, or where no condition can be at its
    start: in a `const fn`, or before bodies of several types."""
    start, end = function
    bare = OPAQUE.sub(lambda found: " " * len(found[0]), text[start:end])
    keyword = re.search(r"\bfn\b", bare)
    if not keyword:
        return None
    depth = 0
    for at in range(keyword.start(), len(bare)):
        if bare[at] == "{" and depth == 0:
            break
        depth += (bare[at] in "([") - (bare[at] in ")]")
    signature = bare[:at]
    if re.search(r"\bconst\s+fn\b|->[^{]*\bimpl\b", signature):
        return None
    return start + at, end


def listed(root, crate):
    """All mutants of a crate that can be chosen at run time."""
    command = ["cargo", "mutants", "--list", "--json", "--package", f"blklab-{crate}"]
    rows = json.loads(subprocess.check_output(command, cwd=root, text=True))
    texts, mutants = {}, []
    for row in rows:
        text = texts.setdefault(row["file"], (root / row["file"]).read_text())
        if not row["function"]:
            continue
        function = offsets(text, row["function"]["span"])
        body, changed = body_of(text, function), offsets(text, row["span"])
        if body:
            mutant = Mutant(0, crate, row["file"], row["name"], body, changed, row["replacement"])
            mutants.append(mutant)
    return mutants


def mutated_body(text, mutant):
    (start, end), (first, last) = mutant.body, mutant.changed
    return text[start:first] + mutant.replacement + text[last:end]


def woven(text, mutants):
    """The file's text with the mutants' bodies, and for each mutant its first and last line."""
    lines, parts, at = {}, [], 0
    bodies = {}
    for mutant in sorted(mutants, key=lambda m: (m.body, m.number)):
        bodies.setdefault(mutant.body, []).append(mutant)
    for (start, end), of_body in bodies.items():
        if start < at:
            raise ValueError(f"a function inside a function: {of_body[0].name}")
        parts += [text[at:start], "{\n"]
        for mutant in of_body:
            first = "".join(parts).count("\n") + 1
            body = mutated_body(text, mutant)
            parts.append(f"if crate::mutants::chosen({mutant.number}) {body}\nelse ")
            lines[mutant.number] = (first, first + body.count("\n"))
        parts += [text[start:end], "\n}"]
        at = end
    return "".join(parts + [text[at:]]), lines


class Tree:
    """A copy of the sources in which mutants are woven; what has none is a link."""

    def __init__(self, root, folder, crates):
        self.root, self.folder, self.crates = root, folder, crates
        (folder / "crates").mkdir(parents=True, exist_ok=True)
        for entry in [*root.iterdir(), *(root / "crates").iterdir()]:
            place = folder / entry.relative_to(root)
            own = entry.name in crates and entry.parent.name == "crates"
            if own or entry.name in ("crates", "target", ".git") or place.is_symlink():
                continue
            place.symlink_to(entry)
        self.lines = {}

    def weave(self, mutants):
        """Writes the crates' files, those alone that differ, so that the others are not built."""
        self.lines = {}
        count = max((mutant.number for mutant in mutants), default=0) + 1
        chooser = CHOOSER.replace("COUNT", str(count)).encode()
        for crate in self.crates:
            source = self.root / "crates" / crate
            wanted = {path.relative_to(source) for path in source.rglob("*") if path.is_file()}
            copy = self.folder / "crates" / crate
            for path in list(copy.rglob("*")):
                if path.is_file() and path.relative_to(copy) not in wanted:
                    path.unlink()
            for path in wanted:
                of_file = [m for m in mutants if m.file == f"crates/{crate}/{path}"]
                self.write(crate, path, of_file, chooser)

    def write(self, crate, path, mutants, chooser):
        source, copy = (base / "crates" / crate / path for base in (self.root, self.folder))
        content = source.read_bytes()
        if mutants:
            text, self.lines[mutants[0].file] = woven(content.decode(), mutants)
            content = text.encode()
        if path == Path("src/lib.rs"):
            content += chooser
        if not copy.exists() or copy.read_bytes() != content:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)

    def blamed(self, message):
        """The mutants in whose lines a message of the compiler points."""
        found = set()
        for part in [message, *message["children"]]:
            for span in part["spans"]:
                for number, (first, last) in self.lines.get(span["file_name"], {}).items():
                    if first <= span["line_start"] <= last:
                        found.add(number)
        return found
