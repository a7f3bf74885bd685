//! Runs our device model and MMC stack through what was recorded.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use blklab_device_model::{
    BusType, DeviceDeclaration, DeviceId, MatchId, Model, ModelError, Parent, PciId, Uevent,
};
use blklab_mmc::block::BlockRequest;
use blklab_mmc::emulated::{EmulatedCard, Slot};
use blklab_mmc::sdhci::{Controller, Sdhci};
use blklab_mmc::{Caps2, HostDevice, HostDriverKind, Hosts, Wiring};

use super::attributes;
use super::recorded::{Description, RecordedInput, RequestLine, Steps};
use crate::ConformError;

/// What our side did.
pub(super) struct ReplayedRun {
    pub(super) steps: Vec<String>,
    pub(super) attributes: BTreeMap<String, String>,
    pub(super) uevents: Vec<String>,
}

/// Modules of a kernel whose drivers are none of its image, as they are loaded
/// before the host driver's.
const LIBRARIES: [&str; 2] = ["sdhci", "cqhci"];

pub(super) fn replay(
    described: &Path,
    description: &Description,
    steps: &Steps,
) -> Result<ReplayedRun, ConformError> {
    let refused = |message: String| ConformError::Description {
        file: described.display().to_string(),
        message,
    };
    let uevents: Vec<String> = { description.uevents().into_iter() }
        .map(|recorded| recorded.text)
        .collect();
    let machine = Machine::of(&uevents).map_err(refused)?;
    let card = EmulatedCard::new(description.card(steps.ocr).map_err(refused)?);
    let controller = description.controller().map_err(refused)?;
    let wiring = Wiring {
        host: Rc::new(move || {
            let slot = Slot::with(card.clone());
            let controller = Controller::new(controller, slot);
            Box::new(Sdhci::new(controller, Caps2::NO_PRESCAN_POWERUP))
        }),
        partitions: description.partitions(),
    };
    let failed = |error: ModelError| refused(error.to_string());
    let mut run = Replay::start(&machine, wiring).map_err(failed)?;
    run.load_modules(&machine).map_err(failed)?;
    let attributes = run.attributes();
    for given in &steps.given {
        run.take(given);
    }
    run.collect();
    let uevents = { run.model.uevents()[run.uevents_before..].iter() }.map(Uevent::to_string);
    Ok(ReplayedRun {
        steps: run.steps,
        attributes,
        uevents: uevents.collect(),
    })
}

/// What the recorded messages tell of the machine before its card: where the
/// controller is, and which numbers others had taken.
struct Machine {
    /// The controller's path below `/devices`, in folders.
    root: String,
    name: String,
    environment: Vec<(String, String)>,
    first_sequence: u64,
    first_disk: u64,
    wakeup: Option<u32>,
    /// The major that the block driver was given for RPMB.
    rpmb_major: Option<u32>,
}

/// The value of a key in a message.
fn value<'a>(uevent: &'a str, key: &str) -> Option<&'a str> {
    let words = uevent.split(' ').filter_map(|word| word.split_once('='));
    { words }
        .find(|(name, _)| *name == key)
        .map(|(_, value)| value)
}

impl Machine {
    fn of(uevents: &[String]) -> Result<Machine, String> {
        let first = |key: &str| {
            uevents
                .iter()
                .find_map(|uevent| value(uevent, key)?.parse().ok())
        };
        let bound = { uevents.iter() }
            .find(|text| text.starts_with("bind@") && value(text, "SUBSYSTEM") == Some("pci"))
            .ok_or("uevents: found no bind of a PCI device, expected the controller's")?;
        let path = value(bound, "DEVPATH").and_then(|path| path.strip_prefix("/devices/"));
        let (root, name) = { path.and_then(|path| path.rsplit_once('/')) }
            .ok_or("uevents: the controller lies in no folder of /devices")?;
        let environment = { bound.split(' ') }
            .filter_map(|word| word.split_once('='))
            .filter(|(key, _)| key.starts_with("PCI_") || *key == "MODALIAS")
            .map(|(key, value)| (key.to_owned(), value.to_owned()));
        let wakeup = { uevents.iter() }
            .filter_map(|text| value(text, "DEVPATH"))
            .find_map(|path| path.strip_prefix("/devices/virtual/wakeup/wakeup"));
        let rpmb = { uevents.iter() }.find(|text| value(text, "SUBSYSTEM") == Some("mmc_rpmb"));
        Ok(Machine {
            rpmb_major: rpmb.and_then(|text| value(text, "MAJOR")?.parse().ok()),
            root: root.to_owned(),
            name: name.to_owned(),
            environment: environment.collect(),
            first_sequence: first("SEQNUM").unwrap_or(1),
            first_disk: first("DISKSEQ").unwrap_or(1),
            wakeup: wakeup.and_then(|digits| digits.parse().ok()),
        })
    }

    fn class(&self) -> Option<u32> {
        let class = { self.environment.iter() }.find(|(key, _)| key == "PCI_CLASS");
        class.and_then(|(_, digits)| u32::from_str_radix(digits, 16).ok())
    }
}

struct Replay {
    model: Model,
    hosts: Rc<Hosts>,
    controller: DeviceId,
    uevents_before: usize,
    steps: Vec<String>,
    /// Requests with their tags, as they were issued.
    issued: Vec<RequestLine>,
}

impl Replay {
    /// The machine before the first module is loaded.
    fn start(machine: &Machine, wiring: Wiring) -> Result<Replay, ModelError> {
        let mut model = Model::new();
        model.register_bus(BusType::PCI)?;
        for class in ["bdi", "block", "leds", "wakeup"] {
            model.register_class(class)?;
        }
        let mut parent = Parent::Root("");
        for folder in machine.root.split('/') {
            let device = model.add_device(DeviceDeclaration::new(folder, parent))?;
            parent = Parent::Device(device);
        }
        let id = MatchId::Pci(PciId {
            class: machine.class(),
            ..PciId::default()
        });
        let controller = model.add_device(DeviceDeclaration {
            bus: Some(BusType::PCI.name),
            ids: vec![id],
            environment: machine.environment.clone(),
            ..DeviceDeclaration::new(&machine.name, parent)
        })?;
        let hosts = Hosts::new();
        hosts.wire(&machine.name, wiring);
        if let Some(major) = machine.rpmb_major {
            hosts.set_rpmb_major(major);
        }
        model.set_uevent_sequence(machine.first_sequence.saturating_sub(1));
        model.set_disk_sequence(machine.first_disk.saturating_sub(1));
        Ok(Replay {
            uevents_before: model.uevents().len(),
            model,
            hosts,
            controller,
            steps: Vec::new(),
            issued: Vec::new(),
        })
    }

    fn load_modules(&mut self, machine: &Machine) -> Result<(), ModelError> {
        Hosts::init_core(&mut self.model)?;
        self.model.add_module("mmc_core");
        self.hosts.init_block(&mut self.model)?;
        self.model.add_module("mmc_block");
        for library in LIBRARIES {
            self.model.add_module(library);
        }
        let kind = HostDriverKind::sdhci_pci(machine.wakeup);
        self.hosts.init_host(&mut self.model, kind)?;
        self.model.add_module("sdhci_pci");
        self.model.run_asynchronous();
        self.model.run_all_work();
        self.collect();
        Ok(())
    }

    /// All files of sysfs and debugfs. What the card is asked for them is not in the trace,
    /// which was not on then.
    fn attributes(&mut self) -> BTreeMap<String, String> {
        self.hosts.show_debug_files(&mut self.model);
        if let Some(host) = self.host() {
            host.core().borrow_mut().take_events();
        }
        attributes::shown(self.model.sysfs())
    }

    fn host(&self) -> Option<Rc<HostDevice>> {
        self.hosts.get(0)
    }

    /// Takes over what has happened.
    fn collect(&mut self) {
        if let Some(host) = self.host() {
            self.collect_from(&host);
        }
    }

    fn collect_from(&mut self, host: &HostDevice) {
        let events = host.core().borrow_mut().take_events();
        self.steps.extend(events.iter().map(ToString::to_string));
    }

    fn take(&mut self, given: &RecordedInput) {
        let Some(host) = self.host() else {
            if *given == RecordedInput::Bind {
                self.model.attach(self.controller);
                self.model.run_all_work();
                self.collect();
            }
            return;
        };
        match given {
            RecordedInput::Issue(line) => self.issue(&host, *line),
            RecordedInput::Complete { area, sector } => self.complete(&host, *area, *sector),
            RecordedInput::Unbind => self.model.release_driver(self.controller),
            RecordedInput::Bind => {}
        }
        self.collect_from(&host);
    }

    fn issue(&mut self, host: &HostDevice, line: RequestLine) {
        let request = BlockRequest {
            op: line.op,
            sector: line.sector,
            sectors: line.sectors,
            fua: line.fua,
            retries: 0,
        };
        let tag = u32::try_from(self.issued.len()).unwrap_or(u32::MAX);
        self.issued.push(line);
        if let Some(queue) = host.queues().borrow_mut().get_mut(line.area) {
            queue.issue(&mut host.core().borrow_mut(), tag, request);
            // A request that comes back is in the trace as another issue.
            queue.take_outcomes();
        }
    }

    /// Whatever has run is looked at by now, unless the next request did that.
    fn complete(&mut self, host: &HostDevice, area: usize, sector: u64) {
        let of_sector = |line: &RequestLine| line.area == area && line.sector == sector;
        let Some(place) = self.issued.iter().rposition(of_sector) else {
            return;
        };
        let tag = u32::try_from(place).unwrap_or(u32::MAX);
        if let Some(queue) = host.queues().borrow_mut().get_mut(area)
            && queue.has_run(tag)
        {
            queue.complete_work(&mut host.core().borrow_mut());
            queue.take_outcomes();
        }
    }
}
