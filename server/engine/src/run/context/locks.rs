//! Native locks, and the notes for the lock view.

use super::Context;
use crate::Engine;
use crate::limits::FENCING_TOKEN_MAX;
use crate::store::dict::Slot;
use crate::store::edit::Edit;
use crate::store::lock::Lock;
use crate::store::lock_notes::{MadeBy, OwnerChange};
use crate::store::packed::Items;
use crate::timing::time::Millis;

impl Context<'_> {
    // --- acquiring ---

    /// Begins an acquiring command of the client: an earlier grant is no longer its last reply.
    /// Returns the number of clients that wait for the lock.
    #[inline]
    pub fn begin_acquire(&mut self, key: &[u8]) -> usize {
        let sessions = &mut self.engine.sessions;
        sessions.bindings.begin_grant(self.client);
        sessions.waiters.queued_for_lock(self.database, key)
    }

    /// The next fencing token; `None` if none are left.
    #[inline]
    pub fn issue_token(&mut self) -> Option<u64> {
        let Engine { writer, token_floor, .. } = &mut *self.engine;
        let is_last = writer.last_token().max(*token_floor) >= FENCING_TOKEN_MAX;
        (!is_last).then(|| writer.issue_token(*token_floor))
    }

    /// Stops serving the queue in which the client waited, unless `is_served` accepts the arguments
    /// of the next client's command.
    #[inline]
    pub fn stop_queue_unless(&mut self, is_served: impl FnOnce(Items<'_>) -> bool) {
        self.engine.sessions.waiters.stop_unless(is_served);
    }

    /// Runs the command of the waiting client again at this time, even if no key has changed.
    #[inline]
    pub fn retry_at(&mut self, moment: Option<Millis>) {
        self.engine.retry_at(self.client, moment);
    }

    // --- changing ---

    /// Changes the lock in `slot` and then the deadline of its key. The lock must keep a hold.
    #[inline]
    pub fn change_lock(
        &mut self,
        slot: Slot,
        key: &[u8],
        change: impl FnOnce(&mut Edit<'_, Box<Lock>>),
    ) {
        self.engine.change_lock((self.database, slot, key), self.time, change);
    }

    /// Removes a lock that has no holds any more.
    #[inline]
    pub fn remove_lock(&mut self, key: &[u8]) {
        self.engine.sessions.set_hold_end((self.database, key), None);
        self.remove_emptied(key);
    }

    /// Records that the lock at a key is bound to the client: by a grant of this command, or else
    /// by a renewal.
    #[inline]
    pub fn bind_lock(&mut self, key: &[u8], is_grant: bool) {
        let granted_by = is_grant.then_some(self.name);
        self.engine.bind_lock(self.client, (self.database, key.into()), granted_by);
    }

    /// Removes the binding of [`Context::bind_lock`], unless the lock is still bound to the client.
    #[inline]
    pub fn unbind_lock(&mut self, key: &[u8], client: u64) {
        self.engine.unbind_lock(client, &(self.database, key.into()));
    }

    // --- notes for the lock view ---

    /// Notes that the command adds keys only if they do not exist.
    #[inline(always)]
    pub fn make_conditional(&mut self) {
        self.engine.writer.make_conditional();
    }

    /// Sets what the keys that follow are made by.
    pub fn set_made_by(&mut self, made_by: MadeBy) {
        self.engine.writer.set_made_by(made_by);
    }

    /// Notes how the owners of the lock in `slot` change, before the change.
    #[inline]
    pub fn change_owners(&mut self, slot: Slot, change: OwnerChange) {
        self.engine.writer.change_owners(slot, change);
    }

    /// Notes a refused attempt to acquire the key in `slot`, if it is a lock.
    #[inline]
    pub fn note_refused_lock(&mut self, slot: Slot) {
        self.engine.writer.refuse_lock(self.database, slot);
    }

    /// Notes that the client waits for the release of a lock.
    #[inline]
    pub fn note_wait_for_lock(&mut self, key: &[u8]) {
        self.engine.writer.wait_for_lock(self.database, key);
    }
}
