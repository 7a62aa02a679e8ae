//! A server whose log is replicated: it follows the log of a leader, or leads.

use crate::Engine;
use crate::durability::readiness::Role;
use crate::durability::unit_log::Position;
use crate::instruments::shadow::Shadow;
use crate::sessions::bindings::Bindings;
use crate::store::apply::ApplyError;
use crate::timing::time::{Millis, Time};
use lockwheel_defects::defect;

impl Engine {
    /// Begins to follow: the state is that of a log which another server writes, nothing is due,
    /// and [`held`](crate::replication::held) decides what is served. Clients that wait leave the
    /// queues; the caller closes their connections.
    pub fn follow(&mut self) {
        self.access.are_replicated = true;
        // In the state of the log, what they wait for may be free.
        self.sessions.leave_all_queues();
        self.end_guard();
        self.end_log();
        // It would end what is kept for the next time when this server leads.
        if let Some(timer) = self.sessions.pubsub.recent_timer.take() {
            self.sessions.timers.cancel(timer);
        }
        // The leader ends the leases of bound locks; connections that end here must not.
        self.sessions.bindings = Bindings::default();
        self.writer.set_lock_notes(false);
        self.set_role(Role::Follower);
    }

    /// Applies effects that the leader has logged at `logged_at`. Recent messages among them are
    /// kept for clients that subscribe when this server leads.
    ///
    /// # Errors
    /// As [`Engine::apply`].
    pub fn apply_committed(
        &mut self,
        effects: &[u8],
        logged_at: Millis,
        time: Time,
    ) -> Result<(), ApplyError> {
        self.keep_messages(effects, logged_at);
        if let Some(shadow) = self.shadow() {
            shadow.apply(effects, time)?;
        }
        self.apply(effects, time)?;
        self.adopt_users();
        Ok(())
    }

    /// Removes all keys and functions, without effects, and restores the users of the
    /// configuration: the state is going to be that of a log.
    ///
    /// # Errors
    /// As [`Engine::apply`].
    pub fn clear_state(&mut self, time: Time) -> Result<(), ApplyError> {
        self.sessions.pubsub.recent.clear();
        self.sessions.held.void_verdicts();
        // The time of a former leader may be ahead of that of the log: timers that are due earlier
        // would wait for it.
        if !defect!(TimersKeepTheirTime) {
            self.sessions.timers.restart(time.now);
        }
        if let Some(shadow) = self.shadow() {
            shadow.clear(time)?;
        }
        self.writer.clear(time.now)?;
        self.adopt_users();
        Ok(())
    }

    fn shadow(&mut self) -> Option<&mut Shadow> {
        self.instruments.as_mut()?.shadow.as_deref_mut()
    }

    /// Sets whether a server that leads serves commands: not while another one may lead. Commands
    /// are held meanwhile.
    pub fn set_serves(&mut self, serves: bool) {
        let Role::Leader(leader) = &mut self.role else { return };
        if leader.is_in_doubt != serves {
            return;
        }
        leader.is_in_doubt = !serves;
        self.update_conditions();
        if serves {
            self.sessions.run_held();
        }
    }

    /// Begins to lead: this server writes the log, and numbers units from the one after `position`.
    pub fn lead(&mut self, position: Position, time: Time) {
        self.access.are_replicated = true;
        self.start_log(position);
        self.begin_service(time);
    }
}

#[cfg(test)]
mod tests {
    use crate::Flow;
    use crate::replication::nodes::{Address, Nodes};
    use crate::store::snapshot::SnapshotProgress;
    use crate::testing::{Stage, words};
    use crate::timing::time::Millis;

    const REFUSAL: &str = "!READONLY You can't write against a read only replica.";

    /// A server that leads.
    fn leader() -> Stage {
        let mut stage = Stage::new(Default::default());
        stage.engine.lead(0, stage.time());
        stage
    }

    /// A server that follows.
    fn follower() -> Stage {
        let mut stage = Stage::new(Default::default());
        stage.engine.follow();
        stage
    }

    /// The effects of a leader since the last call.
    fn take_effects(leader: &mut Stage) -> Vec<u8> {
        let mut effects = Vec::new();
        leader.engine.take_units(|units| effects.extend_from_slice(units.effects));
        effects
    }

    /// The effects of commands on another server.
    fn effects(commands: &str) -> Vec<u8> {
        let mut stage = Stage::new(Default::default());
        stage.engine.start_log(0);
        stage.check(commands);
        take_effects(&mut stage)
    }

    /// The effects of a lock that is taken and released with a message.
    fn release(message: &str) -> Vec<u8> {
        let script = "redis.call('del', 'k') redis.call('publish', 'c', ARGV[1])";
        effects(&format!("SET k v; EVAL \"{script}\" 0 {message}"))
    }

    fn apply(stage: &mut Stage, effects: &[u8], later_ms: i64) {
        let time = stage.time();
        let at = Millis(time.now.0 + later_ms);
        stage.engine.apply_committed(effects, at, time).expect("effects");
    }

    /// A server that follows this leader.
    fn follower_of_leader() -> Stage {
        let mut stage = follower();
        stage.set_nodes(nodes_with_leader());
        stage
    }

    fn nodes_with_leader() -> Nodes {
        let address = Address { host: "10.0.0.1".into(), port: 9 };
        Nodes { leader: Some(address), ..Nodes::default() }
    }

    /// Confirms the reads that are held.
    fn grant(stage: &mut Stage) {
        let reads = stage.engine.held_reads().expect("held reads");
        stage.engine.grant_reads(reads);
    }

    #[test]
    fn follower_refuses_what_a_leader_serves_and_ends_no_lease() {
        let mut stage = follower_of_leader();
        apply(&mut stage, &effects("SET k v PX 10; SET l v"), 0);
        for command in [
            "SET k v",
            "PUBLISH c m",
            "EVAL \"return 1\" 0",
            "LOCK.RELEASE k o",
            "BLPOP k 0",
            "WAIT 0 0",
            "XREAD STREAMS s 0",
            "WATCH k",
            "CLIENT TRACKING ON",
        ] {
            assert_eq!(stage.step(command), REFUSAL, "{command}");
        }
        stage.check("+20ms; INFO keyspace => ...keys=2...; SUBSCRIBE c => ...");
        assert_eq!(stage.engine.next_deadline(), None);
    }

    #[test]
    fn follower_serves_at_once_what_needs_no_keys() {
        follower().check(
            "PING => PONG; ECHO a => \"a\"; SELECT 1 => OK; TIME => [...; COMMAND COUNT => ...; \
             CLIENT ID => 1; CONFIG GET port => ...; SCRIPT LOAD \"return 1\" => ...; \
             MULTI => OK; PING => QUEUED; EXEC => [PONG]; HELLO 3 => {...",
        );
    }

    #[test]
    fn follower_reads_when_the_state_is_confirmed_once_for_each_request() {
        let mut stage = follower_of_leader();
        apply(&mut stage, &effects("SET k old"), 0);
        let first = stage.hold("a", "GET k");
        let early = stage.engine.held_reads().expect("a held read");
        let second = stage.hold("b", "EVAL_RO \"return redis.call('get', 'k')\" 0");
        apply(&mut stage, &effects("SET k new"), 0);
        stage.engine.grant_reads(early);
        assert_eq!(stage.resumed(), [first]);
        stage.check("GET k => \"new\"");
        grant(&mut stage);
        assert_eq!(stage.resumed(), [second]);
        stage.check("b> EVAL_RO \"return redis.call('get', 'k')\" 0 => \"new\"");
        stage.hold("a", "GET k");
        stage.hold("b", "EVAL \"#!lua flags=no-writes\\x0areturn 1\" 0");
        assert_eq!(stage.resumed(), []);
    }

    #[test]
    fn transaction_of_reads_is_held_as_one() {
        let mut stage = follower_of_leader();
        apply(&mut stage, &effects("SET k v"), 0);
        stage.check("MULTI; GET k => QUEUED; EXISTS k => QUEUED");
        stage.hold("a", "EXEC");
        grant(&mut stage);
        stage.check("EXEC => [\"v\", 1]; MULTI");
        assert_eq!(stage.step("SET k v"), REFUSAL);
        stage.check("EXEC => !EXECABORT ...; MULTI; GET k");
        stage.hold("a", "EXEC");
        stage.engine.refuse_held(stage.engine.last_held());
        stage.check("EXEC => !EXECABORT Transaction discarded because of: MASTERDOWN ...");
    }

    #[test]
    fn read_does_not_see_a_state_that_is_being_replaced() {
        let mut stage = follower_of_leader();
        apply(&mut stage, &effects("SET k v"), 0);
        stage.hold("a", "GET k");
        let reads = stage.engine.held_reads().expect("a held read");
        stage.engine.clear_state(stage.time()).expect("it is cleared");
        stage.engine.grant_reads(reads);
        assert_eq!(stage.resumed(), []);
        grant(&mut stage);
        stage.engine.clear_state(stage.time()).expect("it is cleared");
        stage.hold("a", "GET k");
        apply(&mut stage, &effects("SET k w"), 0);
        grant(&mut stage);
        stage.check("GET k => \"w\"");
    }

    #[test]
    fn follower_hides_a_lease_that_is_over_and_does_not_end_it() {
        let mut stage = follower_of_leader();
        apply(&mut stage, &effects("SET k v PX 10"), 0);
        stage.check("+10ms");
        for (command, reply) in [("GET k", "nil"), ("PTTL k", "-2"), ("DBSIZE", "1")] {
            stage.hold("a", command);
            grant(&mut stage);
            stage.check(&format!("{command} => {reply}"));
        }
        apply(&mut stage, &effects("SET k v PX 1; +1ms; GET k => nil"), 0);
        stage.check("INFO keyspace => \"# Keyspace\\r\\n\"");
    }

    #[test]
    fn clients_that_looked_for_the_leader_too_early_look_again() {
        let mut stage = follower();
        let flow_of_write = |stage: &mut Stage, name: &str| {
            let client = stage.client(name);
            let (reply, flow) = stage.run(client, &words("SET k v"));
            assert_eq!(reply, REFUSAL);
            flow
        };
        stage.client("early");
        stage.client("r");
        stage.set_nodes(nodes_with_leader());
        stage.check("+9000ms");
        stage.client("soon");
        stage.check("+2000ms");
        stage.client("late");
        stage.set_nodes(Nodes::default());
        stage.set_nodes(nodes_with_leader());
        assert_eq!(flow_of_write(&mut stage, "early"), Flow::Close);
        assert_eq!(flow_of_write(&mut stage, "soon"), Flow::Close);
        assert_eq!(flow_of_write(&mut stage, "late"), Flow::Next);
        stage.check("r> PING => PONG");
        stage.set_nodes(Nodes {
            leader: Some(Address { host: "10.0.0.1".into(), port: 8 }),
            ..Nodes::default()
        });
        assert_eq!(flow_of_write(&mut stage, "late"), Flow::Close);
    }

    #[test]
    fn former_leader_serves_no_client_that_waits() {
        let mut stage = leader();
        stage.check("LOCK.ACQUIRE k a TTL 60000 => ...");
        let first = stage.client("b");
        for name in ["b", "c"] {
            stage.check(&format!("{name}> LOCK.ACQUIRE k {name} TTL 60000 WAIT 5000 => "));
        }
        let mut committed = take_effects(&mut stage);
        let mut holder = leader();
        holder.check("LOCK.ACQUIRE k a TTL 60000 => ...");
        take_effects(&mut holder);
        holder.check("LOCK.RELEASE k a => 0");
        committed.extend(take_effects(&mut holder));
        stage.engine.follow();
        stage.engine.clear_state(stage.time()).expect("it is cleared");
        apply(&mut stage, &committed, 0);
        // The connections of the former leader end one after the other.
        stage.engine.disconnect(first);
        let time = stage.time();
        stage.engine.serve_waiters(time, |_| false);
        stage.engine.lead(0, time);
        stage.check("EXISTS k => 0");
    }

    #[test]
    fn timers_of_a_former_leader_do_not_wait_for_its_time() {
        let mut stage = leader();
        // It is cut off: its time passes, and that of the log does not.
        stage.check("+60000ms");
        stage.tick(10_000);
        stage.engine.follow();
        stage.advance(-60_000_000);
        stage.engine.clear_state(stage.time()).expect("it is cleared");
        stage.engine.lead(9, stage.time());
        stage.check("b> BLPOP k 0.1 => ; +99ms; b< => ; +1ms; b< => nil-array");
    }

    #[test]
    fn pause_of_a_follower_ends_at_its_time() {
        let mut stage = follower_of_leader();
        stage.check("CLIENT PAUSE 100 => OK");
        let client = stage.client("a");
        assert_eq!(stage.run(client, &words("PING")), (String::new(), Flow::Again));
        assert!(stage.engine.next_deadline().is_some());
        stage.check("+99ms");
        stage.tick(10_000);
        assert_eq!(stage.resumed(), []);
        stage.check("+1ms");
        stage.tick(10_000);
        assert_eq!(stage.resumed(), [client]);
    }

    #[test]
    fn held_requests_are_refused_in_the_end() {
        let mut stage = follower();
        let clients = [stage.hold("a", "GET k"), stage.hold("b", "SET k v")];
        let last = stage.engine.last_held();
        stage.hold("c", "GET k");
        stage.engine.refuse_held(last);
        assert_eq!(stage.resumed(), clients);
        stage.check("GET k => !MASTERDOWN Link with MASTER is down and replica-...");
        assert_eq!(stage.step("b> SET k v"), REFUSAL);
        stage.hold("b", "SET k v");
    }

    #[test]
    fn writes_wait_until_a_server_leads() {
        let mut stage = follower();
        stage.check("c> MULTI; c> SET l v => QUEUED");
        stage.hold("a", "SET k v");
        stage.hold("b", "GET k");
        stage.hold("c", "EXEC");
        stage.engine.lead(0, stage.time());
        assert_eq!(stage.resumed().len(), 3);
        stage.check("SET k v => OK; b> GET k => \"v\"; c> EXEC => [OK]");

        let mut stage = follower();
        let client = stage.hold("a", "SET k v");
        stage.hold("b", "GET k");
        stage.set_nodes(Nodes::default());
        assert_eq!(stage.resumed(), []);
        stage.set_nodes(nodes_with_leader());
        assert_eq!(stage.resumed(), [client]);
        assert_eq!(stage.step("SET k v"), REFUSAL);
    }

    #[test]
    fn follower_frees_memory() {
        let mut stage = follower();
        let members: String = (0..2_000).map(|number| format!(" {number}")).collect();
        apply(&mut stage, &effects(&format!("SADD k a{members}; DEL k")), 0);
        assert!(stage.engine.has_garbage());
        stage.tick(10_000);
        assert!(!stage.engine.has_garbage());
    }

    #[test]
    fn leader_goes_on_with_the_state_and_the_messages_of_the_log() {
        let mut stage = follower();
        apply(&mut stage, &release("old"), -20_000);
        apply(&mut stage, &release("new"), 0);
        apply(&mut stage, &effects("SET lock token PX 10"), 0);
        let time = stage.time();
        stage.engine.lead(5, time);
        stage.check("GET lock => \"token\"");
        let subscribed = r#"["subscribe", "c", 1] & ["message", "c", "new"]"#;
        assert_eq!(stage.step("b> SUBSCRIBE c"), subscribed);
        stage.check("SET lock other NX => nil; +10ms; SET lock other NX => OK");
        let mut last = 0;
        stage.engine.take_units(|units| last = units.last);
        // The end of the lease, and the new lock.
        assert_eq!(last, 7);
    }

    #[test]
    fn former_leader_forgets_what_was_not_committed() {
        let mut stage = leader();
        stage.check("SET a 1; SELECT 3; SET b 1; FUNCTION LOAD \"#!lua name=l\\n\" => !...");
        stage.engine.begin_snapshot(stage.time());
        stage.engine.follow();
        stage.engine.clear_state(stage.time()).expect("it is cleared");
        assert_eq!(stage.engine.snapshot_part(9, |_| ()), SnapshotProgress::Void);
        assert_eq!(stage.engine.digest(), Stage::new(Default::default()).engine.digest());
        apply(&mut stage, &effects("SET a 2"), 0);
        stage.engine.lead(9, stage.time());
        stage.check("c> KEYS * => [\"a\"]; c> GET a => \"2\"");
    }

    #[test]
    fn leader_that_may_not_be_the_only_one_serves_nothing() {
        let mut stage = leader();
        stage.check("SET k v PX 10");
        stage.engine.set_serves(false);
        let clients = [stage.hold("a", "GET k"), stage.hold("b", "SET l v")];
        assert_eq!(stage.engine.held_reads(), None);
        stage.check("+20ms; INFO keyspace => ...keys=1...");
        stage.engine.set_serves(true);
        assert_eq!(stage.resumed(), clients);
        stage.check("GET k => nil; b> SET l v => OK");
    }

    #[test]
    fn leader_that_may_not_be_the_only_one_serves_no_client_that_waits() {
        let mut stage = leader();
        stage.check("LOCK.ACQUIRE k a TTL 10 => ...");
        stage.check("b> LOCK.ACQUIRE k b TTL 90000 WAIT 5000; c> LOCK.ACQUIRE k c TTL 9 WAIT 5000");
        stage.engine.set_serves(false);
        // The lease is over, and the key is there: leaders end leases, and there may be another.
        stage.check("+20ms; c!; b< => ");
        stage.engine.set_serves(true);
        stage.tick(10_000);
        stage.check("b< => ...\"acquired\"...; DBSIZE => 1; LOCK.RELEASE k b => 0; DBSIZE => 0");
    }

    #[test]
    fn former_leader_keeps_recent_messages() {
        let mut stage = follower();
        apply(&mut stage, &release("old"), 0);
        stage.engine.lead(5, stage.time());
        stage.engine.follow();
        stage.check("+59000ms");
        apply(&mut stage, &release("new"), 0);
        stage.check("+1000ms");
        stage.tick(10_000);
        stage.engine.lead(9, stage.time());
        let subscribed = r#"["subscribe", "c", 1] & ["message", "c", "new"]"#;
        assert_eq!(stage.step("b> SUBSCRIBE c"), subscribed);
    }

    #[test]
    fn guard_of_a_leader_outlasts_a_moment_without_service() {
        let mut stage = leader();
        let begin = |stage: &mut Stage| {
            let until = Millis(stage.time().now.0 + 1_030);
            stage.engine.begin_guard(until, "a test".into());
        };
        begin(&mut stage);
        stage.check("SET k v => !LOADING ...; +10ms");
        stage.engine.set_serves(false);
        let client = stage.hold("a", "SET k v");
        stage.engine.set_serves(true);
        assert_eq!(stage.resumed(), [client]);
        stage.check("SET k v => !LOADING ...; +20ms");
        stage.hold("a", "SET k v");
        stage.engine.set_serves(false);
        assert_eq!(stage.resumed(), []);
        stage.engine.set_serves(true);
        assert_eq!(stage.resumed(), [client]);
        stage.hold("a", "SET k v");
        stage.check("+999ms");
        assert_eq!(stage.resumed(), []);
        stage.check("+1ms");
        assert_eq!(stage.resumed(), [client]);
        stage.check("SET k v => OK");
        // A guard that ends meanwhile lets nothing be served.
        begin(&mut stage);
        stage.engine.set_serves(false);
        stage.check("+1030ms");
        stage.hold("a", "SET k v");
        stage.engine.set_serves(true);
        stage.check("SET k w => OK");
        // The guard of a former leader does not end that of a later one.
        begin(&mut stage);
        stage.engine.set_serves(false);
        stage.engine.follow();
        stage.engine.lead(9, stage.time());
        stage.check("+1020ms");
        begin(&mut stage);
        stage.check("+29ms; SET k v => !LOADING ...; +1001ms; SET k v => OK");
    }

    /// Shows R13.
    #[test]
    fn bound_locks_are_held_for_a_grace_after_a_failover() {
        let (mut old, mut new, mut third) = (leader(), follower(), follower());
        old.check(
            "b> LOCK.ACQUIRE k b TTL 90000 BOUND; b> LOCK.ACQUIRE l b TTL 90000 BOUND GRACE 8000; \
             b> LOCK.ACQUIRE m b TTL 90000; b> LOCK.ACQUIRE n b TTL 9 BOUND",
        );
        let effects = take_effects(&mut old);
        apply(&mut new, &effects, 0);
        apply(&mut third, &effects, 0);
        new.engine.lead(9, new.time());
        new.check(
            "PTTL k => 5000; PTTL l => 8000; PTTL m => 90000; PTTL n => 9; \
             LOCK.INFO k => ...\"client\", 0...; LOCK.INFO m => ...\"client\", 0...",
        );
        // The other followers get the same leases.
        apply(&mut third, &take_effects(&mut new), 0);
        assert_eq!(third.engine.digest(), new.engine.digest());
        // An owner that comes back keeps its lock, and the others are granted in their order.
        let acquired = "...\"acquired\"...";
        new.check("b> LOCK.RENEW l b TTL 90000 => 1; PTTL l => 90000");
        new.check("c> LOCK.ACQUIRE k c TTL 9 WAIT 90000; d> LOCK.ACQUIRE k d TTL 9 WAIT 90000");
        new.check(&format!(
            "+4999ms; c< => ; +1ms; c< => {acquired}; d< => ; +9ms; d< => {acquired}"
        ));
    }

    #[test]
    fn connection_to_a_former_leader_ends_no_lease() {
        let (mut old, mut other) = (leader(), follower());
        old.check("b> LOCK.ACQUIRE k b TTL 90000 BOUND");
        let effects = take_effects(&mut old);
        apply(&mut other, &effects, 0);
        old.engine.follow();
        old.engine.clear_state(old.time()).expect("it is cleared");
        apply(&mut old, &effects, 0);
        old.check("b!");
        assert_eq!(old.engine.digest(), other.engine.digest());
    }

    /// Shows R11.
    #[test]
    fn fencing_tokens_grow_across_failovers() {
        let token = |stage: &mut Stage, key: &str| -> u64 {
            let reply = stage.step(&format!("LOCK.ACQUIRE {key} a TTL 90000"));
            let after = reply.split_once("\"token\", ").expect("a token").1;
            let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
            after[..digits].parse().expect("a number")
        };
        let (mut old, mut new) = (leader(), follower());
        let first = [token(&mut old, "k"), token(&mut old, "l")];
        apply(&mut new, &take_effects(&mut old), 0);
        new.engine.lead(9, new.time());
        let second = [token(&mut new, "m"), token(&mut new, "n")];
        old.engine.follow();
        apply(&mut old, &take_effects(&mut new), 0);
        old.engine.lead(19, old.time());
        let all = [first, second, [token(&mut old, "o"), token(&mut old, "p")]].concat();
        assert!(all.is_sorted_by(|one, next| one < next), "{all:?}");
    }
}
