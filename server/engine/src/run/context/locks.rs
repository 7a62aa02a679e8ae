//! Native locks, and the notes for the lock view.

use super::Context;
use crate::Engine;
use crate::limits::FENCING_TOKEN_MAX;
use crate::store::dict::Slot;
use crate::store::edit::Edit;
use crate::store::lock::Lock;
use crate::store::lock_notes::{OwnerChange, Way};
use crate::store::packed::Items;
use crate::timing::time::Millis;

impl Context<'_> {
    // --- acquiring ---

    /// The client asks for a lock: what it was granted before is not its last reply any more.
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

    /// Stops serving the queue of the key of which the client is served, unless the arguments of
    /// the next client's command are such that it can be served.
    #[inline]
    pub fn stop_queue_unless(&mut self, is_served: impl FnOnce(Items<'_>) -> bool) {
        self.engine.sessions.waiters.stop_unless(is_served);
    }

    /// Runs the command of the client, which waits, again at this time, even if no key has changed.
    #[inline]
    pub fn retry_at(&mut self, moment: Option<Millis>) {
        self.engine.retry_at(self.client, moment);
    }

    // --- changing ---

    /// Changes the lock in `slot`, which keeps at least one hold, and then the deadline of its key.
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

    /// Ends what [`Context::bind_lock`] has begun for a client, unless the lock is still bound to
    /// it.
    #[inline]
    pub fn unbind_lock(&mut self, key: &[u8], client: u64) {
        self.engine.unbind_lock(client, &(self.database, key.into()));
    }

    // --- notes for the lock view ---

    /// The keys that the command adds are added only if they do not exist.
    #[inline(always)]
    pub fn make_conditional(&mut self) {
        self.engine.writer.make_conditional();
    }

    /// How the changes that follow are made.
    pub fn set_way(&mut self, way: Way) {
        self.engine.writer.set_way(way);
    }

    /// The owners of the lock in `slot` are about to change, and its deadline with them.
    #[inline]
    pub fn change_owners(&mut self, slot: Slot, change: OwnerChange) {
        self.engine.writer.change_owners(slot, change);
    }

    /// The client has tried to acquire the key in `slot`, if it is a lock.
    #[inline]
    pub fn note_refused_lock(&mut self, slot: Slot) {
        self.engine.writer.refuse_lock(self.database, slot);
    }

    /// The client waits for the release of a lock.
    #[inline]
    pub fn note_wait_for_lock(&mut self, key: &[u8]) {
        self.engine.writer.wait_for_lock(self.database, key);
    }
}
