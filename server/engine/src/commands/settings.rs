//! `CONFIG`: reads and changes the configuration of the running server, and resets its counters.

use lockwheel_resp::Reply;

use crate::command::argument as arg;
use crate::command::{Arity, Command, FileUse, Flags, Group};
use crate::error::Error;
use crate::glob;
use crate::run::context::Context;

const CONFIG: Command = Command {
    group: Group::Server,
    since: "2.0.0",
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE),
    ..Command::BASE
};

/// The family's rows.
pub const COMMANDS: &[Command] = &[Command {
    name: "config",
    arity: Arity::AtLeast(2),
    flags: Flags::empty(),
    complexity: "that of the subcommand",
    doc: "A container for commands about the configuration.",
    subcommands: SUBCOMMANDS,
    ..CONFIG
}];

const SUBCOMMANDS: &[Command] = &[
    Command {
        name: "get",
        arity: Arity::AtLeast(3),
        complexity: "O(N) in the number of options asked for",
        doc: "Returns configuration parameters by name or pattern.",
        arguments: &[arg::block("parameter", &[arg::string("parameter")]).multiple()],
        example: "CONFIG GET maxmemory-policy => [\"maxmemory-policy\", \"noeviction\"]",
        run: get,
        ..CONFIG
    },
    super::help_row(CONFIG, "5.0.0", "CONFIG HELP => [CONFIG <subcommand> ...]"),
    Command {
        name: "resetstat",
        arity: Arity::Exactly(2),
        doc: "Sets the counters of INFO to zero.",
        example: "CONFIG RESETSTAT => OK",
        run: reset_stats,
        ..CONFIG
    },
    Command {
        name: "rewrite",
        arity: Arity::Exactly(2),
        since: "2.8.0",
        doc: "Would write the configuration file, which this server never changes.",
        example: "CONFIG REWRITE => !ERR The server is running without a config file",
        run: rewrite,
        ..CONFIG
    },
    Command {
        name: "set",
        arity: Arity::AtLeast(4),
        complexity: "O(N) in the number of options given",
        doc: "Changes configuration parameters, all of them or none.",
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        arguments: &[arg::block(
            "parameter_value",
            &[arg::string("parameter"), arg::string("value").directive_value()],
        )
        .multiple()],
        files: Some(FileUse::Settings),
        example: "CONFIG SET notify-keyspace-events Ex timeout 60 => OK",
        run: set,
        ..CONFIG
    },
];

/// `CONFIG GET`: replies with the parameters that match and their values.
fn get(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let found = context.settings().matching(&argv[2..], glob::matches);
    let pair = |(name, value): (String, String)| (Reply::bulk(name), Reply::bulk(value));
    Ok(Reply::Map(found.into_iter().map(pair).collect()))
}

/// `CONFIG SET`: replies with OK.
fn set(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let (pairs, rest) = argv[2..].as_chunks::<2>();
    if !rest.is_empty() {
        return Err(Error::Syntax);
    }
    let pairs: Vec<(&[u8], &[u8])> = pairs.iter().map(|&[name, value]| (name, value)).collect();
    context.change_settings(&pairs).map_err(|error| Error::text(error.to_string()))?;
    Ok(Reply::OK)
}

/// `CONFIG RESETSTAT`: resets the counters and replies with OK.
fn reset_stats(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    context.reset_stats();
    Ok(Reply::OK)
}

/// `CONFIG REWRITE`: replies with an error.
fn rewrite(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    Err(Error::line(match context.settings().config_file {
        None => "ERR The server is running without a config file",
        Some(_) => "ERR Rewriting config file: not supported by this server",
    }))
}

#[cfg(test)]
mod tests {
    use crate::settings::Settings;
    use crate::testing::{Stage, check};

    #[test]
    fn changed_parameters_take_effect() {
        check(
            "b> SUBSCRIBE __keyevent@0__:set; SET k v; CONFIG SET notify-keyspace-events E$; \
               SET k v; b< => [\"message\", \"__keyevent@0__:set\", \"k\"]",
        );
        check(
            "CONFIG SET requirepass x; PING => PONG; b> PING => !NOAUTH ...; \
               CONFIG SET requirepass \"\"; b> PING => PONG",
        );
    }

    #[test]
    fn counters_are_reset() {
        let mut stage = Stage::new(Settings::default());
        stage.check("GET k; FOO => !ERR ...; INFO errorstats => ...errorstat_ERR:count=1...");
        stage.check("CONFIG RESETSTAT; INFO errorstats => \"# Errorstats\\r\\n\"");
        stage.check("INFO commandstats => ...cmdstat_info:calls=1,...");
        assert_eq!(stage.engine.stats.keyspace_misses, 0);
    }

    #[test]
    fn configuration_file_is_never_written() {
        let mut stage = Stage::new(Settings::default());
        stage.engine.settings.config_file = Some("redis.conf".to_owned());
        stage.check("CONFIG REWRITE => !ERR Rewriting config file: not supported by this server");
    }
}
