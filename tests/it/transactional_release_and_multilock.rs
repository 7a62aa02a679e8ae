//! Locks of SETNX and of SET NX PX with a token: the release by script and by transaction, a
//! renewal by timer; and the lock scripts of Redisson 3.13.6, its MultiLock and RedLock.

use lockwheel_tests::conversation::{Conversation, converse, converse_with};

use lockwheel_tests::scripts::{COMPARE_AND_DELETE_ONE_LINE, REDISSON_3};

#[test]
fn setnx_lock_without_lease_never_ends() {
    converse(
        "a> SETNX key value
         a< :1
         b> SETNX key other
         b< :0
         # The owner is closed before it releases: without a lease the lock stays for ever.
         a!
         +86400s
         b> SETNX key other
         b< :0
         b> TTL key
         b< :-1",
    );
}

#[test]
fn set_nx_px_lock_ends_at_its_deadline() {
    converse(
        "a> SET lock_key unique_value NX PX 10000
         a< +OK
         b> SET lock_key other_value NX PX 10000
         b< nil
         b> GET lock_key
         b< \"unique_value\"
         b> PTTL lock_key
         b< :9000..10000
         a!
         +9999ms
         +1ms
         b> SET lock_key other_value NX PX 10000
         b< +OK
         b> GET lock_key
         b< \"other_value\"",
    );
}

#[test]
fn eval_releases_the_lock_of_the_token_only() {
    converse_with(
        &[("release", COMPARE_AND_DELETE_ONE_LINE)],
        "a> SET good_lock uuid-a EX 10 NX
         a< +OK
         b> EVAL @release 1 good_lock uuid-b
         b< :0
         a> EVAL @release 1 good_lock uuid-a
         a< :1
         a> EVAL @release 1 good_lock uuid-a
         a< :0",
    );
}

#[test]
fn evalsha_releases_the_lock_of_the_token_only() {
    converse_with(
        &[("release", COMPARE_AND_DELETE_ONE_LINE)],
        "a> SET good_lock uuid-a EX 10 NX
         a< +OK
         a> EVALSHA @release.sha1 1 good_lock uuid-a
         a< -NOSCRIPT No matching script. Please use EVAL.
         a> SCRIPT EXISTS @release.sha1
         a< [:0]
         a> SCRIPT LOAD @release
         a< \"ae3671744a5dbb24ea37ef607b8b10ac7856d43e\"
         a> SCRIPT EXISTS @release.sha1
         a< [:1]
         b> EVALSHA @release.sha1 1 good_lock uuid-b
         b< :0
         a> EVALSHA @release.sha1 1 good_lock uuid-a
         a< :1",
    );
}

#[test]
fn watched_release_deletes_an_unchanged_lock() {
    converse(
        "a> SET good_lock uuid-a EX 10 NX
         a< +OK
         a> WATCH good_lock
         a< +OK
         a> GET good_lock
         a< \"uuid-a\"
         a> MULTI
         a< +OK
         a> DEL good_lock
         a< +QUEUED
         a> EXEC
         a< [:1]
         a> UNWATCH
         a< +OK
         b> SET good_lock uuid-b EX 10 NX
         b< +OK",
    );
}

/// The lock is written between GET and EXEC: nothing is deleted.
#[test]
fn watched_release_fails_if_the_lock_was_written() {
    converse(
        "a> SET good_lock uuid-a EX 10 NX
         a< +OK
         a> WATCH good_lock
         a< +OK
         a> GET good_lock
         a< \"uuid-a\"
         b> DEL good_lock
         b< :1
         b> SET good_lock uuid-b EX 10 NX
         b< +OK
         a> MULTI
         a< +OK
         a> DEL good_lock
         a< +QUEUED
         a> EXEC
         a< nil-array
         # The retry sees another owner and gives up.
         a> WATCH good_lock
         a< +OK
         a> GET good_lock
         a< \"uuid-b\"
         a> UNWATCH
         a< +OK
         b> GET good_lock
         b< \"uuid-b\"",
    );
}

/// The lease ends between GET and EXEC, which is a change too.
#[test]
fn watched_release_fails_if_the_lease_has_ended() {
    converse(
        "a> SET good_lock uuid-a EX 10 NX
         a< +OK
         a> WATCH good_lock
         a< +OK
         a> GET good_lock
         a< \"uuid-a\"
         +10s
         a> MULTI
         a< +OK
         a> DEL good_lock
         a< +QUEUED
         a> EXEC
         a< nil-array",
    );
}

#[test]
fn expire_by_a_timer_renews_the_lease() {
    converse(
        "a> SET good_lock uuid-a EX 10 NX
         a< +OK
         +7s
         a> GET good_lock
         a< \"uuid-a\"
         a> EXPIRE good_lock 10
         a< :1
         a> PTTL good_lock
         a< :9000..10000
         +7s
         b> SET good_lock uuid-b EX 10 NX
         b< nil
         a!
         +3s
         b> SET good_lock uuid-b EX 10 NX
         b< +OK",
    );
}

#[test]
fn redisson_3_13_6_lock_is_reentered_and_unlocked() {
    converse_with(
        REDISSON_3,
        "a> EVAL @lock 1 lock 30000 uuid-a:1
         a< nil
         a> EVAL @lock 1 lock 30000 uuid-a:1
         a< nil
         a> EVAL @lock 1 lock 30000 uuid-a:1
         a< nil
         a> HGETALL lock
         a< {\"uuid-a:1\": \"3\"}
         b> EVAL @lock 1 lock 30000 uuid-b:1
         b< :29000..30000
         a> EVAL @unlock 2 lock redisson_lock__channel:{lock} 0 30000 uuid-a:1
         a< :0
         a> EVAL @unlock 2 lock redisson_lock__channel:{lock} 0 30000 uuid-a:1
         a< :0
         b> EVAL @lock 1 lock 30000 uuid-b:1
         b< :29000..30000
         a> EVAL @unlock 2 lock redisson_lock__channel:{lock} 0 30000 uuid-a:1
         a< :1
         b> EVAL @lock 1 lock 30000 uuid-b:1
         b< nil",
    );
}

#[test]
fn redisson_3_13_6_unlock_by_another_client_is_refused() {
    converse_with(
        REDISSON_3,
        "b> EVAL @unlock 2 lock redisson_lock__channel:{lock} 0 30000 uuid-b:1
         b< nil
         a> EVAL @lock 1 lock 30000 uuid-a:1
         a< nil
         b> EVAL @unlock 2 lock redisson_lock__channel:{lock} 0 30000 uuid-b:1
         b< nil
         # Another thread of the same client is another owner too.
         a> EVAL @unlock 2 lock redisson_lock__channel:{lock} 0 30000 uuid-a:2
         a< nil
         a> HGETALL lock
         a< {\"uuid-a:1\": \"1\"}",
    );
}

#[test]
fn redisson_3_13_6_renewal_extends_the_lease() {
    converse_with(
        REDISSON_3,
        "a> EVAL @lock 1 lock 30000 uuid-a:1
         a< nil
         +10s
         a> EVAL @renew 1 lock 30000 uuid-a:1
         a< :1
         +10s
         a> EVAL @renew 1 lock 30000 uuid-a:1
         a< :1
         +29s
         b> EVAL @lock 1 lock 30000 uuid-b:1
         b< :0..1000
         a> EVAL @unlock 2 lock redisson_lock__channel:{lock} 0 30000 uuid-a:1
         a< :1
         a> EVAL @renew 1 lock 30000 uuid-a:1
         a< :0",
    );
}

/// tryLock(wait, lease, unit): try, subscribe, try again, wait for a message, try again.
#[test]
fn redisson_3_13_6_waiter_is_woken_by_the_unlock() {
    converse_with(
        REDISSON_3,
        "a> EVAL @lock 1 lock 30000 uuid-a:1
         a< nil
         b> EVAL @lock 1 lock 30000 uuid-b:1
         b< :29000..30000
         b-listens> SUBSCRIBE redisson_lock__channel:{lock}
         b-listens< push [\"subscribe\", \"redisson_lock__channel:{lock}\", :1]
         b> EVAL @lock 1 lock 30000 uuid-b:1
         b< :29000..30000
         a> EVAL @unlock 2 lock redisson_lock__channel:{lock} 0 30000 uuid-a:1
         a< :1
         b-listens< push [\"message\", \"redisson_lock__channel:{lock}\", \"0\"]
         b> EVAL @lock 1 lock 30000 uuid-b:1
         b< nil
         b-listens> UNSUBSCRIBE redisson_lock__channel:{lock}
         b-listens< push [\"unsubscribe\", \"redisson_lock__channel:{lock}\", :0]
         a> PUBSUB NUMSUB redisson_lock__channel:{lock}
         a< [\"redisson_lock__channel:{lock}\", :0]",
    );
}

#[test]
fn redisson_3_13_6_dead_owners_lock_expires() {
    converse_with(
        REDISSON_3,
        "a> EVAL @lock 1 lock 30000 uuid-a:1
         a< nil
         a!
         +30s
         b> EVAL @renew 1 lock 30000 uuid-a:1
         b< :0
         b> EVAL @lock 1 lock 30000 uuid-b:1
         b< nil
         b> PTTL lock
         b< :29000..30000",
    );
}

/// MultiLock needs all locks; after one refusal it releases the others.
#[test]
fn redisson_multilock_takes_all_servers_or_none() {
    Conversation {
        scripts: REDISSON_3,
        servers: 3,
        text: "b@2> EVAL @lock 1 lock2 30000 uuid-b:1
               b@2< nil
               a@1> EVAL @lock 1 lock1 30000 uuid-a:1
               a@1< nil
               a@2> EVAL @lock 1 lock2 30000 uuid-a:1
               a@2< :29000..30000
               a@1> EVAL @unlock 2 lock1 redisson_lock__channel:{lock1} 0 30000 uuid-a:1
               a@1< :1
               b@2> EVAL @unlock 2 lock2 redisson_lock__channel:{lock2} 0 30000 uuid-b:1
               b@2< :1
               a@1> EVAL @lock 1 lock1 30000 uuid-a:1
               a@1< nil
               a@2> EVAL @lock 1 lock2 30000 uuid-a:1
               a@2< nil
               a@3> EVAL @lock 1 lock3 30000 uuid-a:1
               a@3< nil",
    }
    .play();
}

/// RedLock needs the majority.
#[test]
fn redisson_redlock_takes_a_majority() {
    Conversation {
        scripts: REDISSON_3,
        servers: 3,
        text: "b@3> EVAL @lock 1 lock 30000 uuid-b:1
               b@3< nil
               a@1> EVAL @lock 1 lock 30000 uuid-a:1
               a@1< nil
               a@2> EVAL @lock 1 lock 30000 uuid-a:1
               a@2< nil
               a@3> EVAL @lock 1 lock 30000 uuid-a:1
               a@3< :29000..30000
               b@3> EVAL @unlock 2 lock redisson_lock__channel:{lock} 0 30000 uuid-b:1
               b@3< :1
               a@3> EVAL @unlock 2 lock redisson_lock__channel:{lock} 0 30000 uuid-a:1
               a@3< nil
               b@1> EVAL @lock 1 lock 30000 uuid-b:1
               b@1< :29000..30000
               b@2> EVAL @lock 1 lock 30000 uuid-b:1
               b@2< :29000..30000",
    }
    .play();
}
