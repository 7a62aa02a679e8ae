//! The lock scripts of Redisson 2.2.17: its unlock of a missing lock still publishes, and its
//! renewal is a plain PEXPIRE.

use lockwheel_tests::conversation::converse_with;

use lockwheel_tests::scripts::REDISSON_2_2_17;

#[test]
fn redisson_2_2_17_lock_is_reentered_and_unlocked() {
    converse_with(
        REDISSON_2_2_17,
        "a> EVAL @lock 1 foobar 30000 uuid-a:1
         a< nil
         a> TYPE foobar
         a< +hash
         b> EVAL @lock 1 foobar 30000 uuid-b:1
         b< :29000..30000
         +10s
         a> EVAL @lock 1 foobar 30000 uuid-a:1
         a< nil
         a> HGETALL foobar
         a< {\"uuid-a:1\": \"2\"}
         a> PTTL foobar
         a< :29000..30000
         +10s
         a> EVAL @unlock 2 foobar redisson_lock__channel__{foobar} 0 30000 uuid-a:1
         a< :0
         # An unlock that keeps the lock renews it.
         a> PTTL foobar
         a< :29000..30000
         a> EVAL @unlock 2 foobar redisson_lock__channel__{foobar} 0 30000 uuid-a:1
         a< :1
         b> EVAL @lock 1 foobar 30000 uuid-b:1
         b< nil",
    );
}

#[test]
fn redisson_2_2_17_unlock_by_another_client_is_refused() {
    converse_with(
        REDISSON_2_2_17,
        "a> EVAL @lock 1 foobar 30000 uuid-a:1
         a< nil
         b> EVAL @unlock 2 foobar redisson_lock__channel__{foobar} 0 30000 uuid-b:1
         b< nil
         a> HGETALL foobar
         a< {\"uuid-a:1\": \"1\"}",
    );
}

#[test]
fn redisson_2_2_17_unlock_of_a_missing_lock_publishes() {
    converse_with(
        REDISSON_2_2_17,
        "c> SUBSCRIBE redisson_lock__channel__{foobar}
         c< push [\"subscribe\", \"redisson_lock__channel__{foobar}\", :1]
         a> EVAL @unlock 2 foobar redisson_lock__channel__{foobar} 0 30000 uuid-a:1
         a< :1
         c< push [\"message\", \"redisson_lock__channel__{foobar}\", \"0\"]",
    );
}

#[test]
fn redisson_2_2_17_renewal_extends_the_lease() {
    converse_with(
        REDISSON_2_2_17,
        "a> EVAL @lock 1 foobar 30000 uuid-a:1
         a< nil
         +10s
         a> PEXPIRE foobar 30000
         a< :1
         +29s
         b> EVAL @lock 1 foobar 30000 uuid-b:1
         b< :0..1000
         +1s
         a> PEXPIRE foobar 30000
         a< :0
         b> EVAL @lock 1 foobar 30000 uuid-b:1
         b< nil",
    );
}

#[test]
fn redisson_2_2_17_waiter_is_woken_by_the_unlock() {
    converse_with(
        REDISSON_2_2_17,
        "a> EVAL @lock 1 foobar 30000 uuid-a:1
         a< nil
         b> EVAL @lock 1 foobar 30000 uuid-b:1
         b< :29000..30000
         b-listens> SUBSCRIBE redisson_lock__channel__{foobar}
         b-listens< push [\"subscribe\", \"redisson_lock__channel__{foobar}\", :1]
         b> EVAL @lock 1 foobar 30000 uuid-b:1
         b< :29000..30000
         a> EVAL @unlock 2 foobar redisson_lock__channel__{foobar} 0 30000 uuid-a:1
         a< :1
         b-listens< push [\"message\", \"redisson_lock__channel__{foobar}\", \"0\"]
         b> EVAL @lock 1 foobar 30000 uuid-b:1
         b< nil
         b-listens> UNSUBSCRIBE redisson_lock__channel__{foobar}
         b-listens< push [\"unsubscribe\", \"redisson_lock__channel__{foobar}\", :0]",
    );
}

/// There is no message when the owner's connection closes: the waiting client's time-out makes it
/// try again.
#[test]
fn redisson_2_2_17_dead_owners_lock_expires() {
    converse_with(
        REDISSON_2_2_17,
        "a> EVAL @lock 1 foobar 30000 uuid-a:1
         a< nil
         b> EVAL @lock 1 foobar 30000 uuid-b:1
         b< :29000..30000
         a!
         +30s
         b> EVAL @lock 1 foobar 30000 uuid-b:1
         b< nil
         b> HGETALL foobar
         b< {\"uuid-b:1\": \"1\"}",
    );
}
