//! async-redis-lock renews its locks on tokio's clock. A test lets it renew every millisecond of
//! real time, waits for a renewal, and moves the server's clock by most of a lease.

use std::time::Duration;

use async_redis_lock::{Locker, Options};
use lockwheel::{Fault, JournalEvent, Requests, Server};

const LEASE: Duration = Duration::from_secs(30);

fn options() -> Options {
    Options::new().ttl(LEASE).extend(Duration::from_millis(1)).timeout(Some(Duration::ZERO))
}

fn renewals(server: &Server) -> usize {
    let entries = server.journal().entries().expect("a journal");
    entries.iter().filter(|entry| matches!(entry.event, JournalEvent::Renewed { .. })).count()
}

#[tokio::test]
async fn a_lock_that_is_renewed_outlives_its_lease() {
    let server = Server::builder().frozen_clock().for_tests().start().expect("a server");
    let locker = Locker::from_redis_url(&server.url()).await.expect("a connection");
    let held = locker.acquire_with_options(&options(), "lock").await.expect("it is free");
    for _ in 0..5 {
        server.advance(LEASE * 9 / 10).expect("a server");
        server.journal().clear().expect("a journal");
        while renewals(&server) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    assert!(locker.acquire_with_options(&options(), "lock").await.is_err());
    held.release().await.expect("it is held");
    server.journal().assert_no_lock_held();
    server.journal().assert_never_two_holders();
}

#[tokio::test]
async fn holder_that_cannot_renew_is_notified_of_the_loss() {
    let server = Server::builder().frozen_clock().for_tests().start().expect("a server");
    let locker = Locker::from_redis_url(&server.url()).await.expect("a connection");
    let held = locker.acquire_with_options(&options(), "lock").await.expect("it is free");
    // Renewals are refused until the lease is over.
    let full = Fault::Error("OOM command not allowed when used memory > 'maxmemory'.".to_owned());
    let full = server.faults().add(full, Requests::any().command("eval*")).expect("a rule");
    server.advance(LEASE).expect("a server");
    full.clear().expect("a server");
    while !held.is_lost() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
