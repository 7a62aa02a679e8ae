//! The client of a command: its session, and how it waits.

use lockwheel_resp::{Protocol, Reply};

use super::Context;
use crate::command::{Caller, syntax_error};
use crate::error::Error;
use crate::sessions::Session;
use crate::sessions::waiters::WaitCondition;
use crate::timing::time::Millis;

impl Context<'_> {
    /// The client of the request. It stays connected while its command runs.
    pub fn client(&self) -> &Session {
        self.engine.sessions.get(self.client).expect("the client of the running command")
    }

    /// The client of the request, mutable.
    pub fn client_mut(&mut self) -> &mut Session {
        self.engine.sessions.get_mut(self.client).expect("the client of the running command")
    }

    /// The protocol of the reply: the script's for a call from a script, otherwise the client's.
    pub fn protocol(&self) -> Protocol {
        match (&self.engine.script, self.caller) {
            (Some(script), Caller::Script) => script.protocol,
            _ => self.client().protocol,
        }
    }

    /// The error for the arguments of a subcommand: names the word that its row does not allow.
    pub(crate) fn syntax_error(&self, argv: &[&[u8]]) -> Error {
        syntax_error::explain(self.command.arguments, argv.get(2..).unwrap_or_default())
    }

    /// Selects a database for the commands that follow.
    pub fn select(&mut self, database: usize) {
        self.database = database;
        if self.caller != Caller::Script {
            self.client_mut().database = database;
        }
    }

    /// Runs `work` in another database, without selecting it.
    pub fn within<T>(&mut self, database: usize, work: impl FnOnce(&mut Self) -> T) -> T {
        let selected = std::mem::replace(&mut self.database, database);
        let result = work(self);
        self.database = selected;
        result
    }

    /// Whether a command that would block must reply at once instead.
    pub fn may_not_block(&self) -> bool {
        matches!(self.caller, Caller::Transaction | Caller::Script)
    }

    /// Blocks the client until a key meets the condition, or until `deadline`. Then `argv` is run
    /// for the client: the command itself, or one that names its start more exactly. For commands
    /// that have changed nothing; they return the result of this function, `Reply::NOTHING`. `None`
    /// if the client may not block.
    pub fn wait_for(
        &mut self,
        condition: WaitCondition<'_>,
        deadline: Option<Millis>,
        argv: &[&[u8]],
    ) -> Option<Reply> {
        match self.caller {
            Caller::Transaction | Caller::Script | Caller::TimedOutWaiter => return None,
            // The client keeps its position in all queues and its deadline.
            Caller::Waiter => {}
            Caller::Client => {
                self.engine.block_for_keys(self.client, self.database, condition, deadline, argv);
            }
        }
        Some(Reply::NOTHING)
    }
}
