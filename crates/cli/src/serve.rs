//! `blklab serve`.

use std::io::Write;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use blklab_serve::{ExportSpec, LimitsSpec, Listen, Server, ServerSpec};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::{GetArgs, ServeArgs, SetArgs};
use crate::failure::Failure;
use crate::output;

/// How long a server may take to end after one of its threads has panicked.
const PANIC_LIMIT: Duration = Duration::from_secs(10);

pub(crate) fn serve(args: &ServeArgs) -> Result<(), Failure> {
    let spec = spec(args)?;
    let config = spec.resolve().map_err(|problem| match &args.config {
        Some(path) => Failure::mistake(format!("{}: {problem}", path.display())),
        None => Failure::mistake(problem),
    })?;
    // Signals are caught before any thread starts, so that none is missed.
    let broken = |e: std::io::Error| Failure::Broken(e.to_string());
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(broken)?;
    let server = Server::start(&config).map_err(Failure::mistake)?;
    if let Some(path) = &spec.pid_file {
        std::fs::write(path, format!("{}\n", std::process::id()))
            .map_err(|e| Failure::mistake(format!("{}: {e}", path.display())))?;
    }
    announce(&server);
    // A thread that has panicked ends the wait for a signal.
    let (waiting, (sender, panicked)) = (signals.handle(), mpsc::channel());
    server.on_panic(move |export| {
        let problem = format!("a thread of the export {export:?} panicked; the server ends");
        eprintln!("blklab: {problem}");
        let _ = sender.send(problem);
        waiting.close();
    });
    signals.forever().next();
    // A second signal ends the server without waiting.
    let pid_file = spec.pid_file.clone();
    std::thread::spawn(move || {
        if signals.forever().next().is_none() {
            // A thread panicked: what it had under way may keep others waiting for ever.
            std::thread::sleep(PANIC_LIMIT);
        }
        if let Some(path) = pid_file {
            let _ = std::fs::remove_file(path);
        }
        std::process::exit(1);
    });
    let ended = server.shut_down();
    let ended = panicked
        .try_recv()
        .map_or(ended, Err)
        .map_err(Failure::Broken);
    if let Some(path) = &spec.pid_file {
        let _ = std::fs::remove_file(path);
    }
    ended
}

/// Prints the addresses for clients.
fn announce(server: &Server) {
    let mut out = std::io::stdout().lock();
    for address in server.addresses() {
        // A closed standard output is no reason to end.
        let _ = match address {
            // Clients in other folders use it too.
            Listen::Unix(path) => {
                let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                writeln!(out, "nbd+unix:///?socket={}", path.display())
            }
            Listen::Tcp(address) => writeln!(out, "nbd://{address}"),
        };
    }
    for path in server.machine_sockets() {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        let _ = writeln!(out, "vhost-user:{}", path.display());
    }
    for path in server.disks() {
        let _ = writeln!(out, "{}", path.display());
    }
    if let Some(Listen::Tcp(address)) = server.metrics_address() {
        let _ = writeln!(out, "metrics: http://{address}/metrics");
    }
    let _ = out.flush();
}

/// Returns the server's description from the configuration file and the arguments.
fn spec(args: &ServeArgs) -> Result<ServerSpec, Failure> {
    let mut spec = match &args.config {
        Some(path) => ServerSpec::load(path).map_err(Failure::mistake)?,
        None => ServerSpec::default(),
    };
    spec.socket.extend(args.socket.iter().cloned());
    spec.listen.extend(args.listen.iter().cloned());
    // systemd names the receiver by its process id; listenfd checks that.
    spec.activated = std::env::var_os("LISTEN_FDS").is_some();
    spec.insecure_no_tls |= args.insecure_no_tls;
    spec.insecure_unsealed_memory |= args.insecure_unsealed_memory;
    spec.tls_certificates = args.tls_certificates.clone().or(spec.tls_certificates);
    spec.tls_verify_peer |= args.tls_verify_peer;
    spec.tls = args.tls.clone().or(spec.tls);
    spec.busy_poll_us = args.busy_poll.or(spec.busy_poll_us);
    spec.time_dilation = args.time_dilation.or(spec.time_dilation);
    spec.control = args.control.clone().or(spec.control);
    spec.sysfs = args.sysfs.clone().or(spec.sysfs);
    spec.metrics = args.metrics.clone().or(spec.metrics);
    spec.pid_file = args.pid_file.clone().or(spec.pid_file);
    let limits = spec.limits;
    spec.limits = LimitsSpec {
        connections: args.max_connections.or(limits.connections),
        request: args.max_request.clone().or(limits.request),
        in_flight: args.max_in_flight.clone().or(limits.in_flight),
        ..limits
    };
    if !args.backends.0.is_empty() {
        spec.export.push(export(args));
    }
    Ok(spec)
}

fn export(args: &ServeArgs) -> ExportSpec {
    ExportSpec {
        name: args.name.clone(),
        description: args.description.clone(),
        backends: args.backends.0.clone(),
        engine: args.engine.clone(),
        direct: args.direct,
        backend_threads: args.backend_threads,
        threads: args.threads,
        reconnect: args.reconnect,
        read_only: args.read_only,
        vhost_user: args.vhost_user.clone(),
        ublk: args.ublk.clone(),
        tcmu: args.tcmu.clone(),
        scheduler: args.scheduler.clone(),
        set: args.sets.clone(),
        nr_requests: args.nr_requests,
        depth: args.depth,
        drive: args.drive.clone(),
        faults: args.faults.clone(),
        power_cuts: args.power_cuts,
        cgroup_file: args.cgroup_file.clone(),
        seed: args.seed,
    }
}

/// `blklab get`.
pub(crate) fn get(args: &GetArgs) -> Result<(), Failure> {
    let export = args.control.export.as_str();
    let control = &args.control.control;
    let Some(name) = &args.name else {
        let names = ask(control, &["names", export])?;
        for name in names.lines() {
            let value = ask(control, &["get", export, name])?;
            output::print(format!("{name}: {value}\n"))?;
        }
        return Ok(());
    };
    let value = ask(control, &["get", export, name])?;
    output::print(format!("{value}\n"))
}

/// `blklab set`.
pub(crate) fn set(args: &SetArgs) -> Result<(), Failure> {
    let export = args.control.export.as_str();
    let words = ["set", export, &args.name, &args.value];
    ask(&args.control.control, &words).map(drop)
}

fn ask(control: &Path, words: &[&str]) -> Result<String, Failure> {
    blklab_serve::ask(control, words).map_err(Failure::mistake)
}
