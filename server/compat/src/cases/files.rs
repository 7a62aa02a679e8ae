//! The built-in cases and their scripts. Each file with cases or with a script is listed once, in
//! the order of the table.

use std::sync::OnceLock;
use std::time::Duration;

use super::case::{Action, Case, Mistake};

/// A table of texts: name and contents of each file.
macro_rules! texts {
    ($folder:literal; $extension:literal; $($name:literal)*) => {
        &[$(($name, include_str!(concat!($folder, $name, $extension)))),*]
    };
}

/// Names and texts of the files of cases: `strings` is `cases/strings.txt`.
pub const FILES: &[(&str, &str)] = texts! { ""; ".txt";
    "protocol"
    "connection"
    "conversions"
    "scripts"
    "strings"
    "keys"
    "hashes"
    "lists"
    "sets"
    "sorted_sets"
    "streams"
    "bits"
    "sorting_and_dumps"
    "functions"
    "server"
    "expiry"
    "pubsub"
    "transactions"
    "blocking"
    "tracking"
    "monitor"
    "slowlog"
    "acl"
    "latency"
    "tls"
    "native_locks"
    "details/errors"
    "details/connection"
    "details/conversions"
    "details/scripts"
    "details/strings"
    "details/keys"
    "details/expiry"
    "details/hashes"
    "details/lists"
    "details/sets"
    "details/sorted_sets"
    "details/streams"
    "details/bits"
    "details/sort"
    "details/dump"
    "details/functions"
    "details/pubsub"
    "details/notifications"
    "details/transactions"
    "details/blocking"
    "details/sorted_sets_blocking"
    "details/stream_blocking"
    "details/client"
    "details/tracking"
    "redisson/blocking_queue"
    "redisson/bucket"
    "redisson/connection"
    "redisson/delayed_queue"
    "redisson/fair_lock"
    "redisson/faster_multi_lock"
    "redisson/fenced_lock"
    "redisson/id_generator"
    "redisson/latch"
    "redisson/local_cached_map"
    "redisson/lock"
    "redisson/map_cache"
    "redisson/multi_lock"
    "redisson/non_reentrant_lock"
    "redisson/older_2"
    "redisson/older_3"
    "redisson/permits"
    "redisson/rate_limiter"
    "redisson/read_write_lock"
    "redisson/reliable_topic"
    "redisson/semaphore"
    "redisson/spin_lock"
    "redisson/topic"
    "redisson/transaction"
    "clients/aioredlock"
    "clients/celery-singleton"
    "clients/pottery"
    "clients/python-redis-lock"
    "clients/redbeat"
    "clients/redis-py"
    "clients/sherlock"
    "seeds"
    "clients/bullmq"
    "clients/go-redis"
    "clients/ioredis"
    "clients/laravel"
    "clients/malkusch-lock"
    "clients/node-redis"
    "clients/php"
    "clients/redislock"
    "clients/redlock-node"
    "clients/redlock-universal"
    "clients/redsync"
    "clients/symfony-lock"
    "clients/async-redis-lock"
    "clients/distributed-lock"
    "clients/jedis-lettuce"
    "clients/redlock-net"
    "clients/redlock-rb"
    "clients/rslock"
    "clients/rust"
    "clients/shedlock"
    "clients/sidekiq-unique-jobs"
    "clients/spring-lock-registry"
    "clients/spring-redis-template"
    "clients/stackexchange-redis"
};

/// The files of `--quick`, as prefixes: what locks are made of, the common locks of Redisson, and
/// the recipes of all other clients.
const QUICK: &[&str] = &[
    "cases/strings",
    "cases/expiry",
    "cases/scripts",
    "cases/transactions",
    "cases/pubsub",
    "cases/blocking",
    "cases/redisson/lock",
    "cases/redisson/fair_lock",
    "cases/redisson/fenced_lock",
    "cases/redisson/read_write_lock",
    "cases/redisson/semaphore",
    "cases/clients/",
];
/// Longest pause of a case of `--quick`.
const QUICK_PAUSE_MAX: Duration = Duration::from_millis(100);

/// Names and texts of the scripts: `@compare-and-delete` is `scripts/compare-and-delete.lua`.
pub const SCRIPTS: &[(&str, &str)] = texts! { "scripts/"; ".lua";
    "compare-and-delete"
    "redisson-2.2/fair-lock"
    "redisson-2.2/fair-unlock"
    "redisson-2.2/lock"
    "redisson-2.2/read-lock"
    "redisson-2.2/read-unlock"
    "redisson-2.2/unlock"
    "redisson-2.2/write-lock"
    "redisson-2.2/write-unlock"
    "redisson-3/lock"
    "redisson-3/rate-acquire"
    "redisson-3/renew"
    "redisson-3/unlock"
    "redisson/atomic-compare-and-set"
    "redisson/bounded-queue-add"
    "redisson/bounded-queue-poll"
    "redisson/bounded-queue-set"
    "redisson/bucket-compare-and-delete"
    "redisson/bucket-compare-and-set"
    "redisson/bucket-get-and-delete"
    "redisson/bucket-get-and-set"
    "redisson/cached-map-put"
    "redisson/cached-map-remove"
    "redisson/delayed-elements"
    "redisson/delayed-offer"
    "redisson/delayed-transfer"
    "redisson/expire"
    "redisson/expire-at"
    "redisson/fair-force-unlock"
    "redisson/fair-lock"
    "redisson/fair-lock-failed"
    "redisson/fair-try-lock"
    "redisson/fair-unlock"
    "redisson/fenced-lock"
    "redisson/fenced-lock-token"
    "redisson/force-unlock"
    "redisson/group-force-unlock"
    "redisson/group-is-held"
    "redisson/group-lock"
    "redisson/group-renew"
    "redisson/group-try-lock"
    "redisson/group-unlock"
    "redisson/id-init"
    "redisson/id-next"
    "redisson/latch-count-down"
    "redisson/latch-delete"
    "redisson/latch-set"
    "redisson/lock"
    "redisson/map-evict"
    "redisson/map-get"
    "redisson/map-put"
    "redisson/non-reentrant-fair-lock"
    "redisson/non-reentrant-lock"
    "redisson/permits-acquire"
    "redisson/permits-acquired"
    "redisson/permits-add"
    "redisson/permits-available"
    "redisson/permits-release"
    "redisson/permits-release-many"
    "redisson/permits-renew"
    "redisson/permits-set"
    "redisson/permits-total"
    "redisson/persist"
    "redisson/queue-drain"
    "redisson/rate-acquire"
    "redisson/rate-available"
    "redisson/rate-release"
    "redisson/rate-set"
    "redisson/rate-try-set"
    "redisson/rate-update"
    "redisson/read-force-unlock"
    "redisson/read-is-locked"
    "redisson/read-lock"
    "redisson/read-renew"
    "redisson/read-unlock"
    "redisson/renew"
    "redisson/semaphore-acquire"
    "redisson/semaphore-add"
    "redisson/semaphore-drain"
    "redisson/semaphore-release"
    "redisson/semaphore-release-if-exists"
    "redisson/semaphore-set"
    "redisson/semaphore-set-with-lease"
    "redisson/spin-force-unlock"
    "redisson/spin-unlock"
    "redisson/topic-publish"
    "redisson/topic-subscribe"
    "redisson/topic-trim"
    "redisson/topic-unsubscribe"
    "redisson/unlock"
    "redisson/write-force-unlock"
    "redisson/write-lock"
    "redisson/write-unlock"
    "seeds/compare-and-expire"
    "aioredlock/set"
    "aioredlock/ttl"
    "aioredlock/unset"
    "compare-and-pexpire"
    "pottery/acquired"
    "pottery/set-id"
    "python-redis-lock/extend"
    "python-redis-lock/reset"
    "python-redis-lock/reset-all"
    "python-redis-lock/unlock"
    "redbeat/extend-to"
    "redis-py/extend"
    "redis-py/reacquire"
    "redis-py/release"
    "sherlock/acquire"
    "sherlock/release"
    "sherlock/renew"
    "async-redis-lock/extend"
    "async-redis-lock/lock"
    "async-redis-lock/unlock"
    "bullmq/extend-lock"
    "bullmq/extend-locks"
    "bullmq/finish-job"
    "bullmq/move-stalled"
    "bullmq/take-job"
    "distributed-lock/read-acquire"
    "distributed-lock/read-extend"
    "distributed-lock/read-release"
    "distributed-lock/semaphore-acquire"
    "distributed-lock/semaphore-extend"
    "distributed-lock/write-acquire"
    "laravel/allow"
    "laravel/take-slot"
    "redislock/obtain"
    "redislock/obtain-all"
    "redislock/pttl"
    "redislock/release-all"
    "redlock-net/extend"
    "redlock-rb/lock"
    "redlock-rb/look"
    "redlock-universal/acquire-all"
    "redlock-universal/extend-safely"
    "redlock-universal/inspect"
    "redlock/acquire"
    "redlock/extend"
    "redlock/release"
    "redsync/delete"
    "redsync/touch-or-take"
    "rslock/extend"
    "sidekiq-unique-jobs/lock"
    "sidekiq-unique-jobs/queue"
    "sidekiq-unique-jobs/unlock"
    "spring/obtain"
    "spring/renew"
    "spring/unlock"
    "spring/unlock-and-publish"
    "symfony/delete"
    "symfony/exists"
    "symfony/put-off"
    "symfony/save"
    "symfony/save-read"
    "symfony/supports-time"
};

/// Every case.
pub fn all() -> Result<Vec<Case>, Mistake> {
    parsed().clone()
}

/// As [`all`]. The files are read once in a process.
pub(crate) fn parsed() -> &'static Result<Vec<Case>, Mistake> {
    static PARSED: OnceLock<Result<Vec<Case>, Mistake>> = OnceLock::new();
    PARSED.get_or_init(|| {
        let mut cases = Vec::new();
        for (file, text) in FILES {
            cases.extend(Case::parse_all(&format!("cases/{file}.txt"), text)?);
        }
        Ok(cases)
    })
}

/// The text of a script.
pub fn script(name: &str) -> Option<&'static str> {
    SCRIPTS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// Whether `--quick` plays this case: it is about locks, sleeps only briefly, and does not need the
/// whole server.
pub fn is_quick(case: &Case) -> bool {
    let sleeps = |action: &Action| matches!(action, Action::Pass(it) if *it > QUICK_PAUSE_MAX);
    let is_listed = QUICK.iter().any(|prefix| case.file.starts_with(prefix));
    is_listed && !case.alone && !case.steps.iter().any(|step| sleeps(&step.action))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::{FILES, SCRIPTS, all};

    #[test]
    fn every_case_has_a_reason() {
        let cases = all().expect("they are well-formed");
        let mut names = BTreeSet::new();
        for case in &cases {
            let place = format!("{}: {}", case.file, case.name);
            assert!(!case.family.is_empty(), "{place}: no family");
            assert!(!case.why.is_empty(), "{place}: no reason");
            assert!(!case.steps.is_empty(), "{place}: nothing is said");
            assert!(names.insert((&case.family, &case.client, &case.name)), "{place}: twice");
        }
    }

    #[test]
    fn every_file_is_built_in() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cases");
        assert_eq!(walk(&folder, "txt"), FILES.len());
        assert_eq!(walk(&folder, "lua"), SCRIPTS.len());
    }

    fn walk(folder: &Path, extension: &str) -> usize {
        let entries = std::fs::read_dir(folder).expect("the folder is there");
        let count = |entry: std::io::Result<std::fs::DirEntry>| {
            let path = entry.expect("readable").path();
            let is_listed = path.extension().is_some_and(|it| it == extension);
            if path.is_dir() { walk(&path, extension) } else { usize::from(is_listed) }
        };
        entries.map(count).sum()
    }
}
