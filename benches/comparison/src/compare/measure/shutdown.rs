//! Ends the started servers when this program is ended by Ctrl-C or `SIGTERM`.

use std::collections::BTreeSet;
use std::io;
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lockwheel_comparison::Outcome;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use crate::progress;

/// Difference between the exit status of a program that a signal has ended and the number of the
/// signal.
const SIGNAL_STATUS: i32 = 128;

/// The process ids of running servers, locked while one starts or ends, so that none is missed.
static SERVERS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Makes both signals end the servers and this program.
pub(crate) fn handle_signals() -> Outcome<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let (mut interrupt, mut terminate) = {
        let _context = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    std::thread::spawn(move || {
        let received = runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => SignalKind::interrupt(),
                _ = terminate.recv() => SignalKind::terminate(),
            }
        });
        let servers = servers();
        for &server in servers.iter() {
            if let Ok(server) = i32::try_from(server) {
                let _ = kill(Pid::from_raw(server), Signal::SIGKILL);
            }
        }
        progress::print("compare: ended by a signal; with --save, --resume continues the run");
        std::process::exit(SIGNAL_STATUS + received.as_raw_value());
    });
    Ok(())
}

/// Starts a server that is ended together with this program.
pub(crate) fn spawn(command: &mut Command) -> io::Result<Child> {
    let mut servers = servers();
    let child = command.spawn()?;
    servers.insert(child.id());
    Ok(child)
}

/// Ends a server.
pub(crate) fn end(child: &mut Child) {
    let mut servers = servers();
    let _ = child.kill();
    let _ = child.wait();
    servers.remove(&child.id());
}

fn servers() -> MutexGuard<'static, BTreeSet<u32>> {
    SERVERS.lock().unwrap_or_else(PoisonError::into_inner)
}
