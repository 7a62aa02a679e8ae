//! The port for monitoring of the nodes of a cluster, and `lockwheel locks` there.

use std::net::{Ipv4Addr, TcpStream};

use lockwheel_tests::daemon::{Daemon, Folder, run};
use lockwheel_tests::process::eventually;
use lockwheel_tests::redis_server::free_port;
use serde_json::Value;

use crate::admin::converse;
use crate::admin_login::LOCAL;
use crate::raft_command::NodePlace;

/// A place for a node with a port for monitoring.
fn place(folder: &Folder, name: &str) -> (NodePlace, u16) {
    let (mut place, admin_port) = (NodePlace::new(folder, name), free_port());
    place.arguments.extend(["--admin-port".to_owned(), admin_port.to_string()]);
    (place, admin_port)
}

/// The status and the body of a page.
fn get(admin_port: u16, path: &str) -> (u16, String) {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, admin_port));
    let mut stream = stream.expect("the port for monitoring");
    let (status, reply) = converse(&mut stream, &format!("GET {path}"), &[LOCAL], "");
    (status, reply.split_once("\r\n\r\n").expect("a body").1.to_owned())
}

fn json(admin_port: u16, path: &str) -> Value {
    let (status, body) = get(admin_port, path);
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).expect("JSON")
}

/// What `lockwheel locks` prints for a node.
fn locks(place: &NodePlace) -> (String, String) {
    let output = run(&["locks", "-p", &place.port.to_string()]);
    let [out, error] = [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into());
    (out, error)
}

/// A figure of a node for Prometheus.
fn figure(metrics: &str, name: &str) -> f64 {
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name} in {metrics}"))
}

/// Checks the rounds of replication of a leader that has replicated something.
fn check_rounds(admin_port: u16) {
    let metrics = get(admin_port, "/metrics").1;
    let rounds = figure(&metrics, "lockwheel_raft_rounds_total");
    let commits = figure(&metrics, "lockwheel_raft_commits_total");
    assert!(rounds >= 1.0 && commits >= rounds, "{metrics}");
    let seconds = |moment| {
        figure(&metrics, &format!("lockwheel_raft_round_seconds_total{{moment=\"{moment}\"}}"))
    };
    let order = ["begun", "appended", "sent", "acknowledged", "released", "ended"].map(seconds);
    assert!(order.is_sorted() && order[3] > 0.0, "{metrics}");
    let flushed = seconds("flushed");
    assert!(seconds("appended") < flushed && flushed <= seconds("ended"), "{metrics}");
}

#[test]
fn nodes_show_the_locks_and_their_leader_in_every_role() {
    let folder = Folder::new();
    let (first, first_admin) = place(&folder, "1");
    let (second, second_admin) = place(&folder, "2");
    let _first: Daemon = first.start(&["raft", "init"]);
    let joined = second.join(&first);
    first.wait_for_nodes(2);
    let acquired = first.connect().ask("LOCK.ACQUIRE order me TTL 600000 META host-7");
    assert!(acquired.starts_with('*'), "{acquired}");

    eventually("a round of replication", || {
        !get(first_admin, "/metrics").1.contains("lockwheel_raft_rounds_total 0")
    });
    check_rounds(first_admin);
    let of_follower = get(second_admin, "/metrics").1;
    assert!(figure(&of_follower, "lockwheel_raft_rounds_total").abs() < 0.5, "{of_follower}");

    let address = format!("127.0.0.1:{}", first.port);
    let list = json(second_admin, "/locks");
    assert_eq!(list["leader"], address, "{list}");
    assert_eq!(list["locks"][0]["holders"][0]["owner"], "me", "{list}");
    assert_eq!(list["locks"][0]["holders"][0]["meta"], "host-7", "{list}");
    assert!(json(first_admin, "/locks").get("leader").is_none());
    assert_eq!(json(second_admin, "/node")["tcp_port"], second.port.to_string());
    let (status, body) = get(second_admin, "/events");
    assert!(status == 400 && body.contains(&address), "{body}");
    let (table, error) = locks(&second);
    assert_eq!(error, "");
    let note = format!("follower of {address}: holders and waiting clients are shown there\nKEY ");
    assert!(table.starts_with(&note) && table.contains("\norder "), "{table}");

    // Its clients for monitoring outlive its leadership.
    let number = second.number();
    eventually("another leader", || first.raft_text(&["lead", &number]).is_some());
    eventually("a former leader that follows", || {
        let list = get(first_admin, "/locks").1;
        list.contains(&format!("\"leader\":\"127.0.0.1:{}\"", second.port))
    });
    assert_eq!(get(first_admin, "/readyz").0, 200);

    drop(joined);
    let reason = "no leader: more than half of the nodes";
    let not_ready = (503, format!("{reason} (2) must be in contact\n"));
    eventually("a node without a leader", || get(first_admin, "/readyz") == not_ready);
    let (status, body) = get(first_admin, "/locks");
    assert_eq!((status, body), (503, format!("{{\"error\":\"{reason} must be in contact\"}}")));
    let (_, error) = locks(&first);
    assert!(error.contains(reason), "{error}");
    assert_eq!(json(first_admin, "/node")["raft_has_leader"], "0");
}
