//! What must hold of any lock, told once: mutual exclusion, the lease to the millisecond, release
//! and extension by the owner alone.

use std::cell::Cell;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::time::sleep;

/// A lease that no test sees the end of.
pub const LONG: Duration = Duration::from_secs(60);
/// A lease that ends within a test.
pub const SHORT: Duration = Duration::from_millis(600);
/// How late a lease may end or a waiter be woken on a machine that is slow and busy.
pub const GENEROUS: Duration = Duration::from_secs(10);

/// How long before the end of a lease it is near.
const NEAR: Duration = Duration::from_millis(30);
const WORKERS: usize = 8;
const ROUNDS: usize = 10;

/// How a library locks. One value is one contender, with a connection or a pool of its own.
#[allow(async_fn_in_trait)] // Nobody spawns these.
pub trait Locks {
    /// What a holder has in hand.
    type Held;

    /// Takes the lock if it is free.
    async fn try_lock(&self, key: &str, lease: Duration) -> Option<Self::Held>;

    /// Gives it back. Returns whether it was still the holder's.
    async fn unlock(&self, held: Self::Held) -> bool;
}

/// How a library prolongs a lease.
#[allow(async_fn_in_trait)] // As above.
pub trait Extends: Locks {
    /// Lets the lease end that much later than now. Returns whether the lock was the holder's.
    async fn extend(&self, held: &mut Self::Held, lease: Duration) -> bool;
}

/// Many contenders read a number, wait, and write back one more: an overlap loses one.
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

/// The lock is granted when its lease has ended, and not before.
pub async fn expires<L: Locks>(key: &str, contender: impl AsyncFn() -> L) {
    let (holder, other) = (contender().await, contender().await);
    let (_held, before) = taken(&holder, key, SHORT).await;
    is_granted(&other, key, before, SHORT).await;
}

/// A released lock is free at once, however long its lease was.
pub async fn releases<L: Locks>(key: &str, contender: impl AsyncFn() -> L) {
    let (holder, other) = (contender().await, contender().await);
    let held = holder.try_lock(key, LONG).await.expect("it is free");
    assert!(other.try_lock(key, LONG).await.is_none(), "it was granted twice");
    assert!(holder.unlock(held).await, "it was the holder's");
    assert!(other.try_lock(key, LONG).await.is_some(), "it was not released");
}

/// Who releases after the lease has ended takes nothing from the next holder.
pub async fn refuses_strangers<L: Locks>(key: &str, contender: impl AsyncFn() -> L) {
    let (late, next, third) = (contender().await, contender().await, contender().await);
    let (held, _) = taken(&late, key, SHORT).await;
    let kept = wait(&next, key, LONG).await;
    assert!(!late.unlock(held).await, "the late holder was told that it was still its lock");
    assert!(third.try_lock(key, LONG).await.is_none(), "the late holder took it from the next");
    assert!(next.unlock(kept).await, "the next holder had lost it");
}

/// An extension counts from its own moment; nobody is let in before, and a stranger has none.
pub async fn extends<L: Extends>(key: &str, contender: impl AsyncFn() -> L) {
    let (holder, other) = (contender().await, contender().await);
    let (mut held, before) = extended(&holder, key, SHORT * 2, SHORT * 3).await;
    let _kept = is_granted(&other, key, before, SHORT * 3).await;
    assert!(!holder.extend(&mut held, LONG).await, "a lock that another holds was extended");
}

/// Takes a lock that is free, and says when it began to. A library refuses by itself what took it
/// as long as the lease: on a machine that stood for so long it is tried again, when whatever was
/// taken all the same has ended.
pub async fn taken<L: Locks>(locks: &L, key: &str, lease: Duration) -> (L::Held, Instant) {
    loop {
        let before = Instant::now();
        if let Some(held) = locks.try_lock(key, lease).await {
            return (held, before);
        }
        assert!(before.elapsed() >= lease * 4 / 5, "it is free");
        sleep(lease).await;
    }
}

/// Takes a lock and extends it a while later, and says when it began to. What comes too late is
/// refused: on a machine that stood for so long both are done again.
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
        assert!(begin.elapsed() >= lease * 4 / 5, "it was the holder's to extend");
        sleep(longer).await;
    }
}

/// Asks for a lock whose lease began after `before`, as often as it can when the end is near, and
/// fails if it is granted too early.
pub async fn is_granted<L: Locks>(
    locks: &L,
    key: &str,
    before: Instant,
    lease: Duration,
) -> L::Held {
    sleep((lease - NEAR).saturating_sub(before.elapsed())).await;
    loop {
        if let Some(held) = locks.try_lock(key, LONG).await {
            is_due(before.elapsed(), lease);
            return held;
        }
        assert!(before.elapsed() < lease + GENEROUS, "the lease did not end");
    }
}

/// Asks until it is granted.
pub async fn wait<L: Locks>(locks: &L, key: &str, lease: Duration) -> L::Held {
    let begin = Instant::now();
    loop {
        if let Some(held) = locks.try_lock(key, lease).await {
            return held;
        }
        assert!(begin.elapsed() < GENEROUS * 3, "the lock never came free");
        sleep(Duration::from_millis(2)).await;
    }
}

/// Fails for what came before its time, and for what came far too late.
pub fn is_due(elapsed: Duration, lease: Duration) {
    assert!(elapsed >= lease, "a lease of {lease:?} ended after {elapsed:?}");
    assert!(elapsed < lease + GENEROUS, "a lease of {lease:?} still held after {elapsed:?}");
}
