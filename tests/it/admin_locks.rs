//! The pages about locks, and forced release.

use std::io::{BufRead, BufReader, Write};

use serde_json::{Value, json};

use crate::admin::Monitored;
use crate::admin_login::{JSON, LOCAL, log_in, token};

/// `viewer`, whose password is `secret`.
const VIEWER: &str = "Authorization: Basic dmlld2VyOnNlY3JldA==";

fn body(reply: &str) -> Value {
    let body = reply.split_once("\r\n\r\n").expect("a body").1;
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {reply}"))
}

fn keys(server: &Monitored, path: &str, headers: &[&str]) -> Vec<String> {
    let headers = [&[LOCAL], headers].concat();
    let (status, reply) = server.request(&format!("GET {path}"), &headers);
    assert_eq!(status, 200, "{reply}");
    let list = body(&reply);
    let locks = list["locks"].as_array().expect("locks");
    let mut keys: Vec<_> =
        locks.iter().map(|lock| lock["key"].as_str().expect("a key").to_owned()).collect();
    keys.sort();
    keys
}

fn lock(server: &Monitored, key: &str) {
    assert_eq!(server.run(&format!("SET {key} a-token NX PX 100000")), "+OK");
}

#[test]
fn locks_are_listed_in_parts() {
    let server = Monitored::start(&[]);
    for number in 0..5 {
        lock(&server, &format!("a:{number}"));
    }
    lock(&server, "b");
    assert_eq!(keys(&server, "/locks", &[]).len(), 6);
    assert_eq!(keys(&server, "/locks?match=b*", &[]), ["b"]);
    assert_eq!(keys(&server, "/locks?match=%61:[34]", &[]), ["a:3", "a:4"]);
    let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
    loop {
        let path = format!("/locks?count=2&cursor={cursor}");
        let (_, reply) = server.get(&path);
        assert!(!reply.contains("a-token"), "{reply}");
        found.extend(keys(&server, &path, &[]));
        body(&reply)["cursor"].as_str().expect("a cursor").clone_into(&mut cursor);
        if cursor == "0" {
            break;
        }
    }
    found.sort();
    assert_eq!(found, ["a:0", "a:1", "a:2", "a:3", "a:4", "b"]);
    for wrong in ["/locks?cursor=x", "/locks?count=x", "/locks/a?database=x"] {
        assert_eq!(server.get(wrong).0, 400, "{wrong}");
    }
}

#[test]
fn details_of_a_key_are_shown_whatever_its_bytes() {
    let server = Monitored::start(&[]);
    let mut wire = server.daemon.connect(server.port);
    let key: &[u8] = b"a/b ?\xff";
    wire.send(&[&b"SET"[..], key, b"a-token", b"NX", b"PX", b"100000"]);
    assert_eq!(wire.read_text().trim_end(), "+OK");
    let found = body(&server.get("/locks/a%2fb%20%3f%FF?database=0").1);
    assert_eq!(found["lock"]["holders"][0]["count"], 1, "{found}");
    assert_eq!(found["may_release"], true);
    assert_eq!(found["history"][0]["event"], "acquired");
    let none = body(&server.get("/locks/none").1);
    assert_eq!((&none["lock"], &none["history"]), (&Value::Null, &json!([])));
}

#[test]
fn user_sees_and_releases_the_locks_of_its_keys() {
    let server = Monitored::start(&[]);
    lock(&server, "mine");
    lock(&server, "other");
    server.run("ACL SETUSER viewer on >secret %R~mine +lockwheel|locks");
    assert_eq!(keys(&server, "/locks", &[VIEWER]), ["mine"]);
    let status = |path: &str| server.request(&format!("GET {path}"), &[LOCAL, VIEWER]).0;
    // A key that the user may not read looks like one that is not held.
    let other = body(&server.request("GET /locks/other", &[LOCAL, VIEWER]).1);
    assert_eq!((&other["lock"], &other["history"]), (&Value::Null, &json!([])));
    let (_, details) = server.request("GET /locks/mine", &[LOCAL, VIEWER]);
    assert_eq!(body(&details)["may_release"], false);
    let release = |key: &str| {
        let line = format!("POST /locks/{key}/release");
        server.send(&line, &[LOCAL, VIEWER, JSON], "{\"database\":0}")
    };
    assert_eq!(release("mine").0, 403);
    server.run("ACL SETUSER viewer ~mine +lockwheel|release");
    let (_, details) = server.request("GET /locks/mine", &[LOCAL, VIEWER]);
    assert_eq!(body(&details)["may_release"], true);
    assert_eq!(release("other").0, 403);
    assert_eq!(body(&release("mine").1), json!({ "released": true }));
    assert_eq!(body(&release("mine").1), json!({ "released": false }));
    assert_eq!(server.run("EXISTS mine other"), ":1");
    server.run("ACL SETUSER viewer -lockwheel|locks");
    assert_eq!(status("/locks"), 403);
    assert_eq!(status("/events"), 403);
}

#[test]
fn forced_release_needs_the_token_and_is_logged() {
    let mut server = Monitored::start(&[]);
    lock(&server, "a");
    let token = token(&server, &[LOCAL]);
    let send = |headers: &[&str], text: &str| {
        server.send("POST /locks/a/release", &[&[LOCAL, JSON], headers].concat(), text).0
    };
    assert_eq!(send(&[], "{}"), 403);
    assert_eq!(send(&[&token], "database=0"), 400);
    assert_eq!(server.run("EXISTS a"), ":1");
    assert_eq!(send(&[&token], "{\"database\":0}"), 200);
    assert_eq!(server.run("EXISTS a"), ":0");
    let line = server.daemon.wait_for("forced release for monitoring");
    assert!(line.contains("user=\"default\" key=a database=0 is_released=true"), "{line}");
}

/// The events that one connection receives.
struct Events(BufReader<std::net::TcpStream>);

impl Events {
    fn open(server: &Monitored, path: &str, header: &str) -> Events {
        let mut stream = server.connect();
        let request = format!("GET {path} HTTP/1.1\r\n{LOCAL}\r\n{header}\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("a request");
        Events(BufReader::new(stream))
    }

    /// The id and the data of the next message.
    fn next(&mut self) -> (String, Value) {
        let mut id = String::new();
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).expect("a line") > 0, "the end");
            if let Some(text) = line.strip_prefix("id: ") {
                text.trim_end().clone_into(&mut id);
            } else if let Some(text) = line.strip_prefix("data: ") {
                return (id, serde_json::from_str(text).expect("JSON"));
            }
        }
    }
}

#[test]
fn events_are_sent_as_they_happen_and_go_on_after_the_last_one() {
    let server = Monitored::start(&[]);
    lock(&server, "a");
    let mut events = Events::open(&server, "/events", "X: y");
    let (first, message) = events.next();
    assert_eq!(message["events"][0]["event"], "acquired", "{message}");
    assert_eq!(message["locks"][0]["key"], "a", "{message}");
    assert_eq!(message["sequence"].to_string(), first);
    server.run("DEL a");
    let (_, message) = events.next();
    assert_eq!(message["events"][0]["event"], "released", "{message}");
    assert_eq!(message["locks"], json!([]));
    lock(&server, "b");
    let mut again = Events::open(&server, "/events?since=0", &format!("Last-Event-ID: {first}"));
    let (_, message) = again.next();
    assert_eq!(message["events"][0]["event"], "released", "{message}");
    assert_eq!(message["locks"][0]["key"], "b", "{message}");
}

/// A login and a stream do not keep the rights with which they began.
#[test]
fn rights_that_change_hold_for_logins_and_open_streams() {
    let server = Monitored::start(&[]);
    let rules = |rules: &str| assert_eq!(server.run(&format!("ACL SETUSER viewer {rules}")), "+OK");
    for key in ["mine", "other"] {
        lock(&server, key);
    }
    rules("on >secret ~mine* +@all");
    let cookie = log_in(&server, LOCAL, "user=viewer&password=secret");
    let token = token(&server, &[LOCAL, &cookie]);
    let release = |key: &str| {
        let headers = [LOCAL, &*cookie, &*token, JSON];
        server.send(&format!("POST /locks/{key}/release"), &headers, "{\"database\":0}").0
    };
    let mut events = Events::open(&server, "/events", &cookie);
    assert_eq!(events.next().1["locks"][0]["key"], "mine");
    assert_eq!(keys(&server, "/locks", &[&cookie]), ["mine"]);
    assert_eq!((release("other"), server.run("EXISTS other")), (403, ":1".to_owned()));

    rules("resetkeys ~other");
    assert_eq!(keys(&server, "/locks", &[&cookie]), ["other"]);
    assert_eq!((release("mine"), server.run("EXISTS mine")), (403, ":1".to_owned()));
    lock(&server, "mine:2");
    assert_eq!(server.run("DEL other"), ":1");
    let (_, message) = events.next();
    assert!(!message.to_string().contains("mine:2"), "{message}");
    assert_eq!(message["events"][0]["key"], "other", "{message}");

    // One selector shows locks, another one releases them.
    rules("-@all resetkeys (+lockwheel|locks %R~m*) (+lockwheel|release ~mine)");
    assert_eq!(keys(&server, "/locks", &[&cookie]), ["mine", "mine:2"]);
    let may_release = |key: &str| {
        let (_, reply) = server.request(&format!("GET /locks/{key}"), &[LOCAL, &cookie]);
        body(&reply)["may_release"].clone()
    };
    assert_eq!([may_release("mine"), may_release("mine:2")], [true, false]);
    assert_eq!((release("mine:2"), release("mine")), (403, 200));
    assert_eq!(server.run("EXISTS mine mine:2"), ":1");
    rules("clearselectors");
    assert_eq!(server.request("GET /locks", &[LOCAL, &cookie]).0, 403);
    assert_eq!(release("mine:2"), 403);
}
