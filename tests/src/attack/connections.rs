//! Floods of connections and of invalid bytes. After each of them all locks must still be held with
//! the same deadlines, and the server must hold no more resources than before.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use lockwheel_compat::random::Random;
use lockwheel_compat::time;
use lockwheel_compat::wire::{Wire, request};
use socket2::SockRef;

use super::Report;
use super::attack_target::AttackTarget;
use crate::process::{HeldResources, until};

/// The time-out of replies, also on a busy machine.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// The time-out of reads and writes of a flood.
const IO_TIMEOUT: Duration = Duration::from_millis(200);
/// The server's `maxclients`.
const CLIENTS_MAX: usize = 600;
/// The number of connections that most floods hold open.
const CONNECTIONS: usize = 200;
/// The number of locks that are held all the time.
const LOCKS: usize = 100;
/// Their lease: much longer than the attack.
const LEASE_MS: &str = "36000000";
/// The allowed difference of a deadline: it is the sum of two clocks that are read one after the
/// other, each in whole milliseconds.
const DEADLINE_APART_MS: i64 = 50;
/// The growth of memory that is allowed: the memory that the allocator keeps.
const KEPT_BYTES_MAX: u64 = 256 << 20;
/// The size of the value that some floods request and do not read.
const LARGE_BYTES: usize = 1 << 20;

/// A flood. Errors of its connections are ignored: the server may refuse any of them.
type Flood = fn(&Attack, &mut Random) -> io::Result<()>;

/// All floods.
const FLOODS: &[(&str, Flood)] = &[
    ("connections that are closed at once", closed_at_once),
    ("connections that are reset at once", reset_at_once),
    ("halves of requests", halves),
    ("requests that come byte by byte", byte_by_byte),
    ("random bytes", random_bytes),
    ("counts and lengths beyond all limits", large_numbers),
    ("unfinished arguments", unfinished_arguments),
    ("inline requests", inline_requests),
    ("lines without an end", endless_lines),
    ("HTTP and TLS", other_protocols),
    ("replies that are not read", unread_replies),
    ("resets within replies", resets_within_replies),
    ("subscriptions", subscriptions),
    ("transactions that are not ended", transactions),
    ("waiting clients that hang up", waiting_clients),
    ("more clients than may be", too_many_clients),
];

struct Attack {
    server: AttackTarget,
    address: SocketAddr,
}

/// Runs every flood this many times.
pub fn attack(rounds: u32, seed: u64) -> Report {
    let clients_max = CLIENTS_MAX.to_string();
    let server = AttackTarget::start(&["--maxclients", &clients_max]);
    let address = server.address();
    let mut attack = Attack { server, address };
    let mut report = Report::default();
    let mut holder = attack.server.try_connect(2, REPLY_TIMEOUT).expect("it is there");
    let deadlines = take_locks(&mut holder).expect("the locks are free");
    let large = "x".repeat(LARGE_BYTES);
    holder.call(&["SET", "large", &large]).expect("it is there");
    let begin = attack.server.held();
    for round in 0..rounds {
        for (number, (name, flood)) in FLOODS.iter().enumerate() {
            let mut random = Random::of(seed, u64::from(round) << 32 | number as u64);
            let started_us = time::now_us();
            if let Err(error) = flood(&attack, &mut random) {
                report.add_problem(format!("{name}: {error}"));
            }
            let after = attack.aftermath(&mut holder, &deadlines, begin);
            if let Err(problem) = after {
                report.add_problem(format!("after {name}, round {round}: {problem}"));
                break;
            }
            if round == 0 {
                let took = (time::now_us() - started_us) / 1000;
                let held = attack.server.held();
                let kib = held.resident_bytes / 1024;
                report.figures.push(format!("{name}: {took} ms, {kib} KiB resident"));
            }
        }
    }
    let end = attack.server.held();
    report.figures.push(format!("{rounds} rounds of {} floods, seed {seed}", FLOODS.len()));
    report.figures.push(format!("at first {begin:?}, at last {end:?}"));
    if end.resident_bytes > begin.resident_bytes + KEPT_BYTES_MAX {
        report.add_problem(format!("too much memory is held: {begin:?}, {end:?}"));
    }
    drop(holder);
    if let Some(problem) = attack.server.end(REPLY_TIMEOUT) {
        report.add_problem(problem);
    }
    report
}

/// Takes all locks and returns their deadlines.
fn take_locks(holder: &mut Wire) -> io::Result<Vec<i64>> {
    let mut deadlines = Vec::new();
    for number in 0..LOCKS {
        let name = format!("lock:{number}");
        let taken = holder.call(&["SET", &name, "holder", "NX", "PX", LEASE_MS])?;
        assert_eq!(taken.text, b"OK", "{name}");
        deadlines.push(deadline(holder, &name)?);
    }
    Ok(deadlines)
}

fn deadline(wire: &mut Wire, name: &str) -> io::Result<i64> {
    let reply = wire.call(&["PEXPIRETIME", name])?;
    let text = String::from_utf8_lossy(&reply.text).into_owned();
    text.parse().map_err(|_| io::Error::other(format!("{name} has no deadline: {text}")))
}

impl Attack {
    /// Checks the server after a flood.
    fn aftermath(
        &mut self,
        holder: &mut Wire,
        deadlines: &[i64],
        begin: HeldResources,
    ) -> Result<(), String> {
        if let Some(problem) = self.server.problem(REPLY_TIMEOUT) {
            return Err(problem);
        }
        self.locks_are_held(holder, deadlines).map_err(|error| error.to_string())?;
        let mut now = begin;
        let given_back = until("everything to be given back", || {
            now = self.server.held();
            (now.descriptors <= begin.descriptors && now.threads <= begin.threads).then_some(())
        });
        given_back.map_err(|problem| format!("{problem}: {begin:?}, {now:?}"))
    }

    fn locks_are_held(&self, holder: &mut Wire, deadlines: &[i64]) -> io::Result<()> {
        let mut other = self.server.try_connect(3, REPLY_TIMEOUT)?;
        for (number, before) in deadlines.iter().enumerate() {
            let name = format!("lock:{number}");
            let owner = holder.call(&["GET", &name])?;
            let refused = other.call(&["SET", &name, "other", "NX", "PX", LEASE_MS])?;
            let now = deadline(&mut other, &name)?;
            let is_held = owner.text == b"holder" && refused.kind == b'_';
            if !is_held || now.abs_diff(*before) > DEADLINE_APART_MS.unsigned_abs() {
                let owner = owner.notation();
                let problem = format!("{name}: held by {owner} until {now}, not until {before}");
                return Err(io::Error::other(problem));
            }
        }
        Ok(())
    }

    fn open(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(IO_TIMEOUT))?;
        stream.set_write_timeout(Some(IO_TIMEOUT))?;
        Ok(stream)
    }

    fn open_many(&self, count: usize) -> io::Result<Vec<TcpStream>> {
        (0..count).map(|_| self.open()).collect()
    }
}

/// Sends these bytes, as far as the server accepts them.
fn send(mut stream: &TcpStream, bytes: &[u8]) {
    let _ = stream.write_all(bytes);
}

/// Reads once; empty if there is nothing to read.
fn read(mut stream: &TcpStream) -> Vec<u8> {
    let mut chunk = [0; 4096];
    let count = stream.read(&mut chunk).unwrap_or(0);
    chunk[..count].to_vec()
}

/// Closes the connection with a reset.
fn reset(stream: TcpStream) {
    let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
    drop(stream);
}

fn close(stream: TcpStream, random: &mut Random) {
    if random.once_in(2) {
        reset(stream);
    }
}

fn closed_at_once(attack: &Attack, _: &mut Random) -> io::Result<()> {
    (0..2_000).try_for_each(|_| attack.open().map(drop))
}

fn reset_at_once(attack: &Attack, _: &mut Random) -> io::Result<()> {
    (0..2_000).try_for_each(|_| attack.open().map(reset))
}

fn halves(attack: &Attack, random: &mut Random) -> io::Result<()> {
    let requests = [
        request(&["SET", "lock:1", "intruder"]),
        request(&["EVAL", "return redis.call('del', 'lock:1')", "0"]),
        request(&["DEL", "lock:1", "lock:2"]),
        b"DEL lock:1 lock:2\r\n".to_vec(),
    ];
    for _ in 0..1_000 {
        let whole = random.pick(&requests);
        // The last byte is never sent, so that the request stays incomplete.
        let end = random.below(whole.len() as u64 - 1) as usize;
        let stream = attack.open()?;
        send(&stream, &whole[..end]);
        close(stream, random);
    }
    Ok(())
}

fn byte_by_byte(attack: &Attack, random: &mut Random) -> io::Result<()> {
    let whole = request(&["SET", "slow", "value", "PX", "1000"]);
    let streams = attack.open_many(CONNECTIONS)?;
    for byte in &whole[..whole.len() - 1] {
        streams.iter().for_each(|stream| send(stream, &[*byte]));
    }
    streams.into_iter().for_each(|stream| close(stream, random));
    Ok(())
}

fn random_bytes(attack: &Attack, random: &mut Random) -> io::Result<()> {
    const SIGNS: &[u8] = b"*$+-:_#,(!=%~>|\r\n0123456789\0\xff";
    for _ in 0..500 {
        let stream = attack.open()?;
        for _ in 0..random.below(20) {
            let length = random.below(64);
            let signs = random.once_in(2);
            let byte = |_| if signs { *random.pick(SIGNS) } else { random.bits() as u8 };
            let bytes: Vec<u8> = (0..length).map(byte).collect();
            send(&stream, &bytes);
        }
        close(stream, random);
    }
    Ok(())
}

fn large_numbers(attack: &Attack, random: &mut Random) -> io::Result<()> {
    const NUMBERS: &[&str] = &[
        "1048576",
        "1048577",
        "536870912",
        "536870913",
        "2147483647",
        "2147483648",
        "4294967295",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551616",
        "-1",
        "-2147483649",
        "0",
        "",
        "+1",
        "1e9",
        "0x10",
    ];
    for _ in 0..500 {
        let stream = attack.open()?;
        let bytes = match random.below(4) {
            0 => format!("*{}\r\n", random.pick(NUMBERS)),
            1 => format!("*2\r\n${}\r\nab", random.pick(NUMBERS)),
            2 => {
                format!("*{}\r\n$3\r\nGET\r\n${}\r\nxy", random.pick(NUMBERS), random.pick(NUMBERS))
            }
            _ => format!("*1\r\n$4\r\nPING\r\n*{}\r\n", random.pick(NUMBERS)),
        };
        send(&stream, bytes.as_bytes());
        close(stream, random);
    }
    Ok(())
}

fn unfinished_arguments(attack: &Attack, random: &mut Random) -> io::Result<()> {
    let streams = attack.open_many(40)?;
    let piece = vec![b'x'; 64 * 1024];
    for stream in &streams {
        send(stream, b"*1000\r\n$3\r\nSET\r\n$536870912\r\n");
        for _ in 0..16 {
            send(stream, &piece);
        }
    }
    streams.into_iter().for_each(|stream| close(stream, random));
    Ok(())
}

fn inline_requests(attack: &Attack, random: &mut Random) -> io::Result<()> {
    let lines = [&b"\r\n"[..], b"\n", b"PING\r\n", b"GET 'lock:1\r\n", b"\"\\x\r\n", b"SET\r\n"];
    for _ in 0..50 {
        let stream = attack.open()?;
        let bytes: Vec<u8> = (0..5_000).flat_map(|_| random.pick(&lines).to_vec()).collect();
        send(&stream, &bytes);
        close(stream, random);
    }
    Ok(())
}

fn endless_lines(attack: &Attack, random: &mut Random) -> io::Result<()> {
    let heads = [&b""[..], b"GET ", b"*", b"$", b"*1\r\n$", b"\"", b" "];
    for _ in 0..50 {
        let stream = attack.open()?;
        send(&stream, random.pick::<&[u8]>(&heads));
        let byte = *random.pick(b"x1 \0\r");
        send(&stream, &vec![byte; 200 * 1024]);
        close(stream, random);
    }
    Ok(())
}

fn other_protocols(attack: &Attack, random: &mut Random) -> io::Result<()> {
    let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\0\r\n\r\n";
    let texts = [
        &b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"[..],
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 15\r\n\r\nDEL lock:1\r\n",
        b"Host: localhost\r\nDEL lock:1\r\n",
        hello,
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"EHLO localhost\r\n",
        b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n",
    ];
    for _ in 0..500 {
        let stream = attack.open()?;
        send(&stream, random.pick::<&[u8]>(&texts));
        if random.once_in(8) {
            read(&stream);
        }
        close(stream, random);
    }
    Ok(())
}

fn unread_replies(attack: &Attack, random: &mut Random) -> io::Result<()> {
    let streams = attack.open_many(20)?;
    let gets = request(&["GET", "large"]).repeat(5);
    let pings = b"PING\r\n".repeat(20_000);
    for stream in &streams {
        send(stream, if random.once_in(2) { &gets } else { &pings });
    }
    streams.into_iter().for_each(|stream| close(stream, random));
    Ok(())
}

fn resets_within_replies(attack: &Attack, random: &mut Random) -> io::Result<()> {
    let gets = request(&["GET", "large"]).repeat(3);
    for _ in 0..100 {
        let stream = attack.open()?;
        send(&stream, &gets);
        if random.once_in(2) {
            read(&stream);
        }
        reset(stream);
    }
    Ok(())
}

fn subscriptions(attack: &Attack, random: &mut Random) -> io::Result<()> {
    let streams = attack.open_many(CONNECTIONS)?;
    for (number, stream) in streams.iter().enumerate() {
        let name = *random.pick(&["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"]);
        let channels = (0..100).map(|channel| format!("{number}:{channel}*"));
        let words: Vec<String> = std::iter::once(name.to_owned()).chain(channels).collect();
        send(stream, &request(&words));
    }
    let mut wire = attack.server.try_connect(2, REPLY_TIMEOUT)?;
    for channel in 0..50 {
        wire.call(&["PUBLISH", &format!("{channel}:{channel}*"), "message"])?;
    }
    streams.into_iter().for_each(|stream| close(stream, random));
    Ok(())
}

fn transactions(attack: &Attack, random: &mut Random) -> io::Result<()> {
    let streams = attack.open_many(CONNECTIONS / 4)?;
    let queued = request(&["DEL", "lock:1", "lock:2", "lock:3"]).repeat(2_000);
    for stream in &streams {
        send(stream, &request(&["WATCH", "lock:1", "lock:2"]));
        send(stream, &request(&["MULTI"]));
        send(stream, &queued);
    }
    streams.into_iter().for_each(|stream| close(stream, random));
    Ok(())
}

fn waiting_clients(attack: &Attack, random: &mut Random) -> io::Result<()> {
    let streams = attack.open_many(CONNECTIONS)?;
    for stream in &streams {
        let words: &[&str] = random.pick::<&[&str]>(&[
            &["BLPOP", "queue:1", "queue:2", "0"][..],
            &["BLMOVE", "queue:1", "queue:3", "LEFT", "LEFT", "0"],
            &["BZPOPMIN", "queue:4", "0"],
            &["XREAD", "BLOCK", "0", "STREAMS", "queue:5", "$"],
        ]);
        send(stream, &request(words));
        send(stream, &request(&["DEL", "lock:1"])[..10]);
    }
    streams.into_iter().for_each(|stream| close(stream, random));
    Ok(())
}

fn too_many_clients(attack: &Attack, random: &mut Random) -> io::Result<()> {
    let streams = attack.open_many(CLIENTS_MAX + 100)?;
    let Some(last) = streams.last() else { return Ok(()) };
    last.set_read_timeout(Some(REPLY_TIMEOUT))?;
    let refused = read(last);
    if !refused.starts_with(b"-ERR max number of clients reached") {
        let reply = String::from_utf8_lossy(&refused).into_owned();
        return Err(io::Error::other(format!("reply to one connection too many: {reply:?}")));
    }
    streams.into_iter().for_each(|stream| close(stream, random));
    // The server may accept the next connection before it has read that these are closed.
    let has_room = || attack.server.held().descriptors <= CLIENTS_MAX / 2;
    until("the connections to be closed", || has_room().then_some(())).map_err(io::Error::other)
}
