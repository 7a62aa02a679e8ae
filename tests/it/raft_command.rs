//! `lockwheel raft`: an operator begins a cluster, replaces a node, and starts nodes again.

use std::process::Output;

use lockwheel_tests::daemon::{Daemon, Folder, run};
use lockwheel_tests::process::eventually;
use lockwheel_tests::redis_server::free_port;

/// A directory and ports for a node.
struct Place {
    dir: String,
    arguments: Vec<String>,
}

impl Place {
    fn new(folder: &Folder, name: &str) -> Place {
        let dir = folder.path(name);
        let (port, raft_port) = (free_port().to_string(), free_port().to_string());
        let directives = [
            ("--dir", &*dir),
            ("--port", &port),
            ("--raft-port", &raft_port),
            // A busy machine may not run a process for a while.
            ("--raft-election-timeout", "2000"),
        ];
        let words =
            directives.iter().flat_map(|(name, value)| [name.to_string(), value.to_string()]);
        Place { arguments: words.collect(), dir }
    }

    /// Starts the node, with these words before its directives.
    fn start(&self, words: &[&str]) -> Daemon {
        let words = words.iter().map(|word| (*word).to_owned());
        let arguments: Vec<String> = words.chain(self.arguments.iter().cloned()).collect();
        let mut daemon = Daemon::start(&arguments);
        daemon.wait_for_port();
        daemon
    }

    /// Runs `lockwheel raft` for the node.
    fn raft(&self, words: &[&str]) -> Output {
        run(&[&["raft"], words, &["--dir", &self.dir]].concat())
    }

    /// What `lockwheel raft` prints for the node, if it succeeds.
    fn raft_text(&self, words: &[&str]) -> Option<String> {
        let output = self.raft(words);
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Waits until so many nodes vote and can be reached.
    fn wait_for_nodes(&self, count: usize) {
        eventually("the nodes vote", || {
            let status = self.raft_text(&["status"]).unwrap_or_default();
            let votes = |line: &&str| line.contains(" leader ") || line.contains(" follower ");
            let lines = status.lines().skip(3).filter(votes);
            lines.filter(|line| line.contains(" yes ")).count() == count
        });
    }
}

fn error_of(output: &Output) -> String {
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The number in a line such as `This is node 5 of the cluster.`
fn number(text: &str) -> String {
    text.split_whitespace().next().expect("a number").to_owned()
}

#[test]
fn dead_node_is_replaced_and_does_not_come_back() {
    let folder = Folder::new();
    let places = ["1", "2", "3", "4"].map(|name| Place::new(&folder, name));
    let _first = places[0].start(&["raft", "init"]);
    let token = places[0].raft_text(&["token"]).expect("a token");
    let join = ["raft", "join", token.trim()];
    let second = places[1].start(&join);
    let mut third = Daemon::start(&[&join.map(str::to_owned)[..], &places[2].arguments].concat());
    let dead = number(&third.wait_for("This is node "));
    places[1].wait_for_nodes(3);

    drop(third);
    let removed = places[1].raft(&["remove", &dead]);
    assert!(removed.status.success(), "{}", String::from_utf8_lossy(&removed.stderr));
    let _fourth = places[3].start(&join);
    places[3].wait_for_nodes(3);
    let mut returned = Daemon::start(&places[2].arguments);
    returned.wait_for("this node was removed from the cluster");
    assert!(!returned.end().success());

    // A node that is started again is the same one.
    drop(second);
    let _second = places[1].start(&[]);
    places[1].wait_for_nodes(3);
}

#[test]
fn cluster_of_one_node_refuses_what_would_end_it() {
    let folder = Folder::new();
    let (first, other) = (Place::new(&folder, "1"), Place::new(&folder, "2"));
    let daemon = first.start(&["raft", "init"]);
    first.wait_for_nodes(1);
    assert!(error_of(&first.raft(&["remove", "1"])).contains("node 1 is the only one"));
    assert!(error_of(&first.raft(&["remove", "7"])).contains("there is no node 7"));
    let join = |token: &str| {
        run(&[&["raft", "join", token].map(str::to_owned)[..], &other.arguments].concat())
    };
    let error = error_of(&join("lockwheel-join-1-AAAA"));
    assert!(error.contains("this is not a join token"), "{error}");
    let expired = first.raft_text(&["token", "--hours", "0"]).expect("a token");
    assert!(error_of(&join(expired.trim())).contains("the join token has expired"));

    // Not a second cluster, nor a server of its own, in the directory of a node.
    drop(daemon);
    let again = run(&[&["raft", "init"].map(str::to_owned)[..], &first.arguments].concat());
    assert!(error_of(&again).contains("there is a node of a cluster in"));
    let alone = run(&["--dir", &first.dir, "--port", "0"]);
    assert!(error_of(&alone).contains("is the directory of a node of a cluster"));
    assert!(error_of(&first.raft(&["status"])).contains("Connection refused"));

    let for_tests = ["raft", "init", "--enable-test-commands", "yes"].map(str::to_owned);
    let refused = run(&[&for_tests[..], &other.arguments].concat());
    assert!(error_of(&refused).contains("raft-port and enable-test-commands exclude each other"));
}

#[test]
fn node_that_has_lost_its_log_does_not_start() {
    let folder = Folder::new();
    let place = Place::new(&folder, "1");
    let daemon = place.start(&["raft", "init"]);
    place.wait_for_nodes(1);
    let folder_of_log = std::path::Path::new(&place.dir).join("raft");
    eventually("the node is a member", || {
        let identity = std::fs::read_to_string(folder_of_log.join("node.json"));
        identity.is_ok_and(|identity| identity.contains("\"is_member\": true"))
    });
    drop(daemon);
    for entry in std::fs::read_dir(&folder_of_log).expect("the log") {
        let path = entry.expect("a file").path();
        if path.file_name().is_some_and(|name| name != "node.json") {
            std::fs::remove_file(path).expect("a file");
        }
    }
    let mut daemon = Daemon::start(&place.arguments);
    daemon.wait_for("its log is gone");
    assert!(!daemon.end().success());
}
