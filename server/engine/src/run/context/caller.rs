//! The client of a command: its session, and how it waits.

use bytes::Bytes;
use lockwheel_resp::{Protocol, Reply};

use super::Context;
use crate::command::{Caller, syntax_error};
use crate::durability::log_waits::LogWait;
use crate::error::Error;
use crate::sessions::Session;
use crate::sessions::tracking::Tracking;
use crate::sessions::transaction::Transaction;
use crate::sessions::waiters::WaitKind;
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

    // --- what the server keeps for it ---

    /// Sets the name of the client, or the name or version of its library.
    pub fn set_text(&mut self, place: impl FnOnce(&mut Session) -> &mut Bytes, text: Bytes) {
        self.engine.sessions.clients.set_text(self.client, place, text);
    }

    /// Sets whether commands of the client do not count as uses of keys.
    pub fn set_no_touch(&mut self, on: bool) {
        self.client_mut().no_touch = on;
        self.engine.sessions.clients.no_touch_asked = true;
    }

    /// Authenticates the client. `words` are the command, the user and the password.
    pub fn authenticate(&mut self, words: [&[u8]; 3]) -> Result<(), Error> {
        self.engine.authenticate(self.client, words, self.time)
    }

    /// Ends the transaction, watches, subscriptions and modes of the client, and selects the first
    /// database and RESP2.
    pub fn reset_client(&mut self) {
        self.engine.reset_client(self.client);
    }

    /// Takes the transaction of the client, if it has begun one.
    pub fn take_transaction(&mut self) -> Option<Transaction> {
        self.engine.sessions.take_transaction(self.client)
    }

    /// Starts watching a key, unless the client watches it already.
    pub fn watch(&mut self, key: &[u8]) {
        self.engine.watch(self.client, self.database, key, self.time);
    }

    /// Ends all watches of the client.
    pub fn unwatch(&mut self) {
        self.engine.unwatch(self.client);
    }

    /// Tracks the keys that the client reads, as these options say.
    pub fn start_tracking(&mut self, tracking: Tracking) {
        self.engine.start_tracking(self.client, tracking);
    }

    /// Ends what [`Context::start_tracking`] has begun.
    pub fn stop_tracking(&mut self) {
        self.engine.stop_tracking(self.client);
    }

    // --- waiting ---

    /// Whether a command that would block must reply at once instead.
    pub fn may_not_block(&self) -> bool {
        matches!(self.caller, Caller::Transaction | Caller::Script)
    }

    /// Blocks the client until one of the keys has what it waits for, or until `deadline`. Then
    /// `argv` is run for the client: the command itself, or one that names its start more exactly.
    /// For commands that have changed nothing; they return the result of this function,
    /// `Reply::NOTHING`. `None` if the client may not block, or its time is over.
    pub fn wait_for(
        &mut self,
        kind: WaitKind,
        keys: &[&[u8]],
        deadline: Option<Millis>,
        argv: &[&[u8]],
    ) -> Option<Reply> {
        match self.caller {
            Caller::Transaction | Caller::Script | Caller::TimedOutWaiter => return None,
            // The client keeps its position in all queues and its deadline.
            Caller::Waiter => {}
            Caller::Client => {
                let Context { client, database, .. } = *self;
                self.engine.block_for_keys(client, database, kind, keys, deadline, argv);
            }
        }
        Some(Reply::NOTHING)
    }

    /// Waits until the changes so far are durable: here if `local` says so, and on the disks of
    /// `replicas` followers. Returns the reply if they are, or if the client may not block.
    pub fn wait_for_log(
        &mut self,
        local: Option<bool>,
        replicas: usize,
        deadline: Option<Millis>,
    ) -> Reply {
        let may_wait = !self.may_not_block();
        let wait = LogWait { position: self.engine.last_unit(), local, replicas };
        self.engine.wait_for_log(self.client, wait, may_wait, deadline)
    }
}
