//! The nodes that replicate the log, as clients are shown them, and the event for clients when
//! another one leads.

use sha1::{Digest, Sha1};

use crate::durability::unit_log::Position;
use crate::error::Error;
use crate::sessions::{ClientId, Close, Session};
use crate::settings::directive;
use crate::timing::time::{Millis, Time};
use crate::{Engine, limits};

/// The address of a node for clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl Address {
    /// The id under which clients are shown the node: 40 hex digits, the same on all nodes.
    pub(crate) fn id(&self) -> String {
        let digest = Sha1::digest(format!("{}:{}", self.host, self.port));
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A node that does not lead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Follower {
    /// Where it accepts clients.
    pub address: Address,
    /// Whether the leader is in contact with it. The other nodes assume that it is.
    pub is_in_contact: bool,
    /// If this node leads: the last unit on the follower's disk.
    pub acknowledged: Position,
}

/// The rounds of replication of a node since its start. Each replicates one batch of units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rounds {
    /// Number of rounds.
    pub count: u64,
    /// Number of units that were replicated.
    pub units: u64,
    /// The moments of a round by their names, in their usual order; and the sum over all rounds of
    /// the time from the first unit to that moment, in microseconds.
    pub moments_us: Vec<(&'static str, u64)>,
}

/// The nodes of the cluster, as one of them shows them to clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    /// The address of this one.
    pub own: Address,
    /// The one that leads, if it is known and in contact.
    pub leader: Option<Address>,
    /// The other ones.
    pub followers: Vec<Follower>,
    /// The term of this node.
    pub term: u64,
    /// If this node leads: the entries of the log that the slowest follower in contact lacks.
    /// Otherwise those that this node has and has not applied.
    pub lag_entries: u64,
    /// The rounds of replication of this node while it has led.
    pub rounds: Rounds,
    /// The last one that has led; set by the engine.
    pub(crate) last_leader: Option<Address>,
    /// Number of changes of the leader; set by the engine.
    pub(crate) leader_changes: u64,
    /// When this server was notified of the last one, by the lease clock; set by the engine.
    pub(crate) leader_known_at: Millis,
}

impl Nodes {
    /// The followers that the leader is in contact with.
    pub(crate) fn in_contact(&self) -> impl Iterator<Item = &Follower> {
        self.followers.iter().filter(|follower| follower.is_in_contact)
    }

    /// The addresses of the nodes other than this one.
    pub(crate) fn others(&self) -> impl Iterator<Item = &Address> {
        let followers = self.followers.iter().map(|follower| &follower.address);
        self.leader.iter().chain(followers).filter(|address| **address != self.own)
    }
}

/// The channel of the event that clients of sentinels follow.
const SWITCH: &[u8] = b"+switch-master";

/// Whether events of sentinels are published on this channel, or on the channels of this pattern.
fn is_of_events(channel: &[u8]) -> bool {
    channel == b"*" || matches!(channel.first(), Some(b'+' | b'-'))
}

/// Whether the client has nothing of this server but subscriptions to events of sentinels.
fn has_only_events(session: &Session) -> bool {
    let mut channels = session.channels.iter().chain(&session.patterns);
    session.subscriptions() > 0
        && session.shard_channels.is_empty()
        && session.blocked.is_none()
        && session.transaction.is_none()
        && session.watched.is_empty()
        && session.tracking.is_none()
        && channels.all(|channel| is_of_events(channel))
}

impl Engine {
    /// Sets the nodes that clients are shown. If another one leads than before, the clients of this
    /// server that follow such events are notified; the event is not part of the log.
    pub fn set_nodes(&mut self, nodes: Nodes, time: Time) {
        let Nodes { last_leader: last, mut leader_changes, mut leader_known_at, .. } =
            std::mem::take(&mut self.nodes);
        if let Some(leader) = &nodes.leader
            && nodes.leader != last
        {
            leader_known_at = time.now;
            if let Some(last) = &last {
                leader_changes += 1;
                let name = self.settings.get(directive::RAFT_MASTER_NAME);
                let message =
                    format!("{name} {} {} {} {}", last.host, last.port, leader.host, leader.port);
                self.sessions.publish(SWITCH, message.as_bytes());
            }
        }
        let last_leader = nodes.leader.clone().or(last);
        self.nodes = Nodes { last_leader, leader_changes, leader_known_at, ..nodes };
        self.serve_log_waits();
        self.refuse_held_for_leader();
    }

    /// Whether a client stays when this server leads no more: it only waits for the event of the
    /// next leader, or monitors the server.
    pub fn outlives_leader(&self, client: ClientId) -> bool {
        self.is_monitoring(client)
            || self.sessions.get(client).is_some_and(has_only_events)
                && !self.sessions.bindings.has(client)
    }

    /// Whether a client only monitors the server.
    pub fn is_monitoring(&self, client: ClientId) -> bool {
        self.sessions.get(client).is_some_and(|session| session.origin.is_monitoring)
    }

    /// The error for a client whose request needs a leader, which this server is not. If the client
    /// may have been directed to it as to the leader, its connection is closed, so that it looks
    /// for the leader again; one that monitors this server stays.
    pub(crate) fn refuse_to_lead(&mut self, client: ClientId) -> Error {
        let known_at = self.nodes.leader_known_at;
        if let Some(session) = self.sessions.get_mut(client)
            && !session.origin.is_monitoring
            && session.connected_at.0 <= known_at.0.saturating_add(limits::LEADER_NEWS_MS)
        {
            session.close = Some(Close::AfterReplies);
        }
        Error::ReadOnlyReplica
    }

    /// Checks for a client whether this server writes the log.
    pub(crate) fn check_leads(&mut self, client: ClientId) -> Result<(), Error> {
        if self.is_following() { Err(self.refuse_to_lead(client)) } else { Ok(()) }
    }

    /// How far the log is that followers replicate, in units; 0 if there are none.
    pub(crate) fn replication_offset(&self) -> Position {
        if self.settings.is_node() { self.last_unit() } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::{Address, Follower, Nodes};
    use crate::Flow;
    use crate::sessions::Origin;
    use crate::settings::{Settings, directive};
    use crate::testing::{Stage, words};

    fn address(port: u16) -> Address {
        Address { host: "10.0.0.1".into(), port }
    }

    /// Three nodes, of which this one has port 7.
    fn nodes(leader: Option<u16>, out_of_contact: Option<u16>) -> Nodes {
        let follower = |port| Follower {
            address: address(port),
            is_in_contact: Some(port) != out_of_contact,
            acknowledged: 0,
        };
        let followers = (7..=9).filter(|port| Some(*port) != leader).map(follower).collect();
        let (own, leader) = (address(7), leader.map(address));
        Nodes { own, leader, followers, ..Nodes::default() }
    }

    /// A node that follows.
    fn node() -> Stage {
        let mut settings = Settings::default();
        settings.put(directive::RAFT_PORT, &1);
        let mut stage = Stage::new(settings);
        stage.engine.follow();
        stage
    }

    #[test]
    fn node_shows_its_figures() {
        let mut stage = node();
        let of = |leader| {
            let mut nodes = nodes(Some(leader), Some(9));
            (nodes.term, nodes.lag_entries) = (3, 5);
            nodes
        };
        stage.set_nodes(of(8));
        stage.check(
            "INFO lockwheel => ...raft_role:follower\\r\\nraft_leads:0\\r\\n\
             raft_leader:10.0.0.1:8\\r\\nraft_has_leader:1\\r\\nraft_term:3\\r\\n\
             raft_leader_changes:0\\r\\nraft_lag_entries:5\\r\\nraft_nodes:3\\r\\n\
             raft_rounds:0\\r\\n...",
        );
        stage.set_nodes(of(7));
        stage.engine.lead(0, stage.time());
        stage.check(
            "INFO lockwheel => ...raft_role:leader\\r\\n...raft_leader_changes:1\\r\\n...\
             raft_nodes:3\\r\\nraft_nodes_in_contact:2\\r\\n...",
        );
        let mut nodes = nodes(Some(7), Some(9));
        nodes.rounds =
            super::Rounds { count: 4, units: 9, moments_us: vec![("begun", 3), ("sent", 10)] };
        stage.set_nodes(nodes);
        stage.check(
            "INFO lockwheel => ...raft_rounds:4\\r\\nraft_commits:9\\r\\n\
             raft_rounds_per_second:0.00\\r\\nraft_commits_per_second:0.00\\r\\n\
             raft_moment_begun:usec=3,usec_per_round=0.75\\r\\n\
             raft_moment_sent:usec=10,usec_per_round=2.50\\r\\n\"",
        );
    }

    #[test]
    fn nodes_are_shown_with_their_roles() {
        let mut stage = node();
        stage.set_nodes(nodes(None, None));
        stage.check(
            "INFO replication => ...role:slave\\r\\nmaster_host:\\r\\n...; \
             ROLE => [\"slave\", \"\", 0, \"connect\", -1]",
        );
        stage.set_nodes(nodes(Some(9), None));
        stage.check(
            "INFO replication => ...master_host:10.0.0.1\\r\\nmaster_port:9\\r\\n\
             master_link_status:up...; ROLE => [\"slave\", \"10.0.0.1\", 9, \"connected\", 0]; \
             HELLO => ...\"role\", \"replica\"...; WAIT 0 0 => !READONLY ...; \
             WAITAOF 0 0 0 => !READONLY ...",
        );
        stage.engine.lead(3, stage.time());
        stage.set_nodes(nodes(Some(7), Some(9)));
        stage.check(
            "SET k v; INFO replication => ...role:master\\r\\nconnected_slaves:1\\r\\n\
             slave0:ip=10.0.0.1,port=8,state=online,offset=0,lag=0\\r\\n...offset:4\\r\\n...; \
             ROLE => [\"master\", 4, [[\"10.0.0.1\", \"8\", \"0\"]]]",
        );
    }

    #[test]
    fn node_answers_as_a_sentinel_of_its_leader() {
        let mut stage = node();
        stage.check(
            "SENTINEL MASTERS => []; SENTINEL GET-MASTER-ADDR-BY-NAME mymaster => nil-array",
        );
        stage.set_nodes(nodes(Some(9), None));
        stage.check(
            "SENTINEL GET-MASTER-ADDR-BY-NAME mymaster => [\"10.0.0.1\", \"9\"]; \
             SENTINEL GET-MASTER-ADDR-BY-NAME other => nil-array; \
             SENTINEL MASTER other => !ERR No such master with that name; \
             SENTINEL MASTER mymaster => [\"name\", \"mymaster\", \"ip\", \"10.0.0.1\", \"port\", \
             \"9\", ...\"flags\", \"master\", ...\"num-slaves\", \"2\", \"num-other-sentinels\", \
             \"2\", \"quorum\", \"2\", ...]; \
             SENTINEL CKQUORUM mymaster => OK 3 usable Sentinels. ...; \
             SENTINEL IS-MASTER-DOWN-BY-ADDR 10.0.0.1 9 0 * => [0, \"*\", 0]; \
             SENTINEL REPLICAS mymaster => [[\"name\", \"10.0.0.1:7\", ...\"flags\", \"slave\", \
             ...\"master-link-status\", \"ok\", \"master-host\", \"10.0.0.1\", \"master-port\", \
             \"9\", ...], [\"name\", \"10.0.0.1:8\", ...]]; \
             SENTINEL MONITOR m 10.0.0.1 9 1 => !ERR unknown subcommand ...",
        );
        let own_id = stage.step("SENTINEL MYID");
        let mut other = node();
        other.set_nodes(Nodes { own: address(8), ..nodes(Some(9), None) });
        let sentinels = other.step("SENTINEL SENTINELS mymaster");
        assert!(sentinels.contains(&own_id), "{own_id} is not in {sentinels}");
        assert!(sentinels.contains("\"7\"") && sentinels.contains("\"9\""), "{sentinels}");
        assert!(!sentinels.contains("\"8\""), "{sentinels}");
    }

    #[test]
    fn node_without_leader_shows_the_last_one_as_down() {
        let mut stage = node();
        stage.set_nodes(nodes(Some(9), None));
        stage.set_nodes(nodes(None, None));
        stage.check(
            "SENTINEL GET-MASTER-ADDR-BY-NAME mymaster => [\"10.0.0.1\", \"9\"]; \
             SENTINEL MASTER mymaster => [...\"s_down,o_down,master,disconnected\", ...]; \
             SENTINEL CKQUORUM mymaster => !NOQUORUM 1 usable Sentinels. ...; \
             SENTINEL IS-MASTER-DOWN-BY-ADDR 10.0.0.1 9 0 * => [1, \"*\", 0]; \
             SENTINEL IS-MASTER-DOWN-BY-ADDR 10.0.0.1 8 0 * => [0, \"*\", 0]",
        );
    }

    #[test]
    fn node_that_leads_no_more_does_not_name_itself_as_master() {
        let mut stage = node();
        stage.engine.lead(0, stage.time());
        stage.set_nodes(nodes(Some(7), None));
        stage.check("SENTINEL GET-MASTER-ADDR-BY-NAME mymaster => [\"10.0.0.1\", \"7\"]");
        stage.engine.follow();
        stage.set_nodes(nodes(None, None));
        stage.check(
            "SENTINEL GET-MASTER-ADDR-BY-NAME mymaster => nil-array; \
             ROLE => [\"slave\", \"\", 0, \"connect\", -1]; \
             INFO replication => ...role:slave\\r\\n...; HELLO => ...\"role\", \"replica\"...; \
             SENTINEL MASTER mymaster => [...\"s_down,o_down,master,disconnected\", ...]; \
             SENTINEL IS-MASTER-DOWN-BY-ADDR 10.0.0.1 7 0 * => [1, \"*\", 0]",
        );
        stage.set_nodes(nodes(Some(8), None));
        stage.check("SENTINEL GET-MASTER-ADDR-BY-NAME mymaster => [\"10.0.0.1\", \"8\"]");
    }

    #[test]
    fn leader_shows_nodes_without_contact_as_down() {
        let mut stage = node();
        stage.engine.lead(0, stage.time());
        stage.set_nodes(nodes(Some(7), Some(9)));
        let is_down = "\"s_down,slave,disconnected\", ...\"master-link-status\", \"err\"";
        stage.check(&format!("SENTINEL SLAVES mymaster => [[...\"slave\", ...{is_down}...]]"));
        stage.check(
            "SENTINEL SENTINELS mymaster => [[...\"sentinel\", ...\"s_down,sentinel,disconnected\"\
             ...]]; SENTINEL CKQUORUM mymaster => OK 2 usable Sentinels. ...",
        );
    }

    #[test]
    fn server_that_is_no_node_has_no_queries_for_masters() {
        let mut stage = Stage::new(Settings::default());
        stage.check("SENTINEL MASTERS => !ERR unknown command...");
    }

    #[test]
    fn subscribers_are_notified_of_another_leader() {
        let mut stage = node();
        stage.check("b> SUBSCRIBE +switch-master; c> PSUBSCRIBE *");
        for leader in [Some(8), Some(8), None, Some(8)] {
            stage.set_nodes(nodes(leader, None));
        }
        stage.check("b< => ; c< => ");
        stage.set_nodes(nodes(None, None));
        stage.set_nodes(nodes(Some(9), None));
        let event = "\"+switch-master\", \"mymaster 10.0.0.1 8 10.0.0.1 9\"]";
        stage.check(&format!("b< => [\"message\", {event}; c< => [\"pmessage\", \"*\", {event}"));
    }

    #[test]
    fn client_that_monitors_a_node_stays_connected() {
        let mut stage = node();
        stage.set_nodes(nodes(Some(8), None));
        let origin = Origin { in_process: true, is_monitoring: true, ..Origin::default() };
        let client = stage.engine.connect(origin, stage.time());
        assert!(stage.engine.outlives_leader(client));
        // Other clients that have connected as recently are closed.
        let (reply, flow) = stage.run(client, &words("LOCKWHEEL RELEASE k"));
        assert!(reply.starts_with("!READONLY "), "{reply}");
        assert_eq!(flow, Flow::Next);
    }

    #[test]
    fn clients_that_only_follow_events_outlive_the_leader() {
        let mut stage = node();
        stage.engine.lead(0, stage.time());
        for (name, commands, expected) in [
            ("b", "SUBSCRIBE +switch-master -odown", true),
            ("c", "PSUBSCRIBE *", true),
            ("d", "PSUBSCRIBE +*", true),
            ("e", "SUBSCRIBE +switch-master lock", false),
            ("f", "PSUBSCRIBE +* lock*", false),
            ("g", "PSUBSCRIBE **", false),
            ("h", "PING", false),
            ("i", "WATCH k; SUBSCRIBE +switch-master", false),
            ("j", "LOCK.ACQUIRE k o TTL 9000 BOUND; SUBSCRIBE +switch-master", false),
        ] {
            for command in commands.split("; ") {
                stage.check(&format!("{name}> {command}"));
            }
            let client = stage.client(name);
            assert_eq!(stage.engine.outlives_leader(client), expected, "{commands}");
        }
    }
}
