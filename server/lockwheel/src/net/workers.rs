//! The threads of a server, which serve clients. Which client goes to which thread is the acceptor'
//! business.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::runtime::{self, Handle, Runtime};
use tokio_util::task::TaskTracker;

use crate::limits;
use crate::net::host::Host;
use crate::net::listener::Acceptor;
use crate::net::{ticker, turn};

/// Threads to be, each with a runtime of its own.
#[derive(Debug)]
pub(crate) struct Workers {
    runtimes: Vec<Worker>,
    /// The tasks of all clients: the threads end when these have.
    pub(crate) clients: TaskTracker,
}

/// A runtime that may be dropped anywhere: in somebody's asynchronous code, too, where tokio does
/// not let one wait for it.
#[derive(Debug)]
struct Worker(Option<Runtime>);

impl Worker {
    fn serve(&mut self, until: impl Future<Output = ()>) {
        if let Some(runtime) = self.0.take() {
            runtime.block_on(until);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Workers {
    /// A workers of `count`, not at work yet.
    pub(crate) fn new(count: usize) -> io::Result<Workers> {
        let runtime = |_| {
            let runtime = runtime::Builder::new_current_thread()
                .enable_all()
                .event_interval(limits::TASKS_BETWEEN_LOOKS)
                .on_thread_park(turn::rest)
                .build()?;
            Ok(Worker(Some(runtime)))
        };
        let runtimes = (0..count).map(runtime).collect::<io::Result<_>>()?;
        Ok(Workers { runtimes, clients: TaskTracker::new() })
    }

    /// Where each thread's tasks can be spawned.
    pub(crate) fn runtimes(&self) -> Vec<Handle> {
        let runtimes = self.runtimes.iter().filter_map(|runtime| runtime.0.as_ref());
        runtimes.map(|runtime| runtime.handle().clone()).collect()
    }

    /// Starts the threads. The first one also attends the acceptor and fires the wheel.
    pub(crate) fn start(
        self,
        host: &Arc<Host>,
        acceptor: Arc<Acceptor>,
    ) -> io::Result<Vec<JoinHandle<()>>> {
        acceptor.attend(host);
        // The acceptor' tasks keep them: when those have ended, they are shut.
        drop(acceptor);
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
