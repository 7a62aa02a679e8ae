//! What users of other test doubles have asked for most, each through a real connection. Which
//! double lacks what is told as `docs/compatibility.md` has it, of fakeredis 2.40, miniredis 2.40,
//! jedis-mock 1.1 and meebis 0.15, each as a server of its own.

use lockwheel::{Reply, Server};
use lockwheel_tests::process::eventually;
use lockwheel_tests::wire::Wire;

const EXPIRED: &str = "__keyevent@0__:expired";
const DELETED: &str = "__keyevent@0__:del";

fn wire(server: &Server, protocol: u8) -> Wire {
    Wire::connect(server.addr(), protocol)
}

/// The reply that is an array of these, or a push.
fn list(kind: char, words: &[&str]) -> String {
    let texts = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("{kind}{}\r\n{}", words.len(), texts.collect::<String>())
}

fn until_waiting(server: &Server, clients: usize) {
    eventually("clients to wait", || {
        let info = server.call(&["INFO", "clients"]).expect("an answer");
        let Reply::Verbatim { text, .. } = info else { panic!("no text: {info:?}") };
        String::from_utf8_lossy(&text).contains(&format!("blocked_clients:{clients}\r\n"))
    });
}

/// Miniredis: a lease ends when the test says `FastForward`, and never by itself.
#[test]
fn a_lease_ends_by_itself() {
    let server = Server::start().expect("a server");
    let (mut owner, mut other) = (wire(&server, 2), wire(&server, 2));
    assert_eq!(owner.ask("SET lock owner NX PX 60000"), "+OK\r\n");
    assert_eq!(other.ask("SET lock other NX PX 60000"), "$-1\r\n");
    assert_eq!(owner.ask("PEXPIRE lock 20"), ":1\r\n");
    eventually("the lease to end", || other.ask("SET lock other NX PX 60000") == "+OK\r\n");
    assert_eq!(owner.ask("GET lock"), "$5\r\nother\r\n");
}

/// Fakeredis, miniredis and jedis-mock fail all four libraries, meebis all but bit.
#[test]
fn scripts_have_the_libraries_of_redis() {
    let server = Server::start().expect("a server");
    let mut client = wire(&server, 2);
    for (script, arguments, reply) in [
        (
            "local job = cjson.decode(ARGV[1]) job.tries = job.tries + 1 \
             return cjson.encode({job.id, job.tries, cjson.null, {}})",
            vec![r#"{"id":"a","tries":2}"#],
            "$15\r\n[\"a\",3,null,{}]\r\n",
        ),
        (
            "local packed = struct.pack('>I2Lc0', 258, #ARGV[1], ARGV[1]) \
             local number, text = struct.unpack('>I2Lc0', packed) return {#packed, number, text}",
            vec!["token"],
            "*3\r\n:15\r\n:258\r\n$5\r\ntoken\r\n",
        ),
        (
            "local packed = cmsgpack.pack({1, ARGV[1]}) local values = cmsgpack.unpack(packed) \
             return {#packed, values[1], values[2]}",
            vec!["token"],
            "*3\r\n:8\r\n:1\r\n$5\r\ntoken\r\n",
        ),
        (
            "return {bit.band(12, 10), bit.bor(12, 10), bit.bxor(12, 10), bit.lshift(1, 31), \
             bit.tohex(255)}",
            vec![],
            "*5\r\n:8\r\n:14\r\n:6\r\n:-2147483648\r\n$8\r\n000000ff\r\n",
        ),
    ] {
        let words: Vec<&str> = ["EVAL", script, "0"].into_iter().chain(arguments).collect();
        client.send(&words);
        assert_eq!(client.read_text(), reply, "{script}");
    }
}

/// Fakeredis, miniredis and jedis-mock have no CONFIG, so nobody can ask for events.
#[test]
fn the_end_of_a_key_is_told_unasked() {
    let server = Server::start().expect("a server");
    let (mut listener, mut client) = (wire(&server, 2), wire(&server, 2));
    assert_eq!(client.ask("CONFIG SET notify-keyspace-events Exg"), "+OK\r\n");
    for channel in [EXPIRED, DELETED] {
        assert!(listener.ask(&format!("SUBSCRIBE {channel}")).contains(channel));
    }
    assert_eq!(client.ask("SET released token"), "+OK\r\n");
    assert_eq!(client.ask("DEL released"), ":1\r\n");
    assert_eq!(listener.read_text(), list('*', &["message", DELETED, "released"]));
    assert_eq!(client.ask("SET forgotten token PX 5"), "+OK\r\n");
    // Nobody looks at it again.
    assert_eq!(listener.read_text(), list('*', &["message", EXPIRED, "forgotten"]));
}

/// Meebis has no blocking pop of lists, jedis-mock no `BLMOVE`; fakeredis does not serve those who
/// wait for lists in their order, nor miniredis those who wait for sorted sets.
#[test]
fn who_waits_is_served_in_order_or_told_that_time_is_over() {
    let server = Server::start().expect("a server");
    let mut client = wire(&server, 2);
    for wait in ["BLPOP none", "BRPOP none", "BLMOVE none other LEFT LEFT", "BZPOPMIN none"] {
        assert_eq!(client.ask(&format!("{wait} 0.02")), "*-1\r\n", "{wait}");
    }
    for (waits, push, replies) in [
        (
            ["BLPOP queue 0", "BRPOP queue 0", "BLMOVE queue done LEFT RIGHT 0"],
            "RPUSH queue a b c d",
            [list('*', &["queue", "a"]), list('*', &["queue", "d"]), "$1\r\nb\r\n".to_owned()],
        ),
        (
            ["BZPOPMIN set 0", "BZPOPMAX set 0", "BZPOPMIN set 0"],
            "ZADD set 2 b 1 a 3 c",
            [["a", "1"], ["c", "3"], ["b", "2"]]
                .map(|[member, score]| list('*', &["set", member, score])),
        ),
    ] {
        let mut waiters = [(); 3].map(|()| wire(&server, 2));
        for (n, (waiter, wait)) in waiters.iter_mut().zip(waits).enumerate() {
            waiter.send_line(wait);
            until_waiting(&server, n + 1);
        }
        client.ask(push);
        for ((waiter, reply), wait) in waiters.iter_mut().zip(replies).zip(waits) {
            assert_eq!(waiter.read_text(), reply, "{wait}");
        }
    }
    assert_eq!(client.ask("LRANGE done 0 -1"), list('*', &["b"]));
    assert_eq!(client.ask("LRANGE queue 0 -1"), list('*', &["c"]));
}

/// The servers of fakeredis and jedis-mock speak RESP2 alone; miniredis knows neither a script's
/// doubles and maps nor a subscriber who goes on asking.
#[test]
fn resp3_is_spoken() {
    let server = Server::start().expect("a server");
    let mut client = wire(&server, 2);
    assert!(client.ask("HELLO 3").starts_with("%7\r\n$6\r\nserver\r\n"));
    assert_eq!(client.ask("GET none"), "_\r\n");
    client.ask("HSET hash field value");
    assert_eq!(client.ask("HGETALL hash"), "%1\r\n$5\r\nfield\r\n$5\r\nvalue\r\n");
    client.ask("ZADD set 1.5 member");
    assert_eq!(client.ask("ZSCORE set member"), ",1.5\r\n");
    client.send(&["EVAL", "redis.setresp(3) return {map = {a = {double = 0.5}}}", "0"]);
    assert_eq!(client.read_text(), "%1\r\n$1\r\na\r\n,0.5\r\n");
    assert_eq!(client.ask("SUBSCRIBE news"), ">3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n");
    // Who listens goes on asking, and hears its own message ahead of the reply or behind it.
    client.send_line("PUBLISH news one");
    let mut heard = [client.read_text(), client.read_text()];
    heard.sort();
    assert_eq!(heard, [":1\r\n".to_owned(), list('>', &["message", "news", "one"])]);
}
