//! `MONITOR`, which shows the requests of all clients, without passwords.

use lockwheel_resp::Reply;

use crate::command::{Arity, Command, Flags, Group};
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
    Ok(if context.start_monitoring() { Reply::OK } else { Reply::NOTHING })
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
    fn monitor_is_refused_in_transactions_and_scripts() {
        check(
            "MULTI; MONITOR; EXEC => [!ERR MONITOR isn't allowed for DENY BLOCKING client]; \
             EVAL \"return redis.call('MONITOR')\" 0 => !ERR ...not allowed from script...",
        );
    }
}
