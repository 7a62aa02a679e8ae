//! The program `lockwheel`: chooses the subcommand, and runs the server until a signal or a command
//! stops it.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

use lockwheel::{Builder, Server, Settings};
use lockwheel_engine::settings::{Allocator, Master, Mode, Sentinel, directive};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{error, info, warn};

use self::launch::{Invocation, load};
use self::process_settings::ProcessSettings;
use self::program_name::ProgramName;
use self::supervisor::Supervisor;
use self::title::Title;

mod admin;
#[cfg(feature = "compat")]
mod compat_command;
mod config_command;
mod introduction;
#[cfg(feature = "prove")]
mod judge_command;
mod launch;
mod limits;
mod lock_command;
mod locks_command;
mod log_command;
mod logging;
mod process_settings;
mod program_name;
#[cfg(feature = "prove")]
mod prove_command;
#[cfg(feature = "replication")]
mod raft_command;
mod redis_cli;
mod run_command;
mod supervisor;
mod title;
#[cfg(feature = "tls")]
mod tls_client;

fn main() -> ExitCode {
    let mut args: Vec<OsString> = std::env::args_os().collect();
    let name = program_name::choose(&mut args);
    if name == ProgramName::Cli {
        return redis_cli::main(args.into_iter().skip(1));
    }
    let texts: Vec<String> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    if name == ProgramName::Run {
        return run_command::main(args.into_iter().skip(1), &Title::of(&texts));
    }
    if name == ProgramName::Lock {
        return lock_command::main(args);
    }
    if name == ProgramName::Locks {
        return locks_command::main(args);
    }
    if name == ProgramName::Log {
        return log_command::main(args);
    }
    let args = texts;
    if name == ProgramName::Help {
        return print(&launch::usage(ALLOCATOR.name));
    }
    if name == ProgramName::Config {
        return config_command::main(&args);
    }
    if name == ProgramName::Compat {
        #[cfg(feature = "compat")]
        return compat_command::main(&args[1..]);
        #[cfg(not(feature = "compat"))]
        return unusable("this lockwheel was built without the feature \"compat\"");
    }
    if matches!(name, ProgramName::Prove | ProgramName::Judge) {
        #[cfg(feature = "prove")]
        return match name {
            ProgramName::Judge => judge_command::main(&args[1..]),
            _ => prove_command::main(&args[1..]),
        };
        #[cfg(not(feature = "prove"))]
        return unusable("this lockwheel was built without the feature \"prove\"");
    }
    if name == ProgramName::Raft {
        #[cfg(feature = "replication")]
        return raft_command::main(&args);
        #[cfg(not(feature = "replication"))]
        return fail("this lockwheel was built without the feature \"replication\"");
    }
    server_main(&args, |_| Ok(()))
}

/// The global allocator. A background thread of jemalloc returns freed pages to the system, even
/// between pages in use; the allocator of glibc keeps most of them.
#[cfg(all(feature = "jemalloc", target_os = "linux", target_env = "gnu"))]
#[global_allocator]
static GLOBAL: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The allocator for `INFO`.
#[cfg(not(all(feature = "jemalloc", target_os = "linux", target_env = "gnu")))]
const ALLOCATOR: Allocator = Allocator { name: "libc", usage: || None };

/// The allocator for `INFO`.
#[cfg(all(feature = "jemalloc", target_os = "linux", target_env = "gnu"))]
const ALLOCATOR: Allocator = Allocator { name: "jemalloc-5.3.0", usage: allocator_usage };

#[cfg(all(feature = "jemalloc", target_os = "linux", target_env = "gnu"))]
fn allocator_usage() -> Option<lockwheel_engine::settings::AllocatorUsage> {
    use tikv_jemalloc_ctl::{epoch, stats};
    let bytes = |figure: tikv_jemalloc_ctl::Result<usize>| Some(figure.ok()? as u64);
    // The statistics are as of the last `advance`.
    epoch::advance().ok()?;
    Some(lockwheel_engine::settings::AllocatorUsage {
        allocated: bytes(stats::allocated::read())?,
        active: bytes(stats::active::read())?,
        resident: bytes(stats::resident::read())?,
    })
}

/// Runs a server as `redis-server` does. Calls `prepare` with its settings first.
fn server_main(args: &[String], prepare: impl FnOnce(&Settings) -> Result<(), String>) -> ExitCode {
    let title = Title::of(args);
    let mut stdin_text = None;
    let mut read = |source: launch::Source<'_>| {
        let text = load::read(source)?;
        if source == launch::Source::Stdin {
            stdin_text = Some(text.clone());
        }
        Ok(text)
    };
    match launch::from_args(args, &environment(), &mut read) {
        Ok(Invocation::PrintVersion) => print(&launch::version_line(ALLOCATOR.name)),
        Ok(Invocation::PrintHelp) => print(&launch::usage(ALLOCATOR.name)),
        Ok(Invocation::Serve { mut settings, warnings }) => {
            settings.allocator = ALLOCATOR;
            let process = ProcessSettings::of(&settings);
            // Creates the last folder of the path only. An error is reported when the directory is
            // changed to.
            let _ = std::fs::create_dir(&process.dir);
            if let Err(error) = prepare(&settings).and_then(|()| check_node(&settings)) {
                return fail(&error);
            }
            if process.daemonize {
                return daemonize(args, stdin_text.as_deref());
            }
            let runtime = match start_runtime() {
                Ok(runtime) => runtime,
                Err(error) => return fail(&error.to_string()),
            };
            let _guard = match logging::start(&process) {
                Ok(guard) => guard,
                Err(error) => return fail(&error),
            };
            for warning in warnings {
                warn!("{warning}");
            }
            serve(*settings, &process, &title, runtime)
        }
        Err(error) => fail(&error.to_string()),
    }
}

/// Refuses to serve the directory of a node of a cluster without replication: the server would
/// grant locks that the other nodes have granted.
#[cfg(feature = "replication")]
fn check_node(settings: &Settings) -> Result<(), String> {
    let dir = settings.get(directive::DIR);
    let has_node = lockwheel::replication::has_node(dir.as_ref());
    if !settings.is_node() && has_node.map_err(|error| error.to_string())? {
        return Err(format!(
            "'{dir}' is the directory of a node of a cluster: start it with its raft-port"
        ));
    }
    Ok(())
}

/// Refuses settings of a node of a cluster.
#[cfg(not(feature = "replication"))]
fn check_node(settings: &Settings) -> Result<(), String> {
    match settings.is_node() {
        true => Err("this lockwheel was built without the feature \"replication\"".to_owned()),
        false => Ok(()),
    }
}

/// The environment variables that are valid UTF-8.
fn environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Creates the runtime of the program. From now on a write beyond `RLIMIT_FSIZE` fails; the signal
/// would end the process without a message, if nothing handled it.
fn start_runtime() -> std::io::Result<Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let context = runtime.enter();
    drop(signal(SignalKind::from_raw(nix::sys::signal::Signal::SIGXFSZ as i32))?);
    drop(context);
    Ok(runtime)
}

/// Changes to the working directory, whose path the settings have from now on.
///
/// # Errors
/// If there is none; the text names it.
fn enter_directory(settings: &mut Settings, process: &ProcessSettings) -> Result<(), String> {
    let dir = &process.dir;
    std::env::set_current_dir(dir).map_err(|error| {
        let advice = match error.kind() {
            std::io::ErrorKind::NotFound => format!("; 'mkdir -p {dir}' creates it"),
            _ => String::new(),
        };
        format!("Can't chdir to '{dir}': {error}{advice}")
    })?;
    if let Ok(dir) = std::env::current_dir() {
        // As `CONFIG GET` shows it.
        settings.put(directive::DIR, &dir.to_string_lossy().into_owned());
    }
    Ok(())
}

/// Runs the server until it is stopped.
fn serve(
    mut settings: Settings,
    process: &ProcessSettings,
    title: &Title,
    runtime: Runtime,
) -> ExitCode {
    if let Err(error) = enter_directory(&mut settings, process) {
        return fail_in_log(&error);
    }
    share_descriptors(&mut settings, process);
    introduction::log_start(&settings, process);
    let is_kept = settings.has_log() || settings.is_node();
    let ProcessSettings { supervised, end_with_stdin, ref admin, .. } = *process;
    let supervisor = Supervisor::of(supervised);
    let (mode, sentinel) = (settings.mode(), settings.sentinel.clone());
    // Signal handlers are installed before the first client can connect.
    let end = runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        // SIGHUP does not end the server: it continues when its terminal closes.
        let hang_up = signal(SignalKind::hangup())?;
        let signalled = async {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
        };
        let Some(server) = start(settings, supervisor, signalled).await? else {
            return Ok(ServerEnd::Normal);
        };
        let server = Arc::new(server);
        admin::start(admin, &server)?;
        info!("Server initialized");
        if process.has_port() {
            info!("Running mode={}, port={}.", mode.name(), server.addr().port());
        }
        if let Some(sentinel) = sentinel {
            log_sentinel(&sentinel, &server.node_id().map_err(std::io::Error::other)?);
        }
        log_ready(&server, process);
        title.set(&title_text(&server, process, mode));
        let notify = async {
            supervisor.ready(&server).await;
            std::future::pending::<()>().await;
        };
        let reason = tokio::select! {
            _ = interrupt.recv() => Some("SIGINT"),
            _ = terminate.recv() => Some("SIGTERM"),
            () = stdin_closed(), if end_with_stdin => Some("the end of standard input"),
            () = server.stopped() => None,
            () = notify => None,
            () = reload_at_signals(&server, process, hang_up) => None,
        };
        if let Some(reason) = reason {
            info!("Received {reason} scheduling shutdown...");
            introduction::log_held(&server, is_kept).await;
        }
        if !server.has_failed() {
            info!("User requested shutdown...");
        }
        supervisor.stopping();
        server.stop();
        Ok::<ServerEnd, std::io::Error>(ServerEnd::of(&server))
    });
    // After a signal during the start, the thread that loads the log may still run.
    runtime.shutdown_background();
    report_end(end)
}

/// The exit status of a node that must join its cluster again, with an empty folder: to start it
/// anew does not help.
const EXIT_MUST_JOIN: u8 = 3;

/// How a server has ended.
enum ServerEnd {
    /// By a request, or before it has started by a signal.
    Normal,
    /// By a fatal error.
    Failed,
    /// Since the log of the node is incomplete.
    LogIsLost,
    /// The node was removed from its cluster.
    Removed,
}

impl ServerEnd {
    fn of(server: &Server) -> ServerEnd {
        #[cfg(feature = "replication")]
        if server.has_lost_log() {
            return ServerEnd::LogIsLost;
        }
        #[cfg(feature = "replication")]
        if server.was_removed() {
            return ServerEnd::Removed;
        }
        if server.has_failed() { ServerEnd::Failed } else { ServerEnd::Normal }
    }
}

/// Logs how the server has ended, or why it has not started.
fn report_end(end: std::io::Result<ServerEnd>) -> ExitCode {
    match end {
        Ok(ServerEnd::Normal) => {
            info!("Lockwheel is now ready to exit, bye bye...");
            ExitCode::SUCCESS
        }
        Ok(ServerEnd::Failed) => fail_in_log("The server has failed."),
        Ok(ServerEnd::LogIsLost) => {
            fail_in_log("The log of this node is incomplete.");
            ExitCode::from(EXIT_MUST_JOIN)
        }
        Ok(ServerEnd::Removed) => {
            fail_in_log("This node was removed from its cluster.");
            ExitCode::from(EXIT_MUST_JOIN)
        }
        Err(error) => fail_in_log(&format!("Failed to start: {error}")),
    }
}

/// Starts the server on a thread of its own, since the log may take long to load. Returns `None` if
/// a signal arrives first.
async fn start(
    settings: Settings,
    supervisor: Supervisor,
    signalled: impl Future<Output = ()>,
) -> std::io::Result<Option<Server>> {
    let builder = Builder::from_settings(settings);
    let mut started = tokio::task::spawn_blocking(move || builder.start());
    let mut signalled = std::pin::pin!(signalled);
    loop {
        tokio::select! {
            started = &mut started => {
                return started?.map(Some).map_err(std::io::Error::other);
            }
            () = &mut signalled => return Ok(None),
            () = tokio::time::sleep(limits::NOTIFY_INTERVAL) => {
                supervisor.loading();
            }
        }
    }
}

/// Loads the TLS certificates and the ACL file again at each SIGHUP. Never returns.
async fn reload_at_signals(server: &Server, process: &ProcessSettings, mut hang_up: Signal) {
    while hang_up.recv().await.is_some() {
        #[cfg(feature = "tls")]
        match server.reload_tls() {
            Ok(true) => info!("Received SIGHUP: TLS is configured anew"),
            Ok(false) => {}
            Err(error) => warn!(
                "Received SIGHUP: Failed to configure TLS, the old configuration stays in use: \
                 {error}"
            ),
        }
        if process.has_acl_file {
            match server.call(&["ACL", "LOAD"]) {
                Ok(_) => info!("Received SIGHUP: the users are loaded anew"),
                Err(error) => warn!("Received SIGHUP: the users stay as they are: {error}"),
            }
        }
    }
    std::future::pending::<()>().await;
}

/// Waits until standard input is closed. Input is discarded.
async fn stdin_closed() {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    // On a thread of its own, since a read of standard input cannot be cancelled: the process ends
    // without waiting for the thread.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = sender.send(());
    });
    let _ = receiver.await;
}

/// Raises the limit of open files as far as needed and permitted, and limits the number of clients
/// to what it allows.
fn share_descriptors(settings: &mut Settings, process: &ProcessSettings) {
    let needed = (2 * u64::from(settings.maxclients)).max(limits::OPEN_FILES_MIN);
    let limit = match rlimit::increase_nofile_limit(needed) {
        Ok(limit) => limit,
        Err(error) => return warn!(%error, "cannot raise the limit of open files"),
    };
    let admin = limits::ADMIN_CONNECTIONS_MAX as u64 + limits::ADMIN_DESCRIPTORS;
    let wanted = settings.maxclients;
    lockwheel::share_descriptors(settings, limit, if process.admin.port == 0 { 0 } else { admin });
    let allowed = settings.maxclients;
    if allowed < wanted {
        warn!("maxclients is {allowed} instead of {wanted}: the limit of open files is {limit}");
    }
}

/// Logs that the server is ready, in a line for each kind of socket. It has the words of all
/// versions of Redis, since launchers wait for them; the port is at its end.
fn log_ready(server: &Server, process: &ProcessSettings) {
    const READY: &str = "The server is now ready to accept connections";
    let at_port = match process.has_port() {
        true => format!("{READY} on port {}", server.addr().port()),
        false => String::new(),
    };
    match (process.listens, process.listens_for_tls) {
        (true, true) => {
            info!("Ready to accept connections tls");
            info!("Ready to accept connections tcp: {at_port}");
        }
        (true, false) => info!("Ready to accept connections tcp: {at_port}"),
        (false, true) => info!("Ready to accept connections tls: {at_port}"),
        (false, false) => {}
    }
    if let Some(path) = &process.unixsocket {
        info!("Ready to accept connections unix: {READY} at {path}");
    }
}

/// The text that `ps` shows after the name of the program, as for Redis.
fn title_text(server: &Server, process: &ProcessSettings, mode: Mode) -> String {
    let address = if process.has_port() { server.addr().to_string() } else { server.url() };
    match mode {
        Mode::Standalone => address,
        Mode::Cluster | Mode::Sentinel => format!("{address} [{}]", mode.name()),
    }
}

/// Logs the id and the masters of a sentinel, in the texts of Redis: launchers wait for the id.
fn log_sentinel(sentinel: &Sentinel, id: &str) {
    info!("Sentinel ID is {id}");
    for Master { name, host, port, quorum, .. } in &sentinel.masters {
        info!("+monitor master {name} {host} {port} quorum {quorum}");
    }
}

/// Starts the same server again as a background process, and returns. `stdin_text` is the
/// configuration read from standard input.
fn daemonize(args: &[String], stdin_text: Option<&[u8]>) -> ExitCode {
    use std::io::Write;
    use std::os::unix::process::CommandExt;
    let (name, rest) = args.split_first().map_or(("", args), |(name, rest)| (&**name, rest));
    let child = std::env::current_exe().and_then(|program| {
        Command::new(program)
            // The name selects the sentinel mode.
            .arg0(name)
            .args(rest)
            .args(["--daemonize", "no", "--end-with-stdin", "no"])
            .stdin(if stdin_text.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
    });
    let written = child.and_then(|mut child| match (child.stdin.take(), stdin_text) {
        (Some(mut pipe), Some(text)) => pipe.write_all(text),
        _ => Ok(()),
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("Can't start in the background: {error}")),
    }
}

/// Prints to standard output, which may be closed.
fn print(text: &str) -> ExitCode {
    use std::io::Write;
    match writeln!(std::io::stdout(), "{text}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Logs an error once the log exists: launchers look for the reason there.
fn fail_in_log(text: &str) -> ExitCode {
    error!("{text}");
    ExitCode::FAILURE
}

/// Ends a command whose exit status 1 is a finding.
#[cfg(not(all(feature = "compat", feature = "prove")))]
fn unusable(text: &str) -> ExitCode {
    let _ = fail(text);
    ExitCode::from(2)
}

/// Prints an error to standard error, which may be closed.
fn fail(text: &str) -> ExitCode {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{text}");
    ExitCode::FAILURE
}
