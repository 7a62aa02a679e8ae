//! rslock: a lock held on a majority of several servers.

use std::cell::Cell;
use std::time::{Duration, Instant};

use lockwheel_clients::properties::{self, Extends, LONG, Locks, SHORT};
use lockwheel_clients::report::behaviour;
use lockwheel_clients::servers::{self, unique};
use rslock::{Lock, LockManager};

const LIBRARY: &str = "rslock";

struct Contender(LockManager);

impl Contender {
    fn new(servers: Vec<String>) -> Contender {
        let mut manager = LockManager::new(servers);
        manager.set_retry(1, Duration::from_millis(1));
        Contender(manager)
    }
}

impl Locks for Contender {
    type Held = Lock;

    async fn try_lock(&self, key: &str, lease: Duration) -> Option<Lock> {
        self.0.lock(key, lease).await.ok()
    }

    async fn unlock(&self, held: Lock) -> bool {
        // `unlock` does not return whether the lock was held; `extend` does, decided by a majority.
        let was_held = self.0.extend(&held, LONG).await.is_ok();
        self.0.unlock(&held).await;
        was_held
    }
}

impl Extends for Contender {
    async fn extend(&self, held: &mut Lock, lease: Duration) -> bool {
        match self.0.extend(held, lease).await {
            Ok(extended) => {
                *held = extended;
                true
            }
            Err(_) => false,
        }
    }
}

async fn one() -> Contender {
    Contender::new(vec![servers::main()])
}

async fn three() -> Contender {
    Contender::new(servers::disposable(servers::OF_RSLOCK_WITH_ALL))
}

#[test]
fn excludes() {
    behaviour(LIBRARY, "one server: of many contenders one holds the lock", async {
        properties::excludes(&unique("excludes"), one).await;
    });
}

#[test]
fn excludes_on_three() {
    behaviour(LIBRARY, "three servers: of many contenders one holds the lock", async {
        properties::excludes(&unique("excludes"), three).await;
    });
}

#[test]
fn expires() {
    behaviour(LIBRARY, "one server: a lease ends at its time, not before", async {
        properties::expires(&unique("expires"), one).await;
    });
}

#[test]
fn expires_on_three() {
    behaviour(LIBRARY, "three servers: a lease ends at its time, not before", async {
        properties::expires(&unique("expires"), three).await;
    });
}

#[test]
fn releases() {
    behaviour(LIBRARY, "three servers: a released lock is free at once", async {
        properties::releases(&unique("releases"), three).await;
    });
}

#[test]
fn refuses_late_release() {
    behaviour(LIBRARY, "three servers: a late release takes nothing from the next holder", async {
        properties::refuses_late_release(&unique("late-release"), three).await;
    });
}

#[test]
fn extends() {
    behaviour(LIBRARY, "three servers: an extended lease ends at its new time", async {
        properties::extends(&unique("extends"), three).await;
    });
}

#[test]
fn waits() {
    behaviour(LIBRARY, "three servers: acquire waits for the release", async {
        let (holder, waiter) = (three().await.0, three().await.0);
        let key = unique("waits");
        let guard = holder.acquire(key.as_str(), LONG).await.expect("it is free");
        let hold = async {
            tokio::time::sleep(SHORT).await;
            let released = Instant::now();
            guard.release().await;
            released
        };
        let wait = async {
            let _kept = waiter.acquire(key.as_str(), LONG).await.expect("it comes free");
            Instant::now()
        };
        let (released, acquired) = tokio::join!(hold, wait);
        assert!(acquired > released, "two held it");
    });
}

#[test]
fn renews() {
    behaviour(LIBRARY, "three servers: a lock in use is renewed beyond its lease", async {
        let (holder, other) = (three().await, three().await);
        let lease = Duration::from_millis(900);
        // The renewal has less than half a second: if the machine stalled, the round is repeated.
        let has_stalled = Cell::new(true);
        while has_stalled.replace(false) {
            let (key, begin) = (unique("renews"), Instant::now());
            let use_it = async || {
                let mut last = begin;
                while begin.elapsed() < lease * 2 && !has_stalled.get() {
                    let refused = other.try_lock(&key, LONG).await.is_none();
                    has_stalled.set(last.elapsed() >= Duration::from_millis(300));
                    assert!(refused || has_stalled.get(), "two hold it");
                    last = Instant::now();
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            let kept = holder.0.using(key.as_bytes(), lease, use_it).await;
            if !has_stalled.get() {
                kept.expect("it is kept");
                assert!(other.try_lock(&key, LONG).await.is_some(), "it was not released");
            }
        }
    });
}

#[test]
fn locks_with_one_server_dead() {
    behaviour(LIBRARY, "three servers, one dead: two of three still make a lock", async {
        let which = servers::disposable(servers::OF_RSLOCK_WITH_ONE_DEAD);
        let contender = async || Contender::new(which.clone());
        let (holder, key) = (contender().await, unique("dead"));
        let mut held = holder.try_lock(&key, LONG).await.expect("it is free");
        end(&which[0]).await;
        assert!(contender().await.try_lock(&key, LONG).await.is_none(), "granted twice");
        assert!(holder.extend(&mut held, LONG).await, "two servers are most of three");
        holder.0.unlock(&held).await;
        properties::releases(&key, contender).await;
        properties::excludes(&unique("dead"), contender).await;
    });
}

#[test]
fn refuses_without_quorum() {
    behaviour(LIBRARY, "three servers, two dead: no lock is granted", async {
        let which = servers::disposable(servers::OF_RSLOCK_WITHOUT_QUORUM);
        let before = Contender::new(which.clone());
        let key = unique("quorum");
        let held = before.try_lock(&key, LONG).await.expect("it is free");
        before.0.unlock(&held).await;
        end(&which[0]).await;
        end(&which[1]).await;
        assert!(before.try_lock(&key, LONG).await.is_none(), "one is not most of three");
        let after = Contender::new(which.clone());
        assert!(after.try_lock(&key, LONG).await.is_none(), "one is not most of three");
    });
}

/// Stops a server, and waits until it no longer accepts connections.
async fn end(url: &str) {
    let client = redis::Client::open(url).expect("a URL");
    let mut connection = client.get_multiplexed_async_connection().await.expect("a connection");
    let mut command = redis::cmd("SHUTDOWN");
    let ended = command.arg("NOSAVE").query_async::<()>(&mut connection).await;
    assert!(ended.is_err(), "a server that ends answers nothing");
    while client.get_multiplexed_async_connection().await.is_ok() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
