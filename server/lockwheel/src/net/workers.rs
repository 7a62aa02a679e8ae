//! The threads of a server, which serve clients. The acceptor assigns clients to threads.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::runtime::{self, Handle, Runtime};
use tokio::sync::watch;

use crate::host::Host;
use crate::limits;
use crate::net::listener::Acceptor;
use crate::net::{ticker, turn};
use crate::process_usage::MainThread;

/// Threads that have not been started yet, each with a runtime of its own.
#[derive(Debug)]
pub(crate) struct Workers {
    workers: Vec<Worker>,
    /// The tasks of all clients: the threads end after them.
    pub(crate) client_tasks: ClientTasks,
    /// The first thread, once it runs.
    pub(crate) main_thread: MainThread,
}

/// A runtime that may be dropped anywhere. Within the asynchronous code of an embedder, tokio does
/// not allow to wait for the end of a runtime.
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

/// Counts the running tasks of clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientTasks(watch::Sender<usize>);

/// Counts one task until it is dropped.
struct RunningTask(ClientTasks);

impl ClientTasks {
    /// Spawns the task of a client on `runtime`.
    pub(crate) fn spawn_on(
        &self,
        runtime: &Handle,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        self.count(|count| *count += 1);
        let running = RunningTask(self.clone());
        runtime.spawn(async move {
            task.await;
            drop(running);
        });
    }

    /// Waits until no task runs.
    async fn ended(&self) {
        // Fails only if there is no sender, and this is one.
        let _ = self.0.subscribe().wait_for(|&count| count == 0).await;
    }

    /// Changes the count; wakes the waiting threads only when it reaches 0.
    fn count(&self, change: impl FnOnce(&mut usize)) {
        self.0.send_if_modified(|count| {
            change(count);
            *count == 0
        });
    }
}

impl Drop for RunningTask {
    fn drop(&mut self) {
        self.0.count(|count| *count -= 1);
    }
}

impl Workers {
    /// Makes `count` workers and starts no thread.
    pub(crate) fn new(count: usize) -> io::Result<Workers> {
        let worker = |_| {
            let runtime = runtime::Builder::new_current_thread()
                .enable_all()
                .event_interval(limits::TASKS_BETWEEN_POLLS)
                .on_thread_park(turn::before_sleep)
                .build()?;
            Ok(Worker(Some(runtime)))
        };
        let workers = (0..count).map(worker).collect::<io::Result<_>>()?;
        let (client_tasks, main_thread) = (ClientTasks::default(), MainThread::default());
        Ok(Workers { workers, client_tasks, main_thread })
    }

    /// The handles to spawn tasks on each thread.
    pub(crate) fn runtimes(&self) -> Vec<Handle> {
        let runtimes = self.workers.iter().filter_map(|worker| worker.0.as_ref());
        runtimes.map(|runtime| runtime.handle().clone()).collect()
    }

    /// Starts the threads. The first one also accepts connections and fires the wheel.
    pub(crate) fn start(
        self,
        host: &Arc<Host>,
        acceptor: Arc<Acceptor>,
    ) -> io::Result<Vec<JoinHandle<()>>> {
        acceptor.start(host);
        // Only the acceptor's tasks keep it now: the listening sockets close when the tasks end.
        drop(acceptor);
        if let Some(first) = self.runtimes().first() {
            ticker::start(host, first)?;
        }
        let mut threads = Vec::new();
        for (at, mut worker) in self.workers.into_iter().enumerate() {
            let (mut stopped, client_tasks) = (host.stopped.subscribe(), self.client_tasks.clone());
            let serve = async move {
                tokio::spawn(turn::keep_awake());
                // Fails if the host was dropped, which ends the worker as well.
                let _ = stopped.wait_for(|&stopped| stopped).await;
                client_tasks.ended().await;
            };
            let thread = std::thread::Builder::new()
                .name(format!("lockwheel-io-{at}"))
                .stack_size(limits::THREAD_STACK_BYTES);
            let gate = Arc::clone(&host.gate);
            let main_thread = (at == 0).then(|| self.main_thread.clone());
            let work = move || {
                main_thread.iter().for_each(MainThread::set_to_this);
                turn::begin_loop(&gate);
                worker.serve(serve);
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

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    #[test]
    fn client_tasks_end_with_the_last_task() {
        let runtime = runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let (tasks, stop) = (ClientTasks::default(), watch::Sender::new(false));
            tasks.ended().await;
            for _ in 0..2 {
                let mut stopped = stop.subscribe();
                tasks.spawn_on(&Handle::current(), async move {
                    let _ = stopped.wait_for(|&stopped| stopped).await;
                });
            }
            let mut ended = pin!(tasks.ended());
            tokio::task::yield_now().await;
            assert!(poll_fn(|cx| Poll::Ready(ended.as_mut().poll(cx).is_pending())).await);
            stop.send_replace(true);
            ended.await;
        });
    }
}
