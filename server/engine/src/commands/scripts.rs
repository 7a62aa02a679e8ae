//! `EVAL` and related commands: scripts, which run alone, at one point in time.

use lockwheel_resp::Reply;
use lockwheel_scripting::{Interpreter, MathRandom, Script, Sha};

use super::help_row;
use crate::command::argument::{self as arg, Argument};
use crate::command::{
    Arity, Categories, Command, FindKeys, Flags, Group, KeySpec, ScriptArgument, integer, is,
};
use crate::error::Error;
use crate::limits;
use crate::run::context::Context;
use crate::run::script::{FunctionCall, Running};
use crate::settings::CompatVersion;

const SCRIPTING: Command =
    Command { group: Group::Scripting, categories: Categories::SCRIPTING, ..Command::BASE };

const EVAL: Command = Command {
    arity: Arity::AtLeast(3),
    flags: Flags::NOSCRIPT
        .union(Flags::STALE)
        .union(Flags::SKIP_MONITOR)
        .union(Flags::MAY_REPLICATE)
        .union(Flags::NO_MANDATORY_KEYS)
        .union(Flags::MOVABLEKEYS),
    keys: &[KeySpec { flags: &["RW", "access", "update"], begin: 2, find: FindKeys::Count }],
    since: "2.6.0",
    complexity: "that of the script",
    ..SCRIPTING
};

const EVAL_RO: Command = Command {
    flags: Flags::NOSCRIPT
        .union(Flags::STALE)
        .union(Flags::SKIP_MONITOR)
        .union(Flags::READONLY)
        .union(Flags::NO_MANDATORY_KEYS)
        .union(Flags::MOVABLEKEYS),
    keys: &[KeySpec { flags: &["RO", "access"], begin: 2, find: FindKeys::Count }],
    since: "7.0.0",
    ..EVAL
};

/// The arguments of a script given as its text.
const WITH_TEXT: &[Argument] = &[
    arg::string("script"),
    arg::integer("numkeys"),
    arg::key("key").optional().multiple(),
    arg::string("arg").optional().multiple(),
];

/// The arguments of a script given by its digest.
const WITH_DIGEST: &[Argument] = &[
    arg::string("sha1"),
    arg::integer("numkeys"),
    arg::key("key").optional().multiple(),
    arg::string("arg").optional().multiple(),
];

/// The family's rows.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "eval",
        script: Some(ScriptArgument::Text),
        doc: "Runs a Lua script.",
        arguments: WITH_TEXT,
        example: "EVAL \"return {KEYS[1], ARGV[1], 1.9}\" 1 k a => [\"k\", \"a\", 1]",
        run: eval,
        ..EVAL
    },
    Command {
        name: "eval_ro",
        script: Some(ScriptArgument::Text),
        doc: "Runs a Lua script that may not write.",
        arguments: WITH_TEXT,
        example: "SET k v; EVAL_RO \"return redis.call('GET', KEYS[1])\" 1 k => \"v\"",
        run: eval,
        ..EVAL_RO
    },
    Command {
        name: "evalsha",
        script: Some(ScriptArgument::Digest),
        doc: "Runs a cached script, given the SHA-1 of its text.",
        arguments: WITH_DIGEST,
        example: "SCRIPT LOAD \"return 7\"; \
                  EVALSHA 5c2adadd20ed5b9d0ef8f92f42ed19a2ceb6d0e1 0 => \
                  !NOSCRIPT No matching script. Please use EVAL.",
        run: evalsha,
        ..EVAL
    },
    Command {
        name: "evalsha_ro",
        script: Some(ScriptArgument::Digest),
        doc: "Runs a cached script that may not write.",
        arguments: WITH_DIGEST,
        example: "EVALSHA_RO 0 0 => !NOSCRIPT No matching script. Please use EVAL.",
        run: evalsha,
        ..EVAL_RO
    },
    Command {
        name: "script",
        arity: Arity::AtLeast(2),
        since: "2.6.0",
        categories: Categories::empty(),
        doc: "A container for commands about the script cache.",
        subcommands: SCRIPT,
        ..SCRIPTING
    },
];

const SCRIPT: &[Command] = &[
    Command {
        name: "exists",
        arity: Arity::AtLeast(3),
        flags: Flags::NOSCRIPT,
        since: "2.6.0",
        complexity: "O(N) in the number of digests",
        doc: "Returns which scripts are cached.",
        tips: &["request_policy:all_shards", "response_policy:agg_logical_and"],
        arguments: &[arg::string("sha1").multiple()],
        example: "SCRIPT EXISTS 00 => [0]",
        run: script_exists,
        ..SCRIPTING
    },
    Command {
        name: "flush",
        arity: Arity::AtLeast(2),
        flags: Flags::NOSCRIPT,
        since: "2.6.0",
        complexity: "O(N) in the number of cached scripts",
        doc: "Empties the script cache.",
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        arguments: &[arg::one_of("async", &[arg::word("ASYNC"), arg::word("SYNC")])
            .optional()
            .since("6.2.0")],
        example: "SCRIPT FLUSH => OK",
        run: script_flush,
        ..SCRIPTING
    },
    help_row(SCRIPTING, "5.0.0", "SCRIPT HELP; SCRIPT EXISTS 00 => [0]"),
    Command {
        name: "kill",
        arity: Arity::Exactly(2),
        flags: Flags::NOSCRIPT.union(Flags::ALLOW_BUSY),
        since: "2.6.0",
        doc: "Ends the running script, unless it has written.",
        tips: &["request_policy:all_shards", "response_policy:one_succeeded"],
        example: "SCRIPT KILL => !NOTBUSY No scripts in execution right now.",
        run: script_kill,
        ..SCRIPTING
    },
    Command {
        name: "load",
        arity: Arity::Exactly(3),
        flags: Flags::NOSCRIPT.union(Flags::STALE),
        since: "2.6.0",
        complexity: "O(N) in the length of the script",
        doc: "Caches a script and returns the SHA-1 of its text.",
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        arguments: &[arg::string("script")],
        example: "SCRIPT LOAD \"return 1\" => \"e0e1f9fabfc9d4800c877a703b823ac0578ff8db\"",
        run: script_load,
        ..SCRIPTING
    },
];

/// Creates a Lua state.
pub fn interpreter(random: MathRandom, version: CompatVersion) -> Interpreter {
    Interpreter::new(limits::SCRIPTS, version.redis_version(), random)
        .expect("a limit with room for Lua itself")
}

fn eval(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    context.show_before_calls(argv);
    let count = key_count(argv)?;
    let sha = context.scripts()?.load_evaluated(argv[1]).map_err(Error::refused)?;
    run(context, sha.as_bytes(), count, argv)
}

/// `EVALSHA` and `EVALSHA_RO`: reply with the result of the cached script.
fn evalsha(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    context.show_before_calls(argv);
    // Redis checks the length of the digest, then the number of keys, then whether the script
    // exists.
    if argv[1].len() != Sha::DIGITS {
        return Err(Error::NoScript);
    }
    run(context, argv[1], key_count(argv)?, argv)
}

#[inline(always)]
fn run(
    context: &mut Context<'_>,
    sha: &[u8],
    count: usize,
    argv: &[&[u8]],
) -> Result<Reply, Error> {
    let Some(found) = context.find_script(sha) else { return Err(Error::NoScript) };
    let running = prepare(context, found.script, None)?;
    let (keys, args) = argv[3..].split_at(count);
    Ok(context.run_cached_script(running, (sha, found), keys, args))
}

/// What a script or a function may do in this request, or an error if it may not run.
#[inline(always)]
pub fn prepare(
    context: &Context<'_>,
    script: Script,
    function: Option<Box<FunctionCall>>,
) -> Result<Running, Error> {
    let may_not_write = context.command.flags.contains(Flags::READONLY);
    let in_cluster = context.settings().cluster_enabled;
    if (may_not_write || in_cluster)
        && let Some(refusal) = refusal(script, may_not_write, in_cluster)
    {
        return Err(refusal);
    }
    Ok(Running {
        declared: script,
        protocol: lockwheel_resp::Protocol::Resp2,
        now: context.time.now,
        read_only: may_not_write || script.no_writes(),
        slot: if in_cluster { context.client().slot } else { None },
        wrote: false,
        killed: false,
        function,
        counted_error: None,
    })
}

/// The reason not to run a script, if there is one.
#[cold]
fn refusal(script: Script, may_not_write: bool, in_cluster: bool) -> Option<Error> {
    if may_not_write && script.has_shebang() && !script.no_writes() {
        return Some(Error::line(
            "ERR Can not execute a script with write flag using *_ro command.",
        ));
    }
    if in_cluster && script.no_cluster() {
        return Some(Error::line("ERR Can not run script on cluster, 'no-cluster' flag is set."));
    }
    None
}

/// The number of keys, which must be given. Few scripts have more than nine.
fn key_count(argv: &[&[u8]]) -> Result<usize, Error> {
    let count = match argv[2] {
        [digit @ b'0'..=b'9'] => i64::from(digit - b'0'),
        other => integer(other)?,
    };
    checked_key_count(count, argv)
}

/// The number of keys, if there are enough arguments.
pub fn checked_key_count(count: i64, argv: &[&[u8]]) -> Result<usize, Error> {
    match usize::try_from(count) {
        Err(_) => Err(Error::line("ERR Number of keys can't be negative")),
        Ok(count) if count > argv.len() - 3 => {
            Err(Error::line("ERR Number of keys can't be greater than number of args"))
        }
        Ok(count) => Ok(count),
    }
}

/// `SCRIPT LOAD`: replies with the SHA-1 of the script.
fn script_load(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let sha = context.scripts()?.load(argv[2]).map_err(Error::refused)?;
    Ok(Reply::bulk(sha.as_bytes()))
}

/// `SCRIPT EXISTS`: replies with 1 or 0 for each digest.
fn script_exists(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let known = |sha: &&[u8]| Reply::from(context.find_script(sha).is_some());
    Ok(Reply::Array(argv[2..].iter().map(known).collect()))
}

/// `SCRIPT FLUSH`: empties the cache and replies with OK.
fn script_flush(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    match argv {
        [_, _] => {}
        [_, _, how] if is(how, "async") || is(how, "sync") => {}
        _ => return Err(Error::line("ERR SCRIPT FLUSH only support SYNC|ASYNC option")),
    }
    context.flush_scripts();
    Ok(Reply::OK)
}

/// `SCRIPT KILL`: ends the running script and replies with OK.
fn script_kill(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    context.kill_script(false).map(|()| Reply::OK)
}

#[cfg(test)]
mod tests {
    use crate::limits::EVAL_SCRIPTS_MAX;
    use crate::testing::{Stage, check};

    #[test]
    fn scripts_of_eval_are_evicted_and_loaded_scripts_are_kept() {
        let mut stage = Stage::new(crate::settings::Settings::default());
        stage.check("SCRIPT LOAD \"return 'kept'\"; EVAL \"return 'used'\" 0");
        for other in 0..EVAL_SCRIPTS_MAX {
            stage.check(&format!("EVAL \"return {other}\" 0 => {other}"));
        }
        stage.check(
            "SCRIPT EXISTS a3f24c150305f97cfc8b67d23509884eee5aeecc => [0]; \
             SCRIPT EXISTS e611e2060b67d30b5a400593ff31fdae9242be30 => [1]; \
             EVALSHA 831718c21eb8cace8e6f31e7782a9d8e38ed5600 0 => \"kept\"",
        );
    }

    #[test]
    fn error_is_counted_once_at_any_level() {
        let counted = |script: &str, reply: &str, errors: &str, stats: &str| {
            check(&format!(
                "SET s x; EVAL \"{script}\" 0 => {reply}; \
                 INFO errorstats => \"# Errorstats\\r\\n{errors}\"; INFO commandstats => {stats}"
            ));
        };
        let wrong = "redis.call('hget', 's', 'f')";
        let (type_error, error) =
            ("errorstat_WRONGTYPE:count=1\\r\\n", "errorstat_ERR:count=1\\r\\n");
        let failed = "...cmdstat_eval:calls=1,...failed_calls=1...";
        let fine =
            "...cmdstat_eval:calls=1,usec=0,usec_per_call=0.00,rejected_calls=0,failed_calls=0...";
        for (script, reply, errors, stats) in [
            (&*format!("return {wrong}"), "!WRONGTYPE ...", type_error, failed),
            ("return redis.pcall('hget', 's', 'f')", "!WRONGTYPE ...", type_error, failed),
            ("return {redis.pcall('hget', 's', 'f')}", "[!WRONGTYPE ...]", type_error, failed),
            ("redis.pcall('hget', 's', 'f')", "nil", type_error, fine),
            ("return 1", "1", "", fine),
            (
                "return redis.error_reply('MINE all')",
                "!MINE all",
                "errorstat_MINE:count=1\\r\\n",
                failed,
            ),
            ("return {err = 'word'}", "!word", error, failed),
            ("error('x')", "!ERR ...", error, failed),
            ("x x", "!ERR Error compiling script ...", error, failed),
            ("redis.call('get')", "!ERR Wrong number of args ...", error, failed),
        ] {
            counted(script, reply, errors, stats);
        }
        check(
            "EVAL \"redis.call('multi')\" 0 => !ERR ...; INFO commandstats => \
               ...cmdstat_multi:calls=0,usec=0,usec_per_call=0.00,rejected_calls=1,...",
        );
    }
}
