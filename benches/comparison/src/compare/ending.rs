//! The end that is asked for from outside, by Ctrl-C or `SIGTERM`: the servers that were started
//! end too. It must not know what they are for.

use std::collections::BTreeSet;
use std::io;
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use crate::{Outcome, progress};

/// Exit statuses of programs that were ended by a signal are this and the signal's number.
const ENDED_BY: i32 = 128;

/// The servers that run. Whoever starts or ends one holds it, so that none is missed.
static SERVERS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// From here on both signals end the servers and this program.
pub(crate) fn obey_signals() -> Outcome<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let (mut interrupt, mut terminate) = {
        let _context = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    std::thread::spawn(move || {
        let told = runtime.block_on(async {
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
        progress::say("compare: ended from outside; with --save, --resume goes on from here");
        std::process::exit(ENDED_BY + told.as_raw_value());
    });
    Ok(())
}

/// Starts a server that ends when this program has to.
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
