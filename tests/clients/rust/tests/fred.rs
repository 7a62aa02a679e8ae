//! fred: the recipes by hand in both protocols, and the ways it waits.

use std::time::Duration;

use fred::clients::SubscriberClient;
use fred::prelude::*;
use fred::types::RespVersion;
use fred::types::scripts::Script;
use lockwheel_clients::properties::{self, Extends, GENEROUS, LONG, Locks, SHORT};
use lockwheel_clients::report::{behaviour, skipped};
use lockwheel_clients::servers::{self, unique};

use crate::recipes::{EXTEND, Held, RELEASE};

const LIBRARY: &str = "fred";

struct Contender(Client);

impl Contender {
    async fn compare_and(&self, script: &str, held: &Held, more: Option<i64>) -> bool {
        let mut arguments = vec![held.token.clone()];
        arguments.extend(more.map(|more| more.to_string()));
        let script = Script::from_lua(script);
        let done: i64 = script
            .evalsha_with_reload(&self.0, held.key.as_str(), arguments)
            .await
            .expect("an answer");
        done == 1
    }
}

impl Locks for Contender {
    type Held = Held;

    async fn try_lock(&self, key: &str, lease: Duration) -> Option<Held> {
        let token = unique("token");
        let ends = Some(Expiration::PX(milliseconds(lease)));
        let set: Option<String> = self
            .0
            .set(key, &token, ends, Some(SetOptions::NX), false)
            .await
            .expect("SET is answered");
        set.map(|_| Held { key: key.to_owned(), token })
    }

    async fn unlock(&self, held: Held) -> bool {
        self.compare_and(RELEASE, &held, None).await
    }
}

impl Extends for Contender {
    async fn extend(&self, held: &mut Held, lease: Duration) -> bool {
        self.compare_and(EXTEND, held, Some(milliseconds(lease))).await
    }
}

fn milliseconds(lease: Duration) -> i64 {
    lease.as_millis().try_into().expect("a lease")
}

fn builder(url: &str, version: RespVersion) -> Builder {
    let mut config = Config::from_url(url).expect("a URL");
    config.version = version;
    Builder::from_config(config)
}

async fn connect(url: &str, version: RespVersion) -> Client {
    let client = builder(url, version).build().expect("a client");
    client.init().await.expect("a connection");
    client
}

async fn client() -> Client {
    connect(&servers::main(), RespVersion::RESP3).await
}

async fn resp2() -> Contender {
    Contender(connect(&servers::main(), RespVersion::RESP2).await)
}

async fn resp3() -> Contender {
    Contender(client().await)
}

#[test]
fn excludes() {
    behaviour(LIBRARY, "SET NX PX, RESP2: of many contenders one holds the lock", async {
        properties::excludes(&unique("fred"), resp2).await;
    });
    behaviour(LIBRARY, "SET NX PX, RESP3: of many contenders one holds the lock", async {
        properties::excludes(&unique("fred"), resp3).await;
    });
}

#[test]
fn expires() {
    behaviour(LIBRARY, "SET NX PX, RESP2: a lease ends at its time, not before", async {
        properties::expires(&unique("fred"), resp2).await;
    });
    behaviour(LIBRARY, "SET NX PX, RESP3: a lease ends at its time, not before", async {
        properties::expires(&unique("fred"), resp3).await;
    });
}

#[test]
fn refuses_late_release() {
    behaviour(LIBRARY, "Script: a late release takes nothing from the next holder", async {
        properties::refuses_late_release(&unique("fred"), resp3).await;
    });
}

#[test]
fn extends() {
    behaviour(LIBRARY, "Script: an extended lease ends at its new time", async {
        properties::extends(&unique("fred"), resp3).await;
    });
}

#[test]
fn transacts() {
    behaviour(LIBRARY, "WATCH, multi: of two that compare and set one wins", async {
        let (one, other, key) = (client().await, client().await, unique("fred"));
        for client in [&one, &other] {
            client.watch(&key).await.expect("watched");
            let held: Option<String> = client.get(&key).await.expect("an answer");
            assert_eq!(held, None);
        }
        let take = async |client: &Client, name: &str| {
            let transaction = client.multi();
            let _: () = transaction.set(&key, name, None, None, false).await.expect("queued");
            transaction.exec::<Option<String>>(true).await
        };
        assert_eq!(take(&one, "one").await.expect("EXEC"), Some("OK".to_owned()));
        assert_eq!(take(&other, "other").await.expect("EXEC"), None);
        let holder: String = one.get(&key).await.expect("an answer");
        assert_eq!(holder, "one");
    });
}

#[test]
fn blocks() {
    behaviour(LIBRARY, "BLPOP: a waiter is given the token that is put back", async {
        let (holder, waiter, key) = (client().await, client().await, unique("fred"));
        let wait = async {
            let popped: (String, String) = waiter.blpop(&key, 10.0).await.expect("its turn");
            assert_eq!(popped.1, "token");
        };
        let put_back = async {
            tokio::time::sleep(SHORT).await;
            let length: i64 = holder.rpush(&key, "token").await.expect("pushed");
            assert_eq!(length, 1);
        };
        let both = async { tokio::join!(wait, put_back) };
        tokio::time::timeout(GENEROUS, both).await.expect("the waiter is woken");
        let left: i64 = holder.llen(&key).await.expect("a length");
        assert_eq!(left, 0);
    });
}

#[test]
fn wakes_waiter_by_release_message() {
    behaviour(
        LIBRARY,
        "SubscriberClient: a waiter is woken by the message of the release",
        async {
            let key = unique("fred");
            let subscriber: SubscriberClient = builder(&servers::main(), RespVersion::RESP3)
                .build_subscriber_client()
                .expect("a client");
            subscriber.init().await.expect("a connection");
            let mut messages = subscriber.message_rx();
            subscriber.subscribe(&key).await.expect("subscribed");
            let (holder, waiter) = (resp3().await, resp3().await);
            let held = holder.try_lock(&key, LONG).await.expect("it is free");
            assert!(waiter.try_lock(&key, LONG).await.is_none(), "granted twice");
            let release = async {
                tokio::time::sleep(SHORT).await;
                assert!(holder.unlock(held).await);
                let receivers: i64 = holder.0.publish(&key, "free").await.expect("published");
                assert_eq!(receivers, 1);
            };
            let wait = async {
                let message = tokio::time::timeout(GENEROUS, messages.recv()).await;
                let message = message.expect("the message comes").expect("still connected");
                assert_eq!(message.value.as_str().as_deref(), Some("free"));
                assert!(
                    waiter.try_lock(&key, LONG).await.is_some(),
                    "the message came before the lock was free"
                );
            };
            tokio::join!(release, wait);
        },
    );
}

#[test]
fn pool_excludes() {
    behaviour(LIBRARY, "Pool: of many contenders over few connections one holds the lock", async {
        let pool = builder(&servers::main(), RespVersion::RESP3).build_pool(3).expect("a pool");
        pool.init().await.expect("connections");
        let next = async || Contender(pool.next().clone());
        properties::excludes(&unique("fred"), next).await;
    });
}

#[test]
fn cluster_excludes() {
    let sentence = "cluster: of many contenders one holds the lock";
    let Some(url) = servers::optional("REDIS_CLUSTER_URL") else {
        return skipped(LIBRARY, sentence, "there is no cluster");
    };
    let url = url.replace("redis://", "redis-cluster://");
    behaviour(LIBRARY, sentence, async {
        let contender = async || Contender(connect(&url, RespVersion::RESP3).await);
        properties::excludes(&unique("fred"), contender).await;
    });
}

#[test]
fn sentinel_excludes() {
    let sentence = "sentinel: of many contenders at the master one holds the lock";
    let Some(url) = servers::optional("REDIS_SENTINEL_URL") else {
        return skipped(LIBRARY, sentence, "there is no sentinel");
    };
    let url = url.replace("redis://", "redis-sentinel://") + "/0?sentinelServiceName=mymaster";
    behaviour(LIBRARY, sentence, async {
        let contender = async || Contender(connect(&url, RespVersion::RESP3).await);
        properties::excludes(&unique("fred"), contender).await;
    });
}
