//! Locks of SETNX and of SET NX EX with a token: leases, a release without a check, the release by
//! script, a renewal with GET and EXPIRE; and the lock scripts of Redisson 3.15.4.

use lockwheel_tests::conversation::{converse, converse_with};

use lockwheel_tests::scripts::{COMPARE_AND_DELETE, REDISSON_3};

#[test]
fn setnx_grants_a_free_lock_only() {
    converse(
        "a> setnx lockKey redis
         a< :1
         b> setnx lockKey redis123
         b< :0
         b> get lockKey
         b< \"redis\"
         a> DEL lockKey
         a< :1
         b> setnx lockKey redis123
         b< :1",
    );
}

#[test]
fn setnx_lock_with_expire_ends() {
    converse(
        "a> setnx lockKey OK
         a< :1
         a> ttl lockKey
         a< :-1
         a> expire lockKey 5
         a< :1
         a> pttl lockKey
         a< :4000..5000
         b> setnx lockKey OK
         b< :0
         # a is closed; its lease ends later.
         a!
         +4s
         b> setnx lockKey OK
         b< :0
         +1s
         b> setnx lockKey OK
         b< :1
         b> expire lockKey 5
         b< :1",
    );
}

#[test]
fn set_nx_ex_grants_a_free_lock_only() {
    converse(
        "a> SET product:1 OK EX 10 NX
         a< +OK
         b> SET product:1 OK EX 10 NX
         b< nil
         b> TTL product:1
         b< :9..10
         a> DEL product:1
         a< :1
         b> SET product:1 OK EX 10 NX
         b< +OK",
    );
}

/// Without a token, an owner with an expired lease deletes the lock of the next owner.
#[test]
fn del_after_the_lease_deletes_the_next_owners_lock() {
    converse(
        "a> SET product:1 OK EX 5 NX
         a< +OK
         +5s
         b> SET product:1 OK EX 5 NX
         b< +OK
         a> DEL product:1
         a< :1
         c> SET product:1 OK EX 5 NX
         c< +OK",
    );
}

/// The comparison and the deletion are two commands, so the lock can change hands in between.
#[test]
fn get_then_del_deletes_the_next_owners_lock() {
    converse(
        "a> SET product:1 thread-1 EX 10 NX
         a< +OK
         b> GET product:1
         b< \"thread-1\"
         a> GET product:1
         a< \"thread-1\"
         +10s
         b> SET product:1 thread-2 EX 10 NX
         b< +OK
         a> DEL product:1
         a< :1
         b> GET product:1
         b< nil",
    );
}

#[test]
fn eval_releases_the_lock_of_the_token_only() {
    converse_with(
        &[("release", COMPARE_AND_DELETE)],
        "a> SET product:1 thread-1 EX 10 NX
         a< +OK
         b> EVAL @release 1 product:1 thread-2
         b< :0
         +10s
         b> SET product:1 thread-2 EX 10 NX
         b< +OK
         a> EVAL @release 1 product:1 thread-1
         a< :0
         b> EVAL @release 1 product:1 thread-2
         b< :1
         b> EVAL @release 1 product:1 thread-2
         b< :0
         a> EXISTS product:1
         a< :0",
    );
}

/// Spring sends the digest first, and the script after a NOSCRIPT error.
#[test]
fn evalsha_falls_back_to_eval() {
    converse_with(
        &[("release", COMPARE_AND_DELETE)],
        "a> SET product:1 thread-1 EX 10 NX
         a< +OK
         a> EVALSHA @release.sha1 1 product:1 thread-1
         a< -NOSCRIPT No matching script. Please use EVAL.
         a> GET product:1
         a< \"thread-1\"
         a> EVAL @release 1 product:1 thread-1
         a< :1
         b> SET product:1 thread-2 EX 10 NX
         b< +OK
         b> EVALSHA @release.sha1 1 product:1 thread-1
         b< :0
         b> EVALSHA @release.sha1 1 product:1 thread-2
         b< :1",
    );
}

#[test]
fn get_and_expire_renew_the_lease() {
    converse(
        "a> SET product:1 thread-1 EX 10 NX
         a< +OK
         +7s
         a> GET product:1
         a< \"thread-1\"
         a> EXPIRE product:1 10
         a< :1
         +7s
         b> SET product:1 thread-2 EX 10 NX
         b< nil
         a> GET product:1
         a< \"thread-1\"
         +3s
         a> GET product:1
         a< nil
         a> EXPIRE product:1 10
         a< :0",
    );
}

#[test]
fn redisson_3_15_4_lock_is_reentered_and_unlocked() {
    converse_with(
        REDISSON_3,
        "a> EVAL @lock 1 product:001 30000 9527:1
         a< nil
         a> HGETALL product:001
         a< {\"9527:1\": \"1\"}
         b> EVAL @lock 1 product:001 30000 8416:1
         b< :29000..30000
         a> EVAL @lock 1 product:001 30000 9527:1
         a< nil
         a> HGET product:001 9527:1
         a< \"2\"
         a> EVAL @unlock 2 product:001 redisson_lock__channel:{product:001} 0 30000 9527:1
         a< :0
         b> EVAL @unlock 2 product:001 redisson_lock__channel:{product:001} 0 30000 8416:1
         b< nil
         a> EVAL @unlock 2 product:001 redisson_lock__channel:{product:001} 0 30000 9527:1
         a< :1
         a> EVAL @unlock 2 product:001 redisson_lock__channel:{product:001} 0 30000 9527:1
         a< nil
         b> EVAL @lock 1 product:001 30000 8416:1
         b< nil",
    );
}

#[test]
fn redisson_3_15_4_watchdog_renews_the_lease() {
    converse_with(
        REDISSON_3,
        "a> EVAL @lock 1 product:001 30000 9527:1
         a< nil
         +10s
         a> PTTL product:001
         a< :19000..20000
         a> EVAL @renew 1 product:001 30000 9527:1
         a< :1
         a> PTTL product:001
         a< :29000..30000
         b> EVAL @renew 1 product:001 30000 8416:1
         b< :0
         # a is closed: there are no more renewals.
         a!
         +29s
         b> EVAL @lock 1 product:001 30000 8416:1
         b< :0..1000
         +1s
         b> EVAL @lock 1 product:001 30000 8416:1
         b< nil
         c> EVAL @renew 1 product:001 30000 9527:1
         c< :0",
    );
}

#[test]
fn redisson_3_15_4_waiter_is_woken_by_the_unlock() {
    converse_with(
        REDISSON_3,
        "a> EVAL @lock 1 product:001 30000 9527:1
         a< nil
         b> EVAL @lock 1 product:001 30000 8416:1
         b< :29000..30000
         b-listens> SUBSCRIBE redisson_lock__channel:{product:001}
         b-listens< push [\"subscribe\", \"redisson_lock__channel:{product:001}\", :1]
         # The second attempt, after subscribing, so that an unlock in between is not missed.
         b> EVAL @lock 1 product:001 30000 8416:1
         b< :29000..30000
         a> EVAL @unlock 2 product:001 redisson_lock__channel:{product:001} 0 30000 9527:1
         a< :1
         b-listens< push [\"message\", \"redisson_lock__channel:{product:001}\", \"0\"]
         b> EVAL @lock 1 product:001 30000 8416:1
         b< nil
         b-listens> UNSUBSCRIBE redisson_lock__channel:{product:001}
         b-listens< push [\"unsubscribe\", \"redisson_lock__channel:{product:001}\", :0]",
    );
}
