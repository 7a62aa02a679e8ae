//! Updates the known locks after each command: compares the keys it named with what was known of
//! them, and reports what has happened to them.

use lockwheel_resp::Reply;
use sha1::{Digest, Sha1};

use crate::Engine;
use crate::command::{Caller, Command, ScriptArgument};
use crate::limits::LOCKS_REMEMBERED_MAX;
use crate::run::dispatch::CompletedCommand;
use crate::timing::time::{Millis, Time};

use super::evidence::{Confidence, Evidence, Impression, Proof};
use super::script::Purpose;
use super::table::{
    Holder, KeyAccess, KeyState, KnownLock, LockKey, LockMechanism, LockOperation, LockReader,
    Locks, cut, look,
};
use super::words::{self, Name, Value};
use super::{Shape, meaning};

/// What has happened to a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LockEvent<'a> {
    /// A lock was acquired, possibly again by its owner.
    Acquired { owner: &'a [u8], count: i64, lease_ms: Option<i64> },
    /// The lease of a held lock was set.
    Renewed { holder: &'a Holder, lease_ms: Option<i64>, had_lease: bool },
    /// A lock was refused to the owner `by`.
    Refused { by: &'a [u8], holders: &'a [Holder] },
    /// A lock was released.
    Released { holder: &'a Holder, left: i64, release: Release },
    /// The lease expired before its owner released the lock.
    Expired { holder: &'a Holder },
    /// A command that affects many keys removed or moved the lock.
    Flushed { holder: &'a Holder },
    /// A lock was acquired after it had been refused.
    Waited { owner: &'a [u8], waited_ms: i64 },
    /// A previous holder tried to release or renew the lock it had lost.
    TooLate {
        holder: &'a Holder,
        late_ms: i64,
        /// The holder that has acquired it since.
        successor: Option<&'a Holder>,
        releases: bool,
    },
    /// The use of the key has shown that it is a lock.
    Recognised { reason: &'static str },
}

/// How a lock was released.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Release {
    /// Whether it was released by its owner, as far as can be determined.
    pub(crate) by_owner: bool,
    /// Whether it was deleted without a proof of ownership in the same unit.
    pub(crate) unproved: bool,
    /// Whether its client had read it before.
    pub(crate) was_read: bool,
    /// Whether it had a lease when it was released.
    pub(crate) had_lease: bool,
}

/// Receives what happens to locks.
pub(crate) trait LockObserver {
    /// Records an event of a lock. Returns its number.
    fn observe(
        &mut self,
        operation: &LockOperation<'_>,
        lock_key: &LockKey,
        confidence: Confidence,
        event: LockEvent<'_>,
    ) -> u64;
}

/// The recognition during one command.
pub(crate) struct Recognition<'a> {
    pub(crate) locks: &'a mut Locks,
    pub(crate) observer: &'a mut dyn LockObserver,
}

impl Recognition<'_> {
    /// Updates the locks after a command, whose entry is `operation.seq`.
    pub(crate) fn update(
        &mut self,
        engine: &Engine,
        operation: &LockOperation<'_>,
        done: CompletedCommand,
        keys: &[&[u8]],
        argv: &[&[u8]],
        reply: &Reply,
    ) {
        let access = meaning::access(done.command, argv, reply);
        if done.caller == Caller::Script {
            for key in keys {
                let lock_key = (done.database, key.to_vec());
                self.locks.accessed.entry(lock_key).or_default().join(access);
            }
            return;
        }
        if done.command.script.is_some() {
            self.update_after_script(engine, operation, done.database, keys);
            return;
        }
        if let Some(text) = meaning::loaded_script(done.command, argv) {
            self.locks.remember_purpose(text);
        }
        let failover = meaning::is_failover(done.command);
        if failover || meaning::takes_away(done.command) {
            self.update_all(engine, operation, failover);
        }
        for key in keys {
            let lock_key = (done.database, key.to_vec());
            self.update_key(engine, operation, done, &lock_key, access, argv, reply);
        }
    }

    /// Updates the locks after a script, from the keys it used and the keys it named.
    fn update_after_script(
        &mut self,
        engine: &Engine,
        operation: &LockOperation<'_>,
        database: usize,
        keys: &[&[u8]],
    ) {
        let accessed = std::mem::take(&mut self.locks.accessed);
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
    pub(crate) fn update_all(
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
                self.observe(operation, &lock_key, LockEvent::Flushed { holder: &holder });
                if failover {
                    self.locks.lose(&lock_key, holder, operation.now_ms());
                }
            }
        }
    }

    /// Updates the lock at one key that a command of a client has named.
    #[expect(clippy::too_many_arguments, reason = "a command, whole")]
    fn update_key(
        &mut self,
        engine: &Engine,
        operation: &LockOperation<'_>,
        done: CompletedCommand,
        lock_key: &LockKey,
        access: KeyAccess,
        argv: &[&[u8]],
        reply: &Reply,
    ) {
        if access.reads {
            self.read(engine, done, lock_key, reply);
        } else if meaning::exchanges(done.command) && self.locks.held.contains_key(lock_key) {
            return self.exchange(operation, lock_key, argv, reply);
        } else if meaning::sets_conditionally(done.command)
            && !access.made
            && !access.set
            && !access.field
        {
            self.refuse(lock_key, operation, argv.get(2).copied().unwrap_or_default());
        }
        let acted = self.reconcile(engine, operation, lock_key, access);
        if access.removes && !acted {
            self.record_late_attempt(lock_key, operation, true);
        } else if meaning::is_renewal(done.command, argv) && !self.is_held_by(lock_key, operation) {
            self.record_late_attempt(lock_key, operation, false);
        }
    }

    /// Records that a client has read a lock, possibly to compare its owner, or that it watches a
    /// key that is missing.
    fn read(&mut self, engine: &Engine, done: CompletedCommand, lock_key: &LockKey, reply: &Reply) {
        let missing = match reply {
            Reply::Bulk(value) => {
                let lock = self.locks.held.get(lock_key);
                let is_owner =
                    |lock: &KnownLock| lock.holders.iter().any(|it| it.owner == cut(value));
                let Some(lock) = lock.filter(|lock| is_owner(lock)) else { return };
                let client = done.client.serial;
                let knows = |it: &Holder| it.client == client;
                let was_refused = self
                    .locks
                    .waiting
                    .iter()
                    .any(|it| it.client == client && it.lock_key == *lock_key);
                if !lock.holders.iter().any(knows) && !was_refused {
                    self.locks.weaken_as_data(lock_key);
                }
                false
            }
            Reply::Null | Reply::Integer(0) => true,
            _ => return,
        };
        let state = engine.sessions.get(done.client);
        let watches = state.is_some_and(|state| {
            state.watched.iter().any(|it| it.database == lock_key.0 && *it.key == *lock_key.1)
        });
        if watches || !missing {
            let (lock_key, client) = (lock_key.clone(), done.client.serial);
            self.locks.read(LockReader { lock_key, client, watches, missing });
        }
    }

    /// Handles `GETSET`, which acquires a lock if its value is a time that has passed.
    fn exchange(
        &mut self,
        operation: &LockOperation<'_>,
        lock_key: &LockKey,
        argv: &[&[u8]],
        reply: &Reply,
    ) {
        let old = if let Reply::Bulk(old) = reply { &old[..] } else { b"" };
        let new = cut(argv.get(2).copied().unwrap_or_default());
        let Some(mut lock) = self.locks.held.remove(lock_key) else { return };
        let is_over = lockwheel_resp::number::parse_integer(old).is_some_and(|moment| {
            let wall_ms = operation.time.wall().0;
            words::moment_ms(moment, wall_ms) < wall_ms
        });
        if is_over {
            for holder in std::mem::take(&mut lock.holders) {
                self.locks.lose(lock_key, holder, operation.now_ms());
            }
            let lock = KnownLock { deadline_ms: None, ..lock };
            self.locks.held.insert(lock_key.clone(), lock);
            self.prove(operation, lock_key, Proof::Exchanged);
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
        if access.modifies && !self.locks.declared.is_lock(&lock_key.1) {
            self.locks.forget(lock_key);
            return false;
        }
        let seen = look(engine, lock_key, operation.time);
        self.locks.collect_evidence(lock_key, seen.as_ref(), access, operation.time);
        let Some(lock) = self.locks.held.get(lock_key) else {
            return seen.is_some_and(|seen| self.begin(operation, lock_key, access, seen));
        };
        let (known, shape) = (lock.holders.clone(), lock.shape);
        let ends_for_all = access.purges
            || shape == Shape::Native && seen.is_some()
            || shape == Shape::Owners && known.iter().any(|it| operation.claims(&it.owner));
        let seen = seen.filter(|seen| seen.shape == shape);
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
            let admits_many = shape != Shape::Token;
            if is_new && (admits_many || access.made || operation.claims(&owner)) {
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

    /// Handles a key that was not held. Returns whether it is a lock now, possibly.
    fn begin(
        &mut self,
        operation: &LockOperation<'_>,
        lock_key: &LockKey,
        access: KeyAccess,
        seen: KeyState,
    ) -> bool {
        let Some(impression) = self.locks.impression(lock_key, &seen, access, operation) else {
            return false;
        };
        let (shape, deadline_ms) = (seen.shape, seen.deadline_ms);
        let value = seen.owners.first().map(|(owner, _)| owner.clone()).unwrap_or_default();
        self.locks.impress(lock_key, Evidence { impression, proof: None, shape, value });
        self.locks.held.insert(lock_key.clone(), KnownLock { holders: vec![], shape, deadline_ms });
        for (owner, count) in seen.owners {
            self.acquire(operation, lock_key, owner, count, deadline_ms);
        }
        true
    }

    fn observe(
        &mut self,
        operation: &LockOperation<'_>,
        lock_key: &LockKey,
        event: LockEvent<'_>,
    ) -> u64 {
        let (confidence, _) = self.locks.confidence(lock_key);
        self.observer.observe(operation, lock_key, confidence, event)
    }

    /// Records a proof that a key is a lock.
    fn prove(&mut self, operation: &LockOperation<'_>, lock_key: &LockKey, proof: Proof) {
        let (before, _) = self.locks.confidence(lock_key);
        let Some(evidence) = self.locks.evidence.get_mut(lock_key) else { return };
        evidence.proof = evidence.proof.max(Some(proof));
        let (confidence, reason) = self.locks.confidence(lock_key);
        if before == Confidence::Possible && confidence > before {
            self.observe(operation, lock_key, LockEvent::Recognised { reason });
        }
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
        let event = LockEvent::Acquired { owner: &owner, count, lease_ms };
        let seq = self.observe(operation, lock_key, event);
        let (client, name, since_ms) =
            (operation.client, operation.name.to_owned(), operation.now_ms());
        let holder = Holder { owner, count, client, name, since_ms, seq };
        let waited = self.locks.succeed(lock_key, &holder);
        if let Some(since_ms) = waited {
            if words::name(&lock_key.1) != Name::Record {
                self.prove(operation, lock_key, Proof::Waited);
            }
            let waited_ms = operation.now_ms() - since_ms;
            let event = LockEvent::Waited { owner: &holder.owner, waited_ms };
            self.observe(operation, lock_key, event);
        }
        if let Some(lock) = self.locks.held.get_mut(lock_key) {
            match lock.holders.iter_mut().find(|known| known.owner == holder.owner) {
                Some(known) => known.count = count,
                None => lock.holders.push(holder),
            }
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
        let claims = operation.claims(&holder.owner);
        let is_creator = holder.client == operation.client
            && !self.locks.acts_for_another(lock_key, &holder.owner, operation);
        let by_owner = claims || compared || is_creator;
        let mut had_lease = false;
        if let Some(lock) = self.locks.held.get_mut(lock_key) {
            had_lease = lock.has_lease();
            match lock.holders.iter_mut().find(|known| known.owner == holder.owner) {
                Some(known) if left > 0 => known.count = left,
                _ => lock.holders.retain(|known| known.owner != holder.owner),
            }
        }
        if claims || compared {
            self.prove(operation, lock_key, Proof::Compared);
        } else if by_owner && words::name(&lock_key.1) == Name::Other {
            self.prove(operation, lock_key, Proof::DeletedByCreator);
        }
        let unproved =
            access.removes && !operation.is_script() && operation.claims.is_empty() && !compared;
        let release = Release { by_owner, unproved, was_read: reader.is_some(), had_lease };
        self.observe(operation, lock_key, LockEvent::Released { holder, left, release });
        if !by_owner {
            self.locks.lose(lock_key, holder.clone(), operation.now_ms());
        }
        by_owner
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
        self.observe(operation, lock_key, LockEvent::Expired { holder });
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
        let had_lease = lock.has_lease();
        let mut holders = lock.holders.iter();
        let chosen =
            holders.find(|holder| operation.claims(&holder.owner)).or(lock.holders.first());
        let Some(holder) = chosen.cloned() else { return false };
        let claims = operation.claims(&holder.owner);
        if claims && had_lease {
            self.prove(operation, lock_key, Proof::Compared);
        }
        let lease_ms = deadline_ms.map(|it| operation.time.remaining(Millis(it)).0);
        let event = LockEvent::Renewed { holder: &holder, lease_ms, had_lease };
        self.observe(operation, lock_key, event);
        claims || holder.client == operation.client
    }

    fn is_held_by(&self, lock_key: &LockKey, operation: &LockOperation<'_>) -> bool {
        let lock = self.locks.held.get(lock_key);
        lock.is_some_and(|lock| lock.holders.iter().any(|it| it.client == operation.client))
    }

    fn refuse(&mut self, lock_key: &LockKey, operation: &LockOperation<'_>, token: &[u8]) {
        let Some(lock) = self.locks.held.get(lock_key) else { return };
        let holders = lock.holders.clone();
        let event = LockEvent::Refused { by: token, holders: &holders };
        let seq = self.observe(operation, lock_key, event);
        let refusals = self.locks.wait(lock_key, operation, cut(token), seq);
        if refusals >= RETRIES && words::name(&lock_key.1) == Name::Other {
            self.prove(operation, lock_key, Proof::Retried);
        }
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
        if operation.claims(&self.locks.previous_holders[at].holder.owner) {
            self.prove(operation, lock_key, Proof::Compared);
        }
        let previous = &self.locks.previous_holders[at];
        let late_ms = operation.now_ms() - previous.lost_ms;
        let (holder, successor) = (&previous.holder, previous.successor.as_ref());
        let event = LockEvent::TooLate { holder, late_ms, successor, releases };
        let (confidence, _) = self.locks.confidence(lock_key);
        self.observer.observe(operation, lock_key, confidence, event);
        if releases {
            self.locks.previous_holders.remove(at);
        }
    }

    /// Handles a key that has reached its deadline.
    pub(crate) fn end_lease(&mut self, lock_key: &LockKey, deadline: Millis) {
        let Some(lock) = self.locks.held.remove(lock_key) else { return };
        let operation = LockOperation::of_the_clock(Time::at(deadline));
        for holder in lock.holders {
            self.observe(&operation, lock_key, LockEvent::Expired { holder: &holder });
            self.locks.lose(lock_key, holder, deadline.0);
        }
    }
}

/// Number of refusals after which a client counts as waiting for a lock.
const RETRIES: u32 = 3;

impl Locks {
    /// Records the first impression of a key. A later one counts if it is better.
    fn impress(&mut self, lock_key: &LockKey, new: Evidence) {
        if let Some(known) = self.evidence.get_mut(lock_key) {
            if known.impression >= new.impression {
                *known = Evidence { proof: known.proof, ..new };
            }
            return;
        }
        if self.evidence.len() >= LOCKS_REMEMBERED_MAX {
            let held = &self.held;
            let old = self.evidence.keys().find(|&key| !held.contains_key(key)).cloned();
            old.and_then(|key| self.evidence.remove(&key));
        }
        self.evidence.insert(lock_key.clone(), new);
    }

    /// Remembers what an operation on a key shows, apart from what it does to a lock.
    fn collect_evidence(
        &mut self,
        lock_key: &LockKey,
        seen: Option<&KeyState>,
        access: KeyAccess,
        time: Time,
    ) {
        if access.purges {
            self.purge(lock_key);
        }
        let Some(seen) = seen else { return };
        if let Some((value, _)) = seen.owners.first()
            && (access.made || access.set)
            && words::value(value, time) == Value::Owner
        {
            self.remember_value(lock_key, value);
        }
        if seen.shape == Shape::Semaphore
            && access.lease
            && let Some(evidence) = self.evidence.get_mut(lock_key)
        {
            evidence.weaken_as_window(seen.ends_later);
        }
    }

    /// Handles a value that is read by a client that has not tried to acquire the key: it may be
    /// data.
    fn weaken_as_data(&mut self, lock_key: &LockKey) {
        if let Some(evidence) = self.evidence.get_mut(lock_key)
            && evidence.impression == Impression::OwnerValue
        {
            evidence.impression = Impression::Shape;
        }
    }

    /// Handles a key that turns out to be data.
    pub(super) fn forget(&mut self, lock_key: &LockKey) {
        self.held.remove(lock_key);
        self.evidence.remove(lock_key);
        self.previous_holders.retain(|previous| previous.lock_key != *lock_key);
        self.waiting.retain(|waiting| waiting.lock_key != *lock_key);
    }

    /// How sure it is that a key is a lock, and why.
    pub(crate) fn confidence(&self, lock_key: &LockKey) -> (Confidence, &'static str) {
        let Some(evidence) = self.evidence.get(lock_key) else {
            return (Confidence::Possible, "");
        };
        let is_shared = self.values.get(&evidence.value).is_some_and(|&(_, shared)| shared);
        evidence.confidence(is_shared)
    }

    /// Stores the purpose of a script that was loaded or run, and returns it.
    pub(crate) fn remember_purpose(&mut self, text: &[u8]) -> Purpose {
        self.purposes.of(format!("{:x}", Sha1::digest(text)).as_bytes(), text)
    }

    /// The purpose of the script that a command runs.
    pub(crate) fn purpose(&mut self, command: &Command, argv: &[&[u8]]) -> Purpose {
        let Some(script) = argv.get(1) else { return Purpose::Other };
        match command.script {
            Some(ScriptArgument::Text) => self.remember_purpose(script),
            Some(ScriptArgument::Digest) => {
                self.purposes.get(&script.to_ascii_lowercase()).unwrap_or(Purpose::Other)
            }
            Some(ScriptArgument::Function) | None => Purpose::Other,
        }
    }
}
