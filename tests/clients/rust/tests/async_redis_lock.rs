//! async-redis-lock: a lock of one or several keys that renews itself while it is held.

use std::time::{Duration, Instant};

use async_redis_lock::{Error, Lock, Locker, Options};
use lockwheel_clients::properties::{self, LONG, Locks, SHORT};
use lockwheel_clients::report::behaviour;
use lockwheel_clients::servers::{self, unique};

const LIBRARY: &str = "async-redis-lock";

struct Contender(Locker);

/// Asks once, and does not renew within a test.
fn once(lease: Duration) -> Options {
    Options::new().timeout(Some(Duration::ZERO)).ttl(lease).extend(LONG)
}

impl Locks for Contender {
    type Held = Lock;

    async fn try_lock(&self, key: &str, lease: Duration) -> Option<Lock> {
        match self.0.acquire_with_options(&once(lease), key).await {
            Ok(lock) => Some(lock),
            Err(Error::Timeout) => None,
            Err(error) => panic!("{error}"),
        }
    }

    async fn unlock(&self, held: Lock) -> bool {
        match held.release().await {
            Ok(()) => true,
            Err(Error::IdNotFound) => false,
            Err(error) => panic!("{error}"),
        }
    }
}

async fn contender() -> Contender {
    Contender(Locker::from_redis_url(&servers::main()).await.expect("a connection"))
}

#[test]
fn excludes() {
    behaviour(LIBRARY, "of many contenders one holds the lock", async {
        properties::excludes(&unique("excludes"), contender).await;
    });
}

#[test]
fn expires() {
    behaviour(LIBRARY, "a lease that is not renewed ends at its time, not before", async {
        properties::expires(&unique("expires"), contender).await;
    });
}

#[test]
fn releases() {
    behaviour(LIBRARY, "a released lock is free at once", async {
        properties::releases(&unique("releases"), contender).await;
    });
}

#[test]
fn refuses_late_release() {
    behaviour(LIBRARY, "a late release takes nothing from the next holder", async {
        properties::refuses_late_release(&unique("late-release"), contender).await;
    });
}

#[test]
fn renews() {
    behaviour(LIBRARY, "a lock that is held is renewed beyond its lease", async {
        let (holder, other, key) = (contender().await, contender().await, unique("renews"));
        // A busy machine may stall for two seconds.
        let renewed = Options::new().ttl(SHORT * 4).extend(SHORT / 4);
        let held = holder.0.acquire_with_options(&renewed, &key).await.expect("it is free");
        let begin = Instant::now();
        while begin.elapsed() < SHORT * 6 {
            assert!(other.try_lock(&key, LONG).await.is_none(), "two hold it");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(!held.is_lost());
        assert!(holder.unlock(held).await, "it was lost");
        assert!(other.try_lock(&key, LONG).await.is_some(), "it was not released");
    });
}

#[test]
fn takes_all_or_none() {
    behaviour(LIBRARY, "several keys are locked all or none", async {
        let (holder, other) = (contender().await, contender().await);
        let (first, second) = (unique("first"), unique("second"));
        let both = vec![first.clone(), second.clone()];
        let held = holder.try_lock(&second, LONG).await.expect("it is free");
        let refused = other.0.acquire_with_options(&once(LONG), &both).await;
        assert!(matches!(refused, Err(Error::Timeout)), "one of them is held");
        let free = other.try_lock(&first, LONG).await.expect("a refusal leaves nothing behind");
        assert!(other.unlock(free).await && holder.unlock(held).await);
        let held = other.0.acquire_with_options(&once(LONG), &both).await.expect("both are free");
        for key in &both {
            assert!(holder.try_lock(key, LONG).await.is_none(), "granted twice");
        }
        assert!(other.unlock(held).await);
    });
}

#[test]
fn waits() {
    behaviour(LIBRARY, "a waiter gets the lock when it is released, and not before", async {
        let (holder, waiter, key) = (contender().await, contender().await, unique("waits"));
        let held = holder.try_lock(&key, LONG).await.expect("it is free");
        let patient = Options::new().retry(Duration::from_millis(5)).timeout(None);
        let hold = async {
            tokio::time::sleep(SHORT).await;
            let released = Instant::now();
            assert!(holder.unlock(held).await);
            released
        };
        let wait = async {
            let held = waiter.0.acquire_with_options(&patient, &key).await.expect("its turn");
            let acquired = Instant::now();
            assert!(waiter.unlock(held).await);
            acquired
        };
        let (released, acquired) = tokio::join!(hold, wait);
        assert!(acquired > released, "two held it");
    });
}
