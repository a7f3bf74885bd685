//! The guest's world: a real kernel in a virtual machine, on a drive's model paced in
//! real time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use blklab_blk::{DEFAULT_MAX_SECTORS, SECTOR_SIZE};
use blklab_device::DriveSpec;
use blklab_elevator::SchedulerChoice;
use blklab_guest::{Accelerator, Boot, Initramfs, Machine, ORDER, PORT, Packages};
use blklab_host::{Fio, HostError, Interrupts, Order as RunOrder, QueueSettings, Reply, is_place};
use blklab_serve::{Server, ServerConfig, memory};
use blklab_stats::{DiskStats, Results};
use blklab_workload::fio::{JobFile, JobSource};

use crate::error::Error;
use crate::front_end::{DRIVE_FILE, DiskBehind, MEMORY, NamedFrontEnd, SERVED_DEVICE, ServerPlace};
use crate::served::{paced, verifies};
use crate::setting::Setting;
use crate::work::{Jobs, check_options};
use crate::world::{Order, PlannedRun, Watch, World};

/// Time that a guest may take beyond its job's running times; a guest that takes longer
/// is considered hung.
const LIMIT: Duration = Duration::from_secs(3600);

const MEMORY_MIB: u32 = 1024;
/// With room for a disk in the guest's memory.
const FRONT_END_MEMORY_MIB: u32 = 1536;
/// Requests at once of a disk in memory that is served outside.
const MEMORY_DEPTH: u32 = 256;

/// The most requests at once of a queue of virtio (section 2.7 of the specification allows
/// more, QEMU does not).
const MAX_QUEUE_SIZE: u32 = 1024;

const NO_FUA: &str =
    "the guest's disk is virtio's, which has no FUA: a durable write is a write and a flush there";

/// The kernel's schedulers that are modules in the guest.
const SCHEDULERS: [&str; 2] = ["bfq", "kyber-iosched"];

/// A row: the queue's settings, the drive with the front end before it, and the index of the
/// job.
struct GuestRow {
    label: String,
    queue: QueueSettings,
    front_end: Option<NamedFrontEnd>,
    drive_name: String,
    drive: DriveSpec,
    job: usize,
}

impl GuestRow {
    /// Whether the disk is a drive's model, not memory.
    fn is_paced(&self) -> bool {
        self.front_end.is_none() || self.drive_name != MEMORY
    }

    /// Whether a server outside of the guest has the disk.
    fn is_served_outside(&self) -> bool {
        let front_end = self.front_end.as_ref();
        front_end.is_none_or(|front_end| front_end.is_served_outside(self.is_paced()))
    }

    /// The disk in the guest.
    fn device(&self) -> PathBuf {
        match &self.front_end {
            Some(front_end) => front_end.device(),
            None => PathBuf::from(SERVED_DEVICE),
        }
    }

    /// The commands that give the disk in the guest the properties of the drive that virtio
    /// does not transmit.
    fn describe_drive(&self) -> String {
        let identity = self.drive.identity();
        let cache = match identity.volatile_write_cache {
            true => "write back",
            false => "write through",
        };
        format!(
            "set -e\n\
             cd /sys/block/{}/queue\n\
             echo {} >rotational\n\
             echo {cache} >write_cache\n\
             echo {} >max_sectors_kb\n\
             echo -1 2>/dev/null >wbt_lat_usec || true\n\
             cd /\n",
            SERVED_DEVICE.trim_start_matches("/dev/"),
            u8::from(identity.rotational),
            identity.max_transfer_sectors.min(DEFAULT_MAX_SECTORS) / 2,
        )
    }

    /// What it means for the disk that time passes this many times slower in the guest.
    fn note_on_dilation(&self, dilation: u32) -> String {
        match (self.is_served_outside(), self.is_paced()) {
            (true, true) => format!(
                "time passed {dilation} times slower for the guest and its drive than on the clock"
            ),
            (true, false) => format!(
                "time passed {dilation} times slower in the guest than on the clock, but not for \
                 the server outside: its processor counts as {dilation} times faster than it is"
            ),
            // A drive's model that is served in the guest goes by the guest's clock, too.
            (false, _) => format!(
                "time passed {dilation} times slower in the guest than on the clock: its \
                 processors, which the server has its share of, count as that much faster"
            ),
        }
    }

    fn size_bytes(&self) -> u64 {
        self.drive.identity().capacity_sectors * SECTOR_SIZE
    }

    fn memory_mib(&self) -> u32 {
        match self.front_end {
            Some(_) => FRONT_END_MEMORY_MIB,
            None => MEMORY_MIB,
        }
    }

    /// The server outside of the guest.
    fn server(&self, job: &JobFile, socket: &Path, seed: u64) -> Result<ServerConfig, Error> {
        let scheduler = SchedulerChoice::named("none").map_err(Error::mistake)?;
        let mut config = paced(
            (&self.drive_name, &self.drive),
            scheduler,
            job,
            socket,
            seed,
        );
        config.listen.clear();
        // What waits in the server would be unseen by the guest's scheduler.
        config.limits.in_flight_bytes = u64::MAX;
        for export in &mut config.exports {
            export.vhost_user = Some(socket.to_path_buf());
            if !self.is_paced() {
                export.backend = memory(self.size_bytes());
                export.depth = MEMORY_DEPTH;
                export.drive = None;
            }
        }
        Ok(config)
    }

    /// QEMU's options for the disk: a client of the server's that holds no request back. Its
    /// own controllers are clients by NBD, with 16 requests at once (block/nbd.c).
    fn devices(&self, socket: &Path, cpus: u32) -> Vec<String> {
        if !self.is_served_outside() {
            return Vec::new();
        }
        let queues = match &self.front_end {
            Some(front_end) if front_end.kind.server == ServerPlace::Host => {
                format!("num-queues={}", front_end.count)
            }
            _ => {
                let identity = self.drive.identity();
                format!(
                    "num-queues={},queue-size={}",
                    cpus.min(identity.max_queues.into()),
                    identity.queue_depth.next_power_of_two().min(MAX_QUEUE_SIZE)
                )
            }
        };
        vec![
            "-object".to_string(),
            format!(
                "memory-backend-memfd,id=memory,size={}M,share=on",
                self.memory_mib()
            ),
            "-machine".to_string(),
            "memory-backend=memory".to_string(),
            "-chardev".to_string(),
            format!("socket,id=disk,path={}", socket.display()),
            "-device".to_string(),
            format!("vhost-user-blk-pci,chardev=disk,{queues}"),
        ]
    }
}

/// Drives' models in real time, under a real kernel in a virtual machine.
pub struct Guest {
    packages: Packages,
    /// This program, which also runs the job inside the guest.
    program: PathBuf,
    /// A kernel module with further schedulers.
    pub module: Option<PathBuf>,
    /// How the guest's instructions are executed.
    pub accelerator: Accelerator,
    /// The number of the guest's processors.
    pub cpus: u32,
    /// How many times slower than the clock time passes in the guest and for its drive.
    pub time_dilation: u32,
    /// Whether requests are traced.
    pub trace: bool,
    rows: Vec<GuestRow>,
    jobs: Jobs,
    drive_text: String,
}

/// The guest's first file system, and the folder for the files exchanged with the guest.
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

impl Guest {
    /// Prepares the job under these settings, in guests of the kernel of `packages`.
    ///
    /// # Errors
    /// If a setting names something unknown; the message says what is right.
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
            time_dilation: 1,
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
            let front_end = setting.front_end.as_deref().map(NamedFrontEnd::parse);
            let front_end = front_end.transpose()?;
            if front_end.is_some() && (setting.state.is_some() || setting.faults.is_some()) {
                return Err(Error::mistake(
                    "--frontends: a server in the guest takes the drive as it is described, \
                     without --state and --faults",
                ));
            }
            if !texts.contains(&text) {
                texts.push(text);
            }
            guest.rows.push(GuestRow {
                label: setting.label.clone(),
                queue: setting.of_kernel(),
                front_end,
                drive_name: setting.drive.clone(),
                drive,
                job,
            });
        }
        guest.drive_text = texts.join("\n");
        Ok(guest)
    }

    /// Returns the drives' descriptions.
    pub fn drive_text(&self) -> &str {
        &self.drive_text
    }

    fn order(&self, row: &GuestRow) -> Result<RunOrder, Error> {
        let job = self.jobs.get(row.job);
        let order = RunOrder::new(job, &row.device(), &row.queue, self.trace)?;
        let commands = row.front_end.as_ref().map(|front_end| {
            front_end.commands(&DiskBehind {
                program: &self.program_name(),
                bytes: row.size_bytes(),
                is_paced: row.is_paced(),
                keeps_data: !row.is_paced() || verifies(job),
                attached: Path::new(SERVED_DEVICE),
            })
        });
        let mut before = String::new();
        if row.is_served_outside() && row.is_paced() {
            before += &row.describe_drive();
        }
        if let Some(commands) = commands.transpose()?.flatten() {
            before += &commands;
        }
        match before.is_empty() {
            true => Ok(order),
            false => Ok(order.after(before)),
        }
    }

    /// What this program is called in the guest.
    fn program_name(&self) -> String {
        let name = self.program.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    fn initramfs(&self, to: &Path) -> Result<(), Error> {
        let mut initramfs = Initramfs::new(&self.packages)?;
        initramfs.add_program(&self.program)?;
        for module in SCHEDULERS.into_iter().chain(["qemu_fw_cfg", "virtio_blk"]) {
            initramfs.load(module, "")?;
        }
        initramfs.add_file(DRIVE_FILE, self.drive_text.as_bytes());
        for row in &self.rows {
            let front_end = row.front_end.as_ref().map(|front_end| front_end.kind);
            for module in front_end.map_or(&[][..], |front_end| front_end.modules) {
                initramfs.load(module, "")?;
            }
            for program in front_end.map_or(&[][..], |front_end| front_end.programs) {
                initramfs.add_program(&self.packages.program(program)?)?;
            }
        }
        if let Some(module) = &self.module {
            initramfs.load_file(module)?;
        }
        let program = self.program_name();
        Ok(initramfs.write(&format!("{program} guest answer {ORDER} >{PORT}\n"), to)?)
    }

    /// Boots a guest with the row's drive, and returns the guest's reply to its order.
    fn boot(&self, ready: &Ready, row: &GuestRow, socket: &Path) -> Result<Reply, Error> {
        let (order, answer) = (ready.path("order"), ready.path("answer"));
        std::fs::write(&order, self.order(row)?.to_json()?)
            .map_err(|e| HostError::io("write", &order, e))?;
        let jobs = self.jobs.get(row.job).jobs.iter();
        let runtimes = jobs.map(|spec| spec.runtime_us);
        let machine = Machine {
            accelerator: self.accelerator,
            cpus: self.cpus,
            memory_mib: row.memory_mib(),
            counts_instructions: false,
            time_dilation: self.time_dilation,
            limit: LIMIT + Duration::from_micros(runtimes.sum()),
        };
        machine.run(&Boot {
            packages: &self.packages,
            initramfs: &ready.initramfs(),
            devices: &row.devices(socket, self.cpus),
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
            let text = blklab_host::on_device(job, &row.device())?;
            Fio::prepare(Path::new("fio"), job, text)?.check()?;
            self.order(row)?;
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

    /// Each run has its own guest and a new drive, as in a simulation.
    fn run(
        &self,
        ready: &Ready,
        planned: PlannedRun,
        _: &mut dyn FnMut(f64),
    ) -> Result<Results, Error> {
        ready.interrupts.check()?;
        let row = &self.rows[planned.row];
        let job = self.jobs.get(row.job);
        let socket = ready.path("disk.sock");
        let server = match row.is_served_outside() {
            true => {
                let mut config = row.server(job, &socket, planned.seed)?;
                config.time_dilation = self.time_dilation;
                Some(Server::start(&config))
            }
            false => None,
        };
        let server = server.transpose().map_err(Error::Server)?;
        let reply = self.boot(ready, row, &socket);
        let mut served = None;
        if let Some(server) = server {
            served = row.is_paced().then(|| server.drive_stats());
            server.shut_down().map_err(Error::Server)?;
        }
        ready.interrupts.check()?;
        let mut results = reply?.results(job)?;
        results.drive = row.drive_name.clone();
        if self.time_dilation > 1 {
            results.notes.push(row.note_on_dilation(self.time_dilation));
        }
        if let Some((served, lateness_ns)) = served.transpose().map_err(Error::Server)? {
            results.pacing_lateness_ns = Some(lateness_ns);
            let identity = row.drive.identity();
            if identity.fua && identity.volatile_write_cache {
                results.notes.push(NO_FUA.to_string());
            }
            // The queue's counters are the guest's; the device's are those of the served
            // model.
            results.disks = results
                .disks
                .into_iter()
                .map(|disk| DiskStats {
                    device: served.device.clone(),
                    ..disk
                })
                .collect();
        }
        Ok(results)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(drive: &str) -> GuestRow {
        let (drive, _) = blklab_device::registry::load(drive).expect("a drive");
        GuestRow {
            label: String::new(),
            queue: QueueSettings::default(),
            front_end: None,
            drive_name: String::new(),
            drive,
            job: 0,
        }
    }

    #[test]
    fn the_guests_disk_has_the_drives_queue() {
        let devices = |drive: &str, cpus| row(drive).devices(Path::new("s"), cpus).join(" ");
        let disk = devices("hdd-7200", 4);
        assert!(disk.ends_with("num-queues=1,queue-size=32"), "{disk}");
        let nvme = devices("nvme", 4);
        assert!(nvme.ends_with("num-queues=4,queue-size=1024"), "{nvme}");
    }

    #[test]
    fn dilated_time_is_told_with_what_it_leaves_out() {
        let note = |front_end: Option<&str>, drive: &str| {
            let mut row = row("hdd-7200");
            row.front_end = front_end.map(|name| NamedFrontEnd::parse(name).expect("it is there"));
            row.drive_name = drive.to_string();
            row.note_on_dilation(20)
        };
        assert!(note(None, "hdd-7200").contains("for the guest and its drive"));
        assert!(note(Some("loop"), "hdd-7200").contains("for the guest and its drive"));
        assert!(note(Some("vhost-user"), MEMORY).contains("not for the server outside"));
        for drive in [MEMORY, "hdd-7200"] {
            assert!(note(Some("nbd"), drive).contains("the server has its share"));
        }
    }

    #[test]
    fn the_guest_learns_what_virtio_does_not_transmit() {
        let disk = row("hdd-7200").describe_drive();
        assert!(disk.contains("echo 1 >rotational"), "{disk}");
        assert!(disk.contains("echo write back >write_cache"), "{disk}");
        assert!(disk.contains("echo 1280 >max_sectors_kb"), "{disk}");
        let nvme = row("enterprise-tlc").describe_drive();
        assert!(nvme.contains("echo 0 >rotational"), "{nvme}");
        assert!(nvme.contains("echo write through >write_cache"), "{nvme}");
    }
}
