//! Common lock recipes with redis-rs, over TCP, in RESP2 and RESP3.

use std::time::Duration;

use lockwheel_tests::PROTOCOLS;
use lockwheel_tests::target::Target;
use redis::{Client, Commands, Connection, RedisResult, Script};

use lockwheel_tests::scripts::{
    COMPARE_AND_DELETE, COMPARE_AND_RENEW, LOCK_2_2_17, LOCK_3, RENEW_3, UNLOCK_2_2_17, UNLOCK_3,
};

/// Runs `recipe` on every target and in every protocol version, each time on an empty server.
fn everywhere(recipe: impl Fn(&Target, &Client) -> RedisResult<()>) {
    for target in Target::all() {
        for protocol in PROTOCOLS {
            let name = target.name();
            let url = format!("redis://{}/?protocol=resp{protocol}", target.address());
            let client = Client::open(url).expect("a valid URL");
            target.run("FLUSHALL");
            target.run("SCRIPT FLUSH");
            recipe(&target, &client).unwrap_or_else(|error| {
                panic!("{name} RESP{protocol}: {error}");
            });
        }
    }
}

fn set_nx_px(connection: &mut Connection, key: &str, token: &str) -> RedisResult<bool> {
    let mut command = redis::cmd("SET");
    let reply: Option<String> =
        command.arg(key).arg(token).arg("NX").arg("PX").arg(10_000).query(connection)?;
    Ok(reply.as_deref() == Some("OK"))
}

#[test]
fn setnx_lock_with_expire_ends() {
    everywhere(|target, client| {
        let (mut a, mut b) = (client.get_connection()?, client.get_connection()?);
        assert!(a.set_nx::<_, _, bool>("lock", "a")?);
        assert!(a.expire::<_, bool>("lock", 5)?);
        assert!(!b.set_nx::<_, _, bool>("lock", "b")?);
        target.advance(Duration::from_secs(5));
        assert!(b.set_nx::<_, _, bool>("lock", "b")?);
        assert!(!a.set_nx::<_, _, bool>("lock", "a")?);
        Ok(())
    });
}

#[test]
fn set_nx_px_lock_of_a_closed_client_expires() {
    everywhere(|target, client| {
        let (mut a, mut b) = (client.get_connection()?, client.get_connection()?);
        assert!(set_nx_px(&mut a, "lock", "a")?);
        assert!(!set_nx_px(&mut b, "lock", "b")?);
        assert!((9_000..=10_000).contains(&b.pttl::<_, i64>("lock")?));
        drop(a);
        target.advance(Duration::from_secs(10));
        assert!(set_nx_px(&mut b, "lock", "b")?);
        assert_eq!(b.get::<_, String>("lock")?, "b");
        Ok(())
    });
}

/// `Script` sends the digest, and loads the text after a NOSCRIPT error.
#[test]
fn evalsha_falls_back_to_loading_the_script() {
    everywhere(|_, client| {
        let (mut a, mut b) = (client.get_connection()?, client.get_connection()?);
        let release = Script::new(COMPARE_AND_DELETE);
        assert!(set_nx_px(&mut a, "lock", "a")?);
        assert_eq!(release.key("lock").arg("b").invoke::<i64>(&mut b)?, 0);
        assert_eq!(release.key("lock").arg("a").invoke::<i64>(&mut a)?, 1);
        assert_eq!(release.key("lock").arg("a").invoke::<i64>(&mut a)?, 0);
        assert!(set_nx_px(&mut b, "lock", "b")?);
        Ok(())
    });
}

#[test]
fn script_renews_the_lease_of_the_holder_only() {
    everywhere(|target, client| {
        let mut a = client.get_connection()?;
        let renew = Script::new(COMPARE_AND_RENEW);
        assert!(set_nx_px(&mut a, "lock", "a")?);
        for _ in 0..3 {
            target.advance(Duration::from_secs(7));
            assert_eq!(renew.key("lock").arg("a").arg(10_000).invoke::<i64>(&mut a)?, 1);
            assert_eq!(renew.key("lock").arg("b").arg(90_000).invoke::<i64>(&mut a)?, 0);
        }
        target.advance(Duration::from_secs(10));
        assert_eq!(renew.key("lock").arg("a").arg(10_000).invoke::<i64>(&mut a)?, 0);
        Ok(())
    });
}

#[test]
fn watched_release_fails_if_the_lock_was_written() {
    everywhere(|_, client| {
        let (mut a, mut b) = (client.get_connection()?, client.get_connection()?);
        let mut release = |meanwhile: &mut dyn FnMut()| -> RedisResult<Option<(i64,)>> {
            redis::cmd("WATCH").arg("lock").exec(&mut a)?;
            assert_eq!(a.get::<_, String>("lock")?, "a");
            meanwhile();
            redis::pipe().atomic().del("lock").query(&mut a)
        };
        b.set::<_, _, ()>("lock", "a")?;
        let changed_hands = release(&mut || b.set::<_, _, ()>("lock", "a").expect("SET"))?;
        assert_eq!(changed_hands, None);
        assert_eq!(release(&mut || ())?, Some((1,)));
        assert!(!b.exists::<_, bool>("lock")?);
        Ok(())
    });
}

#[test]
fn redisson_lock_is_reentered_renewed_and_unlocked() {
    let versions = [
        ("redisson_lock__channel__{lock}", LOCK_2_2_17, UNLOCK_2_2_17),
        ("redisson_lock__channel:{lock}", LOCK_3, UNLOCK_3),
    ];
    for (channel, lock, unlock) in versions {
        everywhere(|target, client| {
            let mut a = client.get_connection()?;
            let (lock, unlock) = (Script::new(lock), Script::new(unlock));
            let renew = Script::new(RENEW_3);
            let try_lock = |connection: &mut Connection, owner: &str| -> RedisResult<Option<i64>> {
                lock.key("lock").arg(30_000).arg(owner).invoke(connection)
            };
            let release = |connection: &mut Connection, owner: &str| -> RedisResult<Option<i64>> {
                unlock.key("lock").key(channel).arg(0).arg(30_000).arg(owner).invoke(connection)
            };
            assert_eq!(try_lock(&mut a, "a:1")?, None);
            assert_eq!(try_lock(&mut a, "a:1")?, None);
            assert!(try_lock(&mut a, "b:1")?.is_some_and(|ttl| (29_000..=30_000).contains(&ttl)));
            target.advance(Duration::from_secs(10));
            assert_eq!(renew.key("lock").arg(30_000).arg("a:1").invoke::<i64>(&mut a)?, 1);
            target.advance(Duration::from_secs(25));
            assert_eq!(release(&mut a, "b:1")?, None);
            assert_eq!(release(&mut a, "a:1")?, Some(0));
            assert_eq!(release(&mut a, "a:1")?, Some(1));
            assert_eq!(try_lock(&mut a, "b:1")?, None);
            target.advance(Duration::from_secs(30));
            assert_eq!(try_lock(&mut a, "a:1")?, None);
            Ok(())
        });
    }
}

#[test]
fn redisson_waiter_is_woken_by_the_unlock() {
    const CHANNEL: &str = "redisson_lock__channel:{lock}";
    everywhere(|_, client| {
        let (mut a, mut b) = (client.get_connection()?, client.get_connection()?);
        let mut listener = client.get_connection()?;
        let (lock, unlock) = (Script::new(LOCK_3), Script::new(UNLOCK_3));
        assert_eq!(lock.key("lock").arg(30_000).arg("a:1").invoke::<Option<i64>>(&mut a)?, None);
        let mut subscription = listener.as_pubsub();
        subscription.subscribe(CHANNEL)?;
        let refused: Option<i64> = lock.key("lock").arg(30_000).arg("b:1").invoke(&mut b)?;
        assert!(refused.is_some());
        let mut release = unlock.key("lock");
        release.key(CHANNEL).arg(0).arg(30_000).arg("a:1");
        assert_eq!(release.invoke::<Option<i64>>(&mut a)?, Some(1));
        let message = subscription.get_message()?;
        assert_eq!((message.get_channel_name(), message.get_payload_bytes()), (CHANNEL, &b"0"[..]));
        assert_eq!(lock.key("lock").arg(30_000).arg("b:1").invoke::<Option<i64>>(&mut b)?, None);
        Ok(())
    });
}
