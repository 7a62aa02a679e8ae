//! Features that users of other test doubles request most, each over a real connection. The
//! comments on the doubles follow `docs/compatibility.md`, for fakeredis 2.40, miniredis 2.40,
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

/// In miniredis a lease ends only when the test calls `FastForward`.
#[test]
fn lease_ends_in_real_time() {
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

/// Fakeredis, miniredis and jedis-mock have no CONFIG, so events cannot be enabled.
#[test]
fn expiry_event_is_sent_without_access_to_the_key() {
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
    // The key is not accessed again.
    assert_eq!(listener.read_text(), list('*', &["message", EXPIRED, "forgotten"]));
}

/// Meebis has no blocking pop of lists, jedis-mock no `BLMOVE`; fakeredis does not serve clients
/// blocked on lists in order, nor miniredis clients blocked on sorted sets.
#[test]
fn blocked_clients_are_served_in_order_or_time_out() {
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

/// Fakeredis and jedis-mock support only RESP2; miniredis supports neither doubles and maps of
/// scripts nor other commands of a subscriber.
#[test]
fn resp3_is_supported() {
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
    // A subscriber can send other commands, and gets its own message before or after the reply.
    client.send_line("PUBLISH news one");
    let mut received = [client.read_text(), client.read_text()];
    received.sort();
    assert_eq!(received, [":1\r\n".to_owned(), list('>', &["message", "news", "one"])]);
}
