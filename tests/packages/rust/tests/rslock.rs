//! Tests of rslock with moved clocks and restarted servers. rslock pauses between attempts and
//! subtracts the time of an attempt from the lock's validity, both on the system clock. With
//! `set_retry(1, ...)` it tries twice without a pause.

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
    let _held = owner.lock("lock", LEASE).await.expect("a free lock");
    assert!(another.lock("lock", LEASE).await.is_err());
    servers.iter().try_for_each(|server| server.advance(LEASE))?;
    assert!(another.lock("lock", LEASE).await.is_ok());
    Ok(())
}

/// The lock is granted twice only after a majority of the servers has lost it.
#[tokio::test]
async fn one_restarted_server_does_not_grant_the_lock() -> Result<(), Error> {
    let servers = servers()?;
    let (owner, another) = (manager(&servers), manager(&servers));
    let held = owner.lock("lock", LEASE).await.expect("a free lock");
    servers[0].call(&["FLUSHALL"])?;
    assert!(another.lock("lock", LEASE).await.is_err());
    servers[0].call(&["FLUSHALL"])?;
    servers[1].call(&["FLUSHALL"])?;
    assert!(another.lock("lock", LEASE).await.is_ok(), "two clients hold the lock");
    owner.unlock(&held).await;
    Ok(())
}
