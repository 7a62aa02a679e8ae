//! `MONITOR`, which shows the requests of all clients, without passwords.

use lockwheel_resp::Reply;

use crate::command::argument::without_secrets;
use crate::command::{Arity, Caller, Command, Entry, Flags, Group};
use crate::error::Error;
use crate::run::context::Context;

/// The family's rows.
pub const COMMANDS: &[Command] = &[Command {
    name: "monitor",
    arity: Arity::Exactly(1),
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE),
    group: Group::Server,
    since: "1.0.0",
    doc: "Sends the client all requests that the server runs from now on.",
    example: "MONITOR => OK",
    run: monitor,
    ..Command::BASE
}];

/// `MONITOR`: replies with OK, and with nothing if the client receives all requests already.
fn monitor(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    if context.may_not_block() {
        return Err(Error::line("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }
    if !context.engine.sessions.start_monitoring(context.client) {
        return Ok(Reply::NOTHING);
    }
    context.engine.update_consumers();
    Ok(Reply::OK)
}

impl Context<'_> {
    /// Shows a request that is about to run a script to the monitors, so that it is before the
    /// calls of the script.
    #[inline]
    pub(super) fn show_before_calls(&mut self, argv: &[&[u8]]) {
        if !self.engine.sessions.monitors.is_empty() {
            self.show_to_monitors((self.command, self.name), self.caller, argv);
        }
    }

    /// Shows a command that has run to the monitors, unless others must not see it.
    pub(crate) fn show_after_run(&mut self, entry: &Entry, caller: Caller, argv: &[&[u8]]) {
        const NOT_SHOWN: Flags = Flags::SKIP_MONITOR.union(Flags::ADMIN);
        // What a blocked client runs again is shown already.
        if !entry.command.flags.intersects(NOT_SHOWN) && caller != Caller::Waiter {
            self.show_to_monitors((entry.command, &entry.full_name), caller, argv);
        }
    }

    #[cold]
    fn show_to_monitors(&mut self, row: (&Command, &str), caller: Caller, argv: &[&[u8]]) {
        let words = without_secrets(row.0.arguments, row.1.split('|').count(), argv);
        let sessions = &mut self.engine.sessions;
        let client = sessions.get(self.client).filter(|_| caller != Caller::Script);
        let (database, source) = match client {
            None => (self.database, "lua".to_owned()),
            Some(client) if client.origin.unix => {
                (client.database, format!("unix:{}", client.origin.address))
            }
            Some(client) => (client.database, client.origin.address.clone()),
        };
        sessions.show_to_monitors(self.time.wall_us, database, &source, &words);
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn monitor_may_not_use_keys() {
        let refused = "!ERR Replica can't interact with the keyspace";
        check(&format!(
            "MONITOR; GET k => {refused}; SET k v => {refused}; PUBLISH c m => {refused}"
        ));
        check("MONITOR; RESET; GET k => nil");
    }

    #[test]
    fn monitor_is_refused_where_output_has_no_place() {
        check(
            "MULTI; MONITOR; EXEC => [!ERR MONITOR isn't allowed for DENY BLOCKING client]; \
             EVAL \"return redis.call('MONITOR')\" 0 => !ERR ...not allowed from script...",
        );
    }
}
