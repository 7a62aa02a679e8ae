//! Starts and ends the threads of the clients.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};

use super::client::{LockClient, RecipeClient};
use super::redlock::RedlockClient;
use super::shared::Shared;
use super::{probe, worker::Worker};
use crate::record::Record;
use crate::route::Route;
use crate::target::{Target, Topology};

/// The running clients.
pub(crate) struct Load {
    records: Receiver<Record>,
    /// The epoch of each client; the greatest number after its end.
    epochs: Vec<Arc<AtomicU64>>,
    workers: Vec<JoinHandle<()>>,
    probe: Option<JoinHandle<i64>>,
}

impl Load {
    /// Starts the clients and the probe.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(crate) fn start(shared: &Arc<Shared>, clients: usize) -> io::Result<Load> {
        let (sender, records) = mpsc::channel();
        let (mut epochs, mut workers) = (Vec::new(), Vec::new());
        for number in 1..=clients {
            let epoch = Arc::new(AtomicU64::new(0));
            let client = client(&shared.target);
            let (shared, sender) = (Arc::clone(shared), sender.clone());
            let worker = Worker::new(shared, client, number, sender, Arc::clone(&epoch));
            let name = format!("client-{number}");
            workers.push(thread::Builder::new().name(name).spawn(move || worker.run())?);
            epochs.push(epoch);
        }
        let probed = Arc::clone(shared);
        let mut client = client(&shared.target);
        let probe = thread::Builder::new().name("probe".to_owned()).spawn(move || {
            probed.kinds.first().map_or(0, |kind| probe::run(&probed, &mut *client, kind))
        })?;
        Ok(Load { records, epochs, workers, probe: Some(probe) })
    }

    /// The requests since the last call.
    pub(crate) fn take_records(&self) -> Vec<Record> {
        self.records.try_iter().collect()
    }

    /// The oldest epoch of which a client uses locks.
    pub(crate) fn oldest_epoch(&self) -> u64 {
        let epochs = self.epochs.iter().map(|epoch| epoch.load(Ordering::Acquire));
        epochs.min().unwrap_or(u64::MAX)
    }

    /// Waits for the end of the clients, which was asked for. Returns the last requests, and the
    /// longest time in which no lock was granted, in microseconds.
    ///
    /// # Errors
    /// If a client panicked.
    pub(crate) fn end(&mut self) -> Result<(Vec<Record>, i64), String> {
        for worker in self.workers.drain(..) {
            worker.join().map_err(|_| "a client panicked".to_owned())?;
        }
        let longest_us = match self.probe.take() {
            Some(probe) => probe.join().map_err(|_| "the probe panicked".to_owned())?,
            None => 0,
        };
        Ok((self.records.try_iter().collect(), longest_us))
    }
}

fn client(target: &Arc<Target>) -> Box<dyn LockClient> {
    if target.topology == Topology::Independent {
        let part = |index| Route::new(Arc::new(target.part(index)));
        return Box::new(RedlockClient((0..target.addresses.len()).map(part).collect()));
    }
    Box::new(RecipeClient(Route::new(Arc::clone(target))))
}
