//! The threads of a server, which serve clients. Which client goes to which thread is the doors'
//! business.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::runtime::{self, Handle, Runtime};
use tokio_util::task::TaskTracker;

use crate::limits;
use crate::net::host::Host;
use crate::net::listener::Doors;
use crate::net::{ticker, turn};

/// Threads to be, each with a runtime of its own.
#[derive(Debug)]
pub(crate) struct Crew {
    runtimes: Vec<Engaged>,
    /// The tasks of all clients: the threads end when these have.
    pub(crate) clients: TaskTracker,
}

/// A runtime that may be dropped anywhere: in somebody's asynchronous code, too, where tokio does
/// not let one wait for it.
#[derive(Debug)]
struct Engaged(Option<Runtime>);

impl Engaged {
    fn serve(&mut self, until: impl Future<Output = ()>) {
        if let Some(runtime) = self.0.take() {
            runtime.block_on(until);
        }
    }
}

impl Drop for Engaged {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Crew {
    /// A crew of `count`, not at work yet.
    pub(crate) fn new(count: usize) -> io::Result<Crew> {
        let runtime = |_| {
            let runtime = runtime::Builder::new_current_thread()
                .enable_all()
                .event_interval(limits::TASKS_BETWEEN_LOOKS)
                .on_thread_park(turn::rest)
                .build()?;
            Ok(Engaged(Some(runtime)))
        };
        let runtimes = (0..count).map(runtime).collect::<io::Result<_>>()?;
        Ok(Crew { runtimes, clients: TaskTracker::new() })
    }

    /// Where each thread's tasks can be spawned.
    pub(crate) fn runtimes(&self) -> Vec<Handle> {
        let runtimes = self.runtimes.iter().filter_map(|runtime| runtime.0.as_ref());
        runtimes.map(|runtime| runtime.handle().clone()).collect()
    }

    /// Starts the threads. The first one also attends the doors and fires the wheel.
    pub(crate) fn start(
        self,
        host: &Arc<Host>,
        doors: Arc<Doors>,
    ) -> io::Result<Vec<JoinHandle<()>>> {
        doors.attend(host);
        // The doors' tasks keep them: when those have ended, they are shut.
        drop(doors);
        if let Some(first) = self.runtimes().first() {
            ticker::attend(host, first)?;
        }
        let mut threads = Vec::new();
        for (at, mut runtime) in self.runtimes.into_iter().enumerate() {
            let (end, clients) = (host.shutdown.clone(), self.clients.clone());
            let serve = async move {
                tokio::spawn(turn::keep_awake());
                end.cancelled().await;
                clients.close();
                clients.wait().await;
            };
            let thread = std::thread::Builder::new()
                .name(format!("lockwheel-io-{at}"))
                .stack_size(limits::THREAD_STACK_BYTES);
            let work = move || {
                turn::begin_loop();
                runtime.serve(serve);
                turn::end();
            };
            match thread.spawn(work) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    host.stop();
                    return Err(error);
                }
            }
        }
        Ok(threads)
    }
}
