//! Large values are freed while other requests are served, and freed memory is returned to the
//! system.

use lockwheel::{Reply, Server};
use lockwheel_tests::call;
use lockwheel_tests::daemon::Daemon;
use lockwheel_tests::process::{eventually, resident_bytes_of};
use lockwheel_tests::wire::Wire;

const FIELDS: usize = 20_000;

/// A field of `INFO`.
fn field(info: &str, name: &str) -> u64 {
    let found = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let value = found.unwrap_or_else(|| panic!("no {name} in {info}"));
    value.trim().parse().expect("a number")
}

fn memory(server: &Server, name: &str) -> u64 {
    field_of(&call(server, "INFO memory"), name)
}

fn field_of(reply: &Reply, name: &str) -> u64 {
    match reply {
        Reply::Bulk(info) | Reply::Verbatim { text: info, .. } => {
            field(&String::from_utf8_lossy(info), name)
        }
        other => panic!("no INFO: {other:?}"),
    }
}

/// Fills a key with a command that is called with each number.
fn fill(server: &Server, command: &str) {
    let script = format!("for i = 1, {FIELDS} do redis.call({command}) end");
    assert_eq!(server.call(&["EVAL", &script, "0"]).expect("an answer"), Reply::Null);
}

/// Within one transaction, so that the removed value is not freed yet.
#[test]
fn large_values_are_freed_while_others_are_served() {
    let server = Server::start().expect("a server");
    let mut freed = 0;
    for removal in ["UNLINK k", "DEL k", "PEXPIRE k 0", "SET k v", "FLUSHALL ASYNC"] {
        fill(&server, "'hset', 'k', 'field' .. i, 'v'");
        let mut client = server.client().expect("a client");
        for step in ["MULTI", removal, "INFO memory"] {
            client.call(&step.split(' ').collect::<Vec<_>>()).expect("an answer");
        }
        let replies = client.call(&["EXEC"]).expect("an answer");
        let Reply::Array(replies) = replies else { panic!("{replies:?}") };
        let pending = field_of(&replies[1], "lazyfree_pending_objects");
        assert_eq!(pending, 1, "{removal}");
        eventually("all to be free", || memory(&server, "lazyfree_pending_objects") == 0);
        freed += 1;
        assert_eq!(memory(&server, "lazyfreed_objects"), freed, "{removal}");
        call(&server, "DEL k");
    }
}

/// The clock does not move, so no timer triggers the freeing.
#[test]
fn memory_is_freed_while_the_clock_is_stopped() {
    let server = Server::builder().frozen_clock().start().expect("a server");
    fill(&server, "'hset', 'k', 'field' .. i, 'v'");
    call(&server, "PEXPIRE k 10");
    server.advance(std::time::Duration::from_millis(10)).expect("a server");
    eventually("all to be free", || memory(&server, "lazyfreed_objects") == 1);
    fill(&server, "'set', 'key' .. i, 'v'");
    call(&server, "FLUSHALL");
    eventually("all to be free", || memory(&server, "lazyfreed_objects") == 1 + FIELDS as u64);
    assert_eq!(memory(&server, "lazyfree_pending_objects"), 0);
}

fn info(wire: &mut Wire, name: &str) -> u64 {
    field(&String::from_utf8_lossy(&wire.call(&["INFO", "memory"])), name)
}

/// `INFO` reports the resident memory that the system reports, apart from changes in between.
#[cfg(target_os = "linux")]
#[test]
fn resident_memory_is_that_of_the_process() {
    let mut daemon = Daemon::start(&["--port", "0"]);
    let port = daemon.wait_for_port();
    let mut wire = daemon.connect(port);
    for value in [1, 50 << 20] {
        assert_eq!(wire.call(&["SET", "k", &"x".repeat(value)]), b"+OK\r\n");
        let reported = info(&mut wire, "used_memory_rss");
        let resident = resident_bytes_of(daemon.process_id());
        assert!(reported.abs_diff(resident) < resident / 4, "{reported} for {resident}");
    }
    assert!(info(&mut wire, "used_memory_rss") > 50 << 20);
}

/// The values lie among others that stay, as in a server in use.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[test]
fn memory_of_large_values_is_returned_to_the_system() {
    let mut daemon = Daemon::start(&["--port", "0", "--proto-max-bulk-len", "1mb"]);
    let port = daemon.wait_for_port();
    let mut wire = daemon.connect(port);
    let idle = resident_bytes_of(daemon.process_id());
    let script = "for i = 1, 10000 do
        local n = ARGV[1] .. ':' .. i
        redis.call('hset', 'hash', 'field:' .. n, 'value:' .. n)
        redis.call('rpush', 'list', 'element:' .. n)
        redis.call('zadd', 'set', i, 'member:' .. n)
    end
    redis.call('rpush', 'stays:' .. ARGV[1], string.rep('x', 300))";
    for part in 0..30 {
        assert_eq!(wire.call(&["EVAL", script, "0", &part.to_string()]), b"$-1\r\n");
    }
    let full = resident_bytes_of(daemon.process_id()) - idle;
    assert_eq!(wire.call(&["DEL", "hash", "list", "set"]), b":3\r\n");
    eventually("the memory to go back", || {
        // The server is in use, but lightly.
        wire.call(&["PING"]);
        resident_bytes_of(daemon.process_id()).saturating_sub(idle) < full / 4
    });
}
