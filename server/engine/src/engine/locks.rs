//! Native locks: how their holds change, by commands and when a connection, a lease or the server
//! ends.

use crate::engine::Engine;
use crate::sessions::ClientId;
use crate::sessions::bindings::EndedBinding;
use crate::store::dict::Slot;
use crate::store::edit::Edit;
use crate::store::events::Events;
use crate::store::lock::{Lease, Lock};
use crate::store::lock_notes::{Author, OwnerChange};
use crate::store::value::Typed;
use crate::store::{DatabaseKey, Keyspace};
use crate::timing::time::{Millis, Time};
use lockwheel_defects::defect;

/// Shortest time for which a bound lock is held after a restart of the server, in milliseconds: all
/// clients reconnect then.
const RESTART_GRACE_MS_MIN: i64 = 5_000;

impl Engine {
    /// Records that the lock at a key is bound to a client. The command of that name has granted it
    /// if there is one, or else renewed it.
    pub(crate) fn bind_lock(
        &mut self,
        client: ClientId,
        key: DatabaseKey,
        granted_by: Option<&'static str>,
    ) {
        if self.sessions.bindings.bind(client, key, granted_by) {
            let keyspace = self.writer.keyspace();
            self.sessions.bindings.retain(client, |key| is_bound(keyspace, key, client.serial));
        }
    }

    /// Ends what [`Engine::bind_lock`] has begun, unless the lock is still bound to the client.
    pub(crate) fn unbind_lock(&mut self, client: u64, key: &DatabaseKey) {
        if !is_bound(self.writer.keyspace(), key, client) {
            self.sessions.bindings.unbind(client, key);
        }
    }

    /// Records that the last reply to a client was not sent, since its connection has been closed.
    /// To be called before [`Engine::disconnect`]: a bound lock that this reply grants is released
    /// at once.
    pub fn reply_is_lost(&mut self, client: ClientId) {
        if let Some(session) = self.sessions.clients.get(client)
            && !defect!(GrantKeptWhenReplyLost)
        {
            self.sessions.bindings.lose_reply(session);
        }
    }

    /// Shortens the leases of the locks that were bound to connections that have ended.
    pub(crate) fn release_bindings(&mut self, time: Time) {
        if !self.sessions.bindings.has_ended() {
            return;
        }
        for ended in self.sessions.bindings.take_ended() {
            self.writer.set_author(Author::of(ended.client, time));
            self.release_binding(&ended, time);
        }
        self.observe_effects(None);
        self.end_unit(time);
    }

    fn release_binding(&mut self, ended: &EndedBinding, time: Time) {
        if defect!(BoundLockKept) {
            return;
        }
        for place in &ended.keys {
            let (database, key) = (place.0, &*place.1);
            let Some(slot) = self.find_alive(database, key, time) else { continue };
            let is_lost = ended.lost.as_ref() == Some(place) || defect!(BoundGraceIgnored);
            let shortened = |lease: &Lease| {
                let grace_ms = lease.grace_ms.filter(|_| lease.is_bound_to(ended.client))?;
                let grace_ms = if is_lost { 0 } else { grace_ms };
                let end = time.after(Millis(grace_ms)).unwrap_or(lease.deadline);
                Some(Lease { client: 0, deadline: lease.deadline.min(end), ..*lease })
            };
            self.change_leases(database, slot, key, time, shortened);
        }
    }

    /// Removes what has ended from the lock in `slot`, then changes it, and then the deadline of
    /// its key.
    pub(crate) fn change_lock(
        &mut self,
        (database, slot, key): (usize, Slot, &[u8]),
        time: Time,
        change: impl FnOnce(&mut Edit<'_, Box<Lock>>),
    ) {
        let Some(mut lock) = self.writer.edit::<Box<Lock>>(database, slot, key) else { return };
        // First, since it may be an earlier hold of the owner that is granted the lock.
        let ended = lock.remove_expired_leases(time);
        change(&mut lock);
        for hold in ended {
            let client = hold.last_lease().map_or(0, |lease| lease.client);
            self.writer.hold_expired(database, slot, (client, hold.deadline()));
        }
        self.settle_lock(database, slot, key);
    }

    /// Gives the key in `slot` the latest deadline of its leases, and records when the next of them
    /// ends.
    fn settle_lock(&mut self, database: usize, slot: Slot, key: &[u8]) {
        let record = self.writer.keyspace().database(database).record(slot);
        let Some(lock) = <Box<Lock>>::of(record.value()) else { return };
        let (deadline, next_end) = (lock.deadline(), lock.next_end());
        self.writer.set_deadline(database, slot, deadline);
        if self.sessions.set_hold_end((database, key), next_end) {
            let keyspace = self.writer.keyspace();
            let is_there = |(database, key): &DatabaseKey| keyspace.find(*database, key).is_some();
            self.sessions.retain_hold_ends(is_there);
        }
    }

    /// Handles the timer of the next lease that ends, which has fired and no longer exists.
    pub(crate) fn hold_has_ended(&mut self, time: Time) {
        let Some((database, key)) = self.sessions.take_ended_hold() else { return };
        if !self.leads() || defect!(ExpiredHoldCounts) {
            return;
        }
        let slot = self.find_alive(database, &key, time);
        let is_lock = |slot: &Slot| {
            let record = self.writer.keyspace().database(database).record(*slot);
            <Box<Lock>>::of(record.value()).is_some()
        };
        if let Some(slot) = slot.filter(is_lock) {
            self.writer.change_owners(slot, OwnerChange::None);
            self.change_lock((database, slot, &key), time, |_| {});
        }
        self.observe_effects(None);
    }

    /// Records again when the leases of all locks end.
    pub(crate) fn find_hold_ends(&mut self, time: Time) {
        self.sessions.clear_hold_ends();
        if !self.leads() {
            return;
        }
        for (database, key) in self.locks_with(|lock| lock.next_end().is_some()) {
            let Some(slot) = self.find_alive(database, &key, time) else { continue };
            self.settle_lock(database, slot, &key);
        }
    }

    /// The keys of the locks that meet a condition.
    fn locks_with(&self, condition: impl Fn(&Lock) -> bool) -> Vec<DatabaseKey> {
        let mut places = Vec::new();
        for database in 0..self.writer.keyspace().count() {
            let records = self.writer.keyspace().database(database).records();
            for (_, record) in records.iter() {
                if <Box<Lock>>::of(record.value()).is_some_and(&condition) {
                    places.push((database, record.key().into()));
                }
            }
        }
        places
    }

    /// Forgets the clients of an earlier run, none of which is connected. Locks that were bound are
    /// held for some time, in which their clients can connect again. Records again when leases end.
    pub(crate) fn forget_clients_of_locks(&mut self, time: Time) {
        let has_client = |lock: &Lock| {
            lock.stored().iter().flat_map(|hold| &hold.leases).any(|lease| lease.client > 0)
        };
        self.sessions.clear_hold_ends();
        let places = self.locks_with(|lock| has_client(lock) || lock.next_end().is_some());
        for (database, key) in places {
            let Some(slot) = self.writer.keyspace().find(database, &key) else { continue };
            let forgotten = |lease: &Lease| {
                let grace_ms = lease.grace_ms.map(|grace_ms| grace_ms.max(RESTART_GRACE_MS_MIN));
                let end = grace_ms.and_then(|grace_ms| time.after(Millis(grace_ms)));
                let deadline = end.map_or(lease.deadline, |end| end.min(lease.deadline));
                (lease.client > 0).then_some(Lease { client: 0, deadline, ..*lease })
            };
            self.change_leases(database, slot, &key, time, forgotten);
        }
        self.observe_effects(None);
        self.end_unit(time);
    }

    /// Changes leases of the lock in `slot`, and then the deadline of its key.
    fn change_leases(
        &mut self,
        database: usize,
        slot: Slot,
        key: &[u8],
        time: Time,
        changed: impl Fn(&Lease) -> Option<Lease>,
    ) {
        let Some(mut lock) = self.writer.edit::<Box<Lock>>(database, slot, key) else { return };
        for hold in lock.stored().to_vec() {
            if hold.leases.iter().any(|lease| changed(lease).is_some()) {
                let leases = hold.leases.iter().map(|lease| changed(lease).unwrap_or(*lease));
                lock.set_leases(&hold.owner, leases.collect());
            }
        }
        let is_held = lock.holds(time).next().is_some();
        if is_held {
            self.writer.change_owners(slot, OwnerChange::None);
            self.settle_lock(database, slot, key);
        } else {
            self.writer.remove(database, slot);
            self.writer.changed(Events::GENERIC, "del", database, key);
        }
    }
}

/// Whether the lock at a key is bound to a client.
fn is_bound(keyspace: &Keyspace, (database, key): &DatabaseKey, client: u64) -> bool {
    let slot = keyspace.find(*database, key);
    let record = slot.map(|slot| keyspace.database(*database).record(slot));
    let lock = record.and_then(|record| <Box<Lock>>::of(record.value()));
    let mut leases = lock.iter().flat_map(|lock| lock.stored()).flat_map(|hold| &hold.leases);
    leases.any(|lease| lease.is_bound_to(client))
}
