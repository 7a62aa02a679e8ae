//! The keys of nodes, and join tokens: what a node that was removed cannot do any more.

use std::fs;
use std::fs::Permissions;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use lockwheel_tests::certificates::{
    client_of_any_server, client_without_certificate, new_key_pem,
};
use lockwheel_tests::daemon::{Daemon, Folder, run};
use lockwheel_tests::process::eventually;
use rustls::ClientConfig;
use serde_json::{Value, json};

use crate::raft_command::{NodePlace, error_of, unidentified};

/// Why a key is refused.
const UNKNOWN: &str = "is not that of a node of the cluster";

/// The end of the text with [`UNKNOWN`], after which nothing is sent.
const REFUSED_KEY: &str = "a node that was removed must join again";

/// A message in the encoding of the nodes.
fn encode(message: &Value) -> Vec<u8> {
    let short = |length: usize| u8::try_from(length).expect("it is short");
    match message {
        Value::Null => vec![0xc0],
        Value::Bool(value) => vec![0xc2 + u8::from(*value)],
        Value::Number(number) => {
            [&[0xcf][..], &number.as_u64().expect("a natural number").to_be_bytes()].concat()
        }
        Value::String(text) => [&[0xd9, short(text.len())], text.as_bytes()].concat(),
        Value::Array(values) => {
            let values = values.iter().map(encode).collect::<Vec<_>>().concat();
            [vec![0x90 + short(message.as_array().map_or(0, Vec::len))], values].concat()
        }
        Value::Object(fields) => {
            let fields_encoded =
                fields.iter().flat_map(|(name, value)| [encode(&json!(name)), encode(value)]);
            let fields_encoded = fields_encoded.collect::<Vec<_>>().concat();
            [vec![0x80 + short(fields.len())], fields_encoded].concat()
        }
    }
}

/// A message with its length before it.
fn framed(message: &Value) -> Vec<u8> {
    let bytes = encode(message);
    let length = u32::try_from(bytes.len()).expect("it is short");
    [&length.to_le_bytes()[..], &bytes].concat()
}

/// The reply of a node to a message, with its binary parts.
fn reply_to(message: &Value, config: &Arc<ClientConfig>, place: &NodePlace) -> String {
    let mut stream = unidentified(config, place.raft_port);
    stream.write_all(&framed(message)).expect("a connection");
    next_reply(&mut stream)
}

fn next_reply(stream: &mut impl Read) -> String {
    let mut length = [0; 4];
    stream.read_exact(&mut length).expect("a reply");
    let mut reply = vec![0; u32::from_le_bytes(length) as usize];
    stream.read_exact(&mut reply).expect("a reply");
    String::from_utf8_lossy(&reply).into_owned()
}

/// The clients that the folder of a node allows to make: with its key, and with a certificate that
/// it signs with the key of the authority, if it has them.
fn clients_of(identity: &Value, protocol: &str) -> Vec<Arc<ClientConfig>> {
    let name = format!("node-{}", identity["node"]);
    let own = identity["key"].as_str().map(|key| client_of_any_server(protocol, key, &name, None));
    let signed = identity["authority"]["key"]
        .as_str()
        .map(|key| client_of_any_server(protocol, &new_key_pem(), &name, Some(key)));
    own.into_iter().chain(signed).map(Arc::new).collect()
}

/// All that a node answers to these messages, until it closes the connection.
fn replies_to(messages: &[&Value], config: &Arc<ClientConfig>, place: &NodePlace) -> String {
    let mut stream = unidentified(config, place.raft_port);
    let bytes = messages.iter().flat_map(|message| framed(message)).collect::<Vec<_>>();
    // The node may have closed the connection before it has read all of them.
    let _ = stream.write_all(&bytes);
    stream.conn.send_close_notify();
    let _ = stream.flush();
    let mut replies = Vec::new();
    let _ = stream.read_to_end(&mut replies);
    String::from_utf8_lossy(&replies).into_owned()
}

/// The first message of a node to another one.
fn hello(to: &NodePlace) -> Value {
    let to = to.identity();
    json!({ "version": 1, "cluster": to["cluster"], "to": to["node"], "lease_ms": 1000 })
}

/// Returns each request of one node to another about the log, from a node that leads in this term.
fn log_requests(node: &Value, term: u64) -> Vec<Value> {
    let leader = json!({ "term": term, "node_id": node });
    let vote = json!({ "leader_id": leader, "committed": true });
    let candidate = json!({ "leader_id": leader, "committed": false });
    let last = json!({ "leader_id": leader, "index": 1_000_000 });
    let members = json!({ "configs": [[node]], "nodes": {} });
    let snapshot = json!({
        "last_log_id": last,
        "last_membership": { "log_id": last, "membership": members },
        "snapshot_id": "1",
    });
    let entries = json!([]);
    vec![
        json!("LastEntry"),
        json!("ReadIndex"),
        json!({ "WouldVote": last }),
        json!({ "Vote": { "vote": candidate, "last_log_id": last } }),
        json!({ "Append": {
            "vote": vote, "prev_log_id": null, "entries": entries, "leader_commit": null,
        } }),
        json!({ "LogIsLost": { "vote": vote, "acknowledged": 1_000_000 } }),
        json!({ "Chosen": { "node": node } }),
        json!({ "Snapshot": { "vote": vote, "meta": snapshot } }),
    ]
}

/// Returns each request about the nodes of a cluster, with a join token that was not made.
fn node_requests(node: &Value, other: &Value) -> Vec<Value> {
    let peer = json!({ "address": "127.0.0.1:9", "client_address": "127.0.0.1:9" });
    let until = u64::MAX;
    vec![
        json!("Status"),
        json!("Members"),
        json!({ "Remove": { "node": other } }),
        json!({ "Lead": { "node": other } }),
        json!({ "AddToken": { "token": { "digest": "0".repeat(64), "until": until } } }),
        json!({ "Enter": { "node": node, "peer": peer, "was_member": true } }),
        json!({ "Enter": { "node": other, "peer": peer, "was_member": false } }),
        json!({ "Admit": { "secret": [1, 2, 3], "until": until, "peer": peer } }),
    ]
}

/// Checks that a node refuses all that another one may ask, with what is in its folder.
fn check_refused(by: &NodePlace, identity: &Value) {
    let digest = "0".repeat(64);
    let requests = [
        json!("Status"),
        json!("Members"),
        json!({ "Remove": { "node": 1 } }),
        json!({ "AddToken": { "token": { "digest": digest, "until": u64::MAX } } }),
    ];
    let clients = clients_of(identity, "lockwheel-membership");
    assert!(!clients.is_empty());
    for client in clients {
        // A follower is notified last that a change is committed.
        eventually("the refusal", || reply_to(&requests[0], &client, by).contains(UNKNOWN));
        for request in &requests {
            let reply = reply_to(request, &client, by);
            assert!(reply.contains(UNKNOWN), "{request}: {reply}");
        }
    }
    for client in clients_of(identity, "lockwheel-raft") {
        let reply = reply_to(&hello(by), &client, by);
        assert!(reply.contains(UNKNOWN), "{reply}");
    }
}

#[test]
fn removed_node_is_refused() {
    let folder = Folder::new();
    let places = ["1", "2", "3"].map(|name| NodePlace::new(&folder, name));
    let _first = places[0].start(&["raft", "init"]);
    let _second = places[1].join(&places[0]);
    let third = places[2].join(&places[0]);
    places[0].wait_for_nodes(3);
    let removed = places[2].identity();
    drop(third);
    let connect = |place: &NodePlace| {
        let client = clients_of(&removed, "lockwheel-raft").remove(0);
        let mut stream = unidentified(&client, place.raft_port);
        stream.write_all(&framed(&hello(place))).expect("a message");
        assert!(next_reply(&mut stream).contains("Accepted"));
        stream
    };
    let mut connections = places[..2].iter().map(connect).collect::<Vec<_>>();
    places[0].raft_text(&["remove", &places[2].number()]).expect("it is removed");
    for place in &places[..2] {
        check_refused(place, &removed);
    }
    for stream in &mut connections {
        let rest = stream.read(&mut [0; 1]);
        let is_open = rest.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        assert!(!is_open && !matches!(rest, Ok(1)), "the connection ends: {rest:?}");
    }
    assert_eq!(places[0].raft_text(&["status"]).expect("a status").matches(" yes ").count(), 2);
}

/// A term that no election of a test reaches.
const LATE_TERM: u64 = 1_000_000;

/// The numbers of the nodes and the term, as a node shows them.
fn nodes_and_term(place: &NodePlace) -> (Vec<String>, u64) {
    let status = place.raft_text(&["status"]).expect("a status");
    let term = status.split_once("term ").and_then(|(_, rest)| rest.split(',').next());
    let nodes = status.lines().skip(3).filter_map(|line| line.split_whitespace().next());
    (nodes.map(str::to_owned).collect(), term.expect("a term").parse().expect("a number"))
}

/// The clients of both protocols that do not have the key of a node: without a certificate, with
/// one that is not recorded, and with that of a removed node.
fn other_clients(removed: &Value, protocol: &str) -> Vec<Arc<ClientConfig>> {
    let unknown = client_of_any_server(protocol, &new_key_pem(), "node-1", None);
    let own = [client_without_certificate(protocol), unknown].map(Arc::new);
    own.into_iter().chain(clients_of(removed, protocol)).collect()
}

#[test]
fn connection_without_the_key_of_a_node_is_refused_every_request() {
    let folder = Folder::new();
    let places = ["1", "2", "3"].map(|name| NodePlace::new(&folder, name));
    let _first = places[0].start(&["raft", "init"]);
    let _second = places[1].join(&places[0]);
    let third = places[2].join(&places[0]);
    places[0].wait_for_nodes(3);
    let removed = places[2].identity();
    places[0].raft_text(&["remove", &places[2].number()]).expect("it is removed");
    drop(third);
    let places = &places[..2];
    places.iter().for_each(|place| check_refused(place, &removed));
    let before = places.iter().map(nodes_and_term).collect::<Vec<_>>();

    for (place, other) in [(&places[0], &places[1]), (&places[1], &places[0])] {
        let node = &other.identity()["node"];
        for client in other_clients(&removed, "lockwheel-raft") {
            for request in log_requests(node, LATE_TERM) {
                let replies = replies_to(&[&hello(place), &request], &client, place);
                let is_refused = replies.is_empty() || replies.ends_with(REFUSED_KEY);
                assert!(is_refused, "{request}: {replies}");
            }
        }
        for client in other_clients(&removed, "lockwheel-membership") {
            for request in node_requests(&removed["node"], node) {
                let replies = replies_to(&[&request], &client, place);
                let is_refused = replies.is_empty() || replies.contains("Failed");
                assert!(is_refused, "{request}: {replies}");
            }
        }
        // The same messages have replies if the key is that of a node; a snapshot at its end.
        let member = &other.identity();
        for client in clients_of(member, "lockwheel-raft") {
            let requests = log_requests(&json!(77), 0);
            for request in requests.iter().filter(|request| request.get("Snapshot").is_none()) {
                let replies = replies_to(&[&hello(place), request], &client, place);
                assert!(replies.len() > 4 + "Accepted".len() + 1 + 4, "{request}: {replies}");
            }
        }
    }
    for (place, before) in places.iter().zip(before) {
        let after = nodes_and_term(place);
        assert_eq!(after.0, before.0);
        assert!(after.1 < LATE_TERM, "{}", after.1);
    }
}

/// The key of a node is in its folder.
#[test]
fn only_the_user_of_a_node_may_read_its_key() {
    let folder = Folder::new();
    let places = ["1", "2", "3"].map(|name| NodePlace::new(&folder, name));
    let raft = places.each_ref().map(|place| format!("{}/raft", place.dir));
    let make_wide = |path: &str| {
        fs::create_dir_all(path).expect("a folder");
        fs::set_permissions(path, Permissions::from_mode(0o777)).expect("permissions");
    };
    let check = |path: &str| {
        for (path, expected) in [(path.to_owned(), 0o700), (format!("{path}/node.json"), 0o600)] {
            let mode = fs::metadata(&path).expect("it exists").permissions().mode();
            assert_eq!(mode & 0o777, expected, "{path}");
        }
    };
    make_wide(&raft[0]);
    let first = places[0].start(&["raft", "init"]);
    check(&raft[0]);
    let second = places[1].join(&places[0]);
    check(&raft[1]);
    places[0].wait_for_nodes(2);
    // The key is renewed in the same folder.
    places[0].raft_text(&["remove", &places[1].number()]).expect("it is removed");
    drop(second);
    fs::remove_dir_all(&raft[1]).expect("a folder");
    make_wide(&raft[1]);
    let second = places[1].join(&places[0]);
    check(&raft[1]);
    drop((first, second));
    // A cluster begins with the log of another one.
    make_wide(&raft[2]);
    let _third = places[2].start(&["raft", "init", "--from", &raft[0]]);
    check(&raft[2]);
}

#[test]
fn join_token_admits_one_node() {
    let folder = Folder::new();
    let places = ["1", "2", "3"].map(|name| NodePlace::new(&folder, name));
    let mut first =
        Daemon::start(&[&["raft", "init"].map(str::to_owned)[..], &places[0].arguments].concat());
    let token = first.wait_for("lockwheel raft join ");
    let token = token.split_whitespace().next().expect("a token");
    first.wait_for_port();
    let join = ["raft", "join", token];
    let second = places[1].start(&join);
    places[0].wait_for_nodes(2);
    // Its port is in use: it ends in any case.
    let port = places[0].port.to_string();
    let again = [&places[2].arguments[..], &["--port".to_owned(), port]].concat();
    let join_again = || run(&[&join.map(str::to_owned)[..], &again].concat());
    assert!(error_of(&join_again()).contains("the join token has been used"));
    // Not even when the node that has used it was removed.
    let number = places[1].number();
    places[0].raft_text(&["remove", &number]).expect("it is removed");
    drop(second);
    assert!(error_of(&join_again()).contains("the join token has been used"));
    let _third = places[2].join(&places[0]);
    places[0].wait_for_nodes(2);
}

/// A node that an earlier program has run has no key of its own, and the nodes trust what the
/// authority has signed.
#[test]
fn node_without_key_goes_on_with_one() {
    let folder = Folder::new();
    let places = ["1", "2"].map(|name| NodePlace::new(&folder, name));
    let raft = format!("{}/raft", places[0].dir);
    fs::create_dir_all(&raft).expect("a folder");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/it/logs/node-without-key");
    for file in fs::read_dir(source).expect("the files").map(|entry| entry.expect("a file")) {
        let name = file.file_name().into_string().expect("a name");
        fs::copy(file.path(), format!("{raft}/{name}")).expect("a copy");
    }
    let before = places[0].identity();
    let first = places[0].start(&[]);
    // The address has changed, too.
    eventually("the node to be one of the cluster", || {
        places[0].identity()["address"].to_string().contains(&places[0].raft_port.to_string())
    });
    check_refused(&places[0], &before);
    let _second = places[1].join(&places[0]);
    places[0].wait_for_nodes(2);
    let check = |place: &NodePlace| assert_eq!(place.connect().ask("GET lock"), "$5\r\ntoken\r\n");
    places.iter().for_each(check);
    assert_eq!(places[0].connect().ask("SET lock other NX"), "$-1\r\n");
    // It keeps its key.
    let key = places[0].identity()["key"].clone();
    assert!(key.is_string());
    drop(first);
    let _first = places[0].start(&[]);
    places[1].wait_for_nodes(2);
    assert_eq!(places[0].identity()["key"], key);
    check_refused(&places[0], &before);
}

/// The index of the node that leads, as the last one says.
fn leader(places: &[NodePlace]) -> Option<usize> {
    let status = places.last().and_then(|place| place.raft_text(&["status"]))?;
    let leads = |place: &NodePlace| status.contains(&format!("leader {}\n", place.number()));
    places.iter().position(leads)
}

/// The leader may have joined while a node was away, which does not know its key then.
#[test]
fn node_that_was_away_learns_the_keys_of_new_nodes() {
    let folder = Folder::new();
    let places = ["1", "2", "3", "4", "5"].map(|name| NodePlace::new(&folder, name));
    let mut nodes = vec![places[0].start(&["raft", "init"])];
    for place in &places[1..3] {
        nodes.push(place.join(&places[0]));
        places[0].wait_for_nodes(nodes.len());
    }
    drop(nodes.pop());
    places[0].wait_for_nodes(2);
    for (place, count) in places[3..].iter().zip(3..) {
        nodes.push(place.join(&places[0]));
        places[0].wait_for_nodes(count);
    }
    // Old nodes are ended until a new node leads.
    while let Some(index) = leader(&places).filter(|index| *index < 2) {
        drop(nodes.remove(index));
        let is_other = |leader: usize| leader != index;
        eventually("another leader", || leader(&places).is_some_and(is_other));
        nodes.insert(index, places[index].start(&[]));
        places[4].wait_for_nodes(4);
    }
    let _third = places[2].start(&[]);
    places[4].wait_for_nodes(5);
}
