//! A configuration file of control groups: the groups, the values written to their files, and the
//! jobs that run in them.
//!
//! ```text
//! [/]
//! io.cost.qos = 8:0 enable=1 rpct=95 rlat=5000 min=50 max=150
//! [/system/db]
//! io.weight = 500
//! jobs = oltp, log*
//! [/batch]
//! io.max = 8:0 wbps=10485760
//! memory.high = 512M
//! jobs = backup
//! ```
//!
//! A section is a group and is named by its path from the root, or, with `parent`, by its path in
//! another group. All other keys are names of the kernel's files, and their values are written to
//! these files.

use std::collections::BTreeSet;
use std::path::Path;

use blklab_blk::{CgroupFileOn, CgroupId, Nanos};
use blklab_blk::{QueueConfig, QueueLimits, RequestQueue};
use blklab_description::{hint, read_text};
use blklab_fs::MemoryGroup;

use crate::fio::{CgroupWrite, DriveNumber, GroupFile, JobError, JobFile, JobSpec, Note, Position};
use crate::library;

/// The most groups in a file, more than any machine has.
const GROUPS_MAX: usize = 10_000;
/// The longest name of a group (`NAME_MAX`).
const NAME_MAX: usize = 255;

/// A tree of groups, by path. The numbers begin at 1, as 0 is the root.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CgroupTree(Vec<String>);

impl CgroupTree {
    /// Makes a tree of `paths`, in which each group follows its ancestors.
    pub fn new(paths: Vec<String>) -> CgroupTree {
        CgroupTree(paths)
    }

    /// Returns the paths, by number.
    pub fn names(&self) -> &[String] {
        &self.0
    }

    /// Returns the number of a group, or of the root for an unknown path.
    pub fn find(&self, path: &str) -> CgroupId {
        let at = self.0.iter().position(|name| name == path);
        at.map_or(CgroupId::ROOT, |at| CgroupId(at as u16 + 1))
    }

    /// Returns the groups without children, as only these have processes.
    pub fn leaves(&self) -> impl Iterator<Item = (CgroupId, &str)> {
        let is_inner = |group: &str| {
            let inside = format!("{group}/");
            self.0.iter().any(|other| other.starts_with(&inside))
        };
        let all = (1..).map(CgroupId).zip(self.0.iter().map(String::as_str));
        all.filter(move |(_, name)| !is_inner(name))
    }

    /// Adds the groups to the queue of drive `n` of `drives`, and writes the values of their files
    /// that apply to this drive.
    ///
    /// # Errors
    /// Fails if the kernel refuses a value.
    pub fn put_on(
        &self,
        queue: &mut RequestQueue,
        writes: &[CgroupWrite],
        (n, drives): (usize, usize),
    ) -> Result<(), JobError> {
        for (id, name) in (1..).map(CgroupId).zip(&self.0) {
            let above = name.rsplit_once('/').map_or("", |(above, _)| above);
            queue.set_cgroup_parent(id, self.find(above));
        }
        for write in writes {
            if write.drive.is_some_and(|number| !number.is_of(n, drives)) {
                continue;
            }
            let GroupFile::Io(file) = write.file else {
                continue;
            };
            let id = self.find(&write.group);
            let written = file.write(queue, Nanos::ZERO, id, &write.text);
            written.map_err(|why| write.mistake(why))?;
        }
        Ok(())
    }

    /// The groups with the values that are written to their memory's files; none if there is
    /// no such value, as then no group has the memory controller.
    ///
    /// # Errors
    /// Fails if the kernel refuses a value, and if there are more groups than are simulated
    /// with limits of memory.
    pub fn memory_groups(&self, writes: &[CgroupWrite]) -> Result<Vec<MemoryGroup>, JobError> {
        let mut groups: Vec<MemoryGroup> = Vec::new();
        for write in writes {
            let GroupFile::Memory(file) = write.file else {
                continue;
            };
            if self.0.len() > MemoryGroup::COUNT_MAX {
                let why = format!(
                    "with limits of memory there are at most {} groups",
                    MemoryGroup::COUNT_MAX
                );
                return Err(write.mistake(why));
            }
            if groups.is_empty() {
                groups = self.0.iter().map(|name| self.unlimited(name)).collect();
            }
            if let Some(group) = groups.get_mut(usize::from(self.find(&write.group).0) - 1) {
                let written = file.write(group, &write.text);
                written.map_err(|why| write.mistake(why))?;
            }
        }
        Ok(groups)
    }

    /// The memory of a group of which nothing is said.
    fn unlimited(&self, name: &str) -> MemoryGroup {
        let above = name.rsplit_once('/').map_or("", |(above, _)| above);
        MemoryGroup::in_group(self.find(above).0)
    }
}

/// The jobs that run in a group.
#[derive(Clone, Debug)]
struct Members {
    group: String,
    /// A job's name, or a prefix of names with an asterisk.
    names: String,
    position: Position,
}

impl Members {
    fn has(&self, job: &str) -> bool {
        match self.names.strip_suffix('*') {
            Some(begin) => job.starts_with(begin),
            None => job == self.names,
        }
    }
}

/// A configuration of control groups.
#[derive(Clone, Debug, Default)]
pub struct CgroupConfig {
    /// The file's name, for messages.
    file: String,
    /// The paths of the groups; each follows its ancestors.
    groups: Vec<String>,
    writes: Vec<CgroupWrite>,
    members: Vec<Members>,
}

/// A section as it was read.
struct Section {
    name: String,
    /// Its name begins with a slash: it is a path from the root.
    is_path: bool,
    position: Position,
    parent: Option<(String, Position)>,
    lines: Vec<(String, String, Position)>,
}

impl CgroupConfig {
    /// Reads a file, or one of those that are part of the program.
    ///
    /// # Errors
    /// Fails if it cannot be read, or at its first mistake, with the line.
    pub fn read(path: &Path) -> Result<CgroupConfig, JobError> {
        let name = path.display().to_string();
        if let Some(text) = library::cgroups(&name) {
            return CgroupConfig::parse(&name, text);
        }
        let text = read_text(path).map_err(|error| {
            let position = Position {
                file: name.clone(),
                line: 0,
            };
            let why = format!("cannot be read: {error}");
            let right = format!(
                "give a file of control groups, or one of {}",
                library::cgroups_names().collect::<Vec<_>>().join(", ")
            );
            JobError::of(&position, "", why, right)
        })?;
        CgroupConfig::parse(&name, &text)
    }

    /// Reads the text of a file; `name` stands for the file in messages.
    ///
    /// # Errors
    /// Fails at the first mistake, with the line.
    pub fn parse(name: &str, text: &str) -> Result<CgroupConfig, JobError> {
        let sections = split(name, text)?;
        let mut config = CgroupConfig {
            file: name.to_string(),
            ..CgroupConfig::default()
        };
        let added = config.add_sections(&sections);
        // The error of an earlier line's value comes before that of this line.
        config.check_writes()?;
        added?;
        config.check_leaves()?;
        Ok(config)
    }

    /// Returns the tree of groups.
    pub fn tree(&self) -> CgroupTree {
        CgroupTree::new(self.groups.clone())
    }

    /// Adds the groups to a server's queue, whose drive may have any number.
    ///
    /// # Errors
    /// Fails if the kernel refuses a value.
    pub fn put_on_queue(&self, queue: &mut RequestQueue) -> Result<(), JobError> {
        let is_of_memory = |write: &&CgroupWrite| matches!(write.file, GroupFile::Memory(_));
        if let Some(write) = self.writes.iter().find(is_of_memory) {
            return Err(write.mistake("a server caches no pages for its clients; leave it out"));
        }
        self.tree().put_on(queue, &self.writes, (0, 1))
    }

    /// Writes the groups' values to a new scheduler of a queue.
    ///
    /// # Errors
    /// Fails if the kernel refuses a value.
    pub fn put_on_scheduler(&self, queue: &mut RequestQueue) -> Result<(), JobError> {
        let writes = self.writes.iter();
        let of_scheduler = |write: &&CgroupWrite| match write.file {
            GroupFile::Io(file) => file.is_of_scheduler(),
            GroupFile::Memory(_) => false,
        };
        let of_scheduler = writes.filter(of_scheduler).cloned();
        let writes: Vec<CgroupWrite> = of_scheduler.collect();
        self.tree().put_on(queue, &writes, (0, 1))
    }

    fn add_sections(&mut self, sections: &[Section]) -> Result<(), JobError> {
        for section in sections {
            let group = path_of(section, sections)?;
            self.add_group(&group, &section.position)?;
            for (key, value, position) in &section.lines {
                match key.as_str() {
                    "jobs" => self.add_members(&group, value, position)?,
                    _ => self.add_write(&group, key, value, position)?,
                }
            }
        }
        Ok(())
    }

    fn add_group(&mut self, group: &str, position: &Position) -> Result<(), JobError> {
        let ends = group.match_indices('/').map(|(at, _)| at);
        for end in ends.chain([group.len()]).filter(|end| *end > 0) {
            let path = &group[..end];
            if !self.groups.iter().any(|known| known == path) {
                self.groups.push(path.to_string());
            }
        }
        match self.groups.len() > GROUPS_MAX {
            false => Ok(()),
            true => Err(JobError::of(
                position,
                "",
                "too many groups",
                format!("at most {GROUPS_MAX}"),
            )),
        }
    }

    fn add_members(
        &mut self,
        group: &str,
        names: &str,
        position: &Position,
    ) -> Result<(), JobError> {
        let names: Vec<&str> = words(names).collect();
        if names.is_empty() {
            let right = "the names of jobs, as jobs = oltp, log*";
            return Err(JobError::of(position, "jobs", "no job is named", right));
        }
        self.members.extend(names.into_iter().map(|names| Members {
            group: group.to_string(),
            names: names.to_string(),
            position: position.clone(),
        }));
        Ok(())
    }

    fn add_write(
        &mut self,
        group: &str,
        key: &str,
        value: &str,
        position: &Position,
    ) -> Result<(), JobError> {
        let Some(file) = GroupFile::all().find(|file| file.name() == key) else {
            return Err(unknown_file(key, position));
        };
        let fail = |why: String| {
            let option = format!("{key} = {value}");
            let is_of_drive = matches!(file, GroupFile::Io(io) if io.is_of_drive);
            let drive = if is_of_drive { "8:0 " } else { "" };
            let right = format!("right is {key} = {drive}{}", file.form());
            Err(JobError::of(position, option, why, right))
        };
        let is_root = group.is_empty();
        match file.on() {
            CgroupFileOn::Root if !is_root => return fail("the root alone has it (ENOENT)".into()),
            CgroupFileOn::Others if is_root => {
                return fail("the root has no such file (ENOENT)".into());
            }
            _ => {}
        }
        let (drive, text) = match (file, drive_number(value)) {
            (GroupFile::Io(_), Some((drive, text))) => (Some(drive), text),
            (GroupFile::Io(file), None) if file.is_of_drive => {
                return fail("the number of the drive is missing, as 8:0 (EINVAL)".into());
            }
            _ => (None, value),
        };
        self.writes.push(CgroupWrite {
            group: group.to_string(),
            file,
            drive,
            text: text.to_string(),
            position: position.clone(),
        });
        Ok(())
    }

    /// Checks that the kernel accepts the values. All writes to one file are checked together, such
    /// as `min=150` followed by `max=50`.
    ///
    /// # Errors
    /// Fails at the first value that it refuses.
    fn check_writes(&self) -> Result<(), JobError> {
        let file = |write: &CgroupWrite| (write.group.clone(), write.file.name(), write.drive);
        let mut writes: Vec<(usize, &CgroupWrite)> = self.writes.iter().enumerate().collect();
        writes.sort_by_cached_key(|(_, write)| file(write));
        let refused = writes
            .chunk_by(|(_, a), (_, b)| (&a.group, a.file, a.drive) == (&b.group, b.file, b.drive))
            .filter_map(|writes| {
                let (mut queue, mut memory) = (any_queue(), MemoryGroup::in_group(0));
                writes.iter().find_map(|(n, write)| {
                    let written = match write.file {
                        GroupFile::Io(file) => {
                            file.write(&mut queue, Nanos::ZERO, CgroupId(1), &write.text)
                        }
                        GroupFile::Memory(file) => file.write(&mut memory, &write.text),
                    };
                    written.err().map(|why| (*n, write.mistake(why)))
                })
            });
        match refused.min_by_key(|(n, _)| *n) {
            Some((_, mistake)) => Err(mistake),
            None => Ok(()),
        }
    }

    /// Checks that only groups without children have processes.
    fn check_leaves(&self) -> Result<(), JobError> {
        let tree = self.tree();
        let leaves: BTreeSet<&str> = tree.leaves().map(|(_, name)| name).collect();
        let is_wrong = |members: &&Members| {
            let group = members.group.as_str();
            !group.is_empty() && !leaves.contains(group)
        };
        match self.members.iter().find(is_wrong) {
            None => Ok(()),
            Some(members) => Err(JobError::of(
                &members.position,
                format!("jobs = {}", members.names),
                format!(
                    "/{} has groups in it, and then no processes of its own (EBUSY)",
                    members.group
                ),
                "put the jobs into a group inside it",
            )),
        }
    }

    /// Assigns jobs to their groups, and adds the groups to the job file.
    ///
    /// # Errors
    /// Fails if the configuration names an unknown job, or a job twice.
    pub fn put_on(&self, file: &mut JobFile) -> Result<(), JobError> {
        for members in &self.members {
            let fail = |why: String, right: &str| {
                let option = format!("jobs = {}", members.names);
                Err(JobError::of(&members.position, option, why, right))
            };
            if !file.jobs.iter().any(|spec| members.has(&spec.name)) {
                let names: Vec<&str> = file.jobs.iter().map(|spec| spec.name.as_str()).collect();
                let right = format!("there are {}", names.join(", "));
                return fail("no job is called so".to_string(), &right);
            }
            let found = file.jobs.iter_mut().filter(|spec| members.has(&spec.name));
            for spec in found {
                match &spec.cgroup {
                    Some(other) if *other != members.group => {
                        let why = format!("{} is in /{other} already", spec.name);
                        return fail(why, "a process is in one group");
                    }
                    _ if members.group.is_empty() => {}
                    _ => spec.cgroup = Some(members.group.clone()),
                }
            }
        }
        file.cgroups = self.groups.clone();
        file.cgroup_writes = self.writes.clone();
        if let Some(text) = self.unused(&file.jobs) {
            file.notes.push(Note { job: None, text });
        }
        Ok(())
    }

    /// Returns a note on groups in which, and below which, no job is.
    fn unused(&self, jobs: &[JobSpec]) -> Option<String> {
        let is_below = |group: &str, above: &str| {
            let rest = group.strip_prefix(above);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let is_used = |group: &str| {
            let mut used = jobs.iter().filter_map(|spec| spec.cgroup.as_deref());
            used.any(|used| is_below(used.trim_matches('/'), group))
        };
        let unused = self.groups.iter().filter(|group| !is_used(group));
        let unused: Vec<String> = unused.map(|group| format!("/{group}")).collect();
        let right = "`jobs = NAME` in a group, or fio's cgroup=, puts a job there";
        match unused.is_empty() {
            true if self.groups.is_empty() && self.writes.is_empty() => {
                Some(format!("{}: no control group is in it; {right}", self.file))
            }
            true => None,
            false => Some(format!(
                "{}: no job is in {}, so that what is written there changes nothing; {right}",
                self.file,
                unused.join(", ")
            )),
        }
    }
}

/// Files of Linux's that are not simulated, by the beginning of their names, and why not.
const NOT_SIMULATED: [(&str, &str); 7] = [
    ("memory.swap.", "there is no swap here"),
    ("memory.zswap.", "there is no swap here"),
    ("memory.min", "no memory is protected from reclaim here"),
    ("memory.low", "no memory is protected from reclaim here"),
    ("memory.oom", "no program is killed here"),
    (
        "memory.reclaim",
        "of a group's memory its limits alone are simulated",
    ),
    ("cpu", "CPUs are shared by programs here, not by groups"),
];

/// The mistake of a file that there is not.
fn unknown_file(key: &str, position: &Position) -> JobError {
    let names: Vec<&str> = GroupFile::all().map(GroupFile::name).collect();
    let known = NOT_SIMULATED
        .iter()
        .find(|(begin, _)| key.starts_with(begin));
    let why = known.map_or_else(
        || {
            let hint = hint(key, names.iter().copied());
            format!("a control group has no such file{hint}")
        },
        |(_, why)| (*why).to_string(),
    );
    let right = format!("right is jobs, parent, or one of {}", names.join(", "));
    JobError::of(position, key, why, right)
}

/// Returns a queue with every policy, which accepts all files of groups.
fn any_queue() -> RequestQueue {
    RequestQueue::new(&QueueConfig {
        nr_cpus: 1,
        nr_hw_queues: 1,
        queue_depth: 64,
        round_robin_tags: false,
        seed: 0,
        limits: QueueLimits::default(),
    })
}

fn split(name: &str, text: &str) -> Result<Vec<Section>, JobError> {
    let mut sections: Vec<Section> = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let position = Position {
            file: name.to_string(),
            line,
        };
        let text = text.split(['#', ';']).next().unwrap_or("").trim();
        if text.is_empty() {
            continue;
        }
        if let Some(rest) = text.strip_prefix('[') {
            let Some(path) = rest.strip_suffix(']') else {
                let right = "a group's path in brackets, as [/batch]";
                return Err(JobError::of(&position, text, "not a section", right));
            };
            sections.push(Section {
                is_path: path.trim().starts_with('/'),
                name: path.trim().trim_matches('/').to_string(),
                position,
                parent: None,
                lines: Vec::new(),
            });
            continue;
        }
        let Some((key, value)) = text.split_once('=') else {
            let right = "a file of the group's and what is written to it, as io.weight = 100";
            return Err(JobError::of(&position, text, "there is no = in it", right));
        };
        let (key, value) = (key.trim().to_string(), value.trim().to_string());
        let Some(section) = sections.last_mut() else {
            let right = "begin with a group's path in brackets, as [/batch]";
            return Err(JobError::of(&position, text, "outside of a group", right));
        };
        match key.as_str() {
            "parent" => section.parent = Some((value.trim_matches('/').to_string(), position)),
            _ => section.lines.push((key, value, position)),
        }
    }
    Ok(sections)
}

/// Returns the full path of a section's group.
fn path_of(section: &Section, sections: &[Section]) -> Result<String, JobError> {
    let name = &section.name;
    if !section.is_path && section.parent.is_none() {
        return Err(JobError::of(
            &section.position,
            format!("[{name}]"),
            "a group without a slash before it and without a parent",
            format!("[/{name}], or a line such as parent = /system in it"),
        ));
    }
    let is_name =
        |part: &str| !part.is_empty() && part.len() <= NAME_MAX && part != "." && part != "..";
    if !name.is_empty() && !name.split('/').all(is_name) {
        let option = format!("[/{name}]");
        let right = format!("names of 1 to {NAME_MAX} bytes with slashes between them");
        return Err(JobError::of(
            &section.position,
            option,
            "no path of a group",
            right,
        ));
    }
    let mut path = name.clone();
    let mut above = &section.parent;
    let mut seen = vec![name.as_str()];
    while let Some((parent, position)) = above {
        if seen.contains(&parent.as_str()) {
            seen.push(parent);
            let circle: Vec<String> = seen.iter().map(|name| format!("/{name}")).collect();
            return Err(JobError::of(
                position,
                format!("parent = /{parent}"),
                format!(
                    "a group cannot be inside itself: {} (ELOOP)",
                    circle.join(" in ")
                ),
                "a tree has the root at its top",
            ));
        }
        seen.push(parent);
        path = format!("{parent}/{path}").trim_matches('/').to_string();
        let next = sections.iter().find(|other| other.name == *parent);
        above = next.map_or(&None, |next| &next.parent);
    }
    Ok(path)
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', ' ', '\t']).filter(|word| !word.is_empty())
}

/// Splits off the drive's number at the beginning of `text`.
fn drive_number(text: &str) -> Option<(DriveNumber, &str)> {
    let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let (major, minor) = first.split_once(':')?;
    let number = DriveNumber {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
    };
    Some((number, rest.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio::parse_str;

    fn job(text: &str) -> JobFile {
        parse_str("t.fio", text, &|_| None, &|_, _| Err(String::new())).unwrap()
    }

    #[test]
    fn jobs_are_put_into_their_groups() {
        let text = "[/]\nio.cost.qos = 8:0 enable=1 # on\n[/system/db]\nio.weight = 500\n\
                    jobs = oltp, log*\n[batch]\nparent = /low\nio.max = 8:0 wbps=1048576\n\
                    io.max = 8:0 riops=max\njobs = backup\n";
        let config = CgroupConfig::parse("c", text).unwrap();
        assert_eq!(config.groups, ["system", "system/db", "low", "low/batch"]);
        let mut file = job("[oltp]\n[log1]\n[log2]\n[backup]\n[other]\n");
        config.put_on(&mut file).unwrap();
        let groups: Vec<_> = file
            .jobs
            .iter()
            .map(|spec| spec.cgroup.as_deref())
            .collect();
        let db = Some("system/db");
        assert_eq!(groups, [db, db, db, Some("low/batch"), None]);
        assert_eq!(file.cgroup_writes.len(), 4);
        assert_eq!(file.cgroup_writes[3].position.line, 9);
    }

    #[test]
    fn groups_without_jobs_are_noted() {
        let notes = |text: &str, jobs: &str| -> Vec<String> {
            let mut file = job(jobs);
            let config = CgroupConfig::parse("c", text).unwrap();
            config.put_on(&mut file).unwrap();
            file.notes.iter().map(|note| note.text.clone()).collect()
        };
        let limit = "io.max = 8:0 wbps=1048576\n";
        let noted = notes(&format!("[/a/b]\n{limit}[/c]\njobs = x\n"), "[x]\n");
        assert_eq!(noted.len(), 1);
        assert!(
            noted[0].starts_with("c: no job is in /a, /a/b, so"),
            "{noted:?}"
        );
        let noted = notes("# nothing\n", "[x]\n");
        assert!(noted[0].starts_with("c: no control group"), "{noted:?}");
        // Who uses a group otherwise, or limits the whole drive, has nothing to be told.
        let used = ["[x]\ncgroup=a/b\n", "[x]\ncgroup=/a/b\n"];
        for jobs in used {
            assert!(notes(&format!("[/a/b]\n{limit}"), jobs).is_empty());
        }
        assert!(notes("[/]\nio.cost.qos = 8:0 enable=1\n", "[x]\n").is_empty());
    }

    #[test]
    fn what_the_kernel_refuses_is_refused_at_its_line() {
        for (text, line, why) in [
            ("io.weight = 1\n", 1, "outside of a group"),
            ("[/a\n", 1, "not a section"),
            ("[/a]\nio.weight\n", 2, "no ="),
            ("[/a]\n\nio.weight = 0\n", 3, "from 1 to 10000 (EINVAL)"),
            ("[/a]\nio.weight = 10001\n", 2, "from 1 to 10000 (EINVAL)"),
            ("[/a]\nio.bfq.weight = 1001\n", 2, "from 1 to 1000 (EINVAL)"),
            (
                "[/a]\nio.max = rbps=5\n",
                2,
                "number of the drive is missing",
            ),
            ("[/a]\nio.max = 8:0 rbps=0\n", 2, "ERANGE"),
            ("[/a]\nio.latency = 8:0 goal=5\n", 2, "target=MICROSECONDS"),
            ("[/a]\nio.prio.class = rt\n", 2, "no policy"),
            ("[/a]\nio.cost.qos = 8:0 enable=1\n", 2, "the root alone"),
            ("[/]\nio.weight = 100\n", 2, "the root has no such file"),
            ("[/]\nio.cost.qos = 8:0 min=150 max=50\n", 2, "above max"),
            ("[/]\nio.cost.model = 8:0 model=cubic\n", 2, "linear alone"),
            (
                "[/]\nio.cost.qos = enable=1\n",
                2,
                "right is io.cost.qos = 8:0 enable=1",
            ),
            ("[/a]\nio.wieght = 5\n", 2, "did you mean io.weight"),
            ("[/]\nmemory.max = 1G\n", 2, "the root has no such file"),
            (
                "[/a]\nmemory.max = 8:0 1G\n",
                2,
                "no size (EINVAL); bytes from 1M",
            ),
            ("[/a]\nmemory.high = 4K\n", 2, "not enough for a program"),
            ("[/a]\nmemory.hihg = 4G\n", 2, "did you mean memory.high"),
            ("[/a]\nmemory.swap.max = 4G\n", 2, "no swap here; right is"),
            ("[/a]\nmemory.low = 4G\n", 2, "protected from reclaim"),
            ("[/a]\nmemory.reclaim = 4G\n", 2, "its limits alone"),
            ("[/a]\ncpu.max = 50000\n", 2, "not by groups"),
            ("[/a]\njobs =\n", 2, "no job is named"),
            ("[/a/../b]\n", 1, "no path"),
            ("[/a]\n[b]\n", 2, "without a parent; [/b], or a line"),
            ("[/a]\njobs = x\n[/a/b]\n", 2, "EBUSY"),
        ] {
            let error = CgroupConfig::parse("c", text).unwrap_err();
            assert_eq!(error.line, line, "{text}: {error}");
            assert!(error.to_string().contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_written_to_one_file_counts_together() {
        let text = "[/]\nio.cost.qos = 8:0 min=150\n[/a]\nio.weight = 0\n\
                    [/]\nio.cost.qos = 8:16 max=50\nio.cost.qos = 8:0 max=50\nio.wieght = 5\n";
        let error = CgroupConfig::parse("c", text).unwrap_err();
        assert_eq!(error.line, 4, "the first in the file: {error}");
        let error = CgroupConfig::parse("c", &text.replace("= 0", "= 1")).unwrap_err();
        assert_eq!(error.line, 7, "another drive's are apart: {error}");
        assert!(error.to_string().contains("above max"), "{error}");
    }

    #[test]
    fn many_writes_to_one_file_are_each_looked_at_once() {
        let lines = "io.weight = 500\n".repeat(50_000);
        let config = CgroupConfig::parse("c", &format!("[/a]\n{lines}")).unwrap();
        assert_eq!(config.writes.len(), 50_000);
    }

    #[test]
    fn limits_of_memory_are_those_of_the_whole_tree() {
        let text = "[/a/b]\nmemory.max = 8M\nmemory.max = 4M\n[/a]\nmemory.high = 6M\n[/c]\n";
        let config = CgroupConfig::parse("c", text).unwrap();
        let groups = config.tree().memory_groups(&config.writes).unwrap();
        let all = groups.iter().map(|g| (g.parent, g.max_pages, g.high_pages));
        let none = u64::MAX;
        let expected = [(0, none, 1536), (1, 1024, none), (0, none, none)];
        assert!(all.eq(expected), "{groups:?}");
        let config = CgroupConfig::parse("c", "[/a]\nio.weight = 5\n").unwrap();
        assert_eq!(config.tree().memory_groups(&config.writes), Ok(Vec::new()));
    }

    #[test]
    fn a_server_has_no_memory_of_its_clients() {
        let config = CgroupConfig::parse("c", "[/a]\nmemory.max = 4M\n").unwrap();
        let error = config.put_on_queue(&mut any_queue()).unwrap_err();
        assert!(error.to_string().contains("leave it out"), "{error}");
    }

    #[test]
    fn a_loop_is_named() {
        let text = "[a]\nparent = b\n[b]\nparent = c\n[c]\nparent = /a\n";
        let error = CgroupConfig::parse("c", text).unwrap_err();
        assert_eq!(error.line, 6);
        let said = error.to_string();
        assert!(said.contains("/a in /b in /c in /a (ELOOP)"), "{said}");
    }

    #[test]
    fn a_job_is_in_one_group_and_there() {
        let both = "[/a]\njobs = x\n[/b]\njobs = x*\n";
        let config = CgroupConfig::parse("c", both).unwrap();
        let error = config.put_on(&mut job("[x]\n")).unwrap_err();
        assert!(error.to_string().contains("in /a already"), "{error}");
        let error = config.put_on(&mut job("[y]\n")).unwrap_err();
        assert!(error.to_string().contains("there are y"), "{error}");
    }

    #[test]
    fn a_drive_has_its_number() {
        let (number, rest) = drive_number("8:16 rbps=5").unwrap();
        assert_eq!((number.to_string().as_str(), rest), ("8:16", "rbps=5"));
        assert!(number.is_of(1, 2) && !number.is_of(0, 2) && number.is_of(0, 1));
        assert!(drive_number("default 5").is_none());
    }
}
