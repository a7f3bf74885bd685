//! Turns sections into jobs: inherits from `[global]`, orders the options, assigns groups, and
//! collects notes about the whole file.

use super::direction::Direction;
use super::engine::Engine;
use super::error::{Fault, JobError, Note, Position};
use super::fixup::{Adjustments, fixup};
use super::job_file::{self, Environment, Includes, OptionLine, Section, substitute};
use super::options::{self, FioOption, Order, Outcome, option_name};
use super::section::SectionOptions;
use super::spec::*;
use blklab_description::nearest;

/// The state of loading jobs.
pub(crate) struct Loader<'a> {
    environment: Environment<'a>,
    /// The sections to keep if any are named (`--section`).
    pub only: Vec<String>,
    /// Whether to refuse jobs that write (`--readonly`).
    pub read_only: bool,
    /// The options that replace those of every job.
    pub overrides: Vec<Override>,
    global: SectionOptions,
    global_options: Vec<(String, String)>,
    jobs: Vec<JobSpec>,
    /// The jobs with `wait_for`: their index and the name of the other job.
    waiting: Vec<(usize, String)>,
    files: u32,
    group: u32,
    jobs_in_group: u32,
    meaningless: Vec<&'static str>,
    not_simulated: Vec<&'static str>,
    obsolete: Vec<&'static str>,
    pub notes: Vec<Note>,
}

/// An option that is ready to be applied.
struct GivenOption<'a> {
    entry: &'a OptionLine,
    name: String,
    value: Option<String>,
}

impl<'a> Loader<'a> {
    pub fn new(environment: Environment<'a>) -> Loader<'a> {
        Loader {
            environment,
            only: Vec::new(),
            read_only: false,
            overrides: Vec::new(),
            global: options::defaults(),
            global_options: Vec::new(),
            jobs: Vec::new(),
            waiting: Vec::new(),
            files: 0,
            group: 0,
            jobs_in_group: 0,
            meaningless: Vec::new(),
            not_simulated: Vec::new(),
            obsolete: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Reads a job file. As in fio, the first job of a second file waits for those of the first,
    /// and global options end with their file.
    pub fn add_file(
        &mut self,
        name: &str,
        text: &str,
        includes: Includes<'_>,
    ) -> Result<(), JobError> {
        if self.files > 0 {
            self.global = options::defaults();
        }
        let mut stonewall = self.files > 0;
        self.files += 1;
        for section in job_file::split(name, text, includes)? {
            let skipped = !self.only.is_empty() && !self.only.contains(&section.name);
            if section.is_global() {
                self.add_global(&section.entries, true)?;
            } else if !skipped {
                self.add_job(&section, true, std::mem::take(&mut stonewall))?;
            }
        }
        Ok(())
    }

    /// Adds options for all later jobs.
    pub fn add_global(&mut self, entries: &[OptionLine], from_file: bool) -> Result<(), JobError> {
        let mut global = self.global.clone();
        let entries = self.not_overridden(entries);
        let options = self.apply(&mut global, &entries, from_file)?;
        self.global = global;
        self.global_options.extend(options);
        Ok(())
    }

    /// Adds a job.
    pub fn add_job(
        &mut self,
        section: &Section,
        from_file: bool,
        stonewall: bool,
    ) -> Result<(), JobError> {
        let mut job = self.global.clone();
        job.spec.name = section.name.clone();
        job.spec.section = section.name.clone();
        job.spec.position = section.position.clone();
        job.spec.stonewall |= stonewall;
        let entries = self.overridden(&section.entries);
        job.spec.options = self.apply(&mut job, &entries, from_file)?;
        if self.read_only && job.spec.pattern != Pattern::Read {
            let writes = [Direction::Write, Direction::Trim]
                .into_iter()
                .any(|direction| job.spec.pattern.does(direction));
            if writes {
                return Err(job.refuse(
                    "rw",
                    Fault::new("the job writes, and --readonly is given").help("leave one out"),
                ));
            }
        }
        self.replace_engine(&mut job);
        if let Some(awaited) = job.wait_for.take() {
            self.waiting.push((self.jobs.len(), awaited));
        }
        let (mut spec, adjustments) = fixup(job)?;
        self.note_adjustments(&spec, adjustments);
        self.assign_group(&mut spec)?;
        self.jobs.push(spec);
        Ok(())
    }

    /// Gives a job whose engine is not simulated the one that stands for it, if there is one.
    fn replace_engine(&mut self, job: &mut SectionOptions) {
        let mut overrides = self.overrides.iter();
        let stand_in = overrides.find(|o| o.when == OverrideWhen::EngineNotSimulated);
        let Some(stand_in) =
            stand_in.filter(|_| !job.spec.engine.is_simulated() && job.spec.engine.has_stand_in())
        else {
            return;
        };
        let engine = Engine::named(&stand_in.value);
        let text = format!(
            "ioengine={} runs as {}",
            job.spec.engine.name(),
            engine.name()
        );
        job.spec.engine = engine;
        self.notes.push(Note {
            job: Some(job.spec.name.clone()),
            text,
        });
    }

    /// Returns the options of `[global]` without those of the overrides: a job's `filename` would
    /// add to it. Those stay by which others of `[global]` are read, and a job replaces these.
    fn not_overridden(&self, entries: &[OptionLine]) -> Vec<OptionLine> {
        let is_read_by =
            |option: &FioOption| option.order == Order::First || option.name == "ioengine";
        let stays = |entry: &&OptionLine| {
            let option = options::find(entry.name());
            option.is_some_and(is_read_by) || !self.always().any(|o| o.replaces(entry))
        };
        entries.iter().filter(stays).cloned().collect()
    }

    /// Returns a section's options with those of the overrides replaced.
    fn overridden(&self, entries: &[OptionLine]) -> Vec<OptionLine> {
        let is_replaced = |entry: &&OptionLine| self.always().any(|o| o.replaces(entry));
        let kept = entries.iter().filter(|entry| !is_replaced(entry)).cloned();
        kept.chain(self.always().map(Override::entry)).collect()
    }

    /// Returns the overrides of every job; the last of an option counts.
    fn always(&self) -> impl Iterator<Item = &Override> {
        let all = self.overrides.iter().enumerate();
        let is_last = |(at, given): &(usize, &Override)| {
            let mut later = self.overrides[at + 1..].iter();
            !later.any(|o| o.when == given.when && o.option() == given.option())
        };
        let always = all.filter(|(_, given)| given.when == OverrideWhen::Always);
        always.filter(is_last).map(|(_, given)| given)
    }

    /// Applies options in fio's order, and returns them as fio's JSON shows them.
    fn apply(
        &mut self,
        job: &mut SectionOptions,
        entries: &[OptionLine],
        from_file: bool,
    ) -> Result<Vec<(String, String)>, JobError> {
        let mut given = Vec::with_capacity(entries.len());
        for entry in entries {
            given.push(self.prepare(entry, from_file)?);
        }
        if from_file {
            given.sort_by_key(|option| match options::find(&option.name) {
                Some(declared) => declared.order,
                None => Order::Written,
            });
        }
        let mut applied = Vec::new();
        // The engine must be known before its own options are.
        for engine_options in [false, true] {
            for option in &given {
                let declared = options::find(&option.name);
                let is_engines = declared.is_none_or(|declared| !declared.engines.is_empty());
                if is_engines == engine_options {
                    applied.push(self.apply_one(job, option)?);
                }
            }
        }
        Ok(applied)
    }

    fn prepare<'e>(
        &self,
        entry: &'e OptionLine,
        from_file: bool,
    ) -> Result<GivenOption<'e>, JobError> {
        let text = match from_file {
            true => substitute(&entry.text, self.environment)
                .map_err(|fault| JobError::at(&entry.position, &entry.text, fault))?,
            false => entry.text.clone(),
        };
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name.trim().to_string(), Some(value.to_string())),
            None => (text, None),
        };
        Ok(GivenOption { entry, name, value })
    }

    fn apply_one(
        &mut self,
        job: &mut SectionOptions,
        option: &GivenOption<'_>,
    ) -> Result<(String, String), JobError> {
        let OptionLine { position, text } = option.entry;
        let fail = |fault| JobError::at(position, text, fault);
        let declared =
            options::find(&option.name).ok_or_else(|| fail(options::unknown(&option.name)))?;
        let FioOption { name, engines, .. } = *declared;
        let engine = job.spec.engine.name();
        if !engines.is_empty() && !engines.contains(&engine) {
            let engines = engines.join(", ");
            return Err(fail(
                Fault::new(format!("ioengine={engine} has no such option"))
                    .help(format!("{name} is an option of {engines}")),
            ));
        }
        let value = option.value.as_deref();
        let set = declared.set(value, job);
        set.map_err(|fault| match value {
            Some("") if text.contains("${") => {
                fail(Fault::new("is empty").help("set the variable in it"))
            }
            _ => fail(fault),
        })?;
        job.spec.written.push(WrittenOption {
            name,
            position: position.clone(),
            text: text.clone(),
            value: option.value.clone(),
        });
        let is_off = job.spec.written.last().is_some_and(WrittenOption::is_off);
        match declared.kept() {
            Outcome::Obsolete => remember(&mut self.obsolete, name),
            Outcome::Meaningless => remember(&mut self.meaningless, name),
            Outcome::NotSimulated if !is_off => remember(&mut self.not_simulated, name),
            Outcome::Used | Outcome::NotSimulated | Outcome::Refused => {}
        }
        Ok((name.to_string(), value.unwrap_or_default().to_string()))
    }

    /// Returns the job that job `index` waits for. It must come earlier and have a unique name; fio
    /// would wait for itself, or in a cycle.
    fn awaited(&self, index: usize, awaited: &str) -> Result<usize, JobError> {
        let spec = &self.jobs[index];
        let refuse = |fault| Err(spec.refuse(&["wait_for"], fault));
        let named = |job: &JobSpec| job.name == awaited;
        if self.jobs.iter().filter(|job| named(job)).count() > 1 {
            let fault = Fault::new("several jobs have this name");
            return refuse(fault.help("give them different names"));
        }
        if awaited == spec.section || awaited == spec.name {
            return refuse(Fault::new("a job cannot wait for itself"));
        }
        if let Some(at) = self.jobs[..index].iter().position(named) {
            return Ok(at);
        }
        let mut help = "name a job that comes before this one".to_string();
        let before = self.jobs[..index].iter().map(|job| job.name.as_str());
        if let Some(close) = nearest(awaited, before) {
            help.push_str(&format!("; did you mean {close}?"));
        }
        refuse(Fault::new("no such job so far").help(help))
    }

    fn assign_group(&mut self, spec: &mut JobSpec) -> Result<(), JobError> {
        if (spec.stonewall || spec.new_group) && self.jobs_in_group > 0 {
            self.group += 1;
            self.jobs_in_group = 0;
        }
        self.jobs_in_group += 1;
        spec.group = self.group;
        let differs =
            |job: &JobSpec| job.group == spec.group && job.lat_percentiles != spec.lat_percentiles;
        if spec.group_reporting && spec.stats && self.jobs.iter().any(differs) {
            return Err(JobError::at(
                &spec.position,
                format!("[{}]", spec.name),
                Fault::new("lat_percentiles differs within a group that is reported as one")
                    .help("give all its jobs the same"),
            ));
        }
        let differs =
            |job: &JobSpec| job.group == spec.group && job.steady_state != spec.steady_state;
        if self.jobs.iter().any(differs) {
            let fault = Fault::new("the steady state differs within a group of jobs");
            let options = [
                "steadystate",
                "steadystate_duration",
                "steadystate_ramp_time",
            ];
            return Err(spec.refuse(
                &options,
                fault.help("give all jobs of the group the same, or stonewall between them"),
            ));
        }
        Ok(())
    }

    fn note_adjustments(&mut self, spec: &JobSpec, adjustments: Adjustments) {
        let mut note = |text: String| {
            self.notes.push(Note {
                job: Some(spec.name.clone()),
                text,
            });
        };
        if adjustments.depth_capped {
            note(format!(
                "ioengine={} is synchronous: iodepth={} has the effect of 1",
                spec.engine.name(),
                spec.io_depth
            ));
        }
        if adjustments.not_time_based {
            note("time_based needs runtime: it is left out".to_string());
        }
    }

    /// Returns the whole job file, named `name`.
    pub fn finish(mut self, name: &str) -> Result<JobFile, JobError> {
        if self.jobs.is_empty() {
            let position = Position {
                file: name.to_string(),
                line: 0,
            };
            let help = "a section such as [job1], or --name=job1";
            return Err(JobError::at(
                &position,
                "",
                Fault::new("no job in it").help(help),
            ));
        }
        if self.jobs.iter().all(|job| !job.stats) {
            let fault = Fault::new("no job counts in the results");
            return Err(self.jobs[0].refuse(&["stats"], fault.help("leave it out in one of them")));
        }
        for (index, awaited) in std::mem::take(&mut self.waiting) {
            self.jobs[index].wait_for = Some(self.awaited(index, &awaited)?);
        }
        self.check_flows()?;
        if self.jobs.iter().any(|job| job.exit_all) {
            for job in &mut self.jobs {
                job.exit_all = true;
            }
        }
        self.note_whole();
        Ok(JobFile {
            cgroups: Vec::new(),
            cgroup_writes: Vec::new(),
            name: name.to_string(),
            jobs: self.jobs,
            notes: self.notes,
            global_options: self.global_options,
        })
    }

    /// Refuses a job that begins only when one of its own flow has ended, which would wait for its
    /// I/O for ever.
    fn check_flows(&self) -> Result<(), JobError> {
        for (at, job) in self.jobs.iter().enumerate() {
            let begins_after = |earlier: usize| {
                let walls = &self.jobs[earlier + 1..=at];
                job.wait_for == Some(earlier) || walls.iter().any(|job| job.stonewall)
            };
            let is_of_flow = |earlier: usize| {
                let earlier = &self.jobs[earlier];
                let weights = [job.flow.weight, earlier.flow.weight];
                !weights.contains(&0) && earlier.flow.id == job.flow.id && earlier.runtime_us == 0
            };
            if (0..at).any(|earlier| is_of_flow(earlier) && begins_after(earlier)) {
                let fault = Fault::new("an earlier job of the flow waits for this one's I/O");
                let help = "give them different flow_ids, or the earlier one a runtime";
                return Err(job.refuse(&["flow"], fault.help(help)));
            }
        }
        Ok(())
    }

    fn note_whole(&mut self) {
        let mut note = |text: String| self.notes.push(Note { job: None, text });
        if !self.not_simulated.is_empty() {
            note(format!(
                "options that are not simulated and are left out: {}",
                self.not_simulated.join(", ")
            ));
        }
        if !self.meaningless.is_empty() {
            note(format!(
                "options that mean nothing in a simulation: {}",
                self.meaningless.join(", ")
            ));
        }
        if !self.obsolete.is_empty() {
            note(format!(
                "options that fio itself ignores: {}",
                self.obsolete.join(", ")
            ));
        }
    }
}

fn remember(list: &mut Vec<&'static str>, name: &'static str) {
    if !list.contains(&name) {
        list.push(name);
    }
}

/// An option that replaces the setting of every job and of `[global]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// The origin of the override, for messages.
    pub given_by: String,
    /// The option's name.
    pub name: String,
    /// The option's value.
    pub value: String,
    /// The jobs whose option is replaced.
    pub when: OverrideWhen,
}

/// The jobs whose option an [`Override`] replaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverrideWhen {
    /// All of them.
    #[default]
    Always,
    /// Those whose engine is not simulated; the option is `ioengine`.
    EngineNotSimulated,
}

impl Override {
    /// Returns the option's name, where an alias is given as well.
    pub fn option(&self) -> &str {
        option_name(&self.name).unwrap_or(&self.name)
    }

    fn entry(&self) -> OptionLine {
        let position = Position {
            file: self.given_by.clone(),
            line: 0,
        };
        let text = format!("{}={}", self.name, self.value);
        OptionLine { position, text }
    }

    /// Whether an option as written in a section has this option's name or alias.
    fn replaces(&self, entry: &OptionLine) -> bool {
        let name = entry.name();
        name == self.name || option_name(name).is_some_and(|n| Some(n) == option_name(&self.name))
    }
}
