//! Faults that a test can inject, as clients observe them; and gates, which make races
//! deterministic.

use std::time::Duration;

use lockwheel::{ErrorKind, Fault, Reply, Requests, Server};
use lockwheel_tests::process::eventually;
use lockwheel_tests::wire::Wire;
use lockwheel_tests::{blocked_clients, call, connect};

/// A server for tests with a stopped clock.
fn server() -> Server {
    Server::builder().frozen_clock().for_tests().start().expect("a server")
}

fn named(server: &Server, name: &str) -> Wire {
    let mut wire = connect(server);
    assert_eq!(wire.ask(&format!("CLIENT SETNAME {name}")), "+OK\r\n");
    wire
}

/// Adds a rule by command; returns its number.
fn add_rule(server: &Server, rule: &str) -> i64 {
    match call(server, &format!("LOCKWHEEL FAULT ADD {rule}")) {
        Reply::Integer(id) => id,
        other => panic!("no rule: {other:?}"),
    }
}

fn listed(server: &Server) -> String {
    let Reply::Bulk(text) = call(server, "LOCKWHEEL FAULT LIST") else { panic!("no list") };
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn dropped_request_is_neither_run_nor_answered() {
    let server = server();
    add_rule(&server, "DROP COMMAND set NTH 1");
    let mut client = connect(&server);
    client.send_line("SET k v");
    // The next reply is that of the next request.
    assert_eq!(client.ask("GET k"), "$-1\r\n");
    assert_eq!(client.ask("SET k v"), "+OK\r\n");
}

#[test]
fn request_with_lost_reply_was_run() {
    let server = server();
    add_rule(&server, "LOSE COMMAND set TIMES 1");
    let mut client = connect(&server);
    client.send_line("SET k v NX");
    assert_eq!(client.ask("SET k w NX"), "$-1\r\n");
    assert_eq!(client.ask("GET k"), "$1\r\nv\r\n");
}

#[test]
fn reply_to_a_blocked_client_can_be_lost() {
    let server = server();
    add_rule(&server, "LOSE COMMAND blpop");
    let mut waiter = connect(&server);
    waiter.send_line("BLPOP queue 0");
    eventually("it to wait", || listed(&server).contains("\"fired\":1"));
    assert_eq!(call(&server, "RPUSH queue element"), Reply::Integer(1));
    assert_eq!(waiter.ask("LLEN queue"), ":0\r\n");
    assert_eq!(waiter.ask("PING"), "+PONG\r\n");
}

#[test]
fn connection_can_be_closed_before_or_after_its_request() {
    let server = server();
    for (rule, kept, answer) in [
        ("CLOSE", Reply::Null, ""),
        ("LOSE-AND-CLOSE", Reply::bulk("v"), ""),
        ("CUT 3", Reply::bulk("v"), "+OK"),
        ("CUT 0", Reply::bulk("v"), ""),
    ] {
        call(&server, "DEL k");
        let id = add_rule(&server, &format!("{rule} COMMAND set"));
        let mut client = connect(&server);
        client.send_line("SET k v");
        assert_eq!(String::from_utf8_lossy(&client.read_to_close()), answer, "{rule}");
        assert_eq!(call(&server, "GET k"), kept, "{rule}");
        assert_eq!(call(&server, &format!("LOCKWHEEL FAULT CLEAR {id}")), Reply::Integer(1));
    }
}

#[test]
fn any_error_can_be_injected() {
    let server = server();
    let mut client = connect(&server);
    for line in [
        "LOADING Redis is loading the dataset in memory",
        "READONLY You can't write against a read only replica.",
        "MOVED 1234 127.0.0.1:7001",
        "CLUSTERDOWN The cluster is down",
    ] {
        let words = ["LOCKWHEEL", "FAULT", "ADD", "ERROR", line, "KEY", "k", "TIMES", "1"];
        server.call(&words).expect("a rule");
        assert_eq!(client.ask("GET other"), "$-1\r\n");
        assert_eq!(client.ask("GET k"), format!("-{line}\r\n"));
        assert_eq!(client.ask("GET k"), "$-1\r\n");
    }
    // A transaction with a refused request does not run.
    add_rule(&server, "ERROR OOM COMMAND set TIMES 1");
    assert_eq!(client.ask("MULTI"), "+OK\r\n");
    assert_eq!(client.ask("SET k v"), "-OOM\r\n");
    assert!(client.ask("EXEC").starts_with("-EXECABORT "));
}

#[test]
fn delay_follows_the_clock() {
    let server = server();
    add_rule(&server, "DELAY 2s CLIENT slow COMMAND set");
    let (mut slow, mut quick) = (named(&server, "slow"), named(&server, "quick"));
    slow.send_line("SET k slow");
    eventually("it to be held", || listed(&server).contains("\"fired\":1"));
    assert_eq!(quick.ask("SET k quick"), "+OK\r\n");
    server.advance(Duration::from_millis(1_999)).expect("a server");
    assert_eq!(quick.ask("GET k"), "$5\r\nquick\r\n");
    server.advance(Duration::from_millis(1)).expect("a server");
    assert_eq!(slow.read_text(), "+OK\r\n");
    assert_eq!(quick.ask("GET k"), "$4\r\nslow\r\n");
}

#[test]
fn client_held_once_continues_when_the_rule_is_cleared() {
    let server = server();
    let id = add_rule(&server, "DELAY 2s COMMAND set");
    let mut client = connect(&server);
    client.send_line("SET k v");
    eventually("it to be held", || listed(&server).contains("\"fired\":1"));
    server.advance(Duration::from_secs(2)).expect("a server");
    assert_eq!(client.read_text(), "+OK\r\n");
    assert!(listed(&server).ends_with("\"held\":[]}]"), "{}", listed(&server));
    client.send_line("BLPOP queue 0");
    eventually("it to wait", || blocked_clients(&server) == 1);
    call(&server, &format!("LOCKWHEEL FAULT CLEAR {id}"));
    assert!(blocked_clients(&server) == 1);
    call(&server, "RPUSH queue element");
    assert_eq!(client.read_text(), "*2\r\n$5\r\nqueue\r\n$7\r\nelement\r\n");
}

#[test]
fn stalled_server_continues_when_the_rule_is_cleared() {
    let server = server();
    let id = add_rule(&server, "STALL CLIENT mute COMMAND set");
    let mut mute = named(&server, "mute");
    mute.send_line("SET k v");
    mute.send_line("PING");
    eventually("it to be held", || listed(&server).contains("\"held\":[2]"));
    assert_eq!(call(&server, "GET k"), Reply::Null);
    call(&server, &format!("LOCKWHEEL FAULT CLEAR {id}"));
    assert_eq!(mute.read_text() + &mute.read_text(), "+OK\r\n+PONG\r\n");
}

#[test]
fn script_cache_can_be_flushed_before_a_script() {
    let server = server();
    let mut client = connect(&server);
    let sha = client.ask("SCRIPT LOAD return(1)");
    let sha = sha.lines().nth(1).expect("a digest").to_owned();
    add_rule(&server, "FLUSH-SCRIPTS COMMAND evalsha NTH 2");
    let evalsha = format!("EVALSHA {sha} 0");
    assert_eq!(client.ask(&evalsha), ":1\r\n");
    assert!(client.ask(&evalsha).starts_with("-NOSCRIPT "));
}

#[test]
fn clock_can_jump_after_a_request() {
    let server = server();
    add_rule(&server, "JUMP 30s COMMAND set");
    let mut client = connect(&server);
    assert_eq!(client.ask("SET lock token NX PX 30000"), "+OK\r\n");
    assert_eq!(client.ask("GET lock"), "$-1\r\n");
}

#[test]
fn connections_can_be_refused() {
    let server = server();
    let mut before = connect(&server);
    assert_eq!(before.ask("PING"), "+PONG\r\n");
    add_rule(&server, "REFUSE TIMES 1");
    std::net::TcpStream::connect(server.addr()).expect("the system lets it in");
    eventually("it to be sent away", || listed(&server).contains("\"fired\":1"));
    assert_eq!(before.ask("PING"), "+PONG\r\n");
    assert_eq!(connect(&server).ask("PING"), "+PONG\r\n");
}

/// Every kind of write: by a command, a script, a transaction; new, changed and deleted keys.
#[test]
fn a_failover_loses_the_last_writes() {
    let server = server();
    let mut client = connect(&server);
    for command in [
        "SET kept v PX 60000",
        "RPUSH list a b",
        "SET ended v PX 1000",
        "SET changed old PX 50000",
        "HSET hash f 1",
    ] {
        client.ask(command);
    }
    server.advance(Duration::from_secs(1)).expect("a server");
    for command in ["SET new v", "EVAL return(redis.call('DEL','list')) 0", "GET kept"] {
        client.ask(command);
    }
    for command in ["MULTI", "SET changed new", "HSET hash f 2 g 3", "EXEC"] {
        client.ask(command);
    }
    // One command that changes nothing, and one that deletes.
    client.ask("DEL missing");
    client.ask("DEL kept");
    assert_eq!(server.faults().failover(3).expect("a server"), 3);
    client.read_to_close();
    assert_eq!(call(&server, "PTTL kept"), Reply::Integer(59_000));
    assert_eq!(call(&server, "GET changed"), Reply::bulk("old"));
    assert_eq!(call(&server, "PTTL changed"), Reply::Integer(49_000));
    let fields = Reply::Map(vec![(Reply::bulk("f"), Reply::bulk("1"))]);
    assert_eq!(call(&server, "HGETALL hash"), fields);
    let elements = Reply::Array(vec![Reply::bulk("a"), Reply::bulk("b")]);
    assert_eq!(call(&server, "LRANGE list 0 -1"), elements);
    assert_eq!(call(&server, "EXISTS ended"), Reply::Integer(0));
    assert_eq!(call(&server, "GET new"), Reply::bulk("v"));
    // Earlier writes are still there.
    assert_eq!(server.faults().failover(1_000).expect("a server"), 6);
    assert_eq!(call(&server, "DBSIZE"), Reply::Integer(0));
}

#[test]
fn failover_restores_a_flushed_database() {
    let server = server();
    let mut client = connect(&server);
    for command in ["SET a 1", "SET b 2", "FLUSHALL"] {
        assert_eq!(client.ask(command), "+OK\r\n");
    }
    add_rule(&server, "LOSE-WRITES 2 COMMAND set KEY c");
    assert_eq!(client.ask("SET c 3"), "+OK\r\n");
    assert_eq!(client.ask("MGET a b c"), "*3\r\n$1\r\n1\r\n$1\r\n2\r\n$-1\r\n");
}

#[test]
fn gate_is_controlled_by_commands_too() {
    let server = server();
    let (mut test, mut held) = (connect(&server), named(&server, "held"));
    assert_eq!(test.ask("LOCKWHEEL GATE ADD CLIENT held COMMAND incr NTH 2"), ":1\r\n");
    assert_eq!(held.ask("INCR n"), ":1\r\n");
    test.send_line("LOCKWHEEL GATE AWAIT 1");
    held.send_line("INCR n");
    assert!(test.read_text().starts_with(':'));
    assert!(test.ask("LOCKWHEEL GATE LIST").contains("\"matched\":2,\"fired\":1,\"held\":["));
    assert_eq!(test.ask("GET n"), "$1\r\n1\r\n");
    assert_eq!(test.ask("LOCKWHEEL GATE OPEN 1"), ":1\r\n");
    assert_eq!(held.read_text(), ":2\r\n");
    assert!(test.ask("LOCKWHEEL GATE AWAIT 1").starts_with("-ERR no rule or gate"));
}

#[test]
fn rules_are_counted_listed_and_cleared() {
    let server = server();
    let faults = server.faults();
    let never = faults.add(Fault::Drop, Requests::any().command("get").nth(100)).expect("a rule");
    let refused = Fault::Error("BUSY later".to_owned());
    let always = faults.add(refused, Requests::any().command("get")).expect("a rule");
    for _ in 0..3 {
        assert_eq!(call(&server, "GET k"), Reply::error("BUSY later"));
    }
    let counts = |rule: &lockwheel::FaultRule<'_>| (rule.matched().ok(), rule.fired().ok());
    assert_eq!(counts(&never), (Some(3), Some(0)));
    assert_eq!(counts(&always), (Some(3), Some(3)));
    assert_eq!(
        listed(&server),
        "[{\"id\":1,\"action\":\"drop\",\"command\":\"get\",\"nth\":100,\"matched\":3,\"fired\":0,\
         \"held\":[]},{\"id\":2,\"action\":\"error\",\"line\":\"BUSY later\",\"command\":\"get\",\
         \"matched\":3,\"fired\":3,\"held\":[]}]"
    );
    always.clear().expect("a server");
    assert_eq!(always.fired().expect_err("cleared").kind(), ErrorKind::Usage);
    assert_eq!(call(&server, "GET k"), Reply::Null);
    faults.clear().expect("a server");
    assert_eq!(listed(&server), "[]");
}
