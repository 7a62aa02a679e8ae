//! Which keys the restart guard waits for, on programs with labelled keys: for every lock, whatever
//! takes it, and not for caches and sessions that plain writes have made.

use std::fs;

use lockwheel::{Reply, Server};
use lockwheel_tests::daemon::Folder;

use crate::recognition::{self, DATA, LIBRARIES, Program, USES, programs};

/// The `compat-version` of most programs.
const VERSION: &str = "7.2";

/// Recipes that the other programs lack. In some, the key is no lock until their end.
const RECIPES: &str = "
== INCR and EXPIRE
locks: lock
a> INCR lock
a> EXPIRE lock 60
b> INCR lock

== INCR of a key that SET has made
locks: lock
a> SETNX lasting 1
a> SET lock 0 EX 60
a> INCR lock

== HSETNX and EXPIRE
locks: lock
a> HSETNX lock owner a
a> EXPIRE lock 60

== HSET, HINCRBY and SADD
locks: lock count members
a> HSET lock owner a
a> EXPIRE lock 60
a> HINCRBY count owner 1
a> PEXPIRE count 60000
a> SADD members a
a> EXPIRE members 60

== GETSET, and SET with GET
locks: lock other
a> GETSET lock a
a> EXPIRE lock 60
a> SET other a GET EX 60

== GETSET of a key that SET has made
locks: lock
a> SET lock free
a> GETSET lock a
a> EXPIRE lock 60

== APPEND, whose reply has the length
locks: lock
a> APPEND lock token
a> EXPIRE lock 60

== SETBIT, ZADD and LPUSH
locks: bits set list
a> SETBIT bits 7 1
a> EXPIRE bits 60
a> ZADD set NX 1 a
a> EXPIRE set 60
a> LPUSH list a
a> EXPIRE list 60

== WATCH, and SET in MULTI
locks: lock
a> WATCH lock
a> MULTI
a> SET lock a EX 60
a> EXEC

== SETEX in MULTI and in a script
locks: lock other
a> WATCH lock
a> MULTI
a> SETEX lock 60 a
a> EXEC
a> EVAL \"return redis.call('psetex', KEYS[1], 60000, ARGV[1])\" 1 other a

== RENAMENX, COPY and MOVE of a key that SET has made
locks: lock other
a> SET new a EX 60
a> RENAMENX new lock
a> COPY lock other
a> SELECT 1
a> SET far a EX 60
a> MOVE far 0

== RESTORE without REPLACE
locks: lock
a> RESTORE lock 60000 \"\\x00\\xc0\\x01\\x0b\\x00O\\xa7Z\\xc5,\\x9e\\xf8u\"

== A lock that plain writes renew
locks: lock
a> SET lock a NX EX 60
a> SET lock a EX 600
a> SETEX lock 6000 a
a> MSET lock a
a> EXPIRE lock 60000

== A deadline that only one client can set or remove
locks: lock other
a> SET lock free
a> EXPIRE lock 60 NX
a> SET other free EX 60
a> PERSIST other

== Native locks
locks: lock shared
a> LOCK.ACQUIRE lock a TTL 60000
a> LOCK.ACQUIRE shared a TTL 60000 SHARED
a> LOCK.RENEW lock a TTL 600000

== Django's add, and a rate limiter in a script
locks: :1:key rate:17
a> SET :1:key value EX 300 NX
a> EVAL \"local n = redis.call('incr', KEYS[1]) if n == 1 then \
          redis.call('expire', KEYS[1], 60) end return n\" 1 rate:17
";

/// As [`RECIPES`], for a server that has the conditions of Redis 8.4. The digest is that of
/// `Hello world`.
const CONDITIONS: &str = "
== SET with IFEQ
locks: lock
a> SET lock free EX 60
a> SET lock a EX 600 IFEQ free

== SET with IFNE
locks: lock
a> SET lock a IFNE a EX 60

== SET with IFDEQ
locks: lock
a> SET lock \"Hello world\" EX 60
a> SET lock a IFDEQ b6acb9d84a38ff74 EX 600

== SET with IFDNE
locks: lock
a> SET lock a EX 60 IFDNE b6acb9d84a38ff74
";

/// Programs for whose keys the guard does not wait, apart from those in [`DATA`].
const PLAIN: &str = "
== Plain writes of a client
a> SET session:1 x EX 31536000
a> SET session:2 x PX 31536000000
a> SET session:3 x EXAT 4102444800
a> SETEX session:4 31536000 x
a> PSETEX session:5 31536000000 x
a> SET session:1 y EX 31536000
a> SET session:1 z KEEPTTL
a> GETEX session:1 EX 31536000
a> EXPIRE session:1 31536000
a> MSET config:a 1 config:b 2
a> SET config:c 3
a> DEL session:1
";

/// A server with a restart guard.
struct Guarded {
    server: Server,
    folder: Folder,
}

/// What is recorded for the next start, as `docs/log-format.md` describes it.
struct Ceiling {
    deadline_ms: i64,
    has_lasting_keys: bool,
}

impl Guarded {
    /// Starts a server of this version; `exempt` are keys for which its guard does not wait.
    fn start<'a>(version: &str, exempt: impl Iterator<Item = &'a String>) -> Guarded {
        let folder = Folder::new();
        let exempt: Vec<&str> = exempt.map(|key| &**key).collect();
        let server = recognition::builder()
            .config("compat-version", version)
            .config("dir", &folder.path(""))
            .config("restart-guard", "yes")
            .config("restart-guard-exempt", &exempt.join(" "))
            .start();
        Guarded { server: server.expect("a server"), folder }
    }

    fn ceiling(&self) -> Ceiling {
        let bytes = fs::read(self.folder.path("appendonlydir/ceiling")).expect("a ceiling");
        let deadline = bytes[8..].first_chunk().expect("a deadline");
        Ceiling { deadline_ms: i64::from_le_bytes(*deadline), has_lasting_keys: bytes[56] != 0 }
    }

    fn integer(&self, command: &[&str]) -> i64 {
        match self.server.call(command) {
            Ok(Reply::Integer(number)) => number,
            other => panic!("{other:?}"),
        }
    }

    /// Whether the guard would wait for this key, if it exists.
    fn is_guarded(&self, key: &str) -> bool {
        let ceiling = self.ceiling();
        match self.integer(&["PEXPIRETIME", key]) {
            -2 => true,
            -1 => ceiling.has_lasting_keys,
            deadline_ms => ceiling.deadline_ms >= deadline_ms,
        }
    }
}

/// Checks that the guard waits for each lock of a program by itself: at the end or at every step.
/// Returns the number of locks.
fn check_locks(program: &Program, version: &str, at_every_step: bool) -> usize {
    for lock in &program.locks {
        let others = || program.locks.iter().chain(&program.data).filter(|key| *key != lock);
        let guarded = Guarded::start(version, others());
        let check = || assert!(guarded.is_guarded(lock), "{}: {lock}", program.name);
        recognition::play(&guarded.server, program, || {
            if at_every_step {
                check();
            }
        });
        check();
    }
    program.locks.len()
}

/// Shows G38, S23, S27.
#[test]
fn guard_waits_for_the_locks_of_all_programs() {
    let labelled = [LIBRARIES, USES].iter().flat_map(|text| programs(text));
    let locks: usize = labelled.map(|program| check_locks(&program, VERSION, true)).sum();
    assert!(locks >= 100, "{locks}");
    for program in programs(RECIPES) {
        check_locks(&program, VERSION, false);
    }
    for program in programs(CONDITIONS) {
        check_locks(&program, "8.4", false);
    }
}

/// Shows S11, S21, S24.
#[test]
fn guard_does_not_wait_for_plain_keys() {
    let needs_no_guard = |program: &Program| {
        let guarded = Guarded::start(VERSION, [].iter());
        let before_ms = guarded.ceiling().deadline_ms;
        recognition::play(&guarded.server, program, || {});
        let after = guarded.ceiling();
        after.deadline_ms <= before_ms && !after.has_lasting_keys
    };
    assert!(programs(PLAIN).iter().all(needs_no_guard));
    let data = programs(DATA);
    let plain = data.iter().filter(|program| needs_no_guard(program));
    let names: Vec<&str> = plain.map(|program| &*program.name).collect();
    let expected =
        ["A cache without NX", "The last time of a user", "A presence with a lease", "A debounce"];
    assert_eq!(names, expected);
}
