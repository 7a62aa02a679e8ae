//! rslock pauses between attempts and subtracts the time of an attempt from the lock's validity,
//! both on the system clock. With `set_retry(1, ...)` it tries twice without a pause, and the test
//! decides what happens between two attempts.

use std::time::Duration;

use lockwheel::{Error, Server};
use rslock::LockManager;

const LEASE: Duration = Duration::from_secs(30);

fn servers() -> Result<Vec<Server>, Error> {
    (0..3).map(|_| Server::builder().frozen_clock().for_tests().start()).collect()
}

fn manager(servers: &[Server]) -> LockManager {
    let mut manager = LockManager::new(servers.iter().map(Server::url).collect());
    manager.set_retry(1, Duration::ZERO);
    manager
}

#[tokio::test]
async fn a_lease_ends_when_the_clocks_are_moved() -> Result<(), Error> {
    let servers = servers()?;
    let (owner, another) = (manager(&servers), manager(&servers));
    let _held = owner.lock("lock", LEASE).await.expect("it is free");
    assert!(another.lock("lock", LEASE).await.is_err());
    servers.iter().try_for_each(|server| server.advance(LEASE))?;
    assert!(another.lock("lock", LEASE).await.is_ok());
    Ok(())
}

/// Two holders need a majority of flushed servers.
#[tokio::test]
async fn one_restarted_server_does_not_grant_the_lock() -> Result<(), Error> {
    let servers = servers()?;
    let (owner, another) = (manager(&servers), manager(&servers));
    let held = owner.lock("lock", LEASE).await.expect("it is free");
    servers[0].call(&["FLUSHALL"])?;
    assert!(another.lock("lock", LEASE).await.is_err());
    servers[0].call(&["FLUSHALL"])?;
    servers[1].call(&["FLUSHALL"])?;
    assert!(another.lock("lock", LEASE).await.is_ok(), "two hold it");
    owner.unlock(&held).await;
    Ok(())
}
