//! The guest's world: a real kernel in a virtual machine, on a drive's model paced in
//! real time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use blklab_device::{DriveSpec, Interface};
use blklab_elevator::SchedulerChoice;
use blklab_guest::{Accelerator, Boot, Initramfs, Machine, ORDER, PORT, Packages};
use blklab_host::{Fio, HostError, Interrupts, Order as RunOrder, QueueSettings, Reply, is_place};
use blklab_serve::Server;
use blklab_stats::{DiskStats, Results};
use blklab_workload::fio::JobSource;

use crate::error::Error;
use crate::served::{note_on_pacing, paced};
use crate::setting::Setting;
use crate::work::{Jobs, check_options};
use crate::world::{Order, PlannedRun, Watch, World};

/// How long a guest may run beside the times that its job gives: one that takes longer
/// hangs.
const LIMIT: Duration = Duration::from_secs(3600);

const MEMORY_MIB: u32 = 1024;

/// The kernel's schedulers that are modules there.
const SCHEDULERS: [&str; 2] = ["bfq", "kyber-iosched"];

/// A row: what the queue is set to, the drive, and the place of its job.
struct Guested {
    label: String,
    queue: QueueSettings,
    drive_name: String,
    drive: DriveSpec,
    job: usize,
}

/// Drives' models in real time, under a real kernel in a virtual machine.
pub struct Guest {
    packages: Packages,
    /// This program, which measures inside too.
    program: PathBuf,
    /// A module with further schedulers.
    pub module: Option<PathBuf>,
    /// What carries out the guest's instructions.
    pub accelerator: Accelerator,
    /// Its processors.
    pub cpus: u32,
    /// Whether requests are traced.
    pub trace: bool,
    rows: Vec<Guested>,
    jobs: Jobs,
    drive_text: String,
}

/// The guest's file system and the folder in which all passes between it and us.
pub struct Ready {
    interrupts: Interrupts,
    folder: tempfile::TempDir,
}

impl Ready {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn initramfs(&self) -> PathBuf {
        self.path("initramfs")
    }
}

/// How QEMU shows a drive to the guest, and what the guest needs for it.
struct Attached {
    device: &'static str,
    module: &'static str,
    option: String,
}

/// A drive behind the controller that it has; where QEMU has none such, behind
/// virtio's.
fn attached(drive: &DriveSpec) -> Attached {
    let rotation = match drive.identity().rotational {
        true => 7200,
        // "Non-rotating medium" in ATA's and SCSI's words.
        false => 1,
    };
    match drive.interface {
        Interface::Nvme => Attached {
            device: "/dev/nvme0n1",
            module: "nvme",
            option: "nvme,drive=drive,serial=blklab".to_string(),
        },
        Interface::Ahci => Attached {
            device: "/dev/sda",
            module: "ahci",
            option: format!("ide-hd,drive=drive,bus=ide.0,rotation_rate={rotation}"),
        },
        Interface::Mmc | Interface::Loop | Interface::Null => Attached {
            device: "/dev/vda",
            module: "virtio_blk",
            option: "virtio-blk-pci,drive=drive,num-queues=1".to_string(),
        },
    }
}

impl Guest {
    /// The job under these settings, in guests of that kernel.
    ///
    /// # Errors
    /// Where a setting names something that there is not; the message says what
    /// is right.
    pub fn new(
        packages: Packages,
        source: &JobSource,
        settings: &[Setting],
    ) -> Result<Guest, Error> {
        let program = std::env::current_exe()
            .map_err(|e| HostError::io("find this program", "/proc/self/exe", e))?;
        let mut guest = Guest {
            packages,
            program,
            module: None,
            accelerator: Accelerator::Auto,
            cpus: 1,
            trace: true,
            rows: Vec::new(),
            jobs: Jobs::new(),
            drive_text: String::new(),
        };
        let mut texts: Vec<String> = Vec::new();
        for setting in settings {
            check_options(&setting.options, is_place, "--world guest")?;
            let job = guest.jobs.read(source, guest.cpus, setting)?;
            let (drive, text) = setting.drive().map_err(Error::Mistake)?;
            if !texts.contains(&text) {
                texts.push(text);
            }
            guest.rows.push(Guested {
                label: setting.label.clone(),
                queue: setting.of_kernel(),
                drive_name: setting.drive.clone(),
                drive,
                job,
            });
        }
        guest.drive_text = texts.join("\n");
        Ok(guest)
    }

    /// The drives' descriptions.
    pub fn drive_text(&self) -> &str {
        &self.drive_text
    }

    fn order(&self, row: &Guested) -> Result<RunOrder, Error> {
        let device = Path::new(attached(&row.drive).device);
        let job = self.jobs.get(row.job);
        Ok(RunOrder::new(job, device, &row.queue, self.trace)?)
    }

    fn initramfs(&self, to: &Path) -> Result<(), Error> {
        let mut initramfs = Initramfs::new(&self.packages)?;
        initramfs.add_program(&self.program)?;
        for module in SCHEDULERS.into_iter().chain(["qemu_fw_cfg"]) {
            initramfs.load(module, "")?;
        }
        for row in &self.rows {
            let module = attached(&row.drive).module;
            initramfs.load(module, "")?;
            if module == "ahci" {
                initramfs.load("sd_mod", "")?;
            }
        }
        if let Some(module) = &self.module {
            initramfs.load_file(module)?;
        }
        let program = self
            .program
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        Ok(initramfs.write(&format!("{program} guest answer {ORDER} >{PORT}\n"), to)?)
    }

    /// Boots a guest with the drive of a row, which answers its order.
    fn boot(&self, ready: &Ready, row: &Guested, socket: &Path) -> Result<Reply, Error> {
        let (order, answer) = (ready.path("order"), ready.path("answer"));
        std::fs::write(&order, self.order(row)?.to_json()?)
            .map_err(|e| HostError::io("write", &order, e))?;
        let drive = format!(
            "if=none,id=drive,format=raw,cache=none,discard=unmap,file=nbd+unix:///?socket={}",
            socket.display()
        );
        let devices = ["-drive", &drive, "-device", &attached(&row.drive).option];
        let jobs = self.jobs.get(row.job).jobs.iter();
        let runtimes = jobs.map(|spec| spec.runtime_us);
        let machine = Machine {
            accelerator: self.accelerator,
            cpus: self.cpus,
            memory_mib: MEMORY_MIB,
            counts_instructions: false,
            limit: LIMIT + Duration::from_micros(runtimes.sum()),
        };
        machine.run(&Boot {
            packages: &self.packages,
            initramfs: &ready.initramfs(),
            devices: &devices.map(str::to_string),
            order: Some(&order),
            answer: &answer,
            console: &ready.path("console"),
            append: "",
            is_stopped: &|| ready.interrupts.check().is_err(),
        })?;
        let reply = std::fs::read(&answer).map_err(|e| HostError::io("read", &answer, e))?;
        Reply::from_json(&reply).map_err(|error| {
            let said = std::fs::read_to_string(ready.path("console")).unwrap_or_default();
            let said = said.trim().replace('\r', "");
            let message = format!("the guest did not answer its order ({error}); it said:\n{said}");
            Error::Guest(blklab_guest::Error::Failed(message))
        })
    }
}

impl World for Guest {
    type Ready<'w> = Ready;
    const ORDER: Order = Order::Interleaved;

    fn labels(&self) -> Vec<String> {
        self.rows.iter().map(|row| row.label.clone()).collect()
    }

    fn prepare(&self, _: Watch<'_>) -> Result<Ready, Error> {
        for row in &self.rows {
            let job = self.jobs.get(row.job);
            let text = blklab_host::on_device(job, Path::new(attached(&row.drive).device))?;
            Fio::prepare(Path::new("fio"), job, text)?.check()?;
        }
        let folder = tempfile::tempdir()
            .map_err(|e| HostError::io("make a temporary folder", std::env::temp_dir(), e))?;
        let ready = Ready {
            interrupts: Interrupts::watch()?,
            folder,
        };
        self.initramfs(&ready.initramfs())?;
        Ok(ready)
    }

    /// Each run has a guest and a drive of its own, as new as a simulated one.
    fn run(
        &self,
        ready: &Ready,
        planned: PlannedRun,
        _: &mut dyn FnMut(f64),
    ) -> Result<Results, Error> {
        ready.interrupts.check()?;
        let row = &self.rows[planned.row];
        let job = self.jobs.get(row.job);
        let socket = ready.path("nbd.sock");
        let scheduler = SchedulerChoice::named("none").map_err(Error::mistake)?;
        let model = (row.drive_name.as_str(), &row.drive);
        let config = paced(model, scheduler, job, &socket, planned.seed);
        let server = Server::start(&config).map_err(Error::Server)?;
        let reply = self.boot(ready, row, &socket);
        let stats = server.drive_stats();
        server.shut_down().map_err(Error::Server)?;
        ready.interrupts.check()?;
        let (served, lateness_ns) = stats.map_err(Error::Server)?;
        let mut results = reply?.results(job)?;
        results.notes.push(note_on_pacing(&lateness_ns));
        results.drive = row.drive_name.clone();
        // The guest's queue, and what its requests met in the drive.
        results.disks = results
            .disks
            .into_iter()
            .map(|disk| DiskStats {
                device: served.device.clone(),
                ..disk
            })
            .collect();
        Ok(results)
    }
}
