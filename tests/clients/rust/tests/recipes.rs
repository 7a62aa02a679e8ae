//! The usual hand-written recipe, for every kind of redis-rs connection: `SET NX PX` with a random
//! token, and scripts that compare the token to release and extend the lock.

use std::time::Duration;

use lockwheel_clients::properties::{Extends, Locks};
use lockwheel_clients::servers::unique;
use redis::aio::ConnectionLike;
use redis::{Script, cmd};

pub const RELEASE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";
pub const EXTEND: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
     return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0";

/// A contender with any kind of connection.
#[derive(Clone)]
pub struct Recipe<C>(pub C);

/// A held lock and its token.
pub struct Held {
    pub key: String,
    pub token: String,
}

impl<C: ConnectionLike + Clone> Locks for Recipe<C> {
    type Held = Held;

    async fn try_lock(&self, key: &str, lease: Duration) -> Option<Held> {
        acquire(&mut self.0.clone(), key, lease).await
    }

    async fn unlock(&self, held: Held) -> bool {
        release(&mut self.0.clone(), held).await
    }
}

impl<C: ConnectionLike + Clone> Extends for Recipe<C> {
    async fn extend(&self, held: &mut Held, lease: Duration) -> bool {
        extend(&mut self.0.clone(), held, lease).await
    }
}

pub async fn acquire(
    connection: &mut impl ConnectionLike,
    key: &str,
    lease: Duration,
) -> Option<Held> {
    let token = unique("token");
    let lease_ms = u64::try_from(lease.as_millis()).expect("a lease");
    let set: Option<String> = cmd("SET")
        .arg(key)
        .arg(&token)
        .arg("NX")
        .arg("PX")
        .arg(lease_ms)
        .query_async(connection)
        .await
        .expect("SET is answered");
    set.map(|ok| {
        assert_eq!(ok, "OK");
        Held { key: key.to_owned(), token }
    })
}

pub async fn release(connection: &mut impl ConnectionLike, held: Held) -> bool {
    let script = Script::new(RELEASE);
    let mut call = script.key(held.key);
    let removed: u32 = call.arg(held.token).invoke_async(connection).await.expect("an answer");
    removed == 1
}

pub async fn extend(connection: &mut impl ConnectionLike, held: &Held, lease: Duration) -> bool {
    let script = Script::new(EXTEND);
    let lease_ms = u64::try_from(lease.as_millis()).expect("a lease");
    let mut call = script.key(&held.key);
    let call = call.arg(&held.token).arg(lease_ms);
    let set: u32 = call.invoke_async(connection).await.expect("an answer");
    set == 1
}
