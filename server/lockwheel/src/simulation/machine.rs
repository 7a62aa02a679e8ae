//! A server of a simulated machine.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use lockwheel_engine::Engine;
use lockwheel_engine::engine::inputs::Process;
use lockwheel_engine::sessions::Origin;
use lockwheel_engine::settings::Settings;
use lockwheel_engine::store::digest::Digest;
use lockwheel_log::Disk;
use lockwheel_raft::{Node, Status};
use tokio::runtime::{EnterGuard, Handle};

use super::node::{NodeOptions, SimulatedNode};
use super::pipe::Pipe;
use crate::clock::{Clock, MachineTime};
use crate::durability::Restored;
use crate::durability::restart_guard::GuardSettings;
use crate::durability::snapshots::{self, SnapshotWriter};
use crate::error::{Error, ErrorKind};
use crate::host::Host;
use crate::host::runtime_files::RuntimeFiles;
use crate::in_process::Client;
use crate::net::listener::admit;
use crate::net::stream::Stream;
use crate::net::{ticker, turn};

/// How a process is started.
#[derive(Debug)]
pub struct StartOptions<'a> {
    /// Directives and their values.
    pub settings: &'a [(&'a str, &'a str)],
    /// The directory of the log; not read without `appendonly yes`.
    pub disk: Arc<dyn Disk>,
    /// The seed of the engine.
    pub seed: u64,
    /// Bytes beyond which a segment of the log ends.
    pub segment_bytes_max: u64,
    /// The node, if the server is one of a cluster.
    pub node: Option<NodeOptions>,
}

/// The process of a server. Dropped, it ends as by `kill -9`.
pub struct SimulatedServer {
    host: Arc<Host>,
    tasks: Vec<Task>,
    snapshot: Option<SnapshotWriter>,
    node: Option<SimulatedNode>,
}

/// The task of a connection.
struct Task {
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
    wakener: Arc<Wakener>,
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Task").field("wakener", &self.wakener).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Wakener(AtomicBool);

impl Wake for Wakener {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

thread_local! {
    /// `None` on threads without a simulation.
    static CURRENT: Cell<Option<Current>> = const { Cell::new(None) };
}

/// What servers on this thread ask for.
#[derive(Clone, Copy, Debug, Default)]
struct Current {
    /// Whether a snapshot is to be written.
    begins_snapshot: bool,
    segment_bytes_max: u64,
}

/// Whether this thread runs a simulation.
pub(crate) fn is_on() -> bool {
    CURRENT.get().is_some()
}

/// The length after which a segment of the log ends.
pub(crate) fn segment_bytes_max() -> u64 {
    CURRENT.get().map_or(lockwheel_log::limits::SEGMENT_BYTES, |it| it.segment_bytes_max)
}

/// Whether a simulation, rather than a thread, writes the snapshot that is about to begin.
pub(crate) fn takes_snapshot() -> bool {
    CURRENT.set(CURRENT.get().map(|it| Current { begins_snapshot: true, ..it }));
    is_on()
}

impl SimulatedServer {
    /// Starts a server: reads its log, if it has one.
    ///
    /// # Errors
    /// As for every server.
    pub fn start(options: &StartOptions<'_>) -> Result<SimulatedServer, Error> {
        turn::begin_simulated_loop();
        turn::discard();
        let segment_bytes_max = options.segment_bytes_max;
        CURRENT.set(Some(Current { begins_snapshot: false, segment_bytes_max }));
        let mut settings = Settings::default();
        for (name, value) in options.settings {
            let refused = |error: String| Error::new(ErrorKind::Config, error);
            settings.apply(name, value).map_err(|error| refused(error.to_string()))?;
        }
        // A node reads its log itself.
        let is_node = options.node.is_some();
        let restored = if is_node { None } else { find_log(&settings, &options.disk)? };
        let clock = match restored.as_ref().and_then(Restored::lease_clock) {
            _ if is_node => Clock::following(),
            Some(lease) => Clock::system_from(lease),
            None => Clock::system(),
        };
        let seeds = [0, 1, 2, 3].map(|number| options.seed.wrapping_add(number));
        let mut engine = Engine::new(settings, Process::default(), clock.now(), seeds);
        if let Some(restored) = &restored {
            engine.begin_loading(restored.bytes(), restored.last_time(), clock.now());
        }
        if is_node {
            engine.follow();
        }
        let host = Host::new(engine, clock, RuntimeFiles::default())?;
        if let Some(restored) = restored {
            restored.restore(&host)?;
        }
        let start = |node| SimulatedNode::start(&host, Arc::clone(&options.disk), node);
        let node = options.node.as_ref().map(start).transpose()?;
        Ok(SimulatedServer { host, tasks: Vec::new(), snapshot: None, node })
    }

    /// Moves the clock of the node for messages between nodes. Nothing runs meanwhile.
    pub fn advance(&self, elapsed: Duration) {
        if let Some(node) = &self.node {
            node.advance(elapsed);
        }
    }

    /// Runs the tasks of the node that are due, and those for which messages have arrived.
    pub fn run_node(&mut self) {
        if let Some(node) = &mut self.node {
            node.run();
        }
    }

    /// The node and its runtime, for connections of other nodes.
    pub fn peer_port(&self) -> Option<(Arc<Node>, Handle)> {
        self.node.as_ref().map(SimulatedNode::port)
    }

    /// Runs what `ask` makes of the node, as one of its tasks.
    pub fn ask_node<F>(&mut self, ask: impl FnOnce(Arc<Node>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if let Some(node) = &mut self.node {
            node.spawn(ask);
        }
    }

    /// The cluster as the node sees it.
    pub fn node_status(&self) -> Option<Status> {
        self.node.as_ref().map(SimulatedNode::status)
    }

    /// The digest of the state; `None` if the engine has failed.
    pub fn digest(&self) -> Option<Digest> {
        let _entered = self.enter();
        self.host.with(|engine| engine.digest()).ok()
    }

    /// Whether this node leads for certain.
    pub fn leads(&self) -> bool {
        self.node.as_ref().is_some_and(SimulatedNode::leads)
    }

    /// What runs meanwhile sees the clock of the node.
    fn enter(&self) -> Option<EnterGuard<'_>> {
        self.node.as_ref().map(SimulatedNode::enter)
    }

    /// Connects a client. `None` if it is refused.
    pub fn connect(&mut self) -> Option<Pipe> {
        let pipe = Pipe::default();
        let origin = Origin {
            address: "127.0.0.1:1".to_owned(),
            local_address: "127.0.0.1:2".to_owned(),
            descriptor: 0,
            unix: false,
            local: true,
            in_process: false,
            is_monitoring: false,
        };
        let stream = Stream::Simulated(pipe.clone());
        let entered = self.enter();
        let admitted = self.host.with(|engine| admit(&self.host, engine, origin, stream));
        drop(entered);
        let connection = admitted.ok().flatten()?;
        let future = Box::pin(connection.run(Arc::clone(&self.host)));
        let wakener = Arc::new(Wakener(AtomicBool::new(true)));
        self.tasks.push(Task { future, wakener });
        Some(pipe)
    }

    /// A client in this process.
    ///
    /// # Errors
    /// If the server has ended.
    pub fn client(&self) -> Result<Client, Error> {
        Client::connect(&self.host)
    }

    /// Runs the tasks that are ready, in an order that `choose` determines, and what the clock has
    /// made due.
    pub fn run_tasks(&mut self, choose: &mut dyn FnMut(u64) -> u64) {
        let _entered = self.node.as_ref().map(SimulatedNode::enter);
        let mut ready: Vec<usize> = (0..self.tasks.len())
            .filter(|at| self.tasks[*at].wakener.0.swap(false, Ordering::AcqRel))
            .collect();
        let mut ended = Vec::new();
        while !ready.is_empty() {
            let at = ready.swap_remove(choose(ready.len() as u64) as usize);
            let task = &mut self.tasks[at];
            let waker = Waker::from(Arc::clone(&task.wakener));
            if task.future.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Ready(()) {
                ended.push(at);
            }
        }
        ended.sort_unstable();
        ended.into_iter().rev().for_each(|at| drop(self.tasks.remove(at)));
        if self.deadline().is_some_and(|left| left.is_zero()) {
            // A failed engine is reported by `has_failed`.
            let _ = self.host.with_fair(|engine| ticker::tick(&self.host, engine));
        }
    }

    /// Ends the turn: sends the output that is released.
    pub fn end_turn(&mut self) {
        let _entered = self.node.as_ref().map(SimulatedNode::enter);
        turn::before_sleep();
        self.host.gate.send_released();
        let Some(current) = CURRENT.get() else { return };
        if current.begins_snapshot {
            CURRENT.set(Some(Current { begins_snapshot: false, ..current }));
            self.snapshot = Some(SnapshotWriter::default());
        }
    }

    /// Whether a task is ready.
    pub fn is_ready(&self) -> bool {
        self.tasks.iter().any(|task| task.wakener.0.load(Ordering::Acquire))
    }

    /// The time until the next deadline.
    pub fn deadline(&self) -> Option<Duration> {
        let _entered = self.enter();
        let next = self.host.with(|engine| engine.next_deadline()).ok().flatten()?;
        self.host.clock.until(next)
    }

    /// Whether the log has something to do.
    pub fn has_log_work(&self) -> bool {
        self.host.file_log().is_some_and(|log| log.has_orders())
    }

    /// Lets the log carry out its next order.
    pub fn log_step(&mut self) {
        if let Some(log) = self.host.file_log() {
            log.step();
        }
    }

    /// Does the work of the log that is due once a second.
    pub fn log_second(&mut self) {
        if let Some(log) = self.host.file_log() {
            log.second();
        }
    }

    /// Whether a snapshot can go on.
    pub fn has_snapshot_work(&self) -> bool {
        self.snapshot
            .as_ref()
            .is_some_and(|snapshot| !snapshot.awaits_log() || !self.has_log_work())
    }

    /// Writes the next part of a snapshot, of about `keys` keys.
    pub fn snapshot_step(&mut self, keys: usize) {
        let Some(snapshot) = &mut self.snapshot else { return };
        let result = match snapshot.step(&self.host, keys) {
            Ok(None) => return,
            Ok(Some(position)) => Ok(position),
            Err(error) => Err(error),
        };
        self.snapshot = None;
        snapshots::report(&self.host, &result);
    }

    /// Stops the server as SIGTERM does. The caller then runs its tasks until they end.
    pub fn stop(&mut self) {
        let _entered = self.enter();
        if let Some(log) = self.host.file_log() {
            log.finish();
        }
        self.host.stop();
    }

    /// The last step of a server that has stopped, after its tasks have ended.
    pub fn end(&mut self) {
        let _entered = self.enter();
        self.host.end_log();
    }

    /// Whether the server stops, because it was stopped or its log has failed.
    pub fn is_stopping(&self) -> bool {
        self.host.is_stopping()
    }

    /// Whether the engine has failed because of a bug.
    pub fn has_failed(&self) -> bool {
        self.host.has_failed()
    }
}

/// What a server that is no node finds in its log.
fn find_log(settings: &Settings, disk: &Arc<dyn Disk>) -> Result<Option<Restored>, Error> {
    let (guard, has_log) = (GuardSettings::of(settings), settings.has_log());
    if !has_log && !guard.is_on {
        return Ok(None);
    }
    let lock = if has_log { None } else { Some(disk.lock()?) };
    let path = "simulation".to_owned();
    Restored::find_on(Arc::clone(disk), lock, path, has_log, guard, MachineTime::now()).map(Some)
}

impl std::fmt::Debug for SimulatedServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimulatedServer").field("tasks", &self.tasks).finish_non_exhaustive()
    }
}

impl Drop for SimulatedServer {
    fn drop(&mut self) {
        turn::discard();
        self.host.registry.clear();
    }
}
