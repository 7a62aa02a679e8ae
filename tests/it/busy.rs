//! Slow scripts: the requests of other clients are read and refused, and the script can be killed.

use std::net::SocketAddr;
use std::sync::Arc;

use lockwheel::{ErrorKind, Reply, Server};
use lockwheel_tests::frame::show;
use lockwheel_tests::process::eventually;
use lockwheel_tests::target::Target;
use lockwheel_tests::wire::Wire;

const ENDLESS: &str = "while true do end";
const ENDLESS_AFTER_A_WRITE: &str = "redis.call('set', 'k', 'v') while true do end";

fn connect(address: SocketAddr) -> Wire {
    Wire::connect(address, 2)
}

/// Servers with one and with two threads, so that the script runs on another thread than some
/// connections; and one that runs scripts in Lua only: on the others a plan begins these scripts.
fn servers() -> [Server; 3] {
    [("1", "yes"), ("2", "yes"), ("1", "no")].map(|(io_threads, plans)| {
        Server::builder()
            .config("io-threads", io_threads)
            .config("script-plans", plans)
            .config("busy-reply-threshold", "1")
            .start()
            .expect("a server")
    })
}

/// Starts a script that does not end; returns its client once other clients are refused.
fn keep_busy(address: SocketAddr, script: &str) -> Wire {
    let mut wire = connect(address);
    // In one write: the bytes after the script are read with it.
    let script = format!("*3\r\n$4\r\nEVAL\r\n${}\r\n{script}\r\n$1\r\n0\r\n", script.len());
    wire.send_bytes([script.as_str(), "PING\r\n"].concat().as_bytes());
    let mut other = connect(address);
    eventually("others to be refused", || other.call(&["GET", "k"]).starts_with(b"-BUSY "));
    wire
}

/// The replies to clients while a script runs until it is killed.
fn replies_while_script_runs(address: SocketAddr) -> Vec<String> {
    let mut early = connect(address);
    early.call(&["SET", "k", "v"]);
    let mut queueing = connect(address);
    queueing.call(&["MULTI"]);
    queueing.call(&["SET", "k", "queued"]);
    let mut script = keep_busy(address, ENDLESS);
    let mut replies = Vec::new();
    let mut add = |reply: Vec<u8>| replies.push(show(&reply));
    for request in ["GET k", "PING", "SCRIPT EXISTS x", "EVAL return 0", "MULTI", "DISCARD"] {
        early.send_bytes(format!("{request}\r\n").as_bytes());
        add(early.read());
    }
    // A client that is not authenticated gets other replies; so do allowed commands.
    for request in ["GET k", "AUTH secret", "MULTI", "SELECT 1", "NO SUCH"] {
        let mut new = connect(address);
        new.send_bytes(format!("{request}\r\nGET k\r\n").as_bytes());
        add(new.read());
        add(new.read());
    }
    let mut modern = Wire::connect(address, 3);
    add(modern.call(&["GET", "k"]));
    add(queueing.call(&["EXEC"]));
    add(connect(address).call(&["SCRIPT", "KILL"]));
    add(script.read());
    add(script.read());
    add(early.call(&["GET", "k"]));
    add(early.call(&["SCRIPT", "KILL"]));
    replies
}

#[test]
fn other_clients_are_refused_until_the_script_is_killed() {
    let ours: Vec<_> =
        servers().iter().map(|server| replies_while_script_runs(server.addr())).collect();
    assert!(ours.iter().all(|replies| *replies == ours[0]), "{ours:#?}");
    assert_eq!(ours[0].last().map(String::as_str), Some(NOT_BUSY));
    if let Some(oracle) = Target::redis() {
        oracle.run("CONFIG SET busy-reply-threshold 1");
        assert_eq!(ours[0], replies_while_script_runs(oracle.address()));
    }
}

const NOT_BUSY: &str = "-NOTBUSY No scripts in execution right now.\\r\\n";

/// Covers scripts of every kind, run by a plan or by Lua. A kill that has no effect shows as the
/// time-out of the reply.
#[test]
fn a_kill_ends_every_kind_of_script() {
    const BY_A_PLAN: &str = "scripts_left_to_lua:1\r\nscripts_of_lua:0\r\n";
    const BY_LUA: &str = "scripts_left_to_lua:0\r\nscripts_of_lua:1\r\n";
    for (script, begun) in [
        (ENDLESS, BY_A_PLAN),
        ("for i = 1, 1000000000 do redis.call('get', 'k') end", BY_A_PLAN),
        ("for i = 1, 1000000000 do local n = i * 2 end", BY_A_PLAN),
        ("local a = {} while true do for i, n in ipairs({1, 2}) do a[i] = n end end", BY_A_PLAN),
        ("while true do redis.call('get', 'k') end", BY_A_PLAN),
        ("while true do redis.pcall('no such command') end", BY_A_PLAN),
        ("while true do pcall(function() while true do end end) end", BY_LUA),
        ("local text = string.rep('a', 1000) while true do text:find('.-b') end", BY_LUA),
        ("local t = {} while true do for n = 1, 100 do t[n] = {[n] = n} end end", BY_LUA),
        ("local text = '' while true do text = (text .. 'x'):sub(-1000) end", BY_LUA),
        ("while true do cjson.decode(cjson.encode({1, 2, 3})) end", BY_LUA),
        ("local t = {} for i = 1, 9999 do t[i] = i end while true do cmsgpack.pack(t) end", BY_LUA),
        ("table.insert({}, -2147483648, 1) while true do end", BY_LUA),
        ("table.sort({3, 2, 1}, function() while true do end end)", BY_LUA),
    ] {
        for (plans, begun) in [("yes", begun), ("no", BY_LUA)] {
            let server = Server::builder().config("busy-reply-threshold", "1");
            let server = server.config("script-plans", plans).start().expect("a server");
            let mut busy = keep_busy(server.addr(), script);
            assert_eq!(connect(server.addr()).call(&["SCRIPT", "KILL"]), b"+OK\r\n", "{script}");
            let end = show(&busy.read());
            assert!(end.starts_with("-ERR ") && end.contains("Script killed"), "{script}: {end}");
            let mut other = connect(server.addr());
            assert_eq!(other.call(&["GET", "k"]), b"$-1\r\n", "{script}");
            let tiers = other.call(&["INFO", "lockwheel"]);
            let tiers = String::from_utf8(tiers).expect("a text");
            assert!(tiers.contains(begun), "{script}: {tiers}");
        }
    }
}

/// The replies to clients while a function runs until it is killed, and while a script does.
fn replies_while_function_runs(address: SocketAddr) -> Vec<String> {
    let mut other = connect(address);
    let code = "#!lua name=l\nredis.register_function('f', function() while true do end end)";
    let mut replies = vec![show(&other.call(&["FUNCTION", "LOAD", "REPLACE", code]))];
    let mut function = connect(address);
    function.send(&["FCALL", "f", "1", "k", "a"]);
    eventually("others to be refused", || other.call(&["GET", "k"]).starts_with(b"-BUSY "));
    for request in [
        &["GET", "k"][..],
        &["FCALL", "f", "0"],
        &["FUNCTION", "LIST"],
        &["SCRIPT", "KILL"],
        &["FUNCTION", "KILL"],
    ] {
        let stats = show(&connect(address).call(&["FUNCTION", "STATS"]));
        let (before, after) = stats.split_once("duration_ms").expect("a function that runs");
        let duration = after.find("engines").expect("what comes after");
        replies.push(format!("{before}{}", &after[duration..]));
        replies.push(show(&other.call(request)));
    }
    replies.push(show(&function.read()));
    let mut script = keep_busy(address, ENDLESS);
    for name in ["STATS", "KILL"] {
        replies.push(show(&other.call(&["FUNCTION", name])));
    }
    replies.push(show(&other.call(&["SCRIPT", "KILL"])));
    script.read();
    script.read();
    replies.push(show(&other.call(&["FUNCTION", "STATS"])));
    replies
}

#[test]
fn functions_and_scripts_are_distinguished() {
    let ours: Vec<_> = servers().iter().map(|s| replies_while_function_runs(s.addr())).collect();
    assert!(ours.iter().all(|replies| *replies == ours[0]), "{ours:#?}");
    if let Some(oracle) = Target::redis() {
        oracle.run("CONFIG SET busy-reply-threshold 1");
        assert_eq!(ours[0], replies_while_function_runs(oracle.address()));
    }
}

#[test]
fn many_clients_are_refused_one_by_one() {
    for server in servers() {
        let mut clients: Vec<Wire> = (0..50).map(|_| connect(server.addr())).collect();
        let mut script = keep_busy(server.addr(), ENDLESS);
        for _ in 0..3 {
            clients.iter_mut().for_each(|wire| wire.send(&["GET", "k"]));
            for wire in &mut clients {
                assert!(wire.read().starts_with(b"-BUSY "));
            }
        }
        clients[0].send(&["SCRIPT", "KILL"]);
        assert_eq!(clients[0].read(), b"+OK\r\n");
        assert!(script.read().starts_with(b"-ERR "));
        assert_eq!(clients[49].call(&["GET", "k"]), b"$-1\r\n");
    }
}

#[test]
fn script_that_has_written_ends_only_with_the_server() {
    const COUNTING: &str = "for i = 1, 1000000000 do redis.call('set', 'k', i) end";
    let scripts = [ENDLESS_AFTER_A_WRITE, COUNTING];
    for (server, script) in scripts.iter().flat_map(|script| servers().map(|it| (it, script))) {
        let mut script = keep_busy(server.addr(), script);
        let mut other = connect(server.addr());
        assert!(other.call(&["SCRIPT", "KILL"]).starts_with(b"-UNKILLABLE "));
        assert!(other.call(&["GET", "k"]).starts_with(b"-BUSY "));
        other.send(&["SHUTDOWN", "NOSAVE"]);
        assert_eq!(other.read_to_close(), b"");
        script.read_to_close();
        server.stop();
        assert!(!server.has_failed());
    }
}

/// A transaction that began before the script is run as a whole after it, or not at all.
#[test]
fn refused_clients_change_nothing() {
    for server in servers() {
        let mut script = keep_busy(server.addr(), ENDLESS);
        let mut other = connect(server.addr());
        for request in [&["SET", "k", "other"][..], &["MULTI"], &["SET", "k", "other"], &["EXEC"]] {
            other.call(request);
        }
        assert_eq!(other.call(&["SCRIPT", "KILL"]), b"+OK\r\n");
        script.read();
        assert_eq!(connect(server.addr()).call(&["GET", "k"]), b"$-1\r\n");
    }
}

/// The script runs on a thread of the caller, not of the server.
#[test]
fn a_script_called_in_process_is_killed_from_outside() {
    for server in servers() {
        let server = Arc::new(server);
        let mut early = connect(server.addr());
        early.call(&["SET", "k", "v"]);
        let calling = Arc::clone(&server);
        let script = std::thread::spawn(move || {
            // A runtime of the caller does not disturb it.
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            runtime
                .expect("a runtime")
                .block_on(async { calling.call_raw(&["EVAL", ENDLESS, "0"]) })
        });
        eventually("others to be refused", || early.call(&["GET", "k"]).starts_with(b"-BUSY "));
        let mut new = connect(server.addr());
        assert!(new.call(&["GET", "k"]).starts_with(b"-BUSY "));
        assert_eq!(new.call(&["SCRIPT", "KILL"]), b"+OK\r\n");
        let reply = script.join().expect("it returns").expect("an answer");
        assert!(matches!(reply, Reply::Error(_)), "{reply:?}");
        assert_eq!(new.call(&["GET", "k"]), b"$1\r\nv\r\n");
    }
}

/// Covers thresholds at which no client gets a BUSY error.
#[test]
fn the_end_of_the_server_ends_a_script() {
    for (threshold, plans) in [("0", "yes"), ("60000", "yes"), ("60000", "no")] {
        let server = Server::builder().config("busy-reply-threshold", threshold);
        let server = server.config("script-plans", plans).start();
        let server = Arc::new(server.expect("a server"));
        let mut client = server.client().expect("a client");
        let (begun, begins) = std::sync::mpsc::channel();
        let script = std::thread::spawn(move || {
            begun.send(()).expect("the receiver exists");
            client.call_raw(&["EVAL", ENDLESS_AFTER_A_WRITE, "0"])
        });
        begins.recv_timeout(std::time::Duration::from_secs(60)).expect("it begins");
        server.stop();
        match script.join().expect("it returns") {
            Ok(reply) => assert!(matches!(reply, Reply::Error(_)), "{reply:?}"),
            // The script had not begun yet.
            Err(error) => assert_eq!(error.kind(), ErrorKind::Stopped),
        }
    }
}
