//! The advice of `compare`: made from its rows, and tried at other values of what a
//! description marks as assumed.

use blklab_elevator::KernelVersion;
use blklab_experiment::{Assumption, Host, Plan, Row, Setting, Simulated, Target, WorkloadSource};
use blklab_report::{
    Answer, Availability, Choices, Origin, QueueSetting, SchedulerRuns, note_on_untried,
};

use crate::args::SweepArgs;
use crate::compared::Compared;
use crate::failure::Failure;
use crate::progress::{self, Caller};

/// Returns the settings that a user of a drive's model can choose from, or `None` where
/// rows differ in more than what a running kernel can be set to.
pub(crate) fn choices_of_models(
    settings: &[Setting],
    work: &WorkloadSource,
    kernel: KernelVersion,
) -> Result<Option<Choices>, Failure> {
    let Some(first) = settings.first() else {
        return Ok(None);
    };
    let mut target = Target::of_model(first)?;
    target.name_devices(&work.file_names(&first.options)?);
    let queue = target.queue;
    let default = kernel.default_scheduler(queue);
    let kind = |name: &str| match (kernel.has(name), kernel.offers(name, queue)) {
        (false, _) => Availability::NotInKernel,
        (true, false) => Availability::NotForDrive,
        (true, true) if kernel.reorders_zones(name, queue) => Availability::ReordersZones,
        (true, true) => Availability::Offered,
    };
    Ok(choices(
        settings,
        target,
        kind,
        default,
        format!("Linux {kernel}"),
    ))
}

/// Returns the settings that a user of a real drive can choose from: its own kernel
/// lists the schedulers.
pub(crate) fn choices_of_host(
    settings: &[Setting],
    host: &Host,
) -> Result<Option<Choices>, Failure> {
    let (names, active) = host.schedulers()?;
    let kind = |name: &str| match names.iter().any(|known| known == name) {
        true => Availability::Offered,
        false => Availability::NotInKernel,
    };
    let kernel = "this kernel".to_string();
    Ok(choices(settings, host.target(), kind, &active, kernel))
}

fn choices(
    settings: &[Setting],
    target: Target,
    availability: impl Fn(&str) -> Availability,
    default: &str,
    kernel: String,
) -> Option<Choices> {
    let first = settings.first()?;
    // Everything but the queue's settings, which the advice can apply, has to be the same.
    let same = |setting: &Setting| {
        let with_first_queue = Setting {
            label: first.label.clone(),
            axes: first.axes.clone(),
            scheduler: first.scheduler.clone(),
            nr_requests: first.nr_requests,
            nomerges: first.nomerges,
            read_ahead_kb: first.read_ahead_kb,
            wbt_lat_us: first.wbt_lat_us,
            ..setting.clone()
        };
        with_first_queue == *first
    };
    let row = |setting: &Setting| {
        let tunables = setting.scheduler.tunables.clone();
        let scheduler = setting.scheduler.name.clone();
        let written = QueueSetting {
            availability: availability(&scheduler),
            scheduler,
            tunables,
            nr_requests: setting.nr_requests,
            nomerges: setting.nomerges,
            read_ahead_kb: setting.read_ahead_kb,
            wbt_lat_us: setting.wbt_lat_us,
            by_default: false,
        };
        let unwritten = QueueSetting {
            availability: written.availability,
            scheduler: default.to_string(),
            ..QueueSetting::default()
        };
        QueueSetting {
            by_default: written == unwritten,
            ..written
        }
    };
    settings.iter().all(same).then(|| Choices {
        rows: settings.iter().map(row).collect(),
        kernel,
        default: default.to_string(),
        devices: target.devices,
        example: target.example,
        pattern: target.pattern,
        identity: target.identity,
        rotational: target.rotational,
    })
}

/// Finds out whether the answer depends on assumed values.
pub(crate) struct Sensitivity<'a> {
    pub(crate) sweep: &'a SweepArgs,
    pub(crate) world: &'a Simulated<'a>,
    pub(crate) work: &'a WorkloadSource,
    pub(crate) settings: &'a [Setting],
    pub(crate) choices: &'a Choices,
    pub(crate) plan: Plan,
    pub(crate) caller: &'a Caller<'a>,
}

impl Sensitivity<'_> {
    /// Runs each row with each of at most `tried` assumed values at its plausible ends, and
    /// adds to the advice which of them change the answer, and which were not tried.
    pub(crate) fn analyse(&self, compared: &mut Compared, tried: usize) -> Result<(), Failure> {
        let all = self.world.assumptions(self.settings);
        let answer = self.choices.answer(&compared.comparison);
        let (Some(answer), false) = (answer, all.is_empty()) else {
            return Ok(());
        };
        let repeats = match tried {
            0 => 0,
            _ => self.repeats_needed(&answer, &compared.settings)?,
        };
        let Some(advice) = &mut compared.comparison.advice else {
            return Ok(());
        };
        let mut sentences = Vec::new();
        let mut unchanged: Vec<&str> = Vec::new();
        for assumption in all.iter().take(tried) {
            match self.changed_answers(&answer, assumption, repeats)? {
                changed if changed.is_empty() => unchanged.push(&assumption.value.key),
                changed => sentences.push(format!(
                    "The answer depends on {} of {} (assumed {}): {}.",
                    assumption.value.key,
                    assumption.of,
                    assumption.value.value,
                    changed.join(", ")
                )),
            }
        }
        if !unchanged.is_empty() {
            sentences.push(format!(
                "At the plausible ends of {} the answer is the same.",
                unchanged.join(", ")
            ));
        }
        sentences.extend(note_on_untried(all.len(), tried));
        advice.assumed = sentences.join(" ");
        Ok(())
    }

    /// Returns the fewest repeats that give this answer. Fewer would give another one at
    /// other values, too, whatever these do.
    fn repeats_needed(&self, answer: &Answer, rows: &[SchedulerRuns]) -> Result<usize, Failure> {
        for repeats in 1..self.plan.repeats {
            let first = |row: &SchedulerRuns| Row {
                label: row.name.clone(),
                runs: row.runs.iter().take(repeats).cloned().collect(),
            };
            let rows = rows.iter().map(first).collect();
            let compared = Compared::new(self.sweep, self.settings, rows, Origin::default())?;
            let changed = self.choices.changed_answer(answer, &compared.comparison);
            if changed.is_none() {
                return Ok(repeats);
            }
        }
        Ok(self.plan.repeats)
    }

    /// Returns, in words, the ends of an assumed value at which the answer changes.
    fn changed_answers(
        &self,
        answer: &Answer,
        assumption: &Assumption,
        repeats: usize,
    ) -> Result<Vec<String>, Failure> {
        let mut changed = Vec::new();
        let value = &assumption.value;
        for end in value.other_ends() {
            let mut world = Simulated::assuming(self.work, self.settings, assumption, end)?;
            world.replay = self.world.replay;
            world.varies_arrivals = self.world.varies_arrivals;
            world.abandon = self.caller.abandon();
            let plan = Plan {
                repeats,
                ..self.plan
            };
            let rows = progress::run(&world, &plan, self.caller)?;
            let comparison =
                Compared::new(self.sweep, self.settings, rows, Origin::default())?.comparison;
            if let Some(other) = self.choices.changed_answer(answer, &comparison) {
                changed.push(format!("at {end} {}", other.words()));
            }
        }
        Ok(changed)
    }
}
