//! What the server can do, and what it cannot: one table, from which the table of the README and
//! the list of what is not implemented in `docs/differences.md` are written.
//!
//! A row names what shows it: commands, directives and promises that the server has, or, if the
//! capability is missing, commands and directives that it has not. So neither page can deny what
//! exists. What the rows say of other systems is from their documentation; the trials with etcd
//! and ZooKeeper are those of `docs/locks.md`.
//!
//! With `LOCKWHEEL_WRITE_DOCS` set, both tables are written.

use std::collections::BTreeSet;
use std::fs;

use lockwheel::{Reply, Server};
use lockwheel_engine::command::CommandTable;
use lockwheel_engine::settings::{self, CompatVersion, FORBIDDEN, Mode, Usage};
use lockwheel_tests::target::{Release, Target};
use lockwheel_tests::{call, frame_of, say, start, words};

use crate::boundaries::{read, root};

/// Names the variable with which the pages are written.
const WRITE: &str = "LOCKWHEEL_WRITE_DOCS";

/// The marks around a table in a page.
const BEGIN: &str = "<!-- From tests/it/capabilities.rs. To write this table anew:
     LOCKWHEEL_WRITE_DOCS=1 cargo test -p lockwheel-tests --test it capabilities:: -->\n";
const END: &str = "\n<!-- The end of the table. -->\n";

/// The pages with promises.
const PROMISES: &[&str] = &["guarantees", "locks", "replication", "running"];

const BESIDE_HEAD: &str = "\
| | Lockwheel | Redis with Sentinel | Redlock | etcd | ZooKeeper |
|---|---|---|---|---|---|
";

const MISSING_HEAD: &str = "\
| Subject | Behaviour |
|---|---|
";

/// What shows a row.
enum Name {
    /// A command, or a subcommand as in `config|get`, in any mode and version.
    Command(&'static str),
    /// A directive.
    Directive(&'static str),
    /// A promise, by its identifier.
    Promise(&'static str),
    /// A request that a server in cluster mode accepts.
    Request(&'static str),
}

use Name::{Command, Directive, Promise, Request};

/// A row of the table.
struct Capability {
    subject: &'static str,
    /// Lockwheel, Redis, Redlock, etcd and ZooKeeper in the table of the README, if it is there.
    beside: Option<[&'static str; 5]>,
    /// What the server does instead, if it has not the capability.
    missing: Option<&'static str>,
    /// Exist if, and only if, the server has the capability.
    names: &'static [Name],
}

const TABLE: &[Capability] = &[
    Capability {
        subject: "An acknowledged lock survives the loss of a machine",
        beside: Some([
            "yes, with three or five [nodes](docs/replication.md)",
            "[not guaranteed][sentinel]: replication is asynchronous",
            "yes, if restarted servers keep keys or [wait][redlock]",
            "yes",
            "yes",
        ]),
        missing: None,
        names: &[Directive("raft-port"), Promise("R2")],
    },
    Capability {
        subject: "A step of the wall clock",
        beside: Some([
            "changes no lease",
            "ends or prolongs leases",
            "[ends or prolongs][redlock] leases",
            "changes no lease",
            "changes no session",
        ]),
        missing: None,
        names: &[Promise("G5")],
    },
    Capability {
        subject: "Fencing token with each grant",
        beside: Some([
            "yes, of [`LOCK.ACQUIRE`](docs/locks.md)",
            "by libraries: Redisson's `RFencedLock`",
            "no",
            "yes, the [revision][etcd]",
            "`czxid` of the node; not shown by Curator",
        ]),
        missing: None,
        names: &[Command("lock.acquire"), Command("lock.validate"), Promise("L1")],
    },
    Capability {
        subject: "Order of waiting clients",
        beside: Some([
            "first in, first out, with `LOCK.ACQUIRE ... WAIT`",
            "by libraries: Redisson's `RFairLock`",
            "none: random delays",
            "first in, first out",
            "first in, first out",
        ]),
        missing: None,
        names: &[Command("lock.acquire")],
    },
    Capability {
        subject: "The holder's process dies",
        beside: Some([
            "its lease ends; with `BOUND`, 2 s (`GRACE`) after its connection",
            "its lease ends",
            "its lease ends",
            "its lease ends, 2 s at least",
            "its session ends, 2 ticks at least: 4 s in the sample configuration",
        ]),
        missing: None,
        names: &[Promise("L12"), Promise("L22")],
    },
    Capability {
        subject: "Clients",
        beside: Some([
            "those of Redis, [unmodified](docs/clients.md); lock objects in five languages",
            "in nearly every language",
            "libraries in some ten languages",
            "gRPC or JSON; locks in Go, and as a service of the server",
            "Java and C; locks in Java (Curator) and Python (kazoo)",
        ]),
        missing: None,
        names: &[Directive("compat-version"), Command("evalsha"), Command("subscribe")],
    },
    Capability {
        subject: "Machines, to survive the loss of one",
        beside: Some([
            "three",
            "three, for the sentinels",
            "three, usually five, independent",
            "three",
            "three",
        ]),
        missing: None,
        names: &[Directive("raft-port"), Promise("R2")],
    },
    Capability {
        subject: "Instruments for tests",
        beside: Some([
            "a clock that stops and moves, faults, gates, a [journal](docs/testing.md) of locks",
            "`CLIENT PAUSE`, `DEBUG SLEEP`",
            "as Redis",
            "a server within a Go program; failpoints",
            "`TestingServer`, `TestingCluster` of Curator",
        ]),
        missing: None,
        names: &[
            Command("lockwheel|clock"),
            Command("lockwheel|fault"),
            Command("lockwheel|gate"),
            Command("lockwheel|journal"),
        ],
    },
    Capability {
        subject: "Which client holds which lock",
        beside: Some([
            "a [page](docs/monitoring.md), commands, JSON",
            "keys and their values",
            "keys and their values",
            "keys and their leases",
            "nodes and their sessions",
        ]),
        missing: None,
        names: &[Command("lockwheel|locks"), Directive("admin-port")],
    },
    Capability {
        subject: "Keys divided over several machines",
        beside: Some([
            "no: one machine leads",
            "yes, with Redis Cluster",
            "yes, with several sets of servers",
            "[no][etcd]: one machine leads",
            "no: one machine leads",
        ]),
        missing: Some(
            "in cluster mode one node owns all slots, and of nodes that replicate one leads and \
             has all keys: [many-groups.md](many-groups.md) is a design",
        ),
        names: &[Request("CLUSTER MEET 127.0.0.1 7000"), Request("CLUSTER DELSLOTS 1")],
    },
    Capability {
        subject: "Besides locks",
        beside: Some([
            "keys of Redis, scripts, messages; [not all](docs/differences.md#not-implemented)",
            "database, cache, messages, modules; managed services",
            "as Redis",
            "configuration with history and watches, that of Kubernetes",
            "configuration with watches, that of Hadoop and HBase",
        ]),
        missing: None,
        names: &[Command("xadd"), Command("fcall"), Command("publish"), Command("zadd")],
    },
    Capability {
        subject: "HyperLogLog, geographic commands",
        beside: None,
        missing: Some("unknown command"),
        names: &[
            Command("pfadd"),
            Command("pfcount"),
            Command("pfdebug"),
            Command("pfmerge"),
            Command("pfselftest"),
            Command("geoadd"),
            Command("geodist"),
            Command("geohash"),
            Command("geopos"),
            Command("georadius"),
            Command("georadius_ro"),
            Command("georadiusbymember"),
            Command("georadiusbymember_ro"),
            Command("geosearch"),
            Command("geosearchstore"),
        ],
    },
    Capability {
        subject: "Leases of single hash fields (`HEXPIRE` and related commands, from Redis 7.4 on)",
        beside: None,
        missing: Some("unknown command, whatever `compat-version` says"),
        names: &[
            Command("hexpire"),
            Command("hpexpire"),
            Command("hexpireat"),
            Command("hpexpireat"),
            Command("hpersist"),
            Command("httl"),
            Command("hpttl"),
            Command("hexpiretime"),
            Command("hpexpiretime"),
            Command("hgetex"),
            Command("hsetex"),
        ],
    },
    Capability {
        subject: "`rename-command`, modules and their types",
        beside: None,
        missing: Some(
            "refused at the start. `MODULE LIST` is empty; `MODULE LOAD` and the like are unknown \
             subcommands",
        ),
        names: &[
            Directive("rename-command"),
            Directive("loadmodule"),
            Command("module|load"),
            Command("module|loadex"),
            Command("module|unload"),
        ],
    },
    Capability {
        subject: "Replication from or to a Redis",
        beside: None,
        missing: Some(
            "`replicaof` is refused at the start, and `REPLICAOF host port` by `ERR Replication \
             is not supported by this server`. Nodes [replicate](replication.md) to each other",
        ),
        names: &[Directive("replicaof")],
    },
    Capability {
        subject: "`MIGRATE`, `RESTORE-ASKING`",
        beside: None,
        missing: Some(
            "unknown command; `DUMP` and `RESTORE` [move keys](deploy.md#migration-from-redis)",
        ),
        names: &[Command("migrate"), Command("restore-asking")],
    },
    Capability {
        subject: "Encrypted private keys for TLS (`tls-key-file-pass`)",
        beside: None,
        missing: Some("refused at the start"),
        names: &[Directive("tls-key-file-pass")],
    },
    Capability {
        subject: "`SCRIPT DEBUG`",
        beside: None,
        missing: Some("unknown subcommand"),
        names: &[Command("script|debug")],
    },
    Capability {
        subject: "`LATENCY DOCTOR` and `GRAPH`",
        beside: None,
        missing: Some(
            "unknown subcommand; `LATENCY` shows the [events](monitoring.md#latency-events) \
             `command`, `fast-command`, `expire-cycle` and `aof-fsync-always` only",
        ),
        names: &[Command("latency|doctor"), Command("latency|graph")],
    },
];

#[test]
fn what_shows_a_capability_exists_unless_it_is_missing() {
    let server = start(&[("cluster-enabled", "yes")]);
    let (commands, promises) = (commands(), promises());
    for Capability { subject, missing, names, .. } in TABLE {
        assert!(!names.is_empty(), "{subject}: nothing shows it");
        for name in *names {
            let (name, exists) = match name {
                Command(name) => (name, commands.contains(*name)),
                Directive(name) => (name, is_supported(name)),
                Promise(name) => (name, promises.contains(&format!("<sub>{name}</sub>"))),
                Request(line) => (line, is_accepted(&server, line)),
            };
            assert_eq!(exists, missing.is_none(), "{subject}: {name}");
        }
    }
}

/// The list of what is missing is complete: it names every command that Redis has and the server
/// has not.
#[test]
fn every_command_of_redis_exists_or_is_listed_as_missing() {
    let Some(redis) = Target::redis() else { return };
    let mut later = ["7.4", "valkey-7.2"].into_iter().filter_map(Release::parse);
    if later.any(|release| redis.version().has(release)) {
        say("skipped: redis-server is newer than 7.2");
        return;
    }
    let reply = frame_of(&redis.connect(2).call(&words("COMMAND LIST")));
    let name = |text: &[u8]| String::from_utf8_lossy(text).to_ascii_lowercase();
    let theirs: BTreeSet<String> = reply.items.iter().map(|item| name(&item.text)).collect();
    assert!(theirs.len() > 200, "{theirs:?}");
    let (own, missing) = (commands(), missing_commands());
    let is_unlisted = |name: &&String| !own.contains(*name) && !missing.contains(name.as_str());
    let unlisted: Vec<&String> = theirs.iter().filter(is_unlisted).collect();
    assert!(unlisted.is_empty(), "no row of {} names {unlisted:?}", file!());
}

#[test]
fn tables_of_the_pages_are_those_of_the_capabilities() {
    for (page, table) in [("README.md", beside()), ("docs/differences.md", missing())] {
        let path = root().join(page);
        let text = read(&path);
        let wanted = with_table(&text, &table).unwrap_or_else(|| panic!("{page} has no marks"));
        if std::env::var_os(WRITE).is_some() {
            fs::write(&path, &wanted).expect("the page can be written");
        } else {
            assert!(text == wanted, "{page} is outdated: run this test with {WRITE}=1");
        }
    }
}

#[test]
fn only_the_text_between_the_marks_is_replaced() {
    let page = format!("a\n{BEGIN}\nb\n{END}c\n");
    let wanted = format!("a\n{BEGIN}\nd\n{END}c\n");
    assert_eq!(with_table(&page, "d\n"), Some(wanted));
    assert_eq!(with_table(&format!("a\n{BEGIN}\nb\n"), "d\n"), None);
    assert_eq!(with_table("a\nb\n", "d\n"), None);
}

/// The names of the commands and subcommands of all modes and versions.
fn commands() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for &version in CompatVersion::ALL {
        for mode in [Mode::Standalone, Mode::Sentinel] {
            let entries = CommandTable::of(mode, version).entries().iter();
            names.extend(entries.map(|entry| entry.full_name.clone()));
        }
    }
    names
}

/// The commands that rows name as missing.
fn missing_commands() -> BTreeSet<&'static str> {
    let rows = TABLE.iter().filter(|row| row.missing.is_some());
    let names = rows.flat_map(|row| row.names).filter_map(|name| match name {
        Command(name) => Some(*name),
        _ => None,
    });
    names.collect()
}

/// Whether a directive can be set. One that is neither known nor refused is a mistake of a row.
fn is_supported(name: &str) -> bool {
    let row = settings::rows().find(|row| row.name == name);
    assert!(row.is_some() || FORBIDDEN.contains(&name), "{name} is no directive");
    row.is_some_and(|row| !matches!(row.usage, Usage::Unsupported))
}

fn is_accepted(server: &Server, line: &str) -> bool {
    !matches!(call(server, line), Reply::Error(_))
}

/// The texts of the pages with promises.
fn promises() -> String {
    let page = |name: &&str| read(&root().join(format!("docs/{name}.md")));
    PROMISES.iter().map(page).collect()
}

/// The table of the README.
fn beside() -> String {
    let mut table = BESIDE_HEAD.to_owned();
    for Capability { subject, beside, .. } in TABLE {
        if let Some(cells) = beside {
            table += &format!("| {subject} | {} |\n", cells.join(" | "));
        }
    }
    table
}

/// The table of what is not implemented.
fn missing() -> String {
    let mut table = MISSING_HEAD.to_owned();
    for Capability { subject, missing, .. } in TABLE {
        if let Some(behaviour) = missing {
            table += &format!("| {subject} | {behaviour} |\n");
        }
    }
    table
}

/// A page with another table between the marks; `None` if there are none.
fn with_table(page: &str, table: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{table}{END}{after}"))
}
