//! Servers that replicate their log, with real connections.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use lockwheel::{Builder, Server, Settings, replication};
use lockwheel_engine::settings::directive;
use lockwheel_tests::daemon::Folder;
use lockwheel_tests::process::eventually;
use lockwheel_tests::redis_server::free_port;
use lockwheel_tests::wire::Wire;

/// How often a server is stopped under load, and the clients that are its load.
const STOPS: usize = 5;
const STOP_CLIENTS: usize = 8;

/// Up to three servers in this process.
struct Cluster {
    settings: BTreeMap<u64, Settings>,
    servers: BTreeMap<u64, Server>,
    folder: Folder,
}

/// The settings of a server in a new directory.
fn settings_of(dir: &str) -> Settings {
    std::fs::create_dir(dir).expect("a directory");
    let mut settings = Settings::default();
    for (name, value) in [
        ("dir", dir),
        ("port", &free_port().to_string()),
        ("raft-port", &free_port().to_string()),
        ("raft-election-timeout", "1500"),
    ] {
        settings.apply(name, value).expect("a value of its kind");
    }
    settings
}

/// Begins a cluster without keys.
fn begin_empty(settings: &Settings) {
    replication::begin_cluster(settings).expect("a cluster");
}

impl Cluster {
    fn start() -> Cluster {
        Cluster::start_with(begin_empty)
    }

    /// Starts a cluster whose first node `begin` creates.
    fn start_with(begin: impl FnOnce(&Settings)) -> Cluster {
        let mut cluster = Cluster::begin(begin);
        for id in 2..=3 {
            let token = replication::new_token(&cluster.dir(1), None).expect("a token");
            replication::join_cluster(&cluster.settings[&id], &token).expect("a number");
            cluster.run(id);
        }
        eventually("three nodes that vote", || {
            let status = cluster.status(1);
            status
                .is_ok_and(|status| status.nodes.values().filter(|node| node.is_voter).count() == 3)
        });
        cluster
    }

    /// Starts only the first server, whose node `begin` creates.
    fn begin(begin: impl FnOnce(&Settings)) -> Cluster {
        let folder = Folder::new();
        let settings = (1..=3).map(|id| (id, settings_of(&folder.path(&id.to_string()))));
        let (settings, servers) = (settings.collect(), BTreeMap::new());
        let mut cluster = Cluster { settings, servers, folder };
        begin(&cluster.settings[&1]);
        cluster.run(1);
        cluster
    }

    fn dir(&self, id: u64) -> PathBuf {
        self.settings[&id].get(directive::DIR).into()
    }

    fn run(&mut self, id: u64) {
        let server = Builder::from_settings(self.settings[&id].clone()).start();
        self.servers.insert(id, server.expect("a server"));
    }

    /// The state of the cluster, as the leader or else this server sees it.
    fn status(&self, id: u64) -> Result<replication::Status, lockwheel::Error> {
        replication::status(&self.dir(id))
    }

    /// The server that leads, when there is one.
    fn leader(&self) -> u64 {
        let mut leader = None;
        eventually("a leader", || {
            leader = self.servers.iter().find(|(_, server)| server.leads()).map(|(id, _)| *id);
            leader.is_some()
        });
        leader.expect("a leader")
    }

    /// Makes a server the leader, whichever leads now.
    fn lead(&self, id: u64) {
        let number = self.number(id);
        eventually("the leader that was asked for", || {
            replication::lead(&self.dir(id), number).is_ok() && self.servers[&id].leads()
        });
    }

    /// The number of the node of a server.
    fn number(&self, id: u64) -> u64 {
        let port = format!(":{}", self.settings[&id].get(directive::RAFT_PORT));
        let nodes = self.status(id).expect("a node").nodes;
        let own = nodes.iter().find(|(_, node)| node.peer.address.ends_with(&port));
        *own.expect("its address").0
    }

    /// The reply of the server that leads to a command that may be run twice: on a busy machine a
    /// server may stop leading before it has replied.
    fn ask(&self, command: &str) -> String {
        self.ask_words(&command.split(' ').collect::<Vec<_>>())
    }

    /// As [`Cluster::ask`], for a command whose words have blanks.
    fn ask_words(&self, words: &[&str]) -> String {
        let mut reply = Vec::new();
        eventually("a reply of the leader", || {
            let mut wire = Wire::connect(self.servers[&self.leader()].addr(), 2);
            wire.send(words);
            reply = wire.try_read().unwrap_or_default();
            !reply.is_empty() && !reply.starts_with(b"-READONLY ")
        });
        String::from_utf8_lossy(&reply).into_owned()
    }

    /// What a server replies, whether it leads or not.
    fn ask_server(&self, id: u64, command: &str) -> String {
        Wire::connect(self.servers[&id].addr(), 2).ask(command)
    }

    /// What a server replies to a command that reads, when it can confirm that its state is recent.
    fn read(&self, id: u64, command: &str) -> String {
        let words: Vec<&str> = command.split(' ').collect();
        let mut reply = Vec::new();
        eventually("a reply to a read", || {
            let mut wire = Wire::connect(self.servers[&id].addr(), 2);
            wire.send(&words);
            reply = wire.try_read().unwrap_or_default();
            !reply.is_empty() && !reply.starts_with(b"-MASTERDOWN ")
        });
        String::from_utf8_lossy(&reply).into_owned()
    }

    /// Whether all servers show the one that leads.
    fn shows_leader(&self) -> bool {
        let leader = self.leader();
        let port = self.settings[&leader].port;
        self.servers.keys().all(|id| {
            let expected = match *id == leader {
                true => "role:master\r\nconnected_slaves:2\r\n".to_owned(),
                false => format!("role:slave\r\nmaster_host:127.0.0.1\r\nmaster_port:{port}\r\n"),
            };
            self.ask_server(*id, "INFO replication").contains(&expected)
        })
    }
}

/// Shows R2.
#[test]
fn lock_survives_its_leader() {
    let mut cluster = Cluster::start();
    assert_eq!(cluster.ask("SET lock token PX 600000"), "+OK\r\n");
    let old = cluster.leader();
    cluster.servers.remove(&old);
    assert_eq!(cluster.ask("SET lock other NX PX 600000"), "$-1\r\n");
    assert_ne!(cluster.leader(), old);
    let left: i64 = cluster.ask("PTTL lock")[1..].trim().parse().expect("a number");
    assert!((500_000..=600_000).contains(&left), "{left}");
    assert_eq!(cluster.ask("SET other token PX 600000"), "+OK\r\n");

    cluster.run(old);
    let gone = cluster.leader();
    cluster.servers.remove(&gone);
    assert_eq!(cluster.ask("EXISTS lock other"), ":2\r\n");
}

/// A server that has led, follows and leads again in one process. Nothing of its earlier leadership
/// counts: neither its majority, nor its units, nor its clients, nor its time.
#[test]
fn server_leads_again_as_for_the_first_time() {
    let mut cluster = Cluster::start();
    let first = cluster.leader();
    let other = (1..=3).find(|id| *id != first).expect("three nodes");
    assert_eq!(cluster.ask("SET lock token PX 600000"), "+OK\r\n");
    let mut bound = Wire::connect(cluster.servers[&first].addr(), 2);
    let acquired = bound.ask("LOCK.ACQUIRE bound owner TTL 600000 BOUND GRACE 60000");
    assert!(acquired.contains("acquired"), "{acquired}");
    eventually("some time of the lease", || pttl(&cluster, "lock") <= 598_000);

    cluster.lead(other);
    let left_ms = pttl(&cluster, "lock");
    assert!(left_ms <= 599_000, "followers have the time of an idle leader: {left_ms}");
    assert!(bound.closes(), "clients of a former leader are closed");
    let refused = cluster.ask("LOCK.ACQUIRE bound other TTL 1000");
    assert!(refused.contains("refused"), "{refused}");

    cluster.lead(first);
    assert_eq!(cluster.ask("SET lock other NX PX 600000"), "$-1\r\n");
    let others: Vec<u64> = (1..=3).filter(|id| *id != first).collect();
    let mut wire = Wire::connect(cluster.servers[&first].addr(), 2);
    for id in &others {
        cluster.servers.remove(id);
    }
    // Units of a leadership without a majority, which end with it.
    for number in 0..100 {
        wire.send(&["SET", &format!("unconfirmed:{number}"), "value"]);
    }
    assert!(wire.closes(), "a reply without a majority");
    for id in &others {
        cluster.run(*id);
    }
    assert_eq!(cluster.ask("SET last value"), "+OK\r\n");
    let keys = |id: u64| {
        let mut keys: Vec<String> = cluster.read(id, "KEYS *").lines().map(str::to_owned).collect();
        keys.sort_unstable();
        keys
    };
    let expected = keys(first);
    assert!(expected.iter().any(|key| key == "last"), "{expected:?}");
    for id in others {
        assert_eq!(keys(id), expected, "server {id}");
    }
}

/// The milliseconds that a key has left.
fn pttl(cluster: &Cluster, key: &str) -> i64 {
    cluster.ask(&format!("PTTL {key}"))[1..].trim().parse().expect("a number")
}

#[test]
fn followers_refuse_commands_and_show_the_leader() {
    let cluster = Cluster::start();
    assert_eq!(cluster.ask("SET lock token"), "+OK\r\n");
    eventually("the same leader everywhere", || cluster.shows_leader());
    let refuses = |id: &u64| {
        let refusal = "-READONLY You can't write against a read only replica.\r\n";
        cluster.ask_server(*id, "SET lock other NX") == refusal
    };
    // One that has led meanwhile has refused the lock.
    assert!(cluster.servers.keys().filter(|id| refuses(id)).count() >= 1);
    assert_eq!(cluster.ask("GET lock"), "$5\r\ntoken\r\n");
    let role = cluster.ask("ROLE");
    let ports = cluster.settings.values().map(|settings| settings.port);
    let shown = ports.filter(|port| role.contains(&port.to_string()));
    assert_eq!(shown.count(), 2, "{role}");
}

#[test]
fn every_server_answers_as_a_sentinel_of_the_leader() {
    let cluster = Cluster::start();
    eventually("the same leader everywhere", || cluster.shows_leader());
    let master = cluster.settings[&cluster.leader()].port.to_string();
    for id in cluster.servers.keys() {
        let ask = |command| cluster.ask_server(*id, command);
        let address = format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{master}\r\n", master.len());
        assert_eq!(ask("SENTINEL GET-MASTER-ADDR-BY-NAME mymaster"), address);
        assert_eq!(&ask("SENTINEL CKQUORUM mymaster")[..21], "+OK 3 usable Sentinel");
        let others = cluster.settings.iter().filter(|(other, _)| *other != id);
        let mut others = others.map(|(_, settings)| settings.port.to_string());
        let sentinels = ask("SENTINEL SENTINELS mymaster");
        assert!(others.all(|port| sentinels.contains(&port)));
        assert!(ask("SENTINEL MASTER mymaster").contains("\r\nmaster\r\n"));
        assert_eq!(ask("SENTINEL REPLICAS mymaster").matches("\r\nslave\r\n").count(), 4);
    }
}

#[test]
fn subscribers_are_notified_when_another_server_leads() {
    let mut cluster = Cluster::start();
    let (old, mut subscriber) = loop {
        eventually("the same leader everywhere", || cluster.shows_leader());
        let leader = cluster.leader();
        let follower = cluster.servers.keys().find(|id| **id != leader).expect("a follower");
        let mut subscriber = Wire::connect(cluster.servers[follower].addr(), 2);
        subscriber.ask("SUBSCRIBE +switch-master");
        // On a busy machine another server may lead meanwhile: from here on that is an event.
        eventually("the same leader everywhere", || cluster.shows_leader());
        let leader = cluster.leader();
        if leader != *follower {
            break (leader, subscriber);
        }
    };
    cluster.servers.remove(&old);
    let event = String::from_utf8_lossy(&subscriber.read()).into_owned();
    let words: Vec<&str> = event.split_whitespace().collect();
    let [.., "mymaster", "127.0.0.1", from, "127.0.0.1", to] = words[..] else {
        panic!("{event}");
    };
    let ports: Vec<_> = cluster.settings.values().map(|it| it.port.to_string()).collect();
    assert!(from != to && [from, to].iter().all(|port| ports.iter().any(|it| it == port)));
}

/// A leader that loses its followers closes its clients, except those that wait for the next one.
#[test]
fn clients_that_wait_for_the_next_leader_stay_connected() {
    let mut cluster = Cluster::start();
    eventually("the same leader everywhere", || cluster.shows_leader());
    let leader = cluster.leader();
    let connect = || Wire::connect(cluster.servers[&leader].addr(), 2);
    let (mut subscriber, mut waiter, mut client) = (connect(), connect(), connect());
    subscriber.ask("PSUBSCRIBE *");
    waiter.ask("SUBSCRIBE lock");
    client.ask("CLIENT ID");
    cluster.servers.retain(|id, _| *id == leader);
    assert!(client.closes() && waiter.closes());
    assert!(subscriber.ask("PSUBSCRIBE +*").contains("psubscribe"));
}

#[test]
fn leader_that_is_cut_off_names_no_master_and_grants_nothing() {
    let mut cluster = Cluster::start();
    eventually("the same leader everywhere", || cluster.shows_leader());
    let leader = cluster.leader();
    let others: Vec<u64> = (1..=3).filter(|id| *id != leader).collect();
    for id in &others {
        cluster.servers.remove(id);
    }
    let ask = |command: &str| cluster.ask_server(leader, command);
    let master = "SENTINEL GET-MASTER-ADDR-BY-NAME mymaster";
    eventually("an end of its leadership", || ask(master) == "*-1\r\n");
    let role = "*5\r\n$5\r\nslave\r\n$0\r\n\r\n:0\r\n$7\r\nconnect\r\n:-1\r\n";
    assert_eq!(ask("ROLE"), role);
    assert!(ask("INFO replication").contains("role:slave\r\n"));
    assert!(ask("HELLO").contains("$4\r\nrole\r\n$7\r\nreplica\r\n"));
    assert!(ask("SENTINEL MASTER mymaster").contains("s_down,o_down,master,disconnected"));
    assert!(ask("SENTINEL CKQUORUM mymaster").starts_with("-NOQUORUM "));
    for command in ["SET lock token NX PX 600000", "LOCK.ACQUIRE native owner TTL 600000"] {
        let refused = ask(command);
        assert!(refused.starts_with("-READONLY "), "{command}: {refused}");
    }
    assert!(ask("GET lock").starts_with("-MASTERDOWN "));
    for id in others {
        cluster.run(id);
    }
    assert_eq!(cluster.ask("SET lock other NX PX 600000"), "+OK\r\n");
    assert!(cluster.ask("LOCK.ACQUIRE native other TTL 600000").contains("acquired"));
}

#[test]
fn leader_that_stops_replies_to_what_it_has_executed() {
    // One node is always in contact with a majority.
    let mut cluster = Cluster::begin(begin_empty);
    for round in 0..STOPS {
        let address = cluster.servers[&cluster.leader()].addr();
        let clients: Vec<_> = (0..STOP_CLIENTS)
            .map(|client| {
                let mut wire = Wire::connect(address, 2);
                thread::spawn(move || {
                    let (key, mut last) = (format!("{round}:{client}"), b":0\r\n".to_vec());
                    loop {
                        wire.send(&["INCR", &key]);
                        match wire.try_read() {
                            Ok(reply) if reply.starts_with(b":") => last = reply,
                            _ => return last,
                        }
                    }
                })
            })
            .collect();
        let key = format!("GET {round}:0");
        eventually("requests of clients", || cluster.ask(&key) != "$-1\r\n");
        cluster.servers.remove(&1).expect("it runs").stop();
        cluster.run(1);
        for (client, last) in clients.into_iter().enumerate() {
            let last = String::from_utf8_lossy(&last.join().expect("a reply")).into_owned();
            let counted = cluster.ask(&format!("INCRBY {round}:{client} 0"));
            assert_eq!(counted, last, "client {client} of round {round}");
        }
    }
}

#[test]
fn leader_stops_without_a_majority() {
    let mut cluster = Cluster::start();
    let leader = cluster.leader();
    cluster.servers.retain(|id, _| *id == leader);
    let server = &cluster.servers[&leader];
    // Executed, and not confirmed: a reply to a later request means that.
    let mut wire = Wire::connect(server.addr(), 2);
    wire.send_line("SET lock token NX");
    let mut later = Wire::connect(server.addr(), 2);
    later.send_line("PING");
    let _ = later.try_read();
    server.stop();
    assert!(!wire.try_read().is_ok_and(|reply| reply.starts_with(b"+")));
}

#[test]
fn wait_returns_how_many_followers_have_the_changes() {
    let cluster = Cluster::start();
    eventually("the same leader everywhere", || cluster.shows_leader());
    eventually("followers that have the change", || {
        let mut wire = Wire::connect(cluster.servers[&cluster.leader()].addr(), 2);
        wire.send(&["EVAL", "return redis.call('SET', KEYS[1], ARGV[1])", "1", "lock", "token"]);
        wire.send(&["WAIT", "2", "10000"]);
        wire.send(&["WAITAOF", "1", "2", "10000"]);
        let mut next = || wire.try_read().unwrap_or_default();
        [next(), next(), next()] == [&b"+OK\r\n"[..], b":2\r\n", b"*2\r\n:1\r\n:2\r\n"]
    });
    assert_eq!(cluster.ask("WAIT 0 0"), ":2\r\n");
    assert_eq!(cluster.ask("WAITAOF 0 0 0"), "*2\r\n:1\r\n:2\r\n");
}

/// The reads of all servers are recent, whichever leads.
/// Shows R9.
#[test]
fn every_server_reads_what_was_acknowledged() {
    let cluster = Cluster::start();
    let script = "EVAL_RO return{redis.call('get',KEYS[1])} 1 key";
    for number in 0..30 {
        let value = number.to_string();
        assert_eq!(cluster.ask(&format!("SET key {value}")), "+OK\r\n");
        let bulk = format!("${}\r\n{value}\r\n", value.len());
        for id in cluster.servers.keys() {
            assert_eq!(cluster.read(*id, "GET key"), bulk);
            assert_eq!(cluster.read(*id, script), format!("*1\r\n{bulk}"));
        }
    }
}

/// Shows R15.
#[test]
fn setting_is_that_of_one_server() {
    let cluster = Cluster::start();
    assert_eq!(cluster.read(1, "CONFIG SET busy-reply-threshold 7000"), "+OK\r\n");
    assert_eq!(cluster.ask("SET key value"), "+OK\r\n");
    let has_it = |id| {
        // It has all that was executed before.
        assert_eq!(cluster.read(id, "GET key"), "$5\r\nvalue\r\n");
        cluster.read(id, "CONFIG GET busy-reply-threshold").contains("7000")
    };
    assert_eq!([1, 2, 3].map(has_it), [true, false, false]);
}

#[test]
fn large_requests_are_refused_and_large_effects_survive_their_leader() {
    let mut cluster = Cluster::start();
    assert_eq!(cluster.ask("CONFIG SET raft-request-max 1mb"), "+OK\r\n");
    // A value with which the request has this size, including `SET` and `k`.
    let value = |bytes: usize| "v".repeat(bytes - "SETk".len());
    assert_eq!(cluster.ask(&format!("SET k {}", value(1 << 20))), "+OK\r\n");
    let refused = cluster.ask(&format!("SET k {}", value((1 << 20) + 1)));
    let reason = "the arguments of the request have 1048577 bytes, more than raft-request-max \
                  (1048576)";
    assert_eq!(refused, format!("-ERR {reason}\r\n"));
    let script = "for i = 1, 20000 do redis.call('SET', i, ARGV[1]) end";
    let word = "v".repeat(200);
    assert_eq!(cluster.ask_words(&["EVAL", script, "0", &word]), "$-1\r\n");
    let gone = cluster.leader();
    cluster.servers.remove(&gone);
    assert_eq!(cluster.ask("DBSIZE"), ":20001\r\n");
    assert_eq!(cluster.ask("STRLEN 20000"), ":200\r\n");
}

/// A node that was away gets a snapshot, since the entries that it lacks were purged.
#[test]
fn node_that_was_away_gets_a_snapshot() {
    let mut cluster = Cluster::start();
    let away = (1..=3).find(|id| *id != cluster.leader()).expect("three nodes");
    cluster.servers.remove(&away);
    for key in 0..1_200 {
        assert_eq!(cluster.ask(&format!("SET {key} value PX 600000")), "+OK\r\n");
    }
    assert_eq!(cluster.ask("SAVE"), "+OK\r\n");
    assert_eq!(cluster.ask("SET last value"), "+OK\r\n");
    cluster.run(away);
    // When one of the others ends, a majority needs the one that was away.
    let other = (1..=3).find(|id| *id != away).expect("three nodes");
    cluster.servers.remove(&other);
    assert_eq!(cluster.ask("SET more value"), "+OK\r\n");
    cluster.run(other);
    let leader = cluster.leader();
    cluster.servers.remove(&leader);
    assert_eq!(cluster.ask("DBSIZE"), ":1202\r\n");
}

/// The files of a node's log, the last one last.
fn segments(cluster: &Cluster, id: u64) -> Vec<PathBuf> {
    let folder = cluster.dir(id).join("raft");
    let files = std::fs::read_dir(folder).expect("the folder of the node");
    let mut names: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
    names.retain(|name| name.extension().is_some_and(|extension| extension == "log"));
    names.sort();
    names
}

/// Cuts off a part of the last change in the log of a node that has ended.
fn tear(cluster: &Cluster, id: u64) {
    let last = segments(cluster, id).pop().expect("a segment");
    let bytes = std::fs::read(&last).expect("its bytes");
    std::fs::write(&last, &bytes[..bytes.len() - 30]).expect("it is shorter");
}

/// It may have acknowledged what was cut off, as here: a node that lacks it must not lead.
#[test]
fn node_that_has_cut_off_the_end_of_its_log_does_not_vote_until_it_is_confirmed() {
    let mut cluster = Cluster::start();
    let leader = cluster.leader();
    let (torn, away) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    cluster.servers.remove(&away);
    for key in 0..20 {
        assert_eq!(cluster.ask(&format!("SET {key} value")), "+OK\r\n");
    }
    cluster.servers.remove(&torn);
    cluster.servers.remove(&leader);
    tear(&cluster, torn);
    cluster.run(torn);
    cluster.run(away);
    for id in [torn, away] {
        // It waits for a leader before.
        let reply = cluster.ask_server(id, "GET 19");
        assert!(reply.starts_with("-MASTERDOWN "), "{reply}");
    }
    cluster.run(leader);
    assert_eq!(cluster.ask("GET 19"), "$5\r\nvalue\r\n");
    eventually("its confirmation", || !cluster.dir(torn).join("raft/doubt").exists());
}

/// Otherwise it could help another node without the lost changes to lead, and no leader that knows
/// of them can go on with it.
#[test]
fn follower_that_lacks_what_it_has_acknowledged_ends_and_the_leader_goes_on() {
    let mut cluster = Cluster::start();
    let leader = cluster.leader();
    for key in 0..20 {
        assert_eq!(cluster.ask(&format!("SET {key} value")), "+OK\r\n");
    }
    assert_eq!(cluster.ask("WAIT 2 0"), ":2\r\n");
    let follower = leader % 3 + 1;
    cluster.servers.remove(&follower);
    tear(&cluster, follower);
    cluster.run(follower);
    eventually("its end", || cluster.servers[&follower].is_stopped());
    assert!(cluster.servers[&follower].has_lost_log());
    cluster.servers.remove(&follower);
    assert_eq!(cluster.ask("SET more value"), "+OK\r\n");
    assert_eq!(cluster.leader(), leader);
}

/// What a node shows of its own promises is checked before it starts.
#[test]
fn node_without_its_vote_or_its_log_does_not_start() {
    let mut cluster = Cluster::start();
    assert_eq!(cluster.ask("SET key value"), "+OK\r\n");
    let follower = cluster.leader() % 3 + 1;
    eventually("a member", || {
        let text = std::fs::read_to_string(cluster.dir(follower).join("raft/node.json"));
        text.is_ok_and(|text| text.contains("\"is_member\": true"))
    });
    cluster.servers.remove(&follower);
    let error = |cluster: &Cluster| {
        let started = Builder::from_settings(cluster.settings[&follower].clone()).start();
        started.expect_err("it does not start").to_string()
    };
    let vote = cluster.dir(follower).join("raft/vote");
    let kept = std::fs::read(&vote).expect("a vote");
    std::fs::remove_file(&vote).expect("it is removed");
    assert!(error(&cluster).contains("the file is lost"), "{}", error(&cluster));
    std::fs::write(&vote, kept).expect("the vote");
    for segment in segments(&cluster, follower) {
        std::fs::remove_file(segment).expect("it is removed");
    }
    assert!(error(&cluster).contains("its log is gone"), "{}", error(&cluster));
}

/// Shows R14.
#[test]
fn functions_and_users_survive_their_leader() {
    const CODE: &str = "#!lua name=l\nredis.register_function('f', function() return 7 end)";
    const REFUSED: &str = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    let mut cluster = Cluster::start();
    assert_eq!(cluster.ask_words(&["FUNCTION", "LOAD", "REPLACE", CODE]), "$1\r\nl\r\n");
    assert_eq!(cluster.ask("ACL SETUSER u on >secret ~* +@all"), "+OK\r\n");
    // A former leader closes its connections.
    let reply = |server: &Server| {
        let mut wire = Wire::connect(server.addr(), 2);
        wire.send(&["AUTH", "u", "secret"]);
        wire.try_read().unwrap_or_default()
    };
    let all_reply = |cluster: &Cluster, expected: &str| {
        cluster.servers.values().all(|server| reply(server) == expected.as_bytes())
    };
    eventually("the user on all servers", || all_reply(&cluster, "+OK\r\n"));
    let old = cluster.leader();
    cluster.servers.remove(&old);
    assert_eq!(cluster.ask("FCALL f 0"), ":7\r\n");
    assert_eq!(cluster.ask("AUTH u secret"), "+OK\r\n");
    cluster.ask("ACL DELUSER u");
    // The user is also removed on the node that begins with an older log.
    cluster.run(old);
    eventually("no such user on any server", || all_reply(&cluster, REFUSED));
}

/// The number after a name in the reply of a command about locks.
pub(crate) fn number_after(name: &str, reply: &str) -> u64 {
    let mut lines = reply.split("\r\n").skip_while(|line| *line != name);
    let number = lines.nth(1).and_then(|line| line.strip_prefix(':')?.parse().ok());
    number.unwrap_or_else(|| panic!("no {name} in {reply:?}"))
}

/// Of a cluster one node is left. A new one begins with its folder, and waits for the leases that
/// it may not have, whichever node leads.
#[test]
fn cluster_begins_with_the_folder_of_the_last_node() {
    const GUARDED: &str = "keys: 2.\nRestart guard: commands are refused for ";
    let mut lost = Cluster::start();
    assert_eq!(lost.ask("SET lock token NX PX 600000"), "+OK\r\n");
    let token = number_after("token", &lost.ask("LOCK.ACQUIRE k a TTL 600"));
    let last = lost.leader();
    let from = Path::new(&lost.settings[&last].get(directive::DIR)).join("raft");
    let backup = from.with_file_name("backup");
    std::fs::create_dir(&backup).expect("a folder");
    for (path, bytes) in files(&from) {
        let copy = backup.join(path.file_name().expect("a file"));
        std::fs::write(copy, bytes).expect("a copy");
    }
    lost.servers.clear();
    let before = files(&from);
    let mut cluster = Cluster::start_with(|settings| {
        let (_, taken) = replication::begin_cluster_from(settings, &from).expect("a log");
        assert!(taken.to_string().contains(GUARDED), "{taken}");
    });
    // A copy that was made while the node ran can be used as well.
    let restored = settings_of(&lost.folder.path("restored"));
    let (_, taken) = replication::begin_cluster_from(&restored, &backup).expect("a log");
    assert!(taken.to_string().contains(GUARDED), "{taken}");
    assert_eq!(files(&from), before);
    let refused = "-LOADING Leases from before the restart may still be held; ready in ";
    for command in ["SET lock other NX", "LOCK.ACQUIRE l a TTL 600", "GET lock"] {
        assert!(cluster.ask(command).starts_with(refused));
    }
    let old = cluster.leader();
    cluster.servers.remove(&old);
    assert!(cluster.ask("SET lock other NX").starts_with(refused));
    cluster.run(old);
    eventually("the end of the guard", || {
        let left = Duration::from_secs(600);
        cluster.servers[&cluster.leader()].advance(left).expect("a clock that moves");
        let next = cluster.ask("LOCK.ACQUIRE k a TTL 600000");
        next.contains("acquired") && number_after("token", &next) > token + (1 << 46)
    });
    assert_eq!(cluster.ask("GET lock"), "$-1\r\n");
}

/// Whatever a cluster waits for, one that begins with its folder waits for as well.
#[test]
fn guard_of_a_cluster_goes_on_in_the_next_one() {
    let mut first = Cluster::begin(begin_empty);
    first.servers.clear();
    let folder_of = |settings: &Settings| Path::new(&settings.get(directive::DIR)).join("raft");
    let mut from = folder_of(&first.settings[&1]);
    // The keys in it say nothing of that lease.
    for (name, minimum) in [("a", "2h"), ("b", "0s"), ("c", "1h")] {
        let mut settings = settings_of(&first.folder.path(name));
        settings.apply("restart-guard-minimum", minimum).expect("a span");
        let (_, taken) = replication::begin_cluster_from(&settings, &from).expect("a log");
        let guard = "Restart guard: commands are refused for 7200000 ms: ";
        assert!(taken.to_string().contains(guard), "{name}: {taken}");
        from = folder_of(&settings);
    }
}

/// The files in a folder, with their contents.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = std::fs::read_dir(folder).expect("a folder");
    let paths = files.map(|file| file.expect("a file").path());
    paths.map(|path| (path.clone(), std::fs::read(path).expect("a file"))).collect()
}

/// Shows R11, R13, L9.
#[test]
fn bound_lock_is_held_for_its_grace_after_a_failover() {
    let mut cluster = Cluster::start();
    let (mut holder, mut grant) = (None, String::new());
    eventually("a grant", || {
        let mut wire = Wire::connect(cluster.servers[&cluster.leader()].addr(), 2);
        wire.send_line("LOCK.ACQUIRE k b TTL 600000 BOUND GRACE 200000");
        grant = String::from_utf8_lossy(&wire.try_read().unwrap_or_default()).into_owned();
        holder = Some(wire);
        grant.contains("acquired")
    });
    // The tokens of a new cluster begin at 1; some attempts have got no reply.
    assert!((1..1_000).contains(&number_after("token", &grant)), "{grant}");
    let old = cluster.leader();
    cluster.servers.remove(&old);
    drop(holder);
    let held = cluster.ask("LOCK.INFO k");
    assert_eq!(number_after("token", &held), number_after("token", &grant));
    assert_eq!(number_after("client", &held), 0);
    assert!((1..=200_000).contains(&number_after("ttl", &held)), "{held}");
    assert!(cluster.ask("LOCK.ACQUIRE k c TTL 600000").contains("refused"));
    eventually("the end of the grace", || {
        let grace = Duration::from_millis(200_000);
        cluster.servers[&cluster.leader()].advance(grace).expect("a clock that moves");
        let next = cluster.ask("LOCK.ACQUIRE k c TTL 600000");
        next.contains("acquired") && number_after("token", &next) > number_after("token", &grant)
    });
}
