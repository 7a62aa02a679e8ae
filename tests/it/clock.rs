//! The clock in a test's hands: it drives everything that happens by itself, from this process and
//! by command, and real time drives nothing then.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use lockwheel::{Client, ErrorKind, Reply, Server};
use lockwheel_tests::process::eventually;
use lockwheel_tests::wire::Wire;

const LEASE: Duration = Duration::from_secs(30);
const MILLISECOND: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// Its clock stands, and moves by command as well.
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

fn call(server: &Server, command: &str) -> Reply {
    let words: Vec<&str> = command.split(' ').collect();
    server.call(&words).expect("an answer")
}

fn wire(server: &Server) -> Wire {
    Wire::connect(server.addr(), 2)
}

fn advance(server: &Server, span: Duration) {
    server.clock().advance(span).expect("a server");
}

fn listener(server: &Server) -> Client {
    let mut client = server.client().expect("a client");
    client.call(&["SUBSCRIBE", "__keyevent@0__:expired"]).expect("a subscription");
    client
}

/// The keys whose end it has heard of.
fn heard(listener: &mut Client) -> Vec<String> {
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

fn blocked(server: &Server) -> usize {
    let Reply::Verbatim { text, .. } = call(server, "INFO clients") else { panic!("no text") };
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find_map(|line| line.strip_prefix("blocked_clients:"));
    line.and_then(|count| count.parse().ok()).expect("a count")
}

/// `timeout` counts on the same clock, and whoever moves it is not idle.
#[test]
fn whoever_moves_the_clock_has_not_been_idle() {
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
fn a_lease_ends_on_its_millisecond() {
    let server = frozen();
    call(&server, "SET lock token NX PX 30000");
    advance(&server, LEASE - MILLISECOND);
    assert_eq!(call(&server, "GET lock"), Reply::bulk("token"));
    assert_eq!(call(&server, "PTTL lock"), Reply::Integer(1));
    advance(&server, MILLISECOND);
    assert_eq!(call(&server, "GET lock"), Reply::Null);
    assert_eq!(call(&server, "SET lock token NX PX 30000"), Reply::OK);
}

#[test]
fn it_is_moved_by_command_as_well() {
    let server = frozen();
    let mut wire = wire(&server);
    wire.ask("SET lock token NX PX 30000");
    assert_eq!(wire.ask("LOCKWHEEL CLOCK ADVANCE 29999"), "+OK\r\n");
    assert_eq!(wire.ask("PTTL lock"), ":1\r\n");
    assert_eq!(wire.ask("LOCKWHEEL CLOCK ADVANCE 1ms"), "+OK\r\n");
    assert_eq!(wire.ask("EXISTS lock"), ":0\r\n");
    // What follows the order in the same pipeline comes after it.
    wire.send_bytes(b"SET lock token PX 5000\r\nLOCKWHEEL CLOCK ADVANCE 5s\r\nEXISTS lock\r\n");
    let replies = [(); 3].map(|()| String::from_utf8_lossy(&wire.read()).into_owned());
    assert_eq!(replies, ["+OK\r\n", "+OK\r\n", ":0\r\n"]);
    let before = server.clock().now();
    assert_eq!(wire.ask("LOCKWHEEL CLOCK STEP -1h"), "+OK\r\n");
    assert_eq!(server.clock().now(), before);
    assert_eq!(server.clock().wall(), before - HOUR);
}

#[test]
fn it_is_no_matter_of_servers_that_serve() {
    let server = Server::start().expect("a server");
    let mut wire = wire(&server);
    let refused = wire.ask("LOCKWHEEL CLOCK FREEZE");
    assert!(refused.starts_with("-ERR LOCKWHEEL command not allowed."), "{refused}");
    let local = Server::builder().config("enable-test-commands", "local").start();
    let local = local.expect("a server");
    assert_eq!(Wire::connect(local.addr(), 2).ask("LOCKWHEEL CLOCK FREEZE"), "+OK\r\n");
}

#[test]
fn it_is_set_forward_and_never_back() {
    let server = frozen();
    let begin = server.clock().now();
    server.clock().set(begin + LEASE).expect("a server");
    server.clock().set(begin).expect("a server");
    assert_eq!(server.clock().now(), begin + LEASE);
    let moment = SystemTime::UNIX_EPOCH + LEASE;
    let on_time = Server::builder().frozen_clock_at(moment).start().expect("a server");
    assert_eq!((on_time.clock().now(), on_time.clock().wall()), (moment, moment));
}

#[test]
fn it_runs_until_it_is_stopped_and_again_afterwards() {
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
    // Nobody asks for it: the wheel is fired in real time again.
    assert_eq!(payload(&listener.receive().expect("a message")), "lock");
    assert!(server.clock().now() > stopped);
}

#[test]
fn it_runs_as_fast_as_it_is_told() {
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

/// Everything that is due on the way happens at its own moment, so a subscriber hears of the ends
/// of leases in the order of their deadlines, whatever order they were given in.
#[test]
fn moving_the_clock_tells_of_each_end_in_order() {
    let server = frozen_with(&[("notify-keyspace-events", "Ex")]);
    let mut listener = listener(&server);
    for n in [3, 1, 4, 2, 5] {
        call(&server, &format!("SET lock{n} token PX {}", n * 1000));
    }
    advance(&server, Duration::from_millis(4_999));
    assert_eq!(heard(&mut listener), ["lock1", "lock2", "lock3", "lock4"]);
    advance(&server, MILLISECOND);
    assert_eq!(heard(&mut listener), ["lock5"]);
}

#[test]
fn on_the_systems_clock_the_end_of_a_lease_is_heard_unasked() {
    let server = Server::builder().config("notify-keyspace-events", "Ex").start();
    let server = server.expect("a server");
    let mut listener = listener(&server);
    call(&server, "SET late token PX 60000");
    call(&server, "SET soon token PX 5");
    assert_eq!(payload(&listener.receive().expect("a message")), "soon");
}

#[test]
fn a_wait_is_over_when_the_clock_says_so() {
    let server = frozen();
    let (mut waiter, mut later) = (wire(&server), wire(&server));
    waiter.send_line("BLPOP queue 10");
    later.send_line("BLPOP queue 20");
    eventually("both to wait", || blocked(&server) == 2);
    advance(&server, Duration::from_millis(9_999));
    assert_eq!(blocked(&server), 2);
    advance(&server, MILLISECOND);
    assert_eq!(waiter.read(), b"*-1\r\n");
    assert_eq!(blocked(&server), 1);
    call(&server, "RPUSH queue element");
    assert_eq!(later.read(), b"*2\r\n$5\r\nqueue\r\n$7\r\nelement\r\n");
}

#[test]
fn a_pause_is_over_when_the_clock_says_so() {
    let server = frozen();
    let mut paused = wire(&server);
    call(&server, "CLIENT PAUSE 10000 WRITE");
    paused.send_line("SET k v");
    eventually("the write to be held back", || blocked(&server) == 1);
    advance(&server, Duration::from_millis(9_999));
    assert_eq!(call(&server, "GET k"), Reply::Null);
    advance(&server, MILLISECOND);
    assert_eq!(paused.read(), b"+OK\r\n");
}

#[test]
fn whom_a_pause_has_held_go_on_in_the_order_in_which_they_came() {
    const CLIENTS: usize = 12;
    let server = frozen();
    call(&server, "CLIENT PAUSE 10000 WRITE");
    let mut held: Vec<Wire> = (0..CLIENTS).map(|_| wire(&server)).collect();
    for (n, client) in held.iter_mut().enumerate() {
        client.send_line(&format!("RPUSH order {n}"));
        eventually("it to be held back", || blocked(&server) == n + 1);
    }
    advance(&server, Duration::from_secs(10));
    for (n, client) in held.iter_mut().enumerate() {
        assert_eq!(client.read(), format!(":{}\r\n", n + 1).as_bytes());
    }
}

/// The clock is moved far over the moment at which they go on: what they are given has ended by
/// then, and what they have sent behind it has been run.
#[test]
fn whom_something_has_held_go_on_at_their_moment() {
    for hold in ["CLIENT PAUSE 10000 WRITE", "LOCKWHEEL FAULT ADD DELAY 10s COMMAND set"] {
        let server = frozen_with(&[("notify-keyspace-events", "Ex")]);
        let (mut held, mut mover, mut listener) = (wire(&server), wire(&server), listener(&server));
        call(&server, "SET before token PX 14000");
        call(&server, "SET behind token PX 20000");
        call(&server, hold);
        held.send_bytes(b"SET lock token PX 5000\r\nBLPOP queue 7\r\nPTTL behind\r\n");
        eventually("the write to be held back", || blocked(&server) == 1);
        assert_eq!(mover.ask("LOCKWHEEL CLOCK ADVANCE 60s"), "+OK\r\n");
        assert_eq!(held.read(), b"+OK\r\n", "{hold}");
        assert_eq!(heard(&mut listener), ["before", "lock", "behind"], "{hold}");
        assert_eq!(held.read(), b"*-1\r\n", "{hold}");
        assert_eq!(held.read(), b":3000\r\n", "{hold}");
    }
}

#[test]
fn who_says_nothing_is_closed_when_the_clock_says_so() {
    let server = frozen_with(&[("timeout", "60")]);
    let mut quiet = wire(&server);
    quiet.ask("PING");
    advance(&server, Duration::from_millis(59_999));
    assert_eq!(quiet.ask("PING"), "+PONG\r\n");
    advance(&server, Duration::from_mins(1));
    quiet.read_to_close();
}

/// By command and from this process; in Lua from the beginning, and begun by a plan.
#[test]
fn a_script_is_slow_when_the_clock_says_so() {
    for plans in ["yes", "no"] {
        let server = frozen_with(&[("script-plans", plans)]);
        let mut script = wire(&server);
        for by_command in [true, false] {
            script.send(&["EVAL", "while true do end", "0"]);
            let (mut other, mut mover) = (wire(&server), wire(&server));
            let mut five_seconds_pass = || {
                if by_command {
                    assert_eq!(mover.ask("LOCKWHEEL CLOCK ADVANCE 5s"), "+OK\r\n");
                } else {
                    advance(&server, Duration::from_secs(5));
                }
            };
            // Nobody sees when the script begins. Until it is slow the others wait.
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

#[test]
fn a_step_of_the_wall_clock_ends_and_prolongs_nothing() {
    const HOUR_SECONDS: i64 = 3_600;
    let server = frozen();
    for step in [HOUR_SECONDS, -HOUR_SECONDS, -24 * HOUR_SECONDS, 48 * HOUR_SECONDS] {
        call(&server, "SET lock token PX 30000");
        server.clock().step_wall(step * 1_000).expect("a server");
        assert_eq!(call(&server, "PTTL lock"), Reply::Integer(30_000), "{step}");
        advance(&server, LEASE - MILLISECOND);
        assert_eq!(call(&server, "GET lock"), Reply::bulk("token"), "{step}");
        advance(&server, MILLISECOND);
        assert_eq!(call(&server, "GET lock"), Reply::Null, "{step}");
    }
}

#[test]
fn a_moment_of_the_wall_clock_follows_its_steps() {
    const HOUR_SECONDS: u64 = 3_600;
    let begin = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    let server = Server::builder().frozen_clock_at(begin).start().expect("a server");
    server.clock().step_wall(HOUR_SECONDS.cast_signed() * 1_000).expect("a server");
    call(&server, "SET lock token");
    let moment = 1_000_000 + HOUR_SECONDS + 10;
    assert_eq!(call(&server, &format!("EXPIREAT lock {moment}")), Reply::Integer(1));
    assert_eq!(call(&server, "TTL lock"), Reply::Integer(10));
}

/// As on a Redis whose wall clock is stepped.
#[test]
fn a_jump_takes_the_leases_with_it() {
    let server = frozen_with(&[("notify-keyspace-events", "Ex")]);
    let mut listener = listener(&server);
    let mut waiter = wire(&server);
    let begin = server.clock().wall();
    call(&server, "SET lock token PX 30000");
    call(&server, "SET other token PX 40000");
    waiter.send_line("BLPOP queue 30");
    eventually("it to wait", || blocked(&server) == 1);
    server.clock().jump_back(HOUR).expect("a server");
    assert_eq!(server.clock().wall(), begin - HOUR);
    assert_eq!(call(&server, "PTTL lock"), Reply::Integer(3_630_000));
    advance(&server, HOUR + LEASE - MILLISECOND);
    assert_eq!(call(&server, "PTTL lock"), Reply::Integer(1));
    assert_eq!((heard(&mut listener), blocked(&server)), (vec![], 1));
    server.clock().jump_forward(HOUR).expect("a server");
    assert_eq!(heard(&mut listener), ["lock", "other"]);
    assert_eq!(waiter.read(), b"*-1\r\n");
    assert_eq!(server.clock().wall(), begin + HOUR + LEASE - MILLISECOND);
}

#[test]
fn a_jump_takes_a_pause_with_it() {
    let server = frozen();
    let mut paused = wire(&server);
    call(&server, "CLIENT PAUSE 10000 WRITE");
    server.clock().jump_back(HOUR).expect("a server");
    advance(&server, HOUR);
    paused.send_line("SET k v");
    eventually("the write to be held back", || blocked(&server) == 1);
    advance(&server, Duration::from_secs(10));
    assert_eq!(paused.read(), b"+OK\r\n");
}
