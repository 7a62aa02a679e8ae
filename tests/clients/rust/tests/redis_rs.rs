//! redis-rs: the recipes by hand, over each kind of its connections and in both protocols.

use std::time::{Duration, Instant};

use lockwheel_clients::properties::{self, GENEROUS, LONG, Locks, SHORT};
use lockwheel_clients::report::{behaviour, skipped};
use lockwheel_clients::servers::{self, unique};
use redis::aio::{ConnectionManager, ConnectionManagerConfig, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Client, Commands, PushKind, Script, cmd};

use crate::recipes::{self, Recipe};

const LIBRARY: &str = "redis-rs";

/// A connection in one of the protocols.
async fn connect(protocol: u8) -> MultiplexedConnection {
    // Its own limit of half a second is for machines that are not busy.
    let patient = AsyncConnectionConfig::new().set_response_timeout(Some(GENEROUS));
    let client = client(protocol);
    let connection = client.get_multiplexed_async_connection_with_config(&patient);
    connection.await.expect("a connection")
}

fn client(protocol: u8) -> Client {
    let url = format!("{}/?protocol=resp{protocol}", servers::main());
    Client::open(url).expect("a URL")
}

async fn resp2() -> Recipe<MultiplexedConnection> {
    Recipe(connect(2).await)
}

async fn resp3() -> Recipe<MultiplexedConnection> {
    Recipe(connect(3).await)
}

async fn managed() -> Recipe<ConnectionManager> {
    let patient = ConnectionManagerConfig::new().set_response_timeout(Some(GENEROUS));
    let client = client(3);
    Recipe(client.get_connection_manager_with_config(patient).await.expect("a connection"))
}

#[test]
fn excludes() {
    behaviour(LIBRARY, "SET NX PX, RESP2: of many contenders one holds the lock", async {
        properties::excludes(&unique("excludes"), resp2).await;
    });
    behaviour(LIBRARY, "SET NX PX, RESP3: of many contenders one holds the lock", async {
        properties::excludes(&unique("excludes"), resp3).await;
    });
}

#[test]
fn excludes_over_one_connection() {
    behaviour(LIBRARY, "SET NX PX: contenders that share a connection exclude each other", async {
        let shared = connect(3).await;
        properties::excludes(&unique("shared"), async || Recipe(shared.clone())).await;
    });
}

#[test]
fn expires() {
    behaviour(LIBRARY, "SET NX PX, RESP2: a lease ends at its time, not before", async {
        properties::expires(&unique("expires"), resp2).await;
    });
    behaviour(LIBRARY, "SET NX PX, RESP3: a lease ends at its time, not before", async {
        properties::expires(&unique("expires"), resp3).await;
    });
}

#[test]
fn releases() {
    behaviour(LIBRARY, "Script: a released lock is free at once", async {
        properties::releases(&unique("releases"), resp3).await;
    });
}

#[test]
fn refuses_late_release() {
    behaviour(LIBRARY, "Script: a late release takes nothing from the next holder", async {
        properties::refuses_late_release(&unique("late-release"), resp3).await;
    });
}

#[test]
fn extends() {
    behaviour(LIBRARY, "Script: an extended lease ends at its new time", async {
        properties::extends(&unique("extends"), resp3).await;
    });
}

#[test]
fn loads_again() {
    behaviour(LIBRARY, "Script: one that the server has forgotten is loaded again", async {
        let url = &servers::disposable(servers::OF_SCRIPT_FLUSH)[0];
        let client = Client::open(url.as_str()).expect("a URL");
        let patient = AsyncConnectionConfig::new().set_response_timeout(Some(GENEROUS));
        let connection = client.get_multiplexed_async_connection_with_config(&patient);
        let mut connection = connection.await.expect("a connection");
        let script = Script::new("return redis.call('incr', KEYS[1])");
        let key = unique("forgotten");
        for expected in 1..=3 {
            let call = script.key(&key);
            let number: u32 = call.invoke_async(&mut connection).await.expect("an answer");
            assert_eq!(number, expected, "it ran once and no more");
            cmd("SCRIPT").arg("FLUSH").exec_async(&mut connection).await.expect("forgotten");
        }
    });
}

#[test]
fn watches() {
    behaviour(LIBRARY, "WATCH, MULTI: of two that compare and set one wins", async {
        let key = unique("watched");
        let (mut one, mut other) = (connect(3).await, connect(3).await);
        for connection in [&mut one, &mut other] {
            cmd("WATCH").arg(&key).exec_async(connection).await.expect("watched");
            let held: Option<String> =
                cmd("GET").arg(&key).query_async(connection).await.expect("an answer");
            assert_eq!(held, None);
        }
        let take = |name: &'static str| {
            let mut pipeline = redis::pipe();
            pipeline.atomic().cmd("SET").arg(&key).arg(name);
            pipeline
        };
        let won: Option<(String,)> = take("one").query_async(&mut one).await.expect("EXEC");
        let lost: Option<(String,)> = take("other").query_async(&mut other).await.expect("EXEC");
        assert_eq!((won, lost), (Some(("OK".to_owned(),)), None));
        let holder: String = cmd("GET").arg(&key).query_async(&mut one).await.expect("an answer");
        assert_eq!(holder, "one");
    });
}

#[test]
fn transacts() {
    behaviour(LIBRARY, "transaction: concurrent read-modify-writes lose nothing", async {
        let key = unique("counter");
        let (threads, rounds) = (4, 25);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let mut connection = client(2).get_connection().expect("a connection");
                    for _ in 0..rounds {
                        add_one(&mut connection, &key);
                    }
                });
            }
        });
        let mut connection = client(2).get_connection().expect("a connection");
        assert_eq!(connection.get::<_, u32>(&key).expect("a number"), threads * rounds);
    });
}

fn add_one(connection: &mut redis::Connection, key: &str) {
    let _: (String,) = redis::transaction(connection, &[key], |connection, pipeline| {
        let number: Option<u32> = connection.get(key)?;
        pipeline.set(key, number.unwrap_or(0) + 1).query(connection)
    })
    .expect("it gets through in the end");
}

#[test]
fn old_recipe_excludes() {
    behaviour(LIBRARY, "SETNX, GETSET: of many that find a dead lock one takes it over", async {
        let key = unique("getset");
        let mut connection = connect(2).await;
        let dead = "1";
        let taken: bool =
            cmd("SETNX").arg(&key).arg(dead).query_async(&mut connection).await.unwrap();
        assert!(taken);
        let takers = (0..8).map(|number| {
            let key = key.clone();
            async move {
                let mut connection = connect(2).await;
                let mine = format!("holder-{number}");
                let mut set = cmd("SETNX");
                let free: bool =
                    set.arg(&key).arg(&mine).query_async(&mut connection).await.unwrap();
                assert!(!free);
                let mut swap = cmd("GETSET");
                let found: String =
                    swap.arg(&key).arg(&mine).query_async(&mut connection).await.unwrap();
                found == dead
            }
        });
        let won = futures_util::future::join_all(takers).await;
        assert_eq!(won.into_iter().filter(|won| *won).count(), 1);
    });
}

#[test]
fn wakes_waiter_by_release_message() {
    behaviour(LIBRARY, "SUBSCRIBE: a waiter is woken by the message of the release", async {
        let (key, mut pubsub) = (unique("released"), client(2).get_async_pubsub().await.unwrap());
        let (holder, waiter) = (resp2().await, resp2().await);
        let held = holder.try_lock(&key, LONG).await.expect("it is free");
        pubsub.subscribe(&key).await.expect("subscribed");
        assert!(waiter.try_lock(&key, LONG).await.is_none(), "granted twice");
        let release = async {
            tokio::time::sleep(SHORT).await;
            let mut connection = connect(2).await;
            assert!(holder.unlock(held).await);
            let receivers: u32 =
                cmd("PUBLISH").arg(&key).arg("free").query_async(&mut connection).await.unwrap();
            assert_eq!(receivers, 1);
        };
        let wait = async {
            let message = {
                use futures_util::StreamExt;
                let mut messages = pubsub.on_message();
                tokio::time::timeout(GENEROUS, messages.next()).await
            };
            let message = message.expect("the message comes").expect("still connected");
            assert_eq!(message.get_payload::<String>().unwrap(), "free");
            assert!(
                waiter.try_lock(&key, LONG).await.is_some(),
                "the message came before the lock was free"
            );
        };
        tokio::join!(release, wait);
    });
}

#[test]
fn notifies_waiter_of_expiry() {
    behaviour(LIBRARY, "RESP3 push: a waiter is notified when a lease ends", async {
        let (sender, mut pushes) = tokio::sync::mpsc::unbounded_channel();
        let config = AsyncConnectionConfig::new()
            .set_push_sender(sender)
            .set_response_timeout(Some(GENEROUS));
        let mut connection =
            client(3).get_multiplexed_async_connection_with_config(&config).await.unwrap();
        let key = unique("ends");
        let mut settings = cmd("CONFIG");
        settings.arg("SET").arg("notify-keyspace-events").arg("Kx");
        settings.exec_async(&mut connection).await.expect("set");
        connection.subscribe(format!("__keyspace@0__:{key}")).await.expect("subscribed");
        let before = Instant::now();
        let held = recipes::acquire(&mut connection, &key, SHORT).await;
        assert!(held.is_some(), "it is free");
        loop {
            let push = tokio::time::timeout(GENEROUS, pushes.recv()).await.expect("a notification");
            let push = push.expect("still connected");
            if push.kind == PushKind::Message {
                break;
            }
        }
        properties::check_end(before.elapsed(), SHORT);
        assert!(recipes::acquire(&mut connection, &key, LONG).await.is_some(), "it had not ended");
    });
}

#[test]
fn blocks() {
    behaviour(LIBRARY, "BLPOP: a token in a list lets in one waiter at a time", async {
        let key = unique("token");
        let mut connection = connect(2).await;
        cmd("RPUSH").arg(&key).arg("token").exec_async(&mut connection).await.expect("pushed");
        let inside = std::cell::Cell::new(0);
        let workers = (0..6).map(async |_| {
            let mut connection = connect(2).await;
            for _ in 0..10 {
                let mut pop = cmd("BLPOP");
                let popped: Option<(String, String)> =
                    pop.arg(&key).arg(5).query_async(&mut connection).await.expect("an answer");
                assert_eq!(popped.expect("its turn comes").1, "token");
                inside.set(inside.get() + 1);
                assert_eq!(inside.get(), 1, "two hold the token");
                tokio::time::sleep(Duration::from_millis(1)).await;
                inside.set(inside.get() - 1);
                let mut push = cmd("RPUSH");
                push.arg(&key).arg("token").exec_async(&mut connection).await.expect("pushed");
            }
        });
        futures_util::future::join_all(workers).await;
        let left: u32 = cmd("LLEN").arg(&key).query_async(&mut connection).await.expect("a length");
        assert_eq!(left, 1);
    });
}

#[test]
fn connection_manager_excludes() {
    behaviour(LIBRARY, "ConnectionManager: of many contenders one holds the lock", async {
        properties::excludes(&unique("managed"), managed).await;
    });
    behaviour(
        LIBRARY,
        "ConnectionManager: a lock outlives the connection it was taken on",
        async {
            let Recipe(mut holder) = managed().await;
            let key = unique("outlives");
            let held = recipes::acquire(&mut holder, &key, LONG).await.expect("it is free");
            let id: u64 = cmd("CLIENT").arg("ID").query_async(&mut holder).await.expect("an id");
            let mut other = connect(3).await;
            let mut kill = cmd("CLIENT");
            let killed: u32 = kill
                .arg("KILL")
                .arg("ID")
                .arg(id)
                .query_async(&mut other)
                .await
                .expect("an answer");
            assert_eq!(killed, 1);
            assert!(recipes::acquire(&mut other, &key, LONG).await.is_none(), "it was lost");
            let begin = Instant::now();
            while cmd("PING").exec_async(&mut holder).await.is_err() {
                assert!(begin.elapsed() < GENEROUS, "it does not connect again");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            assert!(recipes::release(&mut holder, held).await, "it was lost");
        },
    );
}

#[test]
fn cluster_excludes() {
    let sentence = "ClusterClient: of many contenders one holds the lock";
    let Some(url) = servers::optional("REDIS_CLUSTER_URL") else {
        return skipped(LIBRARY, sentence, "there is no cluster");
    };
    behaviour(LIBRARY, sentence, async {
        let connect = async || {
            let client = redis::cluster::ClusterClient::builder([url.as_str()]);
            let client = client.response_timeout(GENEROUS).build().expect("a URL");
            Recipe(client.get_async_connection().await.expect("a connection"))
        };
        properties::excludes(&unique("cluster"), connect).await;
        properties::extends(&unique("cluster"), connect).await;
    });
}

#[test]
fn sentinel_excludes() {
    let sentence = "SentinelClient: of many contenders at the master one holds the lock";
    let Some(url) = servers::optional("REDIS_SENTINEL_URL") else {
        return skipped(LIBRARY, sentence, "there is no sentinel");
    };
    if !is_only_sentinel(&url) {
        let reason = "redis-rs takes no address as a sentinel whose ROLE is that of a server, and \
                      a node of a cluster is both";
        return skipped(LIBRARY, sentence, reason);
    }
    behaviour(LIBRARY, sentence, async {
        use redis::sentinel::{SentinelClient, SentinelServerType};
        let connect = async || {
            let master = SentinelServerType::Master;
            let mut client =
                SentinelClient::build(vec![url.as_str()], "mymaster", None, master).expect("a URL");
            let patient = AsyncConnectionConfig::new().set_response_timeout(Some(GENEROUS));
            let connection = client.get_async_connection_with_config(&patient).await;
            Recipe(connection.expect("a connection"))
        };
        properties::excludes(&unique("sentinel"), connect).await;
    });
}

fn is_only_sentinel(url: &str) -> bool {
    let mut connection = Client::open(url).expect("a URL").get_connection().expect("a connection");
    let role = cmd("ROLE").query(&mut connection).expect("a role");
    matches!(role, redis::Role::Sentinel { .. })
}
