//! The lock scripts of a Redisson 3 that locks with `hset`, its waiting clients, and RedLock.

use lockwheel_tests::conversation::{Conversation, converse_with};

use lockwheel_tests::scripts::{COMPARE_AND_DELETE, REDISSON_3_HSET};

#[test]
fn redisson_try_lock_is_reentered_and_unlocked() {
    converse_with(
        REDISSON_3_HSET,
        "a> EVAL @lock 1 anyLock 30000 uuid-a:57
         a< nil
         b> EVAL @lock 1 anyLock 30000 uuid-b:57
         b< :29000..30000
         a> EVAL @lock 1 anyLock 30000 uuid-a:57
         a< nil
         # Another thread of the same client is another owner.
         a> EVAL @lock 1 anyLock 30000 uuid-a:58
         a< :29000..30000
         a> HGETALL anyLock
         a< {\"uuid-a:57\": \"2\"}
         a> EVAL @unlock 2 anyLock redisson_lock__channel:{anyLock} 0 30000 uuid-a:57
         a< :0
         a> EVAL @unlock 2 anyLock redisson_lock__channel:{anyLock} 0 30000 uuid-a:57
         a< :1
         a> EXISTS anyLock
         a< :0",
    );
}

#[test]
fn redisson_unlock_by_another_client_is_refused() {
    converse_with(
        REDISSON_3_HSET,
        "a> EVAL @lock 1 anyLock 30000 uuid-a:57
         a< nil
         b> EVAL @unlock 2 anyLock redisson_lock__channel:{anyLock} 0 30000 uuid-b:57
         b< nil
         b> HGETALL anyLock
         b< {\"uuid-a:57\": \"1\"}",
    );
}

#[test]
fn redisson_lease_time_is_kept_without_a_watchdog() {
    converse_with(
        REDISSON_3_HSET,
        "a> EVAL @lock 1 anyLock 2000 uuid-a:57
         a< nil
         +1s
         b> EVAL @lock 1 anyLock 2000 uuid-b:57
         b< :0..1000
         +1s
         b> EVAL @lock 1 anyLock 2000 uuid-b:57
         b< nil
         # The first owner releases after its lease.
         a> EVAL @unlock 2 anyLock redisson_lock__channel:{anyLock} 0 2000 uuid-a:57
         a< nil
         a> HGETALL anyLock
         a< {\"uuid-b:57\": \"1\"}",
    );
}

/// Every subscriber receives the unlock message; one of them gets the lock.
#[test]
fn redisson_two_waiters_are_woken_and_one_gets_the_lock() {
    converse_with(
        REDISSON_3_HSET,
        "a> EVAL @lock 1 anyLock 30000 uuid-a:57
         a< nil
         b-listens> SUBSCRIBE redisson_lock__channel:{anyLock}
         b-listens< push [\"subscribe\", \"redisson_lock__channel:{anyLock}\", :1]
         c-listens> SUBSCRIBE redisson_lock__channel:{anyLock}
         c-listens< push [\"subscribe\", \"redisson_lock__channel:{anyLock}\", :1]
         a> EVAL @unlock 2 anyLock redisson_lock__channel:{anyLock} 0 30000 uuid-a:57
         a< :1
         b-listens< push [\"message\", \"redisson_lock__channel:{anyLock}\", \"0\"]
         c-listens< push [\"message\", \"redisson_lock__channel:{anyLock}\", \"0\"]
         c> EVAL @lock 1 anyLock 30000 uuid-c:57
         c< nil
         b> EVAL @lock 1 anyLock 30000 uuid-b:57
         b< :29000..30000
         # The winner unsubscribes; the other client receives the next unlock message.
         c-listens> UNSUBSCRIBE redisson_lock__channel:{anyLock}
         c-listens< push [\"unsubscribe\", \"redisson_lock__channel:{anyLock}\", :0]
         c> EVAL @unlock 2 anyLock redisson_lock__channel:{anyLock} 0 30000 uuid-c:57
         c< :1
         b-listens< push [\"message\", \"redisson_lock__channel:{anyLock}\", \"0\"]
         b> EVAL @lock 1 anyLock 30000 uuid-b:57
         b< nil",
    );
}

const REDLOCK: &[(&str, &str)] = &[("release", COMPARE_AND_DELETE)];

#[test]
fn redlock_majority_of_three_servers_holds_the_lock() {
    Conversation {
        scripts: REDLOCK,
        servers: 3,
        text: "b@3> SET resource token-b NX PX 10000
               b@3< +OK
               a@1> SET resource token-a NX PX 10000
               a@1< +OK
               a@2> SET resource token-a NX PX 10000
               a@2< +OK
               a@3> SET resource token-a NX PX 10000
               a@3< nil
               # a holds two of three; b releases on all servers, which leaves a's locks.
               b@1> SET resource token-b NX PX 10000
               b@1< nil
               b@1> EVAL @release 1 resource token-b
               b@1< :0
               b@2> EVAL @release 1 resource token-b
               b@2< :0
               b@3> EVAL @release 1 resource token-b
               b@3< :1
               a@1> GET resource
               a@1< \"token-a\"
               a@2> GET resource
               a@2< \"token-a\"
               a@3> GET resource
               a@3< nil",
    }
    .play();
}

#[test]
fn redlock_of_a_closed_client_expires() {
    Conversation {
        scripts: REDLOCK,
        servers: 3,
        text: "a@1> SET resource token-a NX PX 10000
               a@1< +OK
               a@2> SET resource token-a NX PX 10000
               a@2< +OK
               a@3> SET resource token-a NX PX 10000
               a@3< +OK
               +10s
               b@1> SET resource token-b NX PX 10000
               b@1< +OK
               b@2> SET resource token-b NX PX 10000
               b@2< +OK
               b@3> SET resource token-b NX PX 10000
               b@3< +OK
               a@1> EVAL @release 1 resource token-a
               a@1< :0
               b@1> EVAL @release 1 resource token-b
               b@1< :1
               b@2> EVAL @release 1 resource token-b
               b@2< :1
               b@3> EVAL @release 1 resource token-b
               b@3< :1",
    }
    .play();
}
