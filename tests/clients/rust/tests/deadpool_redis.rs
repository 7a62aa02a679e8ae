//! deadpool-redis: locks over pooled connections, and what a recycled connection carries over.

use std::time::Duration;

use deadpool_redis::{Connection, Manager, Pool, Runtime};
use lockwheel_clients::properties::{self, Extends, GENEROUS, LONG, Locks};
use lockwheel_clients::report::behaviour;
use lockwheel_clients::servers::{self, unique};
use redis::{AsyncConnectionConfig, cmd};

use crate::recipes::{self, Held};

const LIBRARY: &str = "deadpool-redis";

struct Pooled(Pool);

impl Pooled {
    async fn connection(&self) -> Connection {
        self.0.get().await.expect("a connection")
    }
}

impl Locks for Pooled {
    type Held = Held;

    async fn try_lock(&self, key: &str, lease: Duration) -> Option<Held> {
        recipes::acquire(&mut self.connection().await, key, lease).await
    }

    async fn unlock(&self, held: Held) -> bool {
        recipes::release(&mut self.connection().await, held).await
    }
}

impl Extends for Pooled {
    async fn extend(&self, held: &mut Held, lease: Duration) -> bool {
        recipes::extend(&mut self.connection().await, held, lease).await
    }
}

fn pool(connections: usize) -> Pool {
    // Its own limit of half a second is for machines that are not busy.
    let patient = AsyncConnectionConfig::new().set_response_timeout(Some(GENEROUS));
    let manager = Manager::new_with_config(servers::main(), patient).expect("a URL");
    let builder = Pool::builder(manager).max_size(connections);
    builder.runtime(Runtime::Tokio1).build().expect("a pool")
}

/// Contenders that share few connections.
fn shared() -> impl AsyncFn() -> Pooled {
    let pool = pool(3);
    async move || Pooled(pool.clone())
}

#[test]
fn excludes() {
    behaviour(LIBRARY, "of many contenders over few connections one holds the lock", async {
        properties::excludes(&unique("pooled"), shared()).await;
    });
}

#[test]
fn expires() {
    behaviour(LIBRARY, "a lease ends at its time, not before", async {
        properties::expires(&unique("pooled"), shared()).await;
    });
}

#[test]
fn refuses_late_release() {
    behaviour(LIBRARY, "a late release takes nothing from the next holder", async {
        properties::refuses_late_release(&unique("pooled"), shared()).await;
    });
}

#[test]
fn extends() {
    behaviour(LIBRARY, "an extended lease ends at its new time", async {
        properties::extends(&unique("pooled"), shared()).await;
    });
}

#[test]
fn forgets_what_was_watched() {
    behaviour(LIBRARY, "a recycled connection has forgotten what it watched", async {
        let (one, other, key) = (pool(1), pool(1), unique("watched"));
        let id = {
            let mut connection = one.get().await.expect("a connection");
            cmd("WATCH").arg(&key).exec_async(&mut connection).await.expect("watched");
            id_of(&mut connection).await
        };
        let mut second = other.get().await.expect("a connection");
        cmd("SET").arg(&key).arg("changed").exec_async(&mut second).await.expect("set");
        let mut again = one.get().await.expect("a connection");
        assert_eq!(id_of(&mut again).await, id, "it is another connection");
        let mut pipeline = redis::pipe();
        pipeline.atomic().cmd("GET").arg(&key);
        let read: Option<(String,)> = pipeline.query_async(&mut again).await.expect("EXEC");
        assert_eq!(read, Some(("changed".to_owned(),)));
    });
}

#[test]
fn replaces_what_is_broken() {
    behaviour(LIBRARY, "a connection that the server closed is replaced, the lock kept", async {
        let (one, other, key) = (pool(1), pool(1), unique("closed"));
        let (id, held) = {
            let mut connection = one.get().await.expect("a connection");
            let held = recipes::acquire(&mut connection, &key, LONG).await.expect("it is free");
            (id_of(&mut connection).await, held)
        };
        let mut second = other.get().await.expect("a connection");
        let mut kill = cmd("CLIENT");
        let kill = kill.arg("KILL").arg("ID").arg(id);
        assert_eq!(kill.query_async::<u32>(&mut second).await.expect("an answer"), 1);
        let mut again = one.get().await.expect("a new connection");
        assert_ne!(id_of(&mut again).await, id);
        assert!(recipes::acquire(&mut again, &key, LONG).await.is_none(), "it was lost");
        assert!(recipes::release(&mut again, held).await, "it was lost");
    });
}

async fn id_of(connection: &mut Connection) -> u64 {
    cmd("CLIENT").arg("ID").query_async(connection).await.expect("an id")
}
