//! The properties of every lock: mutual exclusion, leases exact to the millisecond, and release and
//! extension by the owner only.

use std::cell::Cell;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::time::sleep;

/// A lease that does not end within a test.
pub const LONG: Duration = Duration::from_secs(60);
/// A lease that ends within a test.
pub const SHORT: Duration = Duration::from_millis(600);
/// How late a lease may end or a waiter be woken on a machine that is slow and busy.
pub const GENEROUS: Duration = Duration::from_secs(10);

/// The time before the end of a lease in which a test polls without pauses.
const NEAR: Duration = Duration::from_millis(30);
const WORKERS: usize = 8;
const ROUNDS: usize = 10;

/// The locks of a library, as one contender uses them: each value has its own connection or pool.
#[allow(async_fn_in_trait)] // These futures are not spawned.
pub trait Locks {
    /// The handle of a held lock.
    type Held;

    /// Acquires the lock if it is free.
    async fn try_lock(&self, key: &str, lease: Duration) -> Option<Self::Held>;

    /// Releases the lock. Returns whether this contender still held it.
    async fn unlock(&self, held: Self::Held) -> bool;
}

/// The locks of a library that can extend leases.
#[allow(async_fn_in_trait)] // As above.
pub trait Extends: Locks {
    /// Sets the lease to end `lease` after now. Returns whether this contender held the lock.
    async fn extend(&self, held: &mut Self::Held, lease: Duration) -> bool;
}

/// Checks that a lock excludes: many contenders read a counter, wait, and write the incremented
/// value. If two hold the lock at the same time, an increment is lost.
pub async fn excludes<L: Locks>(key: &str, contender: impl AsyncFn() -> L) {
    let (number, inside) = (Cell::new(0), Cell::new(0));
    join_all((0..WORKERS).map(|_| async {
        let locks = contender().await;
        for _ in 0..ROUNDS {
            let held = wait(&locks, key, LONG).await;
            inside.set(inside.get() + 1);
            assert_eq!(inside.get(), 1, "two hold the lock");
            let read = number.get();
            sleep(Duration::from_millis(1)).await;
            number.set(read + 1);
            inside.set(inside.get() - 1);
            assert!(locks.unlock(held).await, "the lock was lost while it was held");
        }
    }))
    .await;
    assert_eq!(number.get(), WORKERS * ROUNDS);
}

/// Checks that the lock is granted again when its lease has ended, and not before.
pub async fn expires<L: Locks>(key: &str, contender: impl AsyncFn() -> L) {
    let (holder, other) = (contender().await, contender().await);
    let (_held, before) = taken(&holder, key, SHORT).await;
    wait_for_end(&other, key, before, SHORT).await;
}

/// Checks that a released lock is free at once, however long its lease is.
pub async fn releases<L: Locks>(key: &str, contender: impl AsyncFn() -> L) {
    let (holder, other) = (contender().await, contender().await);
    let held = holder.try_lock(key, LONG).await.expect("the lock is free");
    assert!(other.try_lock(key, LONG).await.is_none(), "the lock was granted twice");
    assert!(holder.unlock(held).await, "the holder did not hold the lock");
    assert!(other.try_lock(key, LONG).await.is_some(), "the lock was not released");
}

/// Checks that a release after the end of the lease fails and does not affect the next holder.
pub async fn refuses_late_release<L: Locks>(key: &str, contender: impl AsyncFn() -> L) {
    let (late, next, third) = (contender().await, contender().await, contender().await);
    let (held, _) = taken(&late, key, SHORT).await;
    let kept = wait(&next, key, LONG).await;
    assert!(!late.unlock(held).await, "the late release succeeded");
    assert!(
        third.try_lock(key, LONG).await.is_none(),
        "the late release freed the lock of the next holder"
    );
    assert!(next.unlock(kept).await, "the next holder had lost the lock");
}

/// Checks that an extended lease counts from the extension, that the lock is not granted before its
/// end, and that only the holder can extend it.
pub async fn extends<L: Extends>(key: &str, contender: impl AsyncFn() -> L) {
    let (holder, other) = (contender().await, contender().await);
    let (mut held, before) = extended(&holder, key, SHORT * 2, SHORT * 3).await;
    let _kept = wait_for_end(&other, key, before, SHORT * 3).await;
    assert!(!holder.extend(&mut held, LONG).await, "a lock that another holds was extended");
}

/// Acquires a free lock, and returns the time before the request. Some libraries discard a lock if
/// acquiring it took as long as the lease. If the machine stalled for that long, this tries again
/// after the end of the lease that may have been granted.
pub async fn taken<L: Locks>(locks: &L, key: &str, lease: Duration) -> (L::Held, Instant) {
    loop {
        let before = Instant::now();
        if let Some(held) = locks.try_lock(key, lease).await {
            return (held, before);
        }
        assert!(before.elapsed() >= lease * 4 / 5, "a free lock was refused");
        sleep(lease).await;
    }
}

/// Acquires a lock and extends it later, and returns the time before the extension. An extension
/// after the end of the lease is refused: if the machine stalled for that long, both are repeated.
async fn extended<L: Extends>(
    locks: &L,
    key: &str,
    lease: Duration,
    longer: Duration,
) -> (L::Held, Instant) {
    loop {
        let (mut held, begin) = taken(locks, key, lease).await;
        sleep(lease / 8).await;
        let before = Instant::now();
        if locks.extend(&mut held, longer).await {
            return (held, before);
        }
        assert!(begin.elapsed() >= lease * 4 / 5, "the extension by the holder was refused");
        sleep(longer).await;
    }
}

/// Waits for a lock with a lease that began after `before`; polls without pauses near its end.
/// Panics if the lock is granted too early or far too late.
pub async fn wait_for_end<L: Locks>(
    locks: &L,
    key: &str,
    before: Instant,
    lease: Duration,
) -> L::Held {
    sleep((lease - NEAR).saturating_sub(before.elapsed())).await;
    loop {
        if let Some(held) = locks.try_lock(key, LONG).await {
            check_end(before.elapsed(), lease);
            return held;
        }
        assert!(before.elapsed() < lease + GENEROUS, "the lease did not end");
    }
}

/// Tries until the lock is granted.
pub async fn wait<L: Locks>(locks: &L, key: &str, lease: Duration) -> L::Held {
    let begin = Instant::now();
    loop {
        if let Some(held) = locks.try_lock(key, lease).await {
            return held;
        }
        assert!(begin.elapsed() < GENEROUS * 3, "the lock did not become free");
        sleep(Duration::from_millis(2)).await;
    }
}

/// Panics if a lease ended early or far too late.
pub fn check_end(elapsed: Duration, lease: Duration) {
    assert!(elapsed >= lease, "a lease of {lease:?} ended after {elapsed:?}");
    assert!(elapsed < lease + GENEROUS, "a lease of {lease:?} still held after {elapsed:?}");
}
