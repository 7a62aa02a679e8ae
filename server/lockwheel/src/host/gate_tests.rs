//! Tests that a gate which is added to the table of the engine, in one place, refuses a command
//! however it is called.

use std::io::{Read, Write};
use std::net::TcpStream;

use bytes::BytesMut;
use lockwheel_resp::decode::decode;
use lockwheel_resp::encode_request;

use lockwheel_engine::Engine;
use lockwheel_engine::command::Flags;
use lockwheel_engine::run::gates::{Closed, Commands, Conditions, GATES, Gate, Invocation, Paths};

use crate::{Client, Reply, Server};

const REFUSED: &str = "GATE closed";

/// Refuses commands with this first argument.
const REFUSED_KEY: &str = "refused";

fn refuse_key(_: &mut Engine, call: &Invocation<'_>) -> Result<(), Closed> {
    let is_refused = call.argv.get(1).is_some_and(|key| *key == REFUSED_KEY.as_bytes());
    if is_refused { Err(lockwheel_engine::error::Error::line(REFUSED).into()) } else { Ok(()) }
}

/// Several ways to choose the commands that the gate concerns, and when.
const ADDED: [Gate; 4] = [
    Gate {
        name: "test",
        paths: Paths::all(),
        when: Conditions::empty(),
        commands: Commands::With(Flags::WRITE),
        check: refuse_key,
    },
    Gate { commands: Commands::Without(Flags::READONLY), ..ADDED_TO_ALL },
    ADDED_TO_ALL,
    Gate { when: Conditions::GROWTH_LIMIT, ..ADDED_TO_ALL },
];

const ADDED_TO_ALL: Gate = Gate {
    name: "test",
    paths: Paths::all(),
    when: Conditions::empty(),
    commands: Commands::All,
    check: refuse_key,
};

/// A server with one more gate, which can be removed and added again.
struct GatedServer {
    server: Server,
    client: Client,
    gates: &'static [Gate],
}

impl GatedServer {
    fn start(gate: Gate, plans: &str) -> GatedServer {
        let server = Server::builder().config("script-plans", plans);
        let server = server.config("maxmemory", "1gb").start().expect("a server");
        let client = server.client().expect("a client");
        let gates = Box::leak(GATES.iter().copied().chain([gate]).collect());
        let server = GatedServer { server, client, gates };
        server.close_gate();
        server
    }

    fn close_gate(&self) {
        self.server.host.with(|engine| engine.set_gates(self.gates)).expect("an engine");
    }

    fn open_gate(&self) {
        self.server.host.with(|engine| engine.set_gates(GATES)).expect("an engine");
    }

    /// Runs a command in process.
    fn call(&mut self, command: &str) -> Reply {
        self.client.call_raw(&words(command)).expect("a reply")
    }

    fn expect_refused(&mut self, command: &str) {
        assert_eq!(self.call(command), Reply::error(REFUSED), "{command}");
    }

    fn expect_status(&mut self, command: &str, status: &'static str) {
        assert_eq!(self.call(command), Reply::status(status), "{command}");
    }

    /// The number of keys that exist of this one and the refused one.
    fn expect_keys(&mut self, other: &str, number: i64) {
        let command = format!("EXISTS {other} {REFUSED_KEY}");
        assert_eq!(self.call(&command), Reply::Integer(number));
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(self.server.addr()).expect("a connection")
    }
}

fn words(command: &str) -> Vec<Vec<u8>> {
    command.split(' ').map(|word| word.replace('_', " ").into_bytes()).collect()
}

/// Sends requests together.
fn send(stream: &mut TcpStream, requests: &[&str]) {
    let mut bytes = BytesMut::new();
    for request in requests {
        encode_request(&words(request), &mut bytes);
    }
    stream.write_all(&bytes).expect("sent");
}

/// Reads this many replies.
fn receive(stream: &mut TcpStream, number: usize) -> Vec<Reply> {
    let (mut bytes, mut replies) = (Vec::new(), Vec::new());
    while replies.len() < number {
        let mut chunk = [0; 4096];
        let length = stream.read(&mut chunk).expect("replies");
        assert!(length > 0, "closed after {replies:?}");
        bytes.extend_from_slice(&chunk[..length]);
        while let Some((reply, used)) = decode(&bytes).expect("well-formed replies") {
            replies.push(reply);
            bytes.drain(..used);
        }
    }
    replies
}

#[test]
fn added_gate_refuses_direct_and_pipelined_requests_and_calls_in_process() {
    for gate in ADDED {
        let mut server = GatedServer::start(gate, "yes");
        server.expect_refused("SET refused v");
        let mut stream = server.connect();
        send(&mut stream, &["SET refused v"]);
        assert_eq!(receive(&mut stream, 1), [Reply::error(REFUSED)]);
        // With few keys, and with enough of them for the engine to look ahead.
        for keys in [1, 4_000] {
            let keys: String = (0..keys).map(|number| format!(" k{number} v")).collect();
            server.expect_status(&format!("MSET{keys}"), "OK");
            send(&mut stream, &["SET k0 v", "SET refused v", "DEL refused", "SET k1 v"]);
            let refused = Reply::error(REFUSED);
            let expected = [Reply::OK, refused.clone(), refused, Reply::OK];
            assert_eq!(receive(&mut stream, 4), expected);
        }
        server.expect_keys("none", 0);
    }
}

#[test]
fn added_gate_refuses_commands_of_a_transaction() {
    for gate in ADDED {
        let mut server = GatedServer::start(gate, "yes");
        server.expect_status("MULTI", "OK");
        server.expect_status("SET k v", "QUEUED");
        server.expect_refused("SET refused v");
        let aborted = "EXECABORT Transaction discarded because of previous errors.";
        assert_eq!(server.call("EXEC"), Reply::error(aborted));
        server.expect_keys("k", 0);
        // A gate that closes after the commands have been queued.
        server.open_gate();
        server.expect_status("MULTI", "OK");
        server.expect_status("SET k v", "QUEUED");
        server.expect_status("SET refused v", "QUEUED");
        server.close_gate();
        let aborted = format!("EXECABORT Transaction discarded because of: {REFUSED}");
        assert_eq!(server.call("EXEC"), Reply::error(aborted));
        server.expect_keys("k", 0);
    }
}

#[test]
fn added_gate_refuses_commands_of_scripts_in_lua_and_as_plans() {
    const SCRIPT: &str = "redis.call('set',KEYS[1],1)_return_redis.call('set',KEYS[2],2)";
    for gate in ADDED {
        for (plans, runs) in [
            ("yes", "scripts_planned:1\r\nscripts_left_to_lua:1\r\nscripts_of_lua:0\r\n"),
            ("no", "scripts_planned:0\r\nscripts_left_to_lua:0\r\nscripts_of_lua:2\r\n"),
        ] {
            let mut server = GatedServer::start(gate, plans);
            server.expect_status(&format!("EVAL {SCRIPT} 2 k l"), "OK");
            let reply = server.call(&format!("EVAL {SCRIPT} 2 m refused"));
            let Reply::Error(line) = reply else { panic!("not refused: {reply:?}") };
            assert!(line.starts_with(REFUSED.as_bytes()), "{line:?}");
            server.expect_keys("m", 1);
            let Reply::Verbatim { text, .. } = server.call("INFO lockwheel") else {
                panic!("no text")
            };
            let text = String::from_utf8_lossy(&text).into_owned();
            assert!(text.contains(runs), "{text}");
        }
    }
}

#[test]
fn added_gate_refuses_the_command_of_a_client_that_is_served_later() {
    for gate in ADDED {
        let mut server = GatedServer::start(gate, "yes");
        server.open_gate();
        let mut waiter = server.connect();
        send(&mut waiter, &["BLPOP refused 0"]);
        let is_blocked = |reply| match reply {
            Reply::Verbatim { text, .. } => text.windows(17).any(|w| w == b"blocked_clients:1"),
            _ => false,
        };
        while !is_blocked(server.call("INFO clients")) {
            std::thread::yield_now();
        }
        server.close_gate();
        assert_eq!(server.call("RPUSH list v"), Reply::Integer(1));
        server.expect_status("RENAME list refused", "OK");
        assert_eq!(receive(&mut waiter, 1), [Reply::error(REFUSED)]);
        server.expect_keys("list", 1);
    }
}
