//! redis-rs, for all libraries without timers, such as deadpool-redis and fred: the server's clock
//! is the only one.

use std::time::Duration;

use lockwheel::Server;
use redis::{Commands, ExistenceCheck, SetExpiry, SetOptions};

fn take(redis: &mut redis::Connection, token: &str) -> bool {
    let options = SetOptions::default()
        .conditional_set(ExistenceCheck::NX)
        .with_expiration(SetExpiry::PX(30_000));
    redis.set_options::<_, _, bool>("lock", token, options).expect("an answer")
}

#[test]
fn a_lease_ends_when_the_clock_is_moved() {
    let server = Server::builder().frozen_clock().for_tests().start().expect("a server");
    let client = redis::Client::open(server.url()).expect("a URL");
    let mut owner = client.get_connection().expect("a connection");
    let mut another = client.get_connection().expect("a connection");
    assert!(take(&mut owner, "owner"));
    server.advance(Duration::from_millis(29_999)).expect("a server");
    assert!(!take(&mut another, "another"));
    server.advance(Duration::from_millis(1)).expect("a server");
    assert!(take(&mut another, "another"));
    server.journal().assert_every_lock_has_a_lease();
}
