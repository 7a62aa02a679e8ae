//! Native locks: the value that the commands `LOCK.*` keep at a key. A lock is its holds: the
//! owners that hold it, in which mode, and until when.
//!
//! Invariants: a lock has at least one hold, no two of one owner, and all in one mode; the deadline
//! of its key is the latest of its holds. An expired hold has no effect, although it may still be
//! stored.

use smallvec::SmallVec;

use super::effects::codec::Field;
use super::serialised::Malformed;
use crate::timing::time::{Millis, Time};
use lockwheel_defects::defect;

/// How an owner holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// By one owner alone.
    Exclusive,
    /// Together with other owners that share it.
    Shared,
    /// With some of the permits of a semaphore.
    Permits {
        /// The number of permits of this owner.
        count: u32,
        /// The number of permits of the semaphore.
        of: u32,
    },
}

impl LockMode {
    /// The name in replies.
    pub const fn name(self) -> &'static str {
        match self {
            LockMode::Exclusive => "exclusive",
            LockMode::Shared => "shared",
            LockMode::Permits { .. } => "semaphore",
        }
    }

    /// The number of permits of the semaphore; `None` for a lock.
    pub const fn permits(self) -> Option<u32> {
        match self {
            LockMode::Permits { of, .. } => Some(of),
            LockMode::Exclusive | LockMode::Shared => None,
        }
    }
}

/// The lease of one connection: a hold has one for each connection that acquired the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// How many times the owner has acquired the lock on this connection.
    pub count: u64,
    /// When the lease ends, on the lease clock.
    pub deadline: Millis,
    /// The `CLIENT ID` of the connection; 0 after it has ended if it was bound, and after a
    /// restart.
    pub client: u64,
    /// If the lease is bound to the connection: how much longer it lasts when the connection ends,
    /// in milliseconds.
    pub grace_ms: Option<i64>,
}

impl Lease {
    /// Whether it is bound and its connection has ended: it then lasts for its grace period only.
    pub fn is_in_grace(&self) -> bool {
        self.client == 0 && self.grace_ms.is_some()
    }

    /// Whether it ends with the connection of this client.
    pub fn is_bound_to(&self, client: u64) -> bool {
        self.client == client && self.grace_ms.is_some()
    }
}

/// The leases of an owner, in the order in which their connections acquired the lock first.
pub type Leases = SmallVec<[Lease; 1]>;

/// An owner that holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The name that the owner gives itself.
    pub owner: Box<[u8]>,
    /// How it holds the lock.
    pub mode: LockMode,
    /// The fencing token of the grant.
    pub token: u64,
    /// When it was granted, on the lease clock.
    pub since: Millis,
    /// At least one, and no two of one connection.
    pub leases: Leases,
    /// The text that the owner gave with `META`.
    pub meta: Option<Box<[u8]>>,
}

impl Hold {
    /// When the last of its leases ends, on the lease clock.
    pub fn deadline(&self) -> Millis {
        self.leases.iter().map(|lease| lease.deadline).max().unwrap_or(Millis(0))
    }

    /// The leases that have not expired.
    pub fn leases(&self, time: Time) -> impl Iterator<Item = &Lease> {
        self.leases.iter().filter(move |lease| !time.reached(lease.deadline))
    }

    /// How many times the owner holds the lock.
    pub fn count(&self, time: Time) -> u64 {
        self.leases(time).fold(0, |count, lease| count.saturating_add(lease.count))
    }

    /// The lease of the connection that acquired or renewed the lock last.
    pub fn last_lease(&self) -> Option<&Lease> {
        self.leases.last()
    }
}

/// The value of a native lock: its holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    /// In the order of the grants.
    holds: SmallVec<[Hold; 1]>,
}

impl Lock {
    /// All stored holds, including expired ones.
    pub fn stored(&self) -> &[Hold] {
        &self.holds
    }

    /// The holds that have not expired.
    pub fn holds(&self, time: Time) -> impl Iterator<Item = &Hold> {
        let is_alive = move |hold: &Hold| !time.reached(hold.deadline());
        self.holds.iter().filter(move |hold| is_alive(hold) || defect!(ExpiredHoldCounts))
    }

    /// The hold of an owner, unless it has expired.
    pub fn hold_of(&self, owner: &[u8], time: Time) -> Option<&Hold> {
        self.holds(time).find(|hold| *hold.owner == *owner)
    }

    /// How the lock is held; `None` if it is not.
    pub fn mode(&self) -> Option<LockMode> {
        self.holds.first().map(|hold| hold.mode)
    }

    /// Whether another owner can hold it in this mode now.
    pub fn admits(&self, mode: LockMode, time: Time) -> bool {
        match mode {
            LockMode::Exclusive => self.holds(time).next().is_none(),
            LockMode::Shared => self.holds(time).all(|hold| hold.mode == LockMode::Shared),
            LockMode::Permits { count, of } => {
                let taken: u64 = self.holds(time).map(|hold| permits_of(hold.mode)).sum();
                taken + u64::from(count) <= u64::from(of) || defect!(PermitsNotCounted)
            }
        }
    }

    /// The latest deadline; `None` without holds.
    pub fn deadline(&self) -> Option<Millis> {
        self.holds.iter().map(Hold::deadline).max()
    }

    /// The earliest deadline of the holds that have not expired.
    pub fn next_deadline(&self, time: Time) -> Option<Millis> {
        self.holds(time).map(Hold::deadline).min()
    }

    /// When the next lease ends, if that is before the lock does.
    pub fn next_end(&self) -> Option<Millis> {
        if let [Hold { leases, .. }] = &self.holds[..]
            && leases.len() == 1
        {
            return None;
        }
        let leases = self.holds.iter().flat_map(|hold| &hold.leases);
        let next = leases.map(|lease| lease.deadline).min();
        next.filter(|next| Some(*next) < self.deadline())
    }

    /// The memory of its holds outside the value, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let parts = self.holds.iter().map(|hold| {
            let meta = hold.meta.as_ref().map_or(0, |meta| meta.len());
            hold.owner.len() + meta + spilled_bytes(&hold.leases)
        });
        parts.sum::<usize>() + spilled_bytes(&self.holds)
    }
}

fn spilled_bytes<T>(items: &SmallVec<[T; 1]>) -> usize {
    if items.spilled() { items.capacity() * size_of::<T>() } else { 0 }
}

fn permits_of(mode: LockMode) -> u64 {
    match mode {
        LockMode::Permits { count, .. } => count.into(),
        LockMode::Exclusive | LockMode::Shared => 0,
    }
}

/// Mutators, for the writer and for applying effects.
impl Lock {
    /// Adds the hold of an owner that has none.
    pub(super) fn add(&mut self, hold: Hold) {
        self.holds.push(hold);
    }

    /// Changes the leases of an owner; returns whether it has a hold.
    pub(super) fn set_leases(&mut self, owner: &[u8], leases: Leases) -> bool {
        let Some(hold) = self.holds.iter_mut().find(|hold| *hold.owner == *owner) else {
            return false;
        };
        hold.leases = leases;
        true
    }

    /// Removes the hold of an owner; returns whether it had one.
    pub(super) fn remove(&mut self, owner: &[u8]) -> bool {
        let before = self.holds.len();
        self.holds.retain(|hold| *hold.owner != *owner);
        self.holds.len() < before
    }

    /// Moves all deadlines by `span`.
    pub(super) fn postpone(&mut self, span: Millis) {
        for lease in self.holds.iter_mut().flat_map(|hold| &mut hold.leases) {
            lease.deadline = Millis(lease.deadline.0.saturating_add(span.0));
        }
    }
}

// --- byte form ---

impl Field<'_> for LockMode {
    fn encode(&self, out: &mut Vec<u8>) {
        let (tag, permits) = match *self {
            LockMode::Exclusive => (0, None),
            LockMode::Shared => (1, None),
            LockMode::Permits { count, of } => (2, Some((count, of))),
        };
        out.push(tag);
        if let Some((count, of)) = permits {
            u64::from(count).encode(out);
            u64::from(of).encode(out);
        }
    }

    fn decode(from: &mut &[u8]) -> Result<LockMode, Malformed> {
        let number = |from: &mut &[u8]| u32::try_from(u64::decode(from)?).map_err(|_| Malformed);
        Ok(match u8::decode(from)? {
            0 => LockMode::Exclusive,
            1 => LockMode::Shared,
            2 => LockMode::Permits { count: number(from)?, of: number(from)? },
            _ => return Err(Malformed),
        })
    }
}

/// The bits that follow the client of a lease: it is bound, and another lease follows it.
const IS_BOUND: u8 = 1;
const IS_FOLLOWED: u8 = 2;

impl Field<'_> for Leases {
    fn encode(&self, out: &mut Vec<u8>) {
        for (at, lease) in self.iter().enumerate() {
            lease.count.encode(out);
            lease.deadline.encode(out);
            lease.client.encode(out);
            let is_followed = at + 1 < self.len();
            let bound = u8::from(lease.grace_ms.is_some()) * IS_BOUND;
            out.push(bound + u8::from(is_followed) * IS_FOLLOWED);
            if let Some(grace_ms) = lease.grace_ms {
                grace_ms.encode(out);
            }
        }
    }

    fn decode(from: &mut &[u8]) -> Result<Leases, Malformed> {
        let mut leases = Leases::new();
        loop {
            let count = u64::decode(from)?;
            let deadline = Millis::decode(from)?;
            let client = u64::decode(from)?;
            let bits = u8::decode(from)?;
            if bits > IS_BOUND + IS_FOLLOWED {
                return Err(Malformed);
            }
            let is_bound = bits & IS_BOUND > 0;
            let grace_ms = is_bound.then(|| i64::decode(from)).transpose()?;
            leases.push(Lease { count, deadline, client, grace_ms });
            if bits & IS_FOLLOWED == 0 {
                return Ok(leases);
            }
        }
    }
}

impl<'a> Field<'a> for Hold {
    fn encode(&self, out: &mut Vec<u8>) {
        (&*self.owner).encode(out);
        self.mode.encode(out);
        self.token.encode(out);
        self.since.encode(out);
        self.leases.encode(out);
        self.meta.as_deref().encode(out);
    }

    fn decode(from: &mut &'a [u8]) -> Result<Hold, Malformed> {
        Ok(Hold {
            owner: <&[u8]>::decode(from)?.into(),
            mode: LockMode::decode(from)?,
            token: u64::decode(from)?,
            since: Millis::decode(from)?,
            leases: Leases::decode(from)?,
            meta: Option::<&[u8]>::decode(from)?.map(Into::into),
        })
    }
}

impl Lock {
    /// Appends the byte form to `out`.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        self.holds.iter().for_each(|hold| hold.encode(out));
    }

    /// Reads what [`Lock::encode`] has written.
    pub(super) fn decode(from: &mut &[u8]) -> Result<Lock, Malformed> {
        let mut lock = Lock::default();
        while !from.is_empty() {
            let hold = Hold::decode(from)?;
            if lock.holds.iter().any(|known| known.owner == hold.owner) {
                return Err(Malformed);
            }
            lock.add(hold);
        }
        Ok(lock)
    }
}
