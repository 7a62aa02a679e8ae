//! The role of the server, on which it depends whether it is ready for commands: not while it loads
//! its log, and not while leases from before the restart may still be held (the restart guard).
//! Until then, commands without the flag `LOADING` are refused, or held if the guard ends within a
//! second.
//! [`held`](crate::replication::held) holds requests, also those of a server that follows.

use bytes::Bytes;

use crate::Engine;
use crate::durability::key_groups::KeyGroups;
use crate::error::Error;
use crate::limits::GUARD_HELD_MS;
use crate::sessions::Timer;
use crate::sessions::pubsub::RecentMessage;
use crate::store::apply::ApplyError;
use crate::store::effects::{Effect, EffectIter};
use crate::timing::time::{Millis, Time};
use crate::timing::timers::TimerId;
use lockwheel_defects::defect;

/// Milliseconds before the end of the log whose messages are kept: a client that has received an
/// earlier message has acted on it, or is going to without the server.
const MESSAGES_KEPT_MS: i64 = 10_000;

/// Milliseconds after the start during which these messages are sent to new subscribers: clients
/// connect and subscribe again within seconds.
const MESSAGES_SENT_MS: i64 = 60_000;

/// Most messages that are kept; the oldest are dropped.
const MESSAGES_MAX: usize = 100_000;

/// What a server does for its clients.
#[derive(Debug)]
pub enum Role {
    /// It applies its own log.
    Loading(Loading),
    /// It applies the log of another server: see [`Engine::follow`].
    Follower,
    /// It is the only server, or leads others.
    Leader(Leader),
}

/// A server that is the only one, or leads others.
#[derive(Debug, Default)]
pub struct Leader {
    /// The restart guard, if it is on.
    pub guard: Option<Guard>,
    /// Whether another server may lead already: see [`Engine::set_serves`].
    pub is_in_doubt: bool,
}

impl Default for Role {
    fn default() -> Role {
        Role::Leader(Leader::default())
    }
}

/// The progress of loading.
#[derive(Clone, Copy, Debug)]
pub struct Loading {
    /// When it began.
    pub began: Time,
    /// The bytes of the log.
    pub total_bytes: u64,
    /// The bytes that have been applied.
    pub loaded_bytes: u64,
    /// Time from which published messages are kept.
    messages_from: Millis,
}

/// The restart guard.
#[derive(Debug)]
pub struct Guard {
    /// When it ends, on the lease clock.
    pub until: Millis,
    /// Why it is necessary.
    pub reason: String,
    /// Whether it is longer than `restart-guard-warn`.
    pub is_long: bool,
    /// The groups of keys that make it long, if it is and they are known.
    pub groups: KeyGroups,
    timer: TimerId,
}

/// What an administrator can do about a long guard.
pub const WAYS_OUT: [&str; 2] = [
    "if no client of before the restart holds a lock, LOCKWHEEL GUARD END ends this guard",
    "if these keys are no locks, restart-guard-exempt with their patterns makes later guards short",
];

impl Engine {
    /// What this server does for its clients.
    pub fn role(&self) -> &Role {
        &self.role
    }

    /// Whether commands are served.
    pub fn is_ready(&self) -> bool {
        matches!(self.role, Role::Leader(Leader { guard: None, is_in_doubt: false }))
    }

    /// Whether this server is the only one, or leads for certain: it ends leases. Otherwise the
    /// ends of leases are effects in the log.
    #[inline]
    pub(crate) fn leads(&self) -> bool {
        matches!(self.role, Role::Leader(Leader { is_in_doubt: false, .. }))
    }

    /// Whether this server applies the log of another one.
    pub(crate) fn is_follower(&self) -> bool {
        matches!(self.role, Role::Follower)
    }

    /// Whether another server writes the log, or may do so.
    pub(crate) fn is_following(&self) -> bool {
        matches!(self.role, Role::Follower | Role::Leader(Leader { is_in_doubt: true, .. }))
    }

    /// Begins to apply a log of this length, which ends at `last` on the lease clock. Until
    /// [`Engine::end_loading`], no deadline is due.
    pub fn begin_loading(&mut self, total_bytes: u64, last: Millis, time: Time) {
        let messages_from = Millis(last.0.saturating_sub(MESSAGES_KEPT_MS));
        let loading = Loading { began: time, total_bytes, loaded_bytes: 0, messages_from };
        self.set_role(Role::Loading(loading));
    }

    /// Applies effects from the log, which were logged at `logged_at`. Recent messages among them
    /// are kept for new subscribers.
    ///
    /// # Errors
    /// As [`Engine::apply`].
    pub fn load(
        &mut self,
        effects: &[u8],
        logged_at: Millis,
        time: Time,
    ) -> Result<(), ApplyError> {
        if let Role::Loading(loading) = &mut self.role {
            loading.loaded_bytes += effects.len() as u64;
            if logged_at >= loading.messages_from {
                self.keep_messages(effects, logged_at);
            }
        }
        self.apply(effects, time)
    }

    /// Keeps the messages among effects that were logged at `logged_at`, and drops those that are
    /// not recent any more.
    pub(crate) fn keep_messages(&mut self, effects: &[u8], logged_at: Millis) {
        let messages_from = Millis(logged_at.0.saturating_sub(MESSAGES_KEPT_MS));
        let recent = &mut self.sessions.pubsub.recent;
        while recent.front().is_some_and(|message| message.logged_at < messages_from) {
            recent.pop_front();
        }
        for (place, effect) in EffectIter::new(effects).map_while(Result::ok) {
            if let Effect::Published { is_sharded, message } = effect {
                let channel = Bytes::copy_from_slice(place.key);
                let message = Bytes::copy_from_slice(message);
                let recent = &mut self.sessions.pubsub.recent;
                recent.push_back(RecentMessage { logged_at, is_sharded, channel, message });
                if recent.len() > MESSAGES_MAX {
                    recent.pop_front();
                }
            }
        }
    }

    /// Ends loading, after the whole log was applied, and begins to serve commands.
    pub fn end_loading(&mut self, time: Time) {
        self.persistence.loaded_keys =
            (0..self.writer.keyspace().count()).map(|number| self.key_count(number) as u64).sum();
        self.begin_service(time);
    }

    /// Begins to serve commands on a complete state.
    pub(crate) fn begin_service(&mut self, time: Time) {
        self.forget_clients_of_locks(time);
        // The keys of the log were restored without notes.
        self.writer.set_lock_notes(self.settings.lock_view);
        if !self.sessions.pubsub.recent.is_empty() {
            self.sessions.publish_recent();
            let until = Millis(time.now.0.saturating_add(MESSAGES_SENT_MS));
            let timer = self.sessions.timers.insert(until, Timer::ForgetMessages);
            self.sessions.pubsub.recent_timer = Some(timer);
        }
        self.set_role(Role::default());
        self.sessions.run_held();
    }

    pub(crate) fn set_role(&mut self, role: Role) {
        self.role = role;
        self.update_conditions();
    }

    /// Refuses or holds commands until the lease clock reaches `until`.
    pub fn begin_guard(&mut self, until: Millis, reason: String) {
        self.end_guard();
        let timer = self.sessions.timers.insert(until, Timer::GuardEnd);
        let (is_long, groups) = (false, KeyGroups::NONE);
        let guard = Some(Guard { until, reason, is_long, groups, timer });
        self.set_role(Role::Leader(Leader { guard, is_in_doubt: false }));
    }

    /// Marks the guard as longer than `restart-guard-warn`, because of these groups.
    pub fn explain_guard(&mut self, groups: KeyGroups) {
        if let Some(guard) = self.guard_mut() {
            (guard.is_long, guard.groups) = (true, groups);
        }
    }

    /// Ends the restart guard, if it is on; returns whether it was.
    pub(crate) fn end_guard(&mut self) -> bool {
        let ended = self.take_guard();
        ended.map(|guard| self.sessions.timers.cancel(guard.timer)).is_some()
    }

    /// Ends the restart guard, whose timer has fired.
    pub(crate) fn guard_is_over(&mut self) {
        self.take_guard();
    }

    fn take_guard(&mut self) -> Option<Guard> {
        let Role::Leader(leader) = &mut self.role else { return None };
        let guard = leader.guard.take()?;
        self.update_conditions();
        self.sessions.run_held();
        Some(guard)
    }

    /// The restart guard, if it is on.
    pub fn guard(&self) -> Option<&Guard> {
        let Role::Leader(leader) = &self.role else { return None };
        leader.guard.as_ref()
    }

    /// As [`Engine::guard`], to move its end.
    pub(crate) fn guard_mut(&mut self) -> Option<&mut Guard> {
        let Role::Leader(leader) = &mut self.role else { return None };
        leader.guard.as_mut()
    }

    /// Whether the restart guard is on, and ends so soon that requests are held until then.
    pub(crate) fn guard_is_ending(&self, time: Time) -> bool {
        let Some(guard) = self.guard() else { return false };
        (1..=GUARD_HELD_MS).contains(&time.remaining(guard.until).0) && !defect!(GuardEndsEarly)
    }

    /// The error for a command while the server loads its log or the restart guard is on.
    pub(crate) fn check_ready(&self, time: Time) -> Result<(), Error> {
        if let Role::Loading(_) = self.role {
            let (product, _) = self.settings.compat_version.introduction();
            let product = if product == "valkey" { "Valkey" } else { "Redis" };
            return Err(Error::text(format!("LOADING {product} is loading the dataset in memory")));
        }
        match self.guard().map_or(0, |guard| time.remaining(guard.until).0) {
            ..=0 => Ok(()),
            ..=GUARD_HELD_MS if defect!(GuardEndsEarly) => Ok(()),
            left_ms => Err(Error::text(format!(
                "LOADING Leases from before the restart may still be held; ready in {left_ms} ms"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::durability::key_groups::KeyGroups;
    use crate::testing::Stage;
    use crate::timing::time::Millis;

    /// Shows S2, S19.
    #[test]
    fn guard_refuses_commands_until_its_end() {
        let mut stage = Stage::new(Default::default());
        stage.engine.begin_guard(Millis(stage.time().now.0 + 1_030), "a test".into());
        let refusal = |left_ms| {
            format!(
                "!LOADING Leases from before the restart may still be held; ready in {left_ms} ms"
            )
        };
        for command in ["GET k", "SET k v", "PING", "EVAL \"return 1\" 0"] {
            assert_eq!(stage.step(command), refusal(1_030), "{command}");
        }
        stage.check("MULTI");
        assert_eq!(stage.step("GET k"), refusal(1_030));
        stage.check("EXEC => !EXECABORT Transaction discarded because of previous errors.");
        stage.check("INFO persistence => ...; CONFIG GET port => ...; SUBSCRIBE c => ...");
        stage.check("+20ms");
        assert_eq!(stage.step("b> PING"), refusal(1_010));
        stage.check("+1010ms; b> PING => PONG");
        assert!(stage.engine.is_ready());
    }

    /// Shows S3.
    #[test]
    fn requests_are_held_in_order_in_the_last_second_of_the_guard() {
        let mut stage = Stage::new(Default::default());
        stage.engine.begin_guard(Millis(stage.time().now.0 + 1_001), "a test".into());
        stage.check("e> MULTI; INFO persistence => ...loading:1...; PING => !LOADING ...; +1ms");
        let commands =
            [("b", "SET k v NX"), ("a", "INFO persistence"), ("e", "GET k"), ("d", "GET k")];
        let clients = commands.map(|(name, command)| stage.hold(name, command));
        stage.check("c> SUBSCRIBE c => ...; c> CLIENT LIST => !ERR Can't execute ...");
        stage.check("c> RESET => RESET; +999ms");
        assert_eq!(stage.resumed(), []);
        stage.check("+1ms");
        assert_eq!(stage.resumed(), clients);
        stage.check(
            "b> SET k v NX => OK; INFO persistence => ...loading:0...; e> GET k => QUEUED; \
             d> GET k => \"v\"; e> EXEC => [\"v\"]",
        );
    }

    /// Shows S19, S20.
    #[test]
    fn administrator_ends_guard() {
        let mut stage = Stage::new(Default::default());
        stage.engine.begin_guard(Millis(stage.time().now.0 + 30), "a test".into());
        stage.check(r#"LOCKWHEEL GUARD => "{\"left_ms\":30,\"reason\":\"a test\",..."#);
        let held = stage.hold("b", "PING");
        stage.check("LOCKWHEEL GUARD END => OK; PING => PONG");
        assert_eq!(stage.resumed(), [held]);
        stage.check("b> PING => PONG; +60ms; PING => PONG");
    }

    /// Shows S17, S18.
    #[test]
    fn long_guard_names_groups_of_keys_to_the_administrator_alone() {
        let mut stage = Stage::new(Default::default());
        let until = Millis(stage.time().now.0 + 30);
        stage.engine.begin_guard(until, "a test".into());
        let mut groups = KeyGroups::NONE;
        groups.add(b"session:1", until);
        stage.engine.explain_guard(groups);
        let reply = stage.step("LOCKWHEEL GUARD");
        let shown = r#"\"groups\":[\"session:\"],\"ways_out\":[\"if no client of before the"#;
        assert!(reply.contains(shown), "{reply}");
        assert!(!stage.step("GET k").contains("session"));
        assert!(!stage.step("INFO lockwheel").contains("session"));
    }

    #[test]
    fn loading_refuses_commands_and_expires_nothing() {
        let mut stage = Stage::new(Default::default());
        stage.check("SET k v PX 10");
        let time = stage.time();
        stage.engine.begin_loading(100, time.now, time);
        stage.check("GET k => !LOADING Redis is loading the dataset in memory; +20ms");
        // A command that is served must not see the end of a lease either.
        stage.check("c> SUBSCRIBE c; b> INFO keyspace => ...keys=1...");
        assert_eq!(stage.engine.next_deadline(), None);
        let time = stage.time();
        stage.engine.end_loading(time);
        stage.check("GET k => nil");
    }

    #[test]
    fn recent_messages_are_sent_to_new_subscribers() {
        let mut stage = Stage::new(Default::default());
        stage.engine.start_log(0);
        stage.check("SET k v; PUBLISH c lost");
        let script = "redis.call('del', 'k') redis.call('publish', 'c', 'free')";
        stage.check(&format!("EVAL \"{script}\" 0 => nil"));
        let (mut effects, time) = (Vec::new(), stage.time());
        stage.engine.take_units(|units| effects.extend_from_slice(units.effects));

        let mut other = Stage::new(Default::default());
        other.check("f> SUBSCRIBE x");
        let subscribed = r#"["subscribe", "c", 1]"#;
        let with_message = format!(r#"{subscribed} & ["message", "c", "free"]"#);
        for (client, at_ms, expected) in [("b", -20_000, subscribed), ("d", 0, &with_message)] {
            let at = Millis(time.now.0 + at_ms);
            other.engine.begin_loading(100, time.now, time);
            other.engine.load(&effects, at, time).expect("effects");
            other.engine.end_loading(time);
            assert_eq!(other.step(&format!("{client}> SUBSCRIBE c")), expected);
        }
        other.check("+60000ms");
        assert_eq!(other.step("e> SUBSCRIBE c"), subscribed);
    }
}
