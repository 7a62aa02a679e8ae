//! Every path on which output leaves the server waits for the log, and nothing else does. The test
//! decides when the log writes and flushes.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use lockwheel::simulation::clocks::{self, Clocks};
use lockwheel::simulation::pipe::Pipe;
use lockwheel::simulation::{SimulatedServer, StartOptions};
use lockwheel::{Client, Reply};
use lockwheel_compat::wire::frame::Frame;
use lockwheel_compat::wire::request;
use lockwheel_simulated_disk::{DiskFault, SimulatedDisk};

/// A server whose log works only in [`Stage::flush`], and its clients, by name.
struct Stage {
    server: SimulatedServer,
    clients: BTreeMap<&'static str, Pipe>,
    now_us: i64,
}

impl Stage {
    fn new() -> Stage {
        Stage::with(&[("appendonly", "yes"), ("notify-keyspace-events", "KEA")])
    }

    fn with(settings: &[(&str, &str)]) -> Stage {
        Stage::on(settings, &SimulatedDisk::new())
    }

    fn on(settings: &[(&str, &str)], disk: &SimulatedDisk) -> Stage {
        set_clocks(0);
        let disk = Arc::new(disk.clone());
        let options =
            StartOptions { settings, disk, seed: 1, segment_bytes_max: 1 << 20, node: None };
        let server = SimulatedServer::start(&options).expect("a server");
        Stage { server, clients: BTreeMap::new(), now_us: 0 }
    }

    /// Sends requests, separated by `;`, in one piece, and runs the server until it has nothing to
    /// do but to write its log. `^` is a space within a word.
    fn send(&mut self, name: &'static str, commands: &str) {
        let server = &mut self.server;
        let pipe = self.clients.entry(name).or_insert_with(|| server.connect().expect("a client"));
        let requests = commands.split(';').map(|command| {
            let words: Vec<String> =
                command.split_whitespace().map(|word| word.replace('^', " ")).collect();
            request(&words)
        });
        pipe.send(&requests.collect::<Vec<_>>().concat());
        self.run();
    }

    fn run(&mut self) {
        loop {
            self.server.run_tasks(&mut |_| 0);
            self.server.end_turn();
            if !self.server.is_ready() {
                break;
            }
        }
    }

    /// Writes and flushes everything that the log has to write; output that this releases is sent.
    fn flush(&mut self) {
        while self.server.has_log_work() {
            self.server.log_step();
            self.run();
        }
    }

    fn pass_time(&mut self, span_ms: i64) {
        self.now_us += span_ms * 1_000;
        set_clocks(self.now_us);
        self.run();
    }

    /// Takes what the client has received, in the notation of the compatibility suite.
    fn received(&mut self, name: &str) -> String {
        let bytes = self.clients[name].receive();
        let (mut rest, mut frames) = (&bytes[..], Vec::new());
        while let Some((frame, length)) = Frame::first(rest).expect("frames") {
            frames.push(frame.notation());
            rest = &rest[length..];
        }
        assert!(rest.is_empty(), "a part of a frame was sent");
        frames.join(" ")
    }

    /// Sends requests whose replies do not wait for the log.
    fn at_once(&mut self, name: &'static str, commands: &str, replies: &str) {
        self.send(name, commands);
        assert_eq!(self.received(name), replies, "`{commands}`");
    }

    /// Checks that the client has received nothing, and receives `frames` after a flush.
    fn after_flush(&mut self, name: &str, frames: &str) {
        assert_eq!(self.received(name), "", "before the flush");
        self.flush();
        assert_eq!(self.received(name), frames);
    }

    /// Sends requests whose replies wait for the log.
    fn waits(&mut self, name: &'static str, commands: &str, replies: &str) {
        self.send(name, commands);
        assert!(self.server.has_log_work(), "`{commands}`: the log has nothing to do");
        self.after_flush(name, replies);
    }

    /// Runs commands, flushes the log and discards the replies.
    fn prepare(&mut self, commands: &str) {
        self.send("setup", commands);
        self.flush();
        self.received("setup");
    }
}

fn set_clocks(now_us: i64) {
    let wall_us = 1_700_000_000_000_000 + now_us;
    let boot_us = 1_000_000 + now_us;
    clocks::set(Clocks { monotonic_us: boot_us, wall_us, boot_us, boot_id: [1; 16] });
}

/// Polls a future once.
fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn reply_waits_for_its_own_change() {
    let mut stage = Stage::new();
    stage.waits("a", "SET lock 1 NX PX 9000", "+OK");
    stage.waits("a", "PEXPIRE lock 8000", ":1");
    stage.waits("a", "EVAL return^redis.call('incr',KEYS[1]) 1 n", ":1");
    stage.at_once("a", "MULTI;INCR n", "+OK +QUEUED");
    stage.waits("a", "EXEC", "[:2]");
    stage.waits("a", "DEL lock", ":1");
}

#[test]
fn replies_wait_behind_one_that_waits() {
    let mut stage = Stage::new();
    stage.at_once("a", "PING;SET lock 1;PING;GET other", "+PONG");
    stage.after_flush("a", "+OK +PONG nil");
}

#[test]
fn reply_that_shows_a_change_of_another_client_waits() {
    let script = "EVAL return^redis.call('exists',KEYS[1]) 1 lock";
    for (before, change, read, reply) in [
        ("PING", "SET lock 1", "GET lock", "\"1\""),
        ("PING", "SET lock 1", "SET lock 2 NX", "nil"),
        ("PING", "SET lock 1", script, ":1"),
        ("PING", "SET lock 1", "MULTI;GET lock;EXEC", ""),
        ("SET lock 1", "DEL lock", "GET lock", "nil"),
        ("SET lock 1", "DEL lock", "EXISTS lock", ":0"),
        ("SET lock 1", "PEXPIRE lock 9000", "PERSIST lock", ":1"),
        ("SET lock 1", "RENAME lock other", "EXISTS lock", ":0"),
        ("SET lock 1", "RENAME lock other", "GET other", "\"1\""),
        ("SET lock 1", "COPY lock other", "EXISTS other", ":1"),
        ("HSET lock f 1", "HDEL lock f", "HGET lock f", "nil"),
    ] {
        let mut stage = Stage::new();
        stage.prepare(before);
        stage.send("a", change);
        if reply.is_empty() {
            stage.at_once("b", "MULTI;GET lock", "+OK +QUEUED");
            stage.send("b", "EXEC");
            stage.after_flush("b", "[\"1\"]");
        } else {
            stage.send("b", read);
            stage.after_flush("b", reply);
        }
    }
}

#[test]
fn reply_that_shows_released_state_does_not_wait() {
    let mut stage = Stage::new();
    stage.prepare("SET held 1 PX 9000");
    stage.send("a", "SET lock 1 PX 9000");
    stage.at_once("b", "GET held", "\"1\"");
    stage.at_once("b", "SET held 2 NX PX 9000", "nil");
    stage.at_once("b", "PTTL held", ":9000");
    stage.at_once("b", "GET nothing", "nil");
    stage.at_once("b", "EVAL return^redis.call('get',KEYS[1]) 1 held", "\"1\"");
    stage.at_once("b", "WATCH held;MULTI;GET held;EXEC", "+OK +OK +QUEUED [\"1\"]");
    stage.at_once("b", "SELECT 1;GET lock", "+OK nil");
    stage.after_flush("a", "+OK");
}

#[test]
fn reply_about_all_keys_waits() {
    for (command, reply) in [
        ("DBSIZE", ":1"),
        ("KEYS *", "[\"lock\"]"),
        ("SCAN 0", "[\"0\", [\"lock\"]]"),
        ("RANDOMKEY", "\"lock\""),
    ] {
        let mut stage = Stage::new();
        stage.send("a", "SET lock 1");
        stage.send("b", command);
        stage.after_flush("b", reply);
    }
    let mut stage = Stage::new();
    stage.send("a", "SET lock 1");
    stage.send("b", "INFO keyspace");
    assert_eq!(stage.received("b"), "");
    stage.flush();
    assert!(stage.received("b").contains("keys=1"));
}

#[test]
fn every_reply_waits_after_a_flush_of_all_keys() {
    for flush in ["FLUSHALL", "FLUSHDB", "SWAPDB 0 1"] {
        let mut stage = Stage::new();
        stage.prepare("SET lock 1");
        stage.send("a", flush);
        stage.send("b", "GET lock");
        stage.after_flush("b", "nil");
    }
}

#[test]
fn reply_of_an_aborted_transaction_waits() {
    let mut stage = Stage::new();
    stage.prepare("SET lock 1");
    stage.at_once("b", "WATCH lock;MULTI;PING", "+OK +OK +QUEUED");
    stage.send("a", "DEL lock");
    stage.send("b", "EXEC");
    stage.after_flush("b", "nil-array");
}

#[test]
fn end_of_a_lease_is_logged_before_it_shows() {
    let mut stage = Stage::new();
    stage.prepare("CONFIG SET enable-debug-command yes;SET lock 1 PX 100");
    stage.pass_time(101);
    stage.send("b", "GET lock");
    stage.after_flush("b", "nil");
}

#[test]
fn message_waits_for_the_unit_that_sent_it() {
    let mut stage = Stage::new();
    stage.prepare("SET lock 1");
    stage.send("s", "SUBSCRIBE released");
    stage.received("s");
    stage.send(
        "a",
        "EVAL redis.call('del',KEYS[1])redis.call('publish',ARGV[1],'x') 1 lock released",
    );
    stage.after_flush("s", "[\"message\", \"released\", \"x\"]");
    stage.received("a");
    stage.at_once("a", "PUBLISH released y", ":1");
    assert_eq!(stage.received("s"), "[\"message\", \"released\", \"y\"]");
}

#[test]
fn message_behind_one_that_waits_waits() {
    let mut stage = Stage::new();
    stage.send("s", "SUBSCRIBE released");
    stage.received("s");
    stage.send("a", "MULTI;SET lock 1;PUBLISH released x;EXEC");
    stage.at_once("b", "PUBLISH released y", ":1");
    let messages = ["x", "y"].map(|text| format!("[\"message\", \"released\", \"{text}\"]"));
    stage.after_flush("s", &messages.join(" "));
}

#[test]
fn keyspace_event_waits() {
    let mut stage = Stage::new();
    stage.send("s", "SUBSCRIBE __keyevent@0__:set");
    stage.received("s");
    stage.send("a", "SET lock 1");
    stage.after_flush("s", "[\"message\", \"__keyevent@0__:set\", \"lock\"]");
}

#[test]
fn invalidation_waits() {
    let mut stage = Stage::new();
    stage.prepare("SET lock 1");
    stage.send("t", "HELLO 3;CLIENT TRACKING ON;GET lock");
    stage.received("t");
    stage.send("a", "DEL lock");
    stage.after_flush("t", "push [\"invalidate\", [\"lock\"]]");
}

#[test]
fn late_reply_of_a_blocked_client_waits() {
    let mut stage = Stage::new();
    stage.at_once("b", "BLPOP queue 0", "");
    stage.send("a", "RPUSH queue x");
    stage.after_flush("b", "[\"queue\", \"x\"]");
    assert_eq!(stage.received("a"), ":1");
}

#[test]
fn request_after_a_pause_waits() {
    let mut stage = Stage::new();
    stage.prepare("CLIENT PAUSE 1000 WRITE");
    stage.at_once("a", "SET lock 1 NX", "");
    assert!(!stage.server.has_log_work());
    stage.pass_time(1_001);
    stage.after_flush("a", "+OK");
}

#[test]
fn call_in_process_waits() {
    let mut stage = Stage::new();
    let mut client: Client = stage.server.client().expect("a client");
    {
        let mut call = pin!(client.call_async(&["SET", "lock", "1", "NX"]));
        assert!(poll(call.as_mut()).is_pending());
        stage.flush();
        let Poll::Ready(reply) = poll(call.as_mut()) else { panic!("it is released") };
        assert_eq!(reply.expect("a reply"), Reply::OK);
    }
    let mut call = pin!(client.call_async(&["SET", "lock", "1", "NX"]));
    let Poll::Ready(reply) = poll(call.as_mut()) else { panic!("it shows released state") };
    assert_eq!(reply.expect("a reply"), Reply::Null);
}

#[test]
fn message_to_a_client_in_process_waits() {
    let mut stage = Stage::new();
    let mut client: Client = stage.server.client().expect("a client");
    let Poll::Ready(Ok(_)) = poll(pin!(client.call_async(&["SUBSCRIBE", "released"]))) else {
        panic!("it does not wait")
    };
    stage.send("a", "MULTI;SET lock 1;PUBLISH released x;EXEC");
    assert_eq!(client.try_receive().expect("no error"), None);
    stage.flush();
    assert!(client.try_receive().expect("no error").is_some());
}

#[test]
fn connection_is_closed_after_its_last_reply() {
    for last in ["QUIT", "CLIENT KILL ID 1 SKIPME no"] {
        let mut stage = Stage::new();
        stage.send("a", &format!("SET lock 1;{last}"));
        assert_eq!(stage.received("a"), "");
        assert!(!stage.clients["a"].is_closed(), "{last}");
        stage.flush();
        assert!(stage.received("a").starts_with("+OK"), "{last}");
        assert!(stage.clients["a"].is_closed(), "{last}");
    }
}

#[test]
fn server_that_stops_sends_what_it_has_flushed() {
    let mut stage = Stage::new();
    stage.send("a", "SET lock 1");
    stage.server.stop();
    stage.run();
    assert_eq!(stage.received("a"), "+OK");
}

#[test]
fn nothing_is_sent_after_a_failed_flush() {
    let disk = SimulatedDisk::new();
    let mut stage = Stage::on(&[("appendonly", "yes")], &disk);
    stage.waits("a", "SET lock 1", "+OK");
    stage.send("a", "SET lock 2");
    // The write succeeds, and the flush fails.
    disk.add_fault(disk.operations() + 2, DiskFault::Fails);
    stage.flush();
    assert_eq!(stage.received("a"), "");
    assert!(stage.server.is_stopping());
}

#[test]
fn everysec_sends_when_units_are_written() {
    let disk = SimulatedDisk::new();
    let settings = [("appendonly", "yes"), ("appendfsync", "everysec")];
    let mut stage = Stage::on(&settings, &disk);
    stage.send("a", "SET lock 1");
    stage.after_flush("a", "+OK");
    // It is written and not flushed.
    stage.at_once("a", "WAITAOF 1 0 0", "");
    stage.server.log_second();
    stage.run();
    assert_eq!(stage.received("a"), "[:1, :0]");
}

/// Commands that follow in the same pipeline or transaction are acknowledged under the new policy.
#[test]
fn replies_wait_for_the_flush_from_the_change_to_always_on() {
    let change = "CONFIG SET appendfsync always;SET lock 1";
    let forms = [
        (change.to_owned(), "+OK +OK"),
        (format!("MULTI;{change};EXEC"), "+OK +QUEUED +QUEUED [+OK, +OK]"),
    ];
    for (commands, replies) in forms {
        let disk = SimulatedDisk::new();
        let settings = [("appendonly", "yes"), ("appendfsync", "everysec")];
        let mut stage = Stage::on(&settings, &disk);
        stage.send("a", &commands);
        let mut received = stage.received("a");
        while stage.server.has_log_work() && received != replies {
            stage.server.log_step();
            stage.run();
            received = format!("{received} {}", stage.received("a")).trim().to_owned();
        }
        assert_eq!(received, replies);
        drop(stage);
        disk.crash(&mut |_| 0);
        let mut stage = Stage::on(&settings, &disk);
        stage.at_once("a", "GET lock", "\"1\"");
    }
}

#[test]
fn server_without_a_log_sends_at_once() {
    let mut stage = Stage::with(&[]);
    stage.at_once("a", "SET lock 1 PX 9000;GET lock;DEL lock", "+OK \"1\" :1");
}

#[test]
fn grant_waits_for_the_record_of_the_lease_ceiling() {
    let mut stage = Stage::with(&[("restart-guard", "yes")]);
    stage.waits("a", "SET lock 1 NX PX 30000", "+OK");
    // The recorded lease ceiling covers these leases.
    stage.at_once("a", "PEXPIRE lock 20000;SET other 1 PX 20000", ":1 +OK");
    stage.waits("a", "SET long 1 NX PX 900000", "+OK");
}
