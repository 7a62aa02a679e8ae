//! Updates the known locks after each command: compares the keys it named with what was known of
//! them.

use lockwheel_resp::Reply;

use crate::Engine;
use crate::time::{Millis, Time};

use super::checks::{Check, LintRule};
use super::entry::{JournalEvent, client_text, text};
use super::locks::{
    Holder, KeyAccess, Lock, LockKey, LockMechanism, LockOperation, Locks, cut, look,
};
use super::script::Purpose;
use super::{CompletedCommand, Journal, meaning};

impl Journal {
    /// Updates the locks after a script, from the keys it used and the keys it named.
    pub(super) fn reconcile_script(
        &mut self,
        engine: &Engine,
        operation: &LockOperation<'_>,
        database: usize,
        keys: &[&[u8]],
    ) {
        let accessed = std::mem::take(&mut self.accessed);
        for key in keys {
            let lock_key = (database, key.to_vec());
            let access = accessed.get(&lock_key).copied().unwrap_or_default();
            let acted = self.reconcile(engine, operation, &lock_key, access);
            match operation.mechanism {
                LockMechanism::Script(Purpose::Acquire) if !acted => {
                    self.refuse_script(&lock_key, operation);
                }
                LockMechanism::Script(Purpose::Release) if !acted => {
                    self.record_late_attempt(&lock_key, operation, true);
                }
                LockMechanism::Script(Purpose::Renew) if !acted => {
                    self.record_late_attempt(&lock_key, operation, false);
                }
                _ => {}
            }
        }
        for (lock_key, access) in accessed {
            if !keys.contains(&&lock_key.1[..]) {
                self.reconcile(engine, operation, &lock_key, access);
            }
        }
    }

    /// Checks all locks, after a command that may have changed keys that it does not name. A
    /// failover removes locks without notifying their owners.
    pub(super) fn reconcile_all(
        &mut self,
        engine: &Engine,
        operation: &LockOperation<'_>,
        failover: bool,
    ) {
        let lock_keys: Vec<LockKey> = self.locks.held.keys().cloned().collect();
        for lock_key in lock_keys {
            if look(engine, &lock_key, operation.time).is_some() {
                continue;
            }
            let lock = self.locks.held.remove(&lock_key);
            for holder in lock.into_iter().flat_map(|lock| lock.holders) {
                let owner = text(&holder.owner);
                self.record(operation, &lock_key, JournalEvent::Flushed { owner });
                if failover {
                    self.locks.lose(&lock_key, holder, operation.now_ms());
                }
            }
        }
    }

    /// Updates the lock at one key that a command of a client has named.
    #[expect(clippy::too_many_arguments, reason = "a command, whole")]
    pub(super) fn reconcile_command(
        &mut self,
        engine: &Engine,
        operation: &LockOperation<'_>,
        done: CompletedCommand,
        lock_key: &LockKey,
        access: KeyAccess,
        argv: &[&[u8]],
        reply: &Reply,
    ) {
        if meaning::reads_owner(done.command) {
            self.read(engine, done, lock_key, reply);
        } else if meaning::exchanges(done.command) && self.locks.held.contains_key(lock_key) {
            return self.exchange(operation, lock_key, argv, reply, operation.time);
        } else if meaning::sets_conditionally(done.command) && !access.made && !access.set {
            self.refuse(lock_key, operation, argv.get(2).copied().unwrap_or_default());
        }
        let acted = self.reconcile(engine, operation, lock_key, access);
        if access.removes && !acted {
            self.record_late_attempt(lock_key, operation, true);
        } else if meaning::is_renewal(done.command, argv) && !self.is_held_by(lock_key, operation) {
            self.record_late_attempt(lock_key, operation, false);
        }
    }

    /// Records that a client has read a lock, possibly to compare its owner.
    fn read(&mut self, engine: &Engine, done: CompletedCommand, lock_key: &LockKey, reply: &Reply) {
        let Some(lock) = self.locks.held.get(lock_key) else { return };
        let Reply::Bulk(value) = reply else { return };
        if lock.holders.iter().any(|holder| holder.owner == cut(value)) {
            let state = engine.sessions.get(done.client);
            let watches = state.is_some_and(|state| {
                state.watched.iter().any(|it| it.database == lock_key.0 && *it.key == *lock_key.1)
            });
            self.locks.read(lock_key, done.client.serial, watches);
        }
    }

    /// Handles `GETSET`, which acquires a lock if its value is a time that has passed.
    fn exchange(
        &mut self,
        operation: &LockOperation<'_>,
        lock_key: &LockKey,
        argv: &[&[u8]],
        reply: &Reply,
        time: Time,
    ) {
        let old = if let Reply::Bulk(old) = reply { &old[..] } else { b"" };
        let new = cut(argv.get(2).copied().unwrap_or_default());
        let Some(mut lock) = self.locks.held.remove(lock_key) else { return };
        let is_over = lockwheel_resp::number::parse_integer(old).is_some_and(|moment| {
            let wall_ms = time.wall().0;
            // A value in seconds is converted, unless the result would be far in the future.
            let moment_ms =
                if moment > wall_ms / 10 { moment } else { moment.saturating_mul(1000) };
            moment_ms < wall_ms
        });
        if is_over {
            for holder in std::mem::take(&mut lock.holders) {
                self.locks.lose(lock_key, holder, operation.now_ms());
            }
            let lock = Lock { deadline_ms: None, ..lock };
            self.locks.held.insert(lock_key.clone(), lock);
            self.acquire(operation, lock_key, new.to_vec(), 1, None);
        } else {
            self.locks.held.insert(lock_key.clone(), lock);
            self.refuse(lock_key, operation, new);
            if let Some(lock) = self.locks.held.get_mut(lock_key) {
                lock.holders.iter_mut().for_each(|holder| holder.owner = new.to_vec());
            }
        }
    }

    /// Compares the known state of a key with its present value. Returns whether, as far as can be
    /// determined, its owner changed the lock or a client became its owner.
    fn reconcile(
        &mut self,
        engine: &Engine,
        operation: &LockOperation<'_>,
        lock_key: &LockKey,
        access: KeyAccess,
    ) -> bool {
        let seen = look(engine, lock_key, operation.time);
        let Some(lock) = self.locks.held.get(lock_key) else {
            let Some(seen) = seen.filter(|seen| Locks::is_new(seen, access, operation)) else {
                return false;
            };
            let (is_hash, deadline_ms) = (seen.is_hash, seen.deadline_ms);
            self.locks
                .held
                .insert(lock_key.clone(), Lock { holders: vec![], is_hash, deadline_ms });
            for (owner, count) in seen.owners {
                self.acquire(operation, lock_key, owner, count, deadline_ms);
            }
            return true;
        };
        let known = lock.holders.clone();
        let ends_for_all = lock.is_hash && known.iter().any(|it| operation.claims(&it.owner));
        let seen = seen.filter(|seen| seen.is_hash == lock.is_hash);
        let (now, deadline_ms) =
            seen.map_or_else(Default::default, |seen| (seen.owners, seen.deadline_ms));
        let (mut acted, mut same) = (false, true);
        for holder in known {
            let count = now.iter().find(|(owner, _)| *owner == holder.owner).map(|&(_, n)| n);
            if count != Some(holder.count) {
                same = false;
                acted |= match count {
                    Some(count) if count > holder.count => {
                        self.acquire(operation, lock_key, holder.owner, count, deadline_ms);
                        true
                    }
                    None if ends_for_all && !operation.claims(&holder.owner) => {
                        self.lose_lease(operation, lock_key, &holder)
                    }
                    left => self.release(operation, lock_key, access, &holder, left.unwrap_or(0)),
                };
            }
        }
        for (owner, count) in now {
            let Some(lock) = self.locks.held.get(lock_key) else { break };
            let is_new = lock.holders.iter().all(|holder| holder.owner != owner);
            if is_new && (lock.is_hash || access.made || operation.claims(&owner)) {
                (same, acted) = (false, true);
                self.acquire(operation, lock_key, owner, count, deadline_ms);
            }
        }
        if same && (access.lease || access.set || access.made) {
            acted |= self.renew(operation, lock_key, deadline_ms);
        }
        match self.locks.held.get_mut(lock_key) {
            Some(lock) if lock.holders.is_empty() => {
                self.locks.held.remove(lock_key);
            }
            Some(lock) => lock.deadline_ms = deadline_ms,
            None => {}
        }
        acted
    }

    fn record(
        &mut self,
        operation: &LockOperation<'_>,
        lock_key: &LockKey,
        event: JournalEvent,
    ) -> u64 {
        self.write(operation, vec![text(&lock_key.1)], event)
    }

    fn acquire(
        &mut self,
        operation: &LockOperation<'_>,
        lock_key: &LockKey,
        owner: Vec<u8>,
        count: i64,
        deadline_ms: Option<i64>,
    ) {
        let lease_ms = deadline_ms.map(|it| operation.time.remaining(Millis(it)).0);
        let shown = text(&owner);
        let event = JournalEvent::Acquired { owner: shown.clone(), count, lease_ms };
        let seq = self.record(operation, lock_key, event);
        let (client, name, since_ms) =
            (operation.client, operation.name.to_owned(), operation.now_ms());
        let holder = Holder { owner, count, client, name, since_ms, seq };
        let taker = format!("{} as '{shown}'", client_text(operation.client, operation.name));
        let waited = self.locks.succeed(lock_key, &holder, &taker);
        if let Some(lock) = self.locks.held.get_mut(lock_key) {
            match lock.holders.iter_mut().find(|known| known.owner == holder.owner) {
                Some(known) => known.count = count,
                None => lock.holders.push(holder),
            }
        }
        if let Some(since_ms) = waited {
            let waited_ms = operation.now_ms() - since_ms;
            self.record(operation, lock_key, JournalEvent::Waited { owner: shown, waited_ms });
        }
    }

    /// Handles a holder with a decreased count, or without its lock. Returns whether the owner has
    /// released it.
    fn release(
        &mut self,
        operation: &LockOperation<'_>,
        lock_key: &LockKey,
        access: KeyAccess,
        holder: &Holder,
        left: i64,
    ) -> bool {
        let reader = self.locks.take_reader(lock_key, operation.client);
        let compared = operation.mechanism == LockMechanism::Transaction
            && reader.as_ref().is_some_and(|it| it.watches);
        let is_owner = operation.claims(&holder.owner)
            || compared
            || holder.client == operation.client
                && !self.locks.acts_for_another(lock_key, &holder.owner, operation);
        let mut deadline_ms = None;
        if let Some(lock) = self.locks.held.get_mut(lock_key) {
            deadline_ms = lock.deadline_ms;
            match lock.holders.iter_mut().find(|known| known.owner == holder.owner) {
                Some(known) if left > 0 => known.count = left,
                _ => lock.holders.retain(|known| known.owner != holder.owner),
            }
        }
        let owner = text(&holder.owner);
        let key = text(&lock_key.1);
        if left == 0 && deadline_ms.is_none() {
            self.violations.without_lease(&key, &owner, vec![holder.seq]);
        }
        let seq = if is_owner {
            self.record(operation, lock_key, JournalEvent::Released { owner, left })
        } else {
            let event = JournalEvent::ReleasedByNonOwner { owner, holder: holder.client };
            let seq = self.record(operation, lock_key, event);
            self.violations.break_check(
                Check::ReleasedOnlyByOwner,
                &key,
                seq,
                format!(
                    "the lock '{key}' of {} was released by {}",
                    client_text(holder.client, &holder.name),
                    client_text(operation.client, operation.name)
                ),
            );
            self.locks.lose(lock_key, holder.clone(), operation.now_ms());
            seq
        };
        if access.removes && !operation.is_script() && operation.claims.is_empty() && !compared {
            let rule = match reader {
                Some(_) => LintRule::CompareAndDeleteInTwoSteps,
                None => LintRule::DeleteWithoutCheck,
            };
            self.violations.add_mistake(rule, &key, vec![holder.seq, operation.seq, seq]);
        }
        is_owner
    }

    /// Handles a script that acts for one holder and has removed another: in a lock for readers,
    /// the last one to leave removes those with expired leases.
    fn lose_lease(
        &mut self,
        operation: &LockOperation<'_>,
        lock_key: &LockKey,
        holder: &Holder,
    ) -> bool {
        if let Some(lock) = self.locks.held.get_mut(lock_key) {
            lock.holders.retain(|known| known.owner != holder.owner);
        }
        let owner = text(&holder.owner);
        self.record(
            operation,
            lock_key,
            JournalEvent::ExpiredWhileHeld { owner, holder: holder.client },
        );
        self.locks.lose(lock_key, holder.clone(), operation.now_ms());
        true
    }

    /// Handles a changed lease of a held lock. Returns whether the owner has changed it.
    fn renew(
        &mut self,
        operation: &LockOperation<'_>,
        lock_key: &LockKey,
        deadline_ms: Option<i64>,
    ) -> bool {
        let Some(lock) = self.locks.held.get(lock_key) else { return false };
        let had_none = lock.deadline_ms.is_none();
        let mut holders = lock.holders.iter();
        let chosen =
            holders.find(|holder| operation.claims(&holder.owner)).or(lock.holders.first());
        let Some(holder) = chosen.cloned() else { return false };
        let lease_ms = deadline_ms.map(|it| operation.time.remaining(Millis(it)).0);
        let owner = text(&holder.owner);
        let seq = self.record(operation, lock_key, JournalEvent::Renewed { owner, lease_ms });
        if had_none && lease_ms.is_some() && operation.mechanism == LockMechanism::Command {
            let entries = vec![holder.seq, operation.seq, seq];
            self.violations.add_mistake(LintRule::LeaseInASecondStep, &text(&lock_key.1), entries);
        }
        operation.claims(&holder.owner) || holder.client == operation.client
    }

    fn is_held_by(&self, lock_key: &LockKey, operation: &LockOperation<'_>) -> bool {
        let lock = self.locks.held.get(lock_key);
        lock.is_some_and(|lock| lock.holders.iter().any(|it| it.client == operation.client))
    }

    fn refuse(&mut self, lock_key: &LockKey, operation: &LockOperation<'_>, token: &[u8]) {
        let Some(lock) = self.locks.held.get(lock_key) else { return };
        let holders: Vec<String> = lock.holders.iter().map(|it| text(&it.owner)).collect();
        let (by, holder) = (text(token), holders.join(", "));
        self.record(operation, lock_key, JournalEvent::Refused { by, holder });
        self.locks.wait(lock_key, operation.client, cut(token), operation.now_ms());
    }

    /// Handles a script that acquires locks and has left one unchanged.
    fn refuse_script(&mut self, lock_key: &LockKey, operation: &LockOperation<'_>) {
        let lock = self.locks.held.get(lock_key);
        if lock.is_some_and(|lock| lock.holders.iter().all(|it| !operation.claims(&it.owner))) {
            self.refuse(lock_key, operation, operation.token());
        }
    }

    /// Handles a release or renewal of a lock that the client does not hold, but may have held
    /// before.
    fn record_late_attempt(
        &mut self,
        lock_key: &LockKey,
        operation: &LockOperation<'_>,
        releases: bool,
    ) {
        let Some(at) = self.locks.find_previous_holder(lock_key, operation) else { return };
        let previous = &self.locks.previous_holders[at];
        let late_ms = operation.now_ms() - previous.lost_ms;
        let (owner, key) = (text(&previous.holder.owner), text(&lock_key.1));
        let (holder, next) = (previous.holder.clone(), previous.successor.clone());
        if releases {
            self.locks.previous_holders.remove(at);
        }
        let event = if releases {
            JournalEvent::ReleasedTooLate { owner, late_ms }
        } else {
            JournalEvent::RenewedTooLate { owner, late_ms }
        };
        let seq = self.record(operation, lock_key, event);
        let rule =
            if releases { LintRule::LeaseShorterThanHold } else { LintRule::RenewalAfterLoss };
        self.violations.add_mistake(rule, &key, vec![holder.seq, operation.seq, seq]);
        if let Some(next) = next {
            self.violations.break_check(Check::NeverTwoHolders, &key, seq, format!(
                "{} had the lock '{key}' and still acts as its holder, but lost it {late_ms} ms \
                 ago; {next} has acquired it since",
                client_text(holder.client, &holder.name)
            ));
        }
    }

    /// Handles a key that has reached its deadline.
    pub(super) fn end_lease(&mut self, lock_key: &LockKey, deadline: Millis) {
        let Some(lock) = self.locks.held.remove(lock_key) else { return };
        let (claims, mechanism) = (Vec::new(), LockMechanism::Command);
        let time = Time::at(deadline);
        let operation = LockOperation { client: 0, name: "", time, mechanism, claims, seq: 0 };
        for holder in lock.holders {
            let (owner, client) = (text(&holder.owner), holder.client);
            self.record(
                &operation,
                lock_key,
                JournalEvent::ExpiredWhileHeld { owner, holder: client },
            );
            self.locks.lose(lock_key, holder, deadline.0);
        }
    }
}
