//! Clients that wait until units of the log are durable on this server and on its followers.
//!
//! The reply that such a client gets at its timeout is kept up to date, since it shows how far the
//! units are at that moment.

use lockwheel_resp::Reply;

use crate::Engine;
use crate::durability::unit_log::Position;
use crate::sessions::{ClientId, Session};
use crate::timing::time::Millis;

/// What a client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogWait {
    /// The last unit that must be durable.
    pub(crate) position: Position,
    /// Whether it must be on the disk of this server; `None` if the reply does not say so.
    pub(crate) local: Option<bool>,
    /// Number of followers on whose disks it must be.
    pub(crate) replicas: usize,
}

impl Engine {
    /// The reply to a client that waits, and whether its wait is over.
    fn log_wait_reply(&self, wait: LogWait) -> (Reply, bool) {
        let is_flushed = self.has_log() && self.is_flushed(wait.position);
        let has_it = |acknowledged: Position| acknowledged >= wait.position;
        let followers = self.nodes.in_contact();
        let replicas = followers.filter(|follower| has_it(follower.acknowledged)).count();
        let is_over = replicas >= wait.replicas && (is_flushed || wait.local != Some(true));
        let replicas = Reply::from(replicas);
        let reply = match wait.local {
            Some(_) => Reply::Array(vec![Reply::Integer(i64::from(is_flushed)), replicas]),
            None => replicas,
        };
        (reply, is_over)
    }

    /// The reply at once if the units are durable or the client may not wait; otherwise the client
    /// gets it when they are, or at `deadline`.
    pub(crate) fn wait_for_log(
        &mut self,
        client: ClientId,
        wait: LogWait,
        may_wait: bool,
        deadline: Option<Millis>,
    ) -> Reply {
        let (reply, is_over) = self.log_wait_reply(wait);
        if is_over || !may_wait {
            return reply;
        }
        self.sessions.block(client, reply, deadline);
        self.sessions.log_waiters.insert(client);
        if let Some(blocked) = self.sessions.get_mut(client).and_then(|it| it.blocked.as_mut()) {
            blocked.log_wait = Some(wait);
        }
        Reply::NOTHING
    }

    /// Serves the clients that wait until more is durable, if any wait.
    #[inline]
    pub(crate) fn serve_log_waits(&mut self) {
        if self.is_flush_awaited() {
            self.serve_log_waiters();
        }
    }

    #[cold]
    fn serve_log_waiters(&mut self) {
        let wait_of = |session: &Session| session.blocked.as_ref()?.log_wait;
        for client in self.sessions.log_waiters.clone() {
            let Some(wait) = self.sessions.get(client).and_then(wait_of) else { continue };
            let (reply, is_over) = self.log_wait_reply(wait);
            if is_over {
                self.unblock(client, &reply);
            } else if let Some(session) = self.sessions.get_mut(client)
                && let Some(blocked) = &mut session.blocked
            {
                blocked.on_timeout = reply;
            }
        }
    }

    /// Whether a client waits until more is durable: then [`Engine::release_units`] or
    /// [`Engine::set_nodes`] must be called when it is.
    pub fn is_flush_awaited(&self) -> bool {
        !self.sessions.log_waiters.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use crate::replication::nodes::{Address, Follower, Nodes};
    use crate::testing::Stage;

    /// A leader, and a function that sets how far each follower has acknowledged; `None` if it is
    /// not in contact.
    fn leader() -> Stage {
        let mut stage = Stage::new(Default::default());
        stage.engine.lead(0, stage.time());
        stage
    }

    fn acknowledge(stage: &mut Stage, acknowledged: [Option<u64>; 2]) {
        let follower = |(port, acknowledged): (u16, Option<u64>)| Follower {
            address: Address { host: "10.0.0.1".into(), port },
            is_in_contact: acknowledged.is_some(),
            acknowledged: acknowledged.unwrap_or(9),
        };
        let followers = (7..).zip(acknowledged).map(follower).collect();
        stage.set_nodes(Nodes { followers, ..Nodes::default() });
    }

    #[test]
    fn wait_ends_when_followers_in_contact_have_the_units() {
        let mut stage = leader();
        acknowledge(&mut stage, [Some(0), Some(0)]);
        stage.check("WAIT 0 0 => 2; SET k v; WAIT 0 0 => 0; WAIT 2 1000 => ; b> WAIT 1 1000 => ");
        assert!(stage.engine.is_flush_awaited());
        acknowledge(&mut stage, [Some(1), Some(0)]);
        stage.check("a< => ; b< => 1; c> WAIT 1 0 => 1; c> WAIT 2 50 => ");
        acknowledge(&mut stage, [Some(1), Some(1)]);
        stage.check("a< => 2; c< => 2");
        assert!(!stage.engine.is_flush_awaited());
    }

    #[test]
    fn timeout_shows_how_many_have_the_units_by_then() {
        let mut stage = leader();
        acknowledge(&mut stage, [Some(0), None]);
        stage.check("SET k v; WAIT 2 50 => ");
        acknowledge(&mut stage, [Some(1), None]);
        stage.check("+49ms; a< => ; +1ms; a< => 1");
        stage
            .check("MULTI; WAIT 2 0; EXEC => [1]; EVAL \"return redis.call('WAIT', 2, 0)\" 0 => 1");
    }

    #[test]
    fn units_of_a_script_are_waited_for() {
        let mut stage = leader();
        acknowledge(&mut stage, [Some(0), Some(0)]);
        stage.check("EVAL \"redis.call('SET', 'k', 'v')\" 0; WAIT 2 1000 => ");
        acknowledge(&mut stage, [Some(1), Some(1)]);
        stage.check("a< => 2");
    }

    #[test]
    fn files_and_followers_are_waited_for_together() {
        let mut stage = leader();
        acknowledge(&mut stage, [Some(0), Some(0)]);
        stage.check("SET k v; WAITAOF 0 0 0 => [0, 0]; WAITAOF 1 2 50 => ; b> WAITAOF 1 0 0 => ");
        stage.engine.release_units(1, 1);
        stage.check("a< => ; b< => [1, 0]");
        acknowledge(&mut stage, [Some(1), Some(0)]);
        stage.check("+50ms; a< => [1, 1]; WAITAOF 0 0 0 => [1, 1]");
    }

    #[test]
    fn client_that_leaves_waits_no_more() {
        let mut stage = leader();
        stage.check("SET k v; b> WAIT 1 0 => ; b!");
        assert!(!stage.engine.is_flush_awaited());
        stage.check("b> WAIT 1 10 => ; +10ms");
        assert!(!stage.engine.is_flush_awaited());
    }
}
