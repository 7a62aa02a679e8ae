//! When memory is full, locks can be released and renewed but not acquired: the scripts of the
//! libraries, on Lockwheel and on a real `redis-server`.

use std::net::SocketAddr;

use lockwheel_compat::cases::script;
use lockwheel_tests::redis_server::RedisServer;
use lockwheel_tests::wire::Wire;
use lockwheel_tests::{start, words};

/// Where a request is carried out while memory is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runs {
    /// On both servers.
    Both,
    /// On Lockwheel. Redis refuses it.
    Here,
    /// On Redis: the script has called a command that may write, though it has changed nothing.
    There,
    /// Nowhere.
    Nowhere,
}

use Runs::{Both, Here, Nowhere, There};

/// Requests that release or renew a lock, and those that need no memory: what is there before
/// (commands separated by `;`), the request, and its reply.
const RELEASES: &[(&str, &str, &str, Runs)] = &[
    // Releases without scripts.
    ("SET lock me PX 30000", "DEL lock", ":1", Both),
    ("SET lock me PX 30000", "PEXPIRE lock 60000", ":1", Both),
    ("SET lock me PX 30000", "SET lock me XX PX 60000", "+OK", Here),
    ("SET lock me PX 30000", "SET lock you NX PX 60000", "$-1", Here),
    ("SETNX lock 1", "SETNX lock 1", ":0", Here),
    // Redisson.
    (HELD, "@redisson/unlock 3 lock c latch 0 30000 me PUBLISH 9000", ":1", Here),
    (HELD_TWICE, "@redisson/unlock 3 lock c latch 0 30000 me PUBLISH 9000", ":0", Here),
    (HELD, "@redisson/force-unlock 2 lock c 0 PUBLISH", ":1", Both),
    (HELD, "@redisson/lock 1 lock 30000 me", "$-1", Here),
    (HELD, "@redisson/lock 1 lock 30000 you", ":", Both),
    (HELD, "@redisson/renew 1 lock 30000 me", "*1 :1", Both),
    (HELD, "@redisson/spin-unlock 2 lock latch 30000 me 9000", ":1", Here),
    (HELD_TWICE, "@redisson/spin-unlock 2 lock latch 30000 me 9000", ":0", Here),
    (FAIR, "@redisson/fair-unlock 5 lock q t c latch 0 30000 me 1 PUBLISH 9000", ":1", Here),
    (FAIR, "@redisson/fair-lock-failed 2 q t you 500", "$-1", Here),
    (FAIR, "@redisson/fair-force-unlock 4 lock q t c 0 1 PUBLISH", ":1", Both),
    (FENCED, "@redisson/fenced-lock 2 lock token 30000 me", "$-1", Here),
    (FENCED, "@redisson/fenced-lock-token 2 lock token 30000 me", "*2 :-1 :6", Here),
    (READ, "@redisson/read-unlock 5 lock c me:t k latch 0 me PUBLISH 9000", ":1", Here),
    (READ_BY_TWO, "@redisson/read-unlock 5 lock c me:t k latch 0 me PUBLISH 9000", ":0", Here),
    (READ, "@redisson/read-renew 2 lock k 30000 1 me", "*1 :1", Both),
    (WRITE, "@redisson/write-unlock 3 lock c latch 1 30000 me PUBLISH 9000", ":1", Here),
    (WRITE_AND_READ, "@redisson/write-unlock 3 lock c latch 1 30000 me PUBLISH 9000", ":1", Here),
    (GROUP, "@redisson/group-unlock 3 lock c latch me 0 30000 PUBLISH 9000 1000 a", ":1", Here),
    (GROUP, "@redisson/group-renew 1 lock 30000 1000 me a", ":1", Here),
    ("SET n 1", "@redisson/semaphore-release 2 n c 1 PUBLISH", "$-1", Here),
    ("SET n 1", "@redisson/semaphore-release-if-exists 2 n c 1 PUBLISH", ":1", Here),
    ("SET n 1", "@redisson/latch-count-down 2 n c 0 PUBLISH", "$-1", Here),
    ("SET n 5", "@redisson/latch-count-down 2 n c 0 PUBLISH", "$-1", Here),
    (PERMITS, "@redisson/permits-release 3 n c t id 1 1000 PUBLISH", ":1", Both),
    (PERMITS, "@redisson/permits-release-many 3 n c t 1 1000 PUBLISH id", ":1", Both),
    (PERMITS, "@redisson/permits-renew 3 n t c id 99000 1000 PUBLISH", ":1", Here),
    (HELD, "@redisson-3/unlock 2 lock c 0 30000 me", ":1", Here),
    (HELD, "@redisson-2.2/unlock 2 lock c 0 30000 me", ":1", Here),
    (HELD, "@redisson-2.2/fair-unlock 3 lock c q 0 30000 me", ":1", Here),
    (READ, "@redisson-2.2/read-unlock 2 lock c 0 30000 me", ":1", Here),
    (WRITE, "@redisson-2.2/write-unlock 2 lock c 0 30000 me", ":1", Here),
    // Acquisitions that need no memory, or whose script has removed something.
    ("SET n 5", "@redisson/semaphore-acquire 1 n 1", ":1", Here),
    (PERMITS, "@redisson/permits-acquire 3 n t c 1 99000 1000 9 PUBLISH new", "$2 OK", Here),
    (QUEUED, "@redisson/fair-lock 3 lock q t 30000 me 500 1", "$-1", Both),
    // Others.
    (TOKEN, "@compare-and-delete 1 lock me", ":1", Both),
    (TOKEN, "@compare-and-pexpire 1 lock me 60000", ":1", Both),
    (TOKEN, "@python-redis-lock/unlock 2 lock signal me 1000", ":0", Both),
    (TOKEN, "@redlock/extend 1 lock me 60000", ":1", Here),
    (TOKEN, "@rslock/extend 1 lock me 60000", ":1", Here),
    (TOKEN, "@redlock-rb/lock 1 lock me 60000 no", "+OK", Here),
    (TOKEN, "@redislock/obtain 1 lock me 2 60000", "+OK", Here),
    (TOKEN, "@aioredlock/set 1 lock me 60000", "+OK", Here),
    (TOKEN, "@bullmq/extend-lock 2 lock stalled me 60000 job", ":1", Here),
    (JOBS, EXTEND_LOCKS, "*0", Here),
    (JOB, "@bullmq/finish-job 4 active done stalled job 7 1000 me", ":0", Both),
    (SLOTS, "@distributed-lock/semaphore-extend 1 lock me 30000 60000", ":1", Here),
    (SLOTS, "@symfony/put-off 1 lock 0 me 30000", ":1", Here),
    (SLOTS, "@symfony/delete 1 lock me", ":1", Both),
    (UNIQUE, "@sidekiq-unique-jobs/unlock 6 d d:q d:p d:l d:i ds job", "$3 job", Both),
];

/// Requests that acquire a lock, or queue for one.
const ACQUIRES: &[(&str, &str, Runs)] = &[
    ("", "SET lock me NX PX 30000", Nowhere),
    ("", "SETNX lock me", Nowhere),
    ("HSET h other 1", "HSETNX h lock 1", Nowhere),
    ("", "@redisson/lock 1 lock 30000 me", Nowhere),
    ("", "@redisson/non-reentrant-lock 1 lock 30000 me no", Nowhere),
    ("SET token 5", "@redisson/fenced-lock 2 lock token 30000 me", Nowhere),
    ("SET token 5", "@redisson/fenced-lock-token 2 lock token 30000 me", Nowhere),
    ("", "@redisson/fair-lock 3 lock q t 30000 me 500 1", There),
    ("", "@redisson/fair-try-lock 3 lock q t 30000 me 1 500", There),
    ("", "@redisson/non-reentrant-fair-lock 3 lock q t 30000 me 500 1 no", There),
    (HELD, "@redisson/fair-lock 3 lock q t 30000 you 500 1", Nowhere),
    (FAIR, "@redisson/fair-lock 3 lock q t 30000 they 500 1", Nowhere),
    ("", "@redisson/read-lock 2 lock me:t 30000 me me:write", Nowhere),
    (READ, "@redisson/read-lock 2 lock you:t 30000 you you:write", Nowhere),
    ("", "@redisson/write-lock 1 lock 30000 me", Nowhere),
    ("", "@redisson/group-lock 1 lock 30000 1000 me a", Nowhere),
    (GROUP, "@redisson/group-lock 1 lock 30000 1000 me b", Nowhere),
    (GROUP, "@redisson/group-try-lock 1 lock 1000 30000 you b", Nowhere),
    ("", "@redisson/semaphore-set 2 n c 5 PUBLISH", Nowhere),
    ("", "@redisson/latch-set 2 n c 1 5 PUBLISH", Nowhere),
    ("", "@redisson-3/lock 1 lock 30000 me", Nowhere),
    ("", "@redisson-2.2/lock 1 lock 30000 me", Nowhere),
    ("", "@redisson-2.2/read-lock 1 lock 30000 me", Nowhere),
    ("", "@redisson-2.2/write-lock 1 lock 30000 me", Nowhere),
    ("", "@redlock/acquire 2 lock lock2 me 30000", Nowhere),
    ("", "@redlock-rb/lock 1 lock me 30000 yes", Nowhere),
    ("", "@redlock-net/extend 1 lock me 30000", Nowhere),
    ("", "@redlock-universal/acquire-all 2 lock lock2 me me 30000", Nowhere),
    ("", "@async-redis-lock/lock 2 lock lock2 me 30000", Nowhere),
    ("", "@aioredlock/set 1 lock me 30000", Nowhere),
    ("", "@redislock/obtain 1 lock me 2 30000", Nowhere),
    ("", "@redislock/obtain-all 2 lock lock2 me 2 30000", Nowhere),
    ("", "@redsync/touch-or-take 1 lock me 30000", Nowhere),
    ("", "@spring/obtain 1 lock me 30000", Nowhere),
    ("", "@sherlock/acquire 1 lock me 30", Nowhere),
    ("", "@laravel/take-slot 1 lock lock 30 me", Nowhere),
    ("", "@distributed-lock/read-acquire 2 lock w me 30000", Nowhere),
    ("SADD lock you", "@distributed-lock/read-acquire 2 lock w me 30000", Nowhere),
    ("", "@distributed-lock/write-acquire 2 r w me 30000", Nowhere),
    ("", "@distributed-lock/semaphore-acquire 1 lock me 5 30000 60000", There),
    ("", "@symfony/save 1 lock 0 me 30000", There),
    ("", "@symfony/save-read 1 lock 0 me 30000", There),
    ("SET d job", "@sidekiq-unique-jobs/lock 6 d d:q d:p d:l d:i ds job 30000 1 5", Nowhere),
];

const TOKEN: &str = "SET lock me PX 30000";
const HELD: &str = "HSET lock me 1; PEXPIRE lock 30000";
const HELD_TWICE: &str = "HSET lock me 2; PEXPIRE lock 30000";
const FENCED: &str = "HSET lock me 1; PEXPIRE lock 30000; SET token 5";
const FAIR: &str =
    "HSET lock me 1; PEXPIRE lock 30000; RPUSH q you us; ZADD t 9000000000000 you 9000000000000 us";
const QUEUED: &str = "RPUSH q me us; ZADD t 9000000000000 me 9000000000000 us";
const READ: &str = "HSET lock mode read me 1; PEXPIRE lock 30000; SET me:t:1 1 PX 30000";
const READ_BY_TWO: &str =
    "HSET lock mode read me 1 you 1; PEXPIRE lock 30000; SET k:you:rwlock_timeout:1 1 PX 30000";
const WRITE: &str = "HSET lock mode write me 1; PEXPIRE lock 30000";
const WRITE_AND_READ: &str = "HSET lock mode write me 1 me2 1; PEXPIRE lock 30000";
const GROUP: &str = "HSET lock a me a:me:expire_time 20000 a:me:lock_count 1; PEXPIRE lock 30000";
const PERMITS: &str = "SET n 5; ZADD t 90000 id 90000 other";
const JOB: &str = "HSET job f v; SET job:lock me PX 30000; RPUSH active 7";
const JOBS: &str = "SET x:lock me PX 30000";
/// With packed lists of tokens and jobs. The first key does not exist.
const EXTEND_LOCKS: &str = r#"@bullmq/extend-locks 1 stalled "" "\x91\xa2me" "\x91\xa1x" 60000"#;
const SLOTS: &str = "ZADD lock 9000000000000 me 9000000000001 you; PEXPIRE lock 30000";
const UNIQUE: &str = "SET d job; HSET d:l job 1; ZADD ds 1 d";

/// A server whose memory is full while a request runs.
struct FullServer(Wire);

impl FullServer {
    fn connect(address: SocketAddr) -> FullServer {
        FullServer(Wire::connect(address, 2))
    }

    fn ask(&mut self, line: &str) -> String {
        let mut words = words(line);
        if let Some(name) = line.strip_prefix('@').and_then(|rest| rest.split(' ').next()) {
            let text = script(name).unwrap_or_else(|| panic!("no script {name}"));
            words[0] = text.as_bytes().to_vec();
            words.insert(0, b"EVAL".to_vec());
        }
        let reply = self.0.call(&words);
        String::from_utf8_lossy(&reply).trim_end().replace("\r\n", " ")
    }

    /// All keys with their values, without times to live.
    fn state(&mut self) -> String {
        self.ask(
            "EVAL \"local all = redis.call('KEYS', '*') table.sort(all) for i, key in ipairs(all) \
             do all[i] = key .. redis.call('DUMP', key) end return all\" 0",
        )
    }

    /// The reply to a request while memory is full, and whether it has changed a value.
    fn run(&mut self, before: &str, request: &str) -> (String, bool) {
        self.ask("FLUSHALL");
        for command in before.split("; ").filter(|command| !command.is_empty()) {
            let reply = self.ask(command);
            assert!(!reply.starts_with('-'), "{command}: {reply}");
        }
        let state = self.state();
        self.ask("CONFIG SET maxmemory 1");
        let reply = self.ask(request);
        self.ask("CONFIG SET maxmemory 0");
        (reply, self.state() != state)
    }
}

fn is_refused(reply: &str) -> bool {
    reply.starts_with("-OOM command not allowed when used memory > 'maxmemory'.")
}

fn check_releases(server: &mut FullServer, is_redis: bool) {
    for &(before, request, expected, runs) in RELEASES {
        let (reply, _) = server.run(before, request);
        if is_redis && runs == Here {
            assert!(is_refused(&reply), "{request}: {reply}");
        } else {
            assert!(reply.starts_with(expected), "{request} after {before}: {reply}");
        }
    }
}

fn check_acquires(server: &mut FullServer, is_redis: bool) {
    for &(before, request, runs) in ACQUIRES {
        let (reply, has_changed) = server.run(before, request);
        if is_redis && runs == There {
            assert!(!is_refused(&reply), "{request}: {reply}");
        } else {
            assert!(is_refused(&reply), "{request} after {before}: {reply}");
            assert!(!has_changed, "{request} after {before}");
        }
    }
}

/// Shows G11, G21.
#[test]
fn locks_are_released_and_renewed_when_memory_is_full() {
    check_releases(&mut FullServer::connect(start(&[]).addr()), false);
}

/// Shows G11.
#[test]
fn locks_are_not_acquired_when_memory_is_full() {
    check_acquires(&mut FullServer::connect(start(&[]).addr()), false);
}

/// Shows G11.
#[test]
fn both_hold_without_plans() {
    let server = start(&[("script-plans", "no")]);
    check_releases(&mut FullServer::connect(server.addr()), false);
    check_acquires(&mut FullServer::connect(server.addr()), false);
}

#[test]
fn redis_refuses_to_release_locks_when_memory_is_full() {
    let Some(redis) = RedisServer::start() else { return };
    check_releases(&mut FullServer::connect(redis.address()), true);
    check_acquires(&mut FullServer::connect(redis.address()), true);
}

/// Shows G19.
#[test]
fn lock_is_released_in_a_transaction_when_memory_is_full() {
    let server = start(&[]);
    let mut server = FullServer::connect(server.addr());
    server.ask("SET lock me PX 30000");
    server.ask("CONFIG SET maxmemory 1");
    for (request, reply) in [
        ("WATCH lock", "+OK"),
        ("GET lock", "$2 me"),
        ("MULTI", "+OK"),
        ("DEL lock", "+QUEUED"),
        ("EXEC", "*1 :1"),
    ] {
        assert_eq!(server.ask(request), reply, "{request}");
    }
}
