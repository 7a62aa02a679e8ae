//! Looks at each server several times a second, to record when it fails, starts again, changes its
//! role, or has its clock moved.
//!
//! Each server and each sentinel has a thread, so that one that does not answer delays none of the
//! others.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use lockwheel_compat::wire::Wire;
use lockwheel_compat::wire::address::Address;

use crate::clock::now_us;
use crate::record::{Change, Observation};
use crate::route::{Link, describe, is_end, place};
use crate::target::{Target, Topology};

/// The time between two looks.
const INTERVAL: Duration = Duration::from_millis(200);
/// The time between two questions for the nodes of a cluster.
const MEMBERS_INTERVAL: Duration = Duration::from_secs(1);
/// How long a server may take for a reply.
const LOOK_TIMEOUT: Duration = Duration::from_millis(500);
/// The most servers that are looked at.
const SERVERS_MAX: usize = 64;
/// The most changes that are kept.
const OBSERVATIONS_MAX: usize = 100_000;
/// The move of a clock that may be one of the machine of this program, or an error of measuring.
const CLOCK_TOLERANCE_US: i64 = 20_000;

/// Asks each server several times a second what it is, from threads of its own.
pub(crate) struct Monitor(Arc<Watch>);

/// What the threads share.
struct Watch {
    target: Target,
    state: Mutex<State>,
    has_ended: Condvar,
}

#[derive(Default)]
struct State {
    observations: Vec<Observation>,
    /// The servers that are looked at.
    servers: BTreeSet<String>,
    /// The primary that a sentinel has named last.
    named: Option<String>,
    has_ended: bool,
}

/// What a server says about itself.
struct Sight {
    run_id: String,
    is_primary: Option<bool>,
    clock: Option<ClockSight>,
}

/// The clock of a server.
#[derive(Clone, Copy)]
struct ClockSight {
    /// Its time less that of [`now_us`].
    offset_us: i64,
    /// How long the reply took. The offset is exact to half of it.
    round_trip_us: i64,
}

/// What is known about a server from earlier looks.
#[derive(Default)]
struct Known {
    is_reachable: Option<bool>,
    run_id: String,
    is_primary: Option<bool>,
    clock: Option<ClockSight>,
}

impl Monitor {
    /// Begins to look at the servers.
    pub(crate) fn start(target: Arc<Target>) -> Monitor {
        let mut target = Arc::unwrap_or_clone(target);
        target.reply_timeout = LOOK_TIMEOUT;
        let (state, has_ended) = (Mutex::default(), Condvar::new());
        let watch = Arc::new(Watch { target, state, has_ended });
        let addresses = watch.target.addresses.iter();
        match &watch.target.topology {
            Topology::Sentinel(name) => {
                for sentinel in addresses.take(SERVERS_MAX) {
                    let (watch, sentinel) = (Arc::clone(&watch), sentinel.clone());
                    let name = name.clone();
                    thread::spawn(move || watch_sentinel(&watch, &sentinel, &name));
                }
            }
            Topology::Cluster => {
                let watch = Arc::clone(&watch);
                thread::spawn(move || watch_cluster(&watch));
            }
            _ => addresses.for_each(|address| Watch::add(&watch, address)),
        }
        Monitor(watch)
    }

    /// All changes so far, in order.
    pub(crate) fn observations(&self) -> Vec<Observation> {
        self.0.lock().observations.clone()
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        self.lock().has_ended = true;
        self.has_ended.notify_all();
    }

    /// Waits; false if the monitor has ended.
    fn pause(&self, span: Duration) -> bool {
        let is_on = |state: &mut State| !state.has_ended;
        let waited = self.has_ended.wait_timeout_while(self.lock(), span, is_on);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !state.has_ended
    }

    /// Begins to look at a server, once.
    fn add(watch: &Arc<Watch>, address: &Address) {
        let mut state = watch.lock();
        let is_full = state.servers.len() == SERVERS_MAX;
        if !is_full && !state.has_ended && state.servers.insert(place(address)) {
            let (watch, address) = (Arc::clone(watch), address.clone());
            thread::spawn(move || watch_server(&watch, &address));
        }
    }

    fn write(&self, server: &str, change: Change) {
        self.lock().write(server, change);
    }

    /// Records that a sentinel names another primary than before, unless another one did so.
    fn name(&self, primary: &str) {
        let mut state = self.lock();
        if state.named.as_deref() != Some(primary) {
            state.named = Some(primary.to_owned());
            state.write(primary, Change::NamedPrimary);
        }
    }
}

impl State {
    fn write(&mut self, server: &str, change: Change) {
        if !self.has_ended && self.observations.len() < OBSERVATIONS_MAX {
            let server = server.to_owned();
            self.observations.push(Observation { at_us: now_us(), server, change });
        }
    }
}

fn watch_server(watch: &Watch, address: &Address) {
    let (mut link, mut known) = (None, Known::default());
    loop {
        let sight = look(&watch.target, address, &mut link).map_err(|error| describe(&error));
        for change in known.update(sight) {
            watch.write(&place(address), change);
        }
        if !watch.pause(INTERVAL) {
            return;
        }
    }
}

fn watch_sentinel(watch: &Arc<Watch>, sentinel: &Address, name: &str) {
    let (mut wire, mut last) = (None, None);
    loop {
        if let Ok((primary, replicas)) = ask(&watch.target, sentinel, name, &mut wire) {
            let named = place(&primary);
            match last.replace(named.clone()) {
                None => _ = watch.lock().named.get_or_insert(named),
                Some(last) if last != named => watch.name(&named),
                Some(_) => {}
            }
            replicas.iter().chain([&primary]).for_each(|server| Watch::add(watch, server));
        }
        if !watch.pause(INTERVAL) {
            return;
        }
    }
}

/// Looks for the nodes of a cluster.
fn watch_cluster(watch: &Arc<Watch>) {
    loop {
        let members = watch.target.members();
        members.iter().flatten().for_each(|member| Watch::add(watch, member));
        let interval = if members.is_ok() { MEMBERS_INTERVAL } else { INTERVAL };
        if !watch.pause(interval) {
            return;
        }
    }
}

/// Asks a sentinel for the primary and its replicas, on the same connection as before.
fn ask(
    target: &Target,
    sentinel: &Address,
    name: &str,
    kept: &mut Option<Wire>,
) -> io::Result<(Address, Vec<Address>)> {
    let mut wire = match kept.take() {
        Some(wire) => wire,
        None => target.connect_to_sentinel(sentinel)?,
    };
    let primary = target.ask_primary(&mut wire, name)?;
    let replicas = target.ask_replicas(&mut wire, name)?;
    *kept = Some(wire);
    Ok((primary, replicas))
}

/// Looks at a server, on the same connection as before.
fn look(target: &Target, address: &Address, kept: &mut Option<Link>) -> io::Result<Sight> {
    let earlier = kept.take().map(|mut link| (see(&mut link), link));
    let (sight, link) = match earlier {
        // The server may have ended this connection alone.
        Some((Err(error), _)) if is_end(&error) => {
            let mut link = target.open(address)?;
            (see(&mut link), link)
        }
        Some(seen) => seen,
        None => {
            let mut link = target.open(address)?;
            (see(&mut link), link)
        }
    };
    *kept = sight.is_ok().then_some(link);
    sight
}

fn see(link: &mut Link) -> io::Result<Sight> {
    let sent_us = now_us();
    let time = link.wire.call(&["TIME"])?;
    let received_us = now_us();
    let number = |index: usize| time.items.get(index)?.as_text()?.parse::<i64>().ok();
    let clock = number(0).zip(number(1)).map(|(seconds, micros)| ClockSight {
        offset_us: seconds * 1_000_000 + micros - (sent_us + received_us) / 2,
        round_trip_us: received_us - sent_us,
    });
    let is_primary = link.is_primary()?;
    // The process is the same one as long as the connection.
    Ok(Sight { run_id: link.process.run_id.clone(), is_primary, clock })
}

impl Known {
    /// Takes in a look and returns what has changed. The first look changes nothing.
    fn update(&mut self, sight: Result<Sight, String>) -> Vec<Change> {
        let was_reachable = self.is_reachable.replace(sight.is_ok());
        let sight = match sight {
            Err(reason) if was_reachable == Some(true) => return vec![Change::Unreachable(reason)],
            Err(_) => return Vec::new(),
            Ok(sight) => sight,
        };
        let mut changes = Vec::new();
        if was_reachable == Some(false) {
            changes.push(Change::Reachable);
        }
        if !sight.run_id.is_empty() {
            let former = std::mem::replace(&mut self.run_id, sight.run_id);
            if !former.is_empty() && former != self.run_id {
                changes.push(Change::Restarted);
            }
        }
        let was_primary = self.is_primary;
        self.is_primary = sight.is_primary.or(was_primary);
        // The clock of a replica may be one that its primary sends. The time of this look was read
        // after the former role and before this one.
        let is_own = self.is_primary == was_primary && was_primary != Some(false);
        let former = std::mem::replace(&mut self.clock, sight.clock.filter(|_| is_own));
        if let (Some(former), Some(clock)) = (former, self.clock) {
            changes.extend(clock.moved_since(former));
        }
        match (was_primary, self.is_primary) {
            (Some(false), Some(true)) => changes.push(Change::BecamePrimary),
            (Some(true), Some(false)) => changes.push(Change::BecameReplica),
            _ => {}
        }
        changes
    }
}

impl ClockSight {
    /// The move of the clock between two looks, if there is one for certain.
    fn moved_since(self, former: ClockSight) -> Option<Change> {
        let by_us = self.offset_us - former.offset_us;
        let uncertain_us = self.round_trip_us.max(former.round_trip_us);
        let is_moved = by_us.abs() > CLOCK_TOLERANCE_US + uncertain_us;
        is_moved.then_some(Change::ClockMoved(by_us / 1000))
    }
}

#[cfg(test)]
mod tests {
    use super::{ClockSight, Known, Sight};
    use crate::record::Change;

    fn sight(run_id: &str, is_primary: bool, offset_ms: i64) -> Result<Sight, String> {
        let clock = ClockSight { offset_us: offset_ms * 1000, round_trip_us: 1000 };
        let run_id = run_id.to_owned();
        Ok(Sight { run_id, is_primary: Some(is_primary), clock: Some(clock) })
    }

    /// A primary that was looked at twice, so that its clock is known.
    fn known() -> Known {
        let mut known = Known::default();
        for _ in 0..2 {
            assert_eq!(known.update(sight("a", true, 0)), []);
        }
        known
    }

    #[test]
    fn first_look_changes_nothing() {
        assert_eq!(Known::default().update(sight("a", true, 0)), []);
        assert_eq!(Known::default().update(Err("refused".to_owned())), []);
    }

    #[test]
    fn changes_are_written_once() {
        let mut known = known();
        let failed = || Err("refused".to_owned());
        assert_eq!(known.update(failed()), [Change::Unreachable("refused".to_owned())]);
        assert_eq!(known.update(failed()), []);
        let changes = known.update(sight("b", false, 0));
        assert_eq!(changes, [Change::Reachable, Change::Restarted, Change::BecameReplica]);
        assert_eq!(known.update(sight("b", false, 0)), []);
        assert_eq!(known.update(sight("b", true, 0)), [Change::BecamePrimary]);
    }

    #[test]
    fn clock_is_compared_across_a_restart() {
        let mut known = known();
        known.update(Err("refused".to_owned()));
        let changes = known.update(sight("b", true, -500));
        assert_eq!(changes, [Change::Reachable, Change::Restarted, Change::ClockMoved(-500)]);
    }

    #[test]
    fn slow_drift_is_no_move_of_the_clock() {
        let mut known = known();
        for offset_ms in 0..200 {
            assert_eq!(known.update(sight("a", true, offset_ms)), []);
        }
        // Within the tolerance and the round trip.
        assert_eq!(known.update(sight("a", true, 199 + 21)), []);
        assert_eq!(known.update(sight("a", true, 199)), []);
        assert_eq!(known.update(sight("a", true, 199 - 22)), [Change::ClockMoved(-22)]);
    }

    #[test]
    fn clock_of_a_replica_is_ignored() {
        let mut known = known();
        assert_eq!(known.update(sight("a", false, 500)), [Change::BecameReplica]);
        assert_eq!(known.update(sight("a", false, 300)), []);
        assert_eq!(known.update(sight("a", true, 100)), [Change::BecamePrimary]);
        assert_eq!(known.update(sight("a", true, 0)), []);
        assert_eq!(known.update(sight("a", true, 50)), [Change::ClockMoved(50)]);
    }

    #[test]
    fn server_without_rights_is_only_reachable_or_not() {
        let mut known = known();
        let poor = || Ok(Sight { run_id: String::new(), is_primary: None, clock: None });
        assert_eq!(known.update(poor()), []);
        assert_eq!(known.update(sight("a", true, 0)), []);
    }
}
