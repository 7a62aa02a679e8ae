//! A clock that tests control, from the same process and by command: it triggers all timed events,
//! and real time triggers none.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use lockwheel::{Client, ErrorKind, Reply, Server};
use lockwheel_tests::process::eventually;
use lockwheel_tests::wire::Wire;
use lockwheel_tests::{blocked_clients, call, connect};

const LEASE: Duration = Duration::from_secs(30);
const MILLISECOND: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// A server with a stopped clock, which commands may move.
fn frozen_with(settings: &[(&str, &str)]) -> Server {
    let test = ("enable-test-commands", "yes");
    let settings = settings.iter().copied().chain([test]);
    let builder = settings.fold(Server::builder().frozen_clock(), |builder, (name, value)| {
        builder.config(name, value)
    });
    builder.start().expect("a server")
}

fn frozen() -> Server {
    frozen_with(&[])
}

fn advance(server: &Server, span: Duration) {
    server.clock().advance(span).expect("a server");
}

fn listener(server: &Server) -> Client {
    let mut client = server.client().expect("a client");
    client.call(&["SUBSCRIBE", "__keyevent@0__:expired"]).expect("a subscription");
    client
}

/// The keys of the received expiry events.
fn expired_keys(listener: &mut Client) -> Vec<String> {
    let mut keys = Vec::new();
    while let Some(push) = listener.try_receive().expect("a subscription") {
        keys.push(payload(&push));
    }
    keys
}

fn payload(push: &Reply) -> String {
    let Reply::Push(parts) = push else { panic!("no message: {push:?}") };
    let Some(Reply::Bulk(bytes)) = parts.last() else { panic!("no payload: {push:?}") };
    String::from_utf8_lossy(bytes).into_owned()
}

/// `timeout` uses the same clock, and the client that moves the clock is not idle.
#[test]
fn client_that_moves_the_clock_is_not_idle() {
    let server = Server::builder().frozen_clock().for_tests().config("timeout", "10");
    let server = server.start().expect("a server");
    let mut idle = Wire::connect(server.addr(), 2);
    assert_eq!(idle.call(&["PING"]), b"+PONG\r\n");
    let mut test = Wire::connect(server.addr(), 2);
    for _ in 0..3 {
        assert_eq!(test.call(&["LOCKWHEEL", "CLOCK", "ADVANCE", "30s"]), b"+OK\r\n");
    }
    assert_eq!(idle.read_to_close(), b"");
    assert_eq!(test.call(&["PING"]), b"+PONG\r\n");
}

#[test]
fn clock_is_moved_by_command_too() {
    let server = frozen();
    let mut wire = connect(&server);
    wire.ask("SET lock token NX PX 30000");
    assert_eq!(wire.ask("LOCKWHEEL CLOCK ADVANCE 29s999ms"), "+OK\r\n");
    assert_eq!(wire.ask("PTTL lock"), ":1\r\n");
    assert_eq!(wire.ask("LOCKWHEEL CLOCK ADVANCE 1ms"), "+OK\r\n");
    assert_eq!(wire.ask("EXISTS lock"), ":0\r\n");
    // Commands after it in the same pipeline run at the new time.
    wire.send_bytes(b"SET lock token PX 5000\r\nLOCKWHEEL CLOCK ADVANCE 5s\r\nEXISTS lock\r\n");
    let replies = [(); 3].map(|()| String::from_utf8_lossy(&wire.read()).into_owned());
    assert_eq!(replies, ["+OK\r\n", "+OK\r\n", ":0\r\n"]);
    let before = server.clock().now();
    assert_eq!(wire.ask("LOCKWHEEL CLOCK STEP -1h"), "+OK\r\n");
    assert_eq!(server.clock().now(), before);
    assert_eq!(server.clock().wall(), before - HOUR);
}

#[test]
fn clock_commands_are_refused_outside_of_tests() {
    let server = Server::start().expect("a server");
    let mut wire = connect(&server);
    let refused = wire.ask("LOCKWHEEL CLOCK FREEZE");
    assert!(refused.starts_with("-ERR LOCKWHEEL command not allowed."), "{refused}");
    let local = Server::builder().config("enable-test-commands", "local").start();
    let local = local.expect("a server");
    assert_eq!(Wire::connect(local.addr(), 2).ask("LOCKWHEEL CLOCK FREEZE"), "+OK\r\n");
}

#[test]
fn clock_moves_forward_and_never_back() {
    let server = frozen();
    let begin = server.clock().now();
    server.clock().set(begin + LEASE).expect("a server");
    let shown_ms = (begin + LEASE).duration_since(SystemTime::UNIX_EPOCH).expect("a moment");
    let shown_ms = shown_ms.as_millis();
    let refusal =
        format!("the clock shows {shown_ms}, in milliseconds since 1970, and never goes back");
    let in_process = server.clock().set(begin).expect_err("the past");
    assert_eq!((in_process.kind(), in_process.to_string()), (ErrorKind::Usage, refusal.clone()));
    let past = format!("LOCKWHEEL CLOCK SET {}", shown_ms - 1);
    assert_eq!(connect(&server).ask(&past), format!("-ERR {refusal}\r\n"));
    assert_eq!(server.clock().now(), begin + LEASE);
}

#[test]
fn clock_begins_at_the_chosen_time() {
    let moment = SystemTime::UNIX_EPOCH + LEASE;
    let frozen = Server::builder().clock_start(moment).frozen_clock().start().expect("a server");
    assert_eq!((frozen.clock().now(), frozen.clock().wall()), (moment, moment));
    let running = Server::builder().clock_start(moment).start().expect("a server");
    let now = running.clock().now();
    assert!(moment <= now && now < moment + HOUR, "{now:?}");
    assert!((running.clock().rate() - 1.0).abs() < f64::EPSILON);
}

#[test]
fn clock_runs_until_stopped_and_can_be_restarted() {
    let server = Server::builder().config("notify-keyspace-events", "Ex").start();
    let server = server.expect("a server");
    let mut listener = listener(&server);
    assert!((server.clock().rate() - 1.0).abs() < f64::EPSILON);
    server.clock().freeze().expect("a server");
    let stopped = server.clock().now();
    call(&server, "SET lock token PX 1");
    assert_eq!(call(&server, "PTTL lock"), Reply::Integer(1));
    assert_eq!(server.clock().now(), stopped);
    server.clock().run().expect("a server");
    // No request is sent: the wheel is fired in real time again.
    assert_eq!(payload(&listener.receive().expect("a message")), "lock");
    assert!(server.clock().now() > stopped);
}

#[test]
fn clock_runs_at_the_given_rate() {
    let server = Server::builder().config("notify-keyspace-events", "Ex").start();
    let server = server.expect("a server");
    let mut listener = listener(&server);
    call(&server, "SET early token PX 3600000");
    server.clock().run_at(1_000_000.0).expect("a server");
    assert_eq!(payload(&listener.receive().expect("a message")), "early");
    call(&server, "SET late token PX 3600000");
    assert_eq!(payload(&listener.receive().expect("a message")), "late");
    for times in [-1.0, f64::NAN, 1_000_001.0, 0.000_1] {
        let refused = server.clock().run_at(times).expect_err("no rate");
        assert_eq!(refused.kind(), ErrorKind::Usage, "{times}");
    }
}

/// Every event happens at its own time while the clock moves, so a subscriber receives the ends of
/// leases in the order of their deadlines, in whatever order the leases were set.
/// Shows G9.
#[test]
fn moving_the_clock_sends_expiry_events_in_order() {
    let server = frozen_with(&[("notify-keyspace-events", "Ex")]);
    let mut listener = listener(&server);
    for n in [3, 1, 4, 2, 5] {
        call(&server, &format!("SET lock{n} token PX {}", n * 1000));
    }
    advance(&server, Duration::from_millis(4_999));
    assert_eq!(expired_keys(&mut listener), ["lock1", "lock2", "lock3", "lock4"]);
    advance(&server, MILLISECOND);
    assert_eq!(expired_keys(&mut listener), ["lock5"]);
}

#[test]
fn blocking_time_out_follows_the_clock() {
    let server = frozen();
    let (mut waiter, mut later) = (connect(&server), connect(&server));
    waiter.send_line("BLPOP queue 10");
    later.send_line("BLPOP queue 20");
    eventually("both to wait", || blocked_clients(&server) == 2);
    advance(&server, Duration::from_millis(9_999));
    assert_eq!(blocked_clients(&server), 2);
    advance(&server, MILLISECOND);
    assert_eq!(waiter.read(), b"*-1\r\n");
    assert_eq!(blocked_clients(&server), 1);
    call(&server, "RPUSH queue element");
    assert_eq!(later.read(), b"*2\r\n$5\r\nqueue\r\n$7\r\nelement\r\n");
}

#[test]
fn paused_requests_run_in_order_of_arrival() {
    const CLIENTS: usize = 12;
    let server = frozen();
    call(&server, "CLIENT PAUSE 10000 WRITE");
    let mut held: Vec<Wire> = (0..CLIENTS).map(|_| connect(&server)).collect();
    for (n, client) in held.iter_mut().enumerate() {
        client.send_line(&format!("RPUSH order {n}"));
        eventually("it to be held back", || blocked_clients(&server) == n + 1);
    }
    advance(&server, Duration::from_secs(10));
    for (n, client) in held.iter_mut().enumerate() {
        assert_eq!(client.read(), format!(":{}\r\n", n + 1).as_bytes());
    }
}

/// The clock is moved far beyond the end of the hold: the leases that the held requests set have
/// ended by then, and the requests after them have run.
#[test]
fn held_requests_run_at_the_end_of_the_hold() {
    for hold in ["CLIENT PAUSE 10000 WRITE", "LOCKWHEEL FAULT ADD DELAY 10s COMMAND set"] {
        let server = frozen_with(&[("notify-keyspace-events", "Ex")]);
        let (mut held, mut mover, mut listener) =
            (connect(&server), connect(&server), listener(&server));
        call(&server, "SET before token PX 14000");
        call(&server, "SET behind token PX 20000");
        call(&server, hold);
        held.send_bytes(b"SET lock token PX 5000\r\nBLPOP queue 7\r\nPTTL behind\r\n");
        eventually("the write to be held back", || blocked_clients(&server) == 1);
        assert_eq!(mover.ask("LOCKWHEEL CLOCK ADVANCE 60s"), "+OK\r\n");
        assert_eq!(held.read(), b"+OK\r\n", "{hold}");
        assert_eq!(expired_keys(&mut listener), ["before", "lock", "behind"], "{hold}");
        assert_eq!(held.read(), b"*-1\r\n", "{hold}");
        assert_eq!(held.read(), b":3000\r\n", "{hold}");
    }
}

#[test]
fn idle_time_out_follows_the_clock() {
    let server = frozen_with(&[("timeout", "60")]);
    let mut quiet = connect(&server);
    quiet.ask("PING");
    advance(&server, Duration::from_millis(59_999));
    assert_eq!(quiet.ask("PING"), "+PONG\r\n");
    advance(&server, Duration::from_mins(1));
    quiet.read_to_close();
}

/// By command and from this process; with and without plans.
#[test]
fn slow_script_threshold_follows_the_clock() {
    for plans in ["yes", "no"] {
        let server = frozen_with(&[("script-plans", plans)]);
        let mut script = connect(&server);
        for by_command in [true, false] {
            script.send(&["EVAL", "while true do end", "0"]);
            let (mut other, mut mover) = (connect(&server), connect(&server));
            let mut five_seconds_pass = || {
                if by_command {
                    assert_eq!(mover.ask("LOCKWHEEL CLOCK ADVANCE 5s"), "+OK\r\n");
                } else {
                    advance(&server, Duration::from_secs(5));
                }
            };
            // The start of the script cannot be observed. Until it is slow, other clients wait.
            let slow = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !slow.load(Ordering::Acquire) {
                        five_seconds_pass();
                    }
                });
                eventually("the script to be slow", || other.ask("GET k").starts_with("-BUSY "));
                slow.store(true, Ordering::Release);
            });
            assert!(other.ask("GET k").starts_with("-BUSY "));
            assert_eq!(other.ask("SCRIPT KILL"), "+OK\r\n");
            let killed = String::from_utf8_lossy(&script.read()).into_owned();
            assert!(killed.starts_with("-ERR Script killed by user"), "{killed}");
            assert_eq!(other.ask("GET k"), "$-1\r\n");
        }
    }
}

/// Shows G5.
#[test]
fn wall_clock_step_does_not_change_leases() {
    let server = frozen();
    let clock = server.clock();
    for (forward_hours, back_hours) in [(1, 0), (0, 1), (0, 24), (48, 0)] {
        call(&server, "SET lock token PX 30000");
        clock.step_wall_forward(forward_hours * HOUR).expect("a server");
        clock.step_wall_back(back_hours * HOUR).expect("a server");
        assert_eq!(call(&server, "PTTL lock"), Reply::Integer(30_000));
        advance(&server, LEASE - MILLISECOND);
        assert_eq!(call(&server, "GET lock"), Reply::bulk("token"));
        advance(&server, MILLISECOND);
        assert_eq!(call(&server, "GET lock"), Reply::Null);
    }
}

/// As on a Redis when its wall clock is stepped.
#[test]
fn jump_of_the_clock_ends_leases() {
    let server = frozen_with(&[("notify-keyspace-events", "Ex")]);
    let mut listener = listener(&server);
    let mut waiter = connect(&server);
    let begin = server.clock().wall();
    call(&server, "SET lock token PX 30000");
    call(&server, "SET other token PX 40000");
    waiter.send_line("BLPOP queue 30");
    eventually("it to wait", || blocked_clients(&server) == 1);
    server.clock().jump_back(HOUR).expect("a server");
    assert_eq!(server.clock().wall(), begin - HOUR);
    assert_eq!(call(&server, "PTTL lock"), Reply::Integer(3_630_000));
    advance(&server, HOUR + LEASE - MILLISECOND);
    assert_eq!(call(&server, "PTTL lock"), Reply::Integer(1));
    assert_eq!((expired_keys(&mut listener), blocked_clients(&server)), (vec![], 1));
    server.clock().jump_forward(HOUR).expect("a server");
    assert_eq!(expired_keys(&mut listener), ["lock", "other"]);
    assert_eq!(waiter.read(), b"*-1\r\n");
    assert_eq!(server.clock().wall(), begin + HOUR + LEASE - MILLISECOND);
}

#[test]
fn jump_of_the_clock_ends_a_pause() {
    let server = frozen();
    let mut paused = connect(&server);
    call(&server, "CLIENT PAUSE 10000 WRITE");
    server.clock().jump_back(HOUR).expect("a server");
    advance(&server, HOUR);
    paused.send_line("SET k v");
    eventually("the write to be held back", || blocked_clients(&server) == 1);
    advance(&server, Duration::from_secs(10));
    assert_eq!(paused.read(), b"+OK\r\n");
}
