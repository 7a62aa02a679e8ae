//! `FCALL` and `FUNCTION`: libraries of Lua functions, which remain until they are removed.

use lockwheel_resp::Reply;
use lockwheel_scripting::{Function, Functions, Library, MathRandom, Policy};

use super::{help_row, map, number, scripts};
use crate::command::argument::{self as arg, Argument};
use crate::command::{
    Arity, Categories, Command, FindKeys, Flags, Group, KeySpec, ScriptArgument, integer, is,
};
use crate::commands::streams::groups::wrong_subcommand;
use crate::error::Error;
use crate::glob;
use crate::limits;
use crate::run::context::Context;
use crate::run::script::FunctionCall;
use crate::settings::CompatVersion;
use crate::store::serialised;

const SCRIPTING: Command = Command {
    group: Group::Scripting,
    categories: Categories::SCRIPTING,
    since: "7.0.0",
    ..Command::BASE
};

const CALL: Flags = Flags::NOSCRIPT
    .union(Flags::STALE)
    .union(Flags::SKIP_MONITOR)
    .union(Flags::NO_MANDATORY_KEYS)
    .union(Flags::MOVABLEKEYS);

/// The arguments of a call.
const CALL_ARGUMENTS: &[Argument] = &[
    arg::string("function"),
    arg::integer("numkeys"),
    arg::key("key").optional().multiple(),
    arg::string("arg").optional().multiple(),
];

/// The family's rows.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "fcall",
        script: Some(ScriptArgument::Function),
        arity: Arity::AtLeast(3),
        flags: CALL.union(Flags::MAY_REPLICATE),
        keys: &[KeySpec { flags: &["RW", "access", "update"], begin: 2, find: FindKeys::Count }],
        complexity: "that of the function",
        doc: "Calls a function.",
        arguments: CALL_ARGUMENTS,
        example: "FUNCTION LOAD \"#!lua name=l\nredis.register_function('f', function(keys, args) \
                  return args[1] end)\"; FCALL f 0 a => \"a\"",
        run: fcall,
        ..SCRIPTING
    },
    Command {
        name: "fcall_ro",
        script: Some(ScriptArgument::Function),
        arity: Arity::AtLeast(3),
        flags: CALL.union(Flags::READONLY),
        keys: &[KeySpec { flags: &["RO", "access"], begin: 2, find: FindKeys::Count }],
        complexity: "that of the function",
        doc: "Calls a function that does not write.",
        arguments: CALL_ARGUMENTS,
        example: "FCALL_RO f 0 => !ERR Function not found",
        run: fcall,
        ..SCRIPTING
    },
    Command {
        name: "function",
        arity: Arity::AtLeast(2),
        categories: Categories::empty(),
        complexity: "that of the subcommand",
        doc: "A container for commands about functions.",
        subcommands: FUNCTION,
        ..SCRIPTING
    },
];

const ON_ALL_SHARDS: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];

const FUNCTION: &[Command] = &[
    Command {
        name: "delete",
        arity: Arity::Exactly(3),
        flags: Flags::NOSCRIPT.union(Flags::WRITE),
        doc: "Removes a library with its functions.",
        tips: ON_ALL_SHARDS,
        arguments: &[arg::string("library-name")],
        example: "FUNCTION DELETE l => !ERR Library not found",
        run: delete,
        ..SCRIPTING
    },
    Command {
        name: "dump",
        arity: Arity::Exactly(2),
        flags: Flags::NOSCRIPT,
        complexity: "O(N) in the number of functions",
        doc: "Returns all libraries serialized, for FUNCTION RESTORE.",
        example: "FUNCTION DUMP => \"\\x0b\\x004D\\xe13\\xf2\\xe0KS\"",
        run: dump,
        ..SCRIPTING
    },
    Command {
        name: "flush",
        arity: Arity::AtLeast(2),
        flags: Flags::NOSCRIPT.union(Flags::WRITE),
        complexity: "O(N) in the number of functions",
        doc: "Removes all libraries.",
        tips: ON_ALL_SHARDS,
        arguments: &[arg::one_of("async", &[arg::word("ASYNC"), arg::word("SYNC")]).optional()],
        example: "FUNCTION FLUSH => OK",
        run: flush,
        ..SCRIPTING
    },
    help_row(SCRIPTING, SCRIPTING.since, "FUNCTION HELP => [FUNCTION <subcommand> ...]"),
    Command {
        name: "kill",
        arity: Arity::Exactly(2),
        flags: Flags::NOSCRIPT.union(Flags::ALLOW_BUSY),
        doc: "Ends the running function, unless it has written.",
        tips: &["request_policy:all_shards", "response_policy:one_succeeded"],
        example: "FUNCTION KILL => !NOTBUSY No scripts in execution right now.",
        run: |context, _| context.kill_script(true).map(|()| Reply::OK),
        ..SCRIPTING
    },
    Command {
        name: "list",
        arity: Arity::AtLeast(2),
        flags: Flags::NOSCRIPT,
        complexity: "O(N) in the number of functions",
        doc: "Describes the libraries and their functions.",
        tips: &["nondeterministic_output_order"],
        arguments: &[
            arg::string("library-name-pattern").token("LIBRARYNAME").optional(),
            arg::word("WITHCODE").optional(),
        ],
        example: "FUNCTION LIST => []",
        run: list,
        ..SCRIPTING
    },
    Command {
        name: "load",
        arity: Arity::AtLeast(3),
        flags: Flags::NOSCRIPT.union(Flags::WRITE).union(Flags::DENYOOM),
        doc: "Loads a library, which registers its functions; returns its name.",
        tips: ON_ALL_SHARDS,
        arguments: &[arg::word("REPLACE").optional(), arg::string("function-code")],
        example: "FUNCTION LOAD \"#!lua name=l\nredis.register_function('f', function() end)\" \
                  => \"l\"",
        run: load,
        ..SCRIPTING
    },
    Command {
        name: "restore",
        arity: Arity::AtLeast(3),
        flags: Flags::NOSCRIPT.union(Flags::WRITE).union(Flags::DENYOOM),
        complexity: "O(N) in the number of functions",
        doc: "Loads the libraries that FUNCTION DUMP has returned: by default beside those that \
              are there, or none if names collide.",
        tips: ON_ALL_SHARDS,
        arguments: &[
            arg::string("serialized-value"),
            arg::one_of("policy", &[arg::word("FLUSH"), arg::word("APPEND"), arg::word("REPLACE")])
                .optional(),
        ],
        example: "FUNCTION RESTORE x => !ERR DUMP payload version or checksum are wrong",
        run: restore,
        ..SCRIPTING
    },
    Command {
        name: "stats",
        arity: Arity::Exactly(2),
        flags: Flags::NOSCRIPT.union(Flags::ALLOW_BUSY),
        doc: "Returns which function is running, and how many there are.",
        tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
        example: "FUNCTION STATS => [\"running_script\", nil, \"engines\", [\"LUA\", \
                  [\"libraries_count\", 0, \"functions_count\", 0]]]",
        run: stats,
        ..SCRIPTING
    },
];

/// Creates an empty set of libraries.
pub fn functions(random: MathRandom, version: CompatVersion) -> Functions {
    Functions::new(limits::SCRIPTS, version.redis_version(), random)
}

// --- calls ---

/// `FCALL` and `FCALL_RO`: reply with the result of the function.
fn fcall(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    context.show_before_calls(argv);
    const NOT_FOUND: Error = Error::line("ERR Function not found");
    let functions = context.libraries()?;
    let function = functions.get(argv[1]).ok_or(NOT_FOUND)?;
    let counts = (functions.libraries().len(), functions.count());
    let argv_kept = argv.iter().map(|&argument| argument.into()).collect();
    let call = FunctionCall { name: function.name.clone(), argv: argv_kept, counts };
    let script = function.script;
    let count = integer(argv[2]).map_err(|_| Error::line("ERR Bad number of keys provided"))?;
    let count = scripts::checked_key_count(count, argv)?;
    let running = scripts::prepare(context, script, Some(Box::new(call)))?;
    let (keys, args) = argv[3..].split_at(count);
    Ok(context.run_function(running, argv[1], keys, args))
}

/// `FUNCTION STATS`: replies with the running function and the counts of libraries and functions.
fn stats(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    let engine = context.engine();
    let (running, counts) = match (&engine.script, engine.writer.libraries()) {
        (Some(script), None) => {
            let Some(call) = &script.function else { return Err(engine.busy_error()) };
            let duration_ms = context.time.now.0.saturating_sub(script.now.0);
            let running = map([
                ("name", Reply::bulk(&call.name)),
                ("command", Reply::Array(call.argv.iter().map(Reply::bulk).collect())),
                ("duration_ms", duration_ms.into()),
            ]);
            (running, call.counts)
        }
        (None, Some(functions)) => (Reply::Null, (functions.libraries().len(), functions.count())),
        _ => return Err(engine.busy_error()),
    };
    let counts = map([
        ("libraries_count", number(counts.0 as u64)),
        ("functions_count", number(counts.1 as u64)),
    ]);
    Ok(map([("running_script", running), ("engines", map([("LUA", counts)]))]))
}

// --- libraries ---

/// `FUNCTION LOAD`: replies with the name of the library.
fn load(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let (mut replace, mut code) = (false, argv[2]);
    for &argument in &argv[3..] {
        if !is(code, "replace") {
            let option = String::from_utf8_lossy(code);
            return Err(Error::text(format!("ERR Unknown option given: {option}")));
        }
        (replace, code) = (true, argument);
    }
    context.load_library(code, replace).map(Reply::bulk)
}

/// `FUNCTION RESTORE`: loads serialized libraries and replies with OK.
fn restore(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let policy = match argv[3..] {
        [] => Policy::Append,
        [policy] if is(policy, "append") => Policy::Append,
        [policy] if is(policy, "replace") => Policy::Replace,
        [policy] if is(policy, "flush") => Policy::Flush,
        [_] => {
            return Err(Error::line(
                "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
            ));
        }
        _ => return Err(wrong_subcommand("FUNCTION", argv[1])),
    };
    let body = serialised::unseal(argv[2])
        .ok_or(Error::line("ERR DUMP payload version or checksum are wrong"))?;
    let codes = serialised::read_libraries(body);
    let codes = codes.map_err(|text| Error::text(format!("ERR {text}")))?;
    context.restore_libraries(&codes, policy).map(|()| Reply::OK)
}

/// `FUNCTION DELETE`: removes a library and replies with OK.
fn delete(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    if context.delete_library(argv[2])? {
        Ok(Reply::OK)
    } else {
        Err(Error::line("ERR Library not found"))
    }
}

/// `FUNCTION FLUSH`: removes all libraries and replies with OK.
fn flush(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    match argv[2..] {
        [] => {}
        [how] if is(how, "sync") || is(how, "async") => {}
        [_] => return Err(Error::line("ERR FUNCTION FLUSH only supports SYNC|ASYNC option")),
        _ => return Err(wrong_subcommand("FUNCTION", argv[1])),
    }
    context.flush_libraries().map(|()| Reply::OK)
}

/// `FUNCTION DUMP`: replies with all libraries serialized.
fn dump(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    let libraries = context.libraries().into_iter().flat_map(|functions| functions.libraries());
    let payload = serialised::write_libraries(libraries.map(|library| &*library.code));
    Ok(Reply::Bulk(payload.into()))
}

/// `FUNCTION LIST`: replies with a description of each library.
fn list(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let (mut pattern, mut with_code) = (None, false);
    let mut rest = &argv[2..];
    while let [word, after @ ..] = rest {
        rest = match after {
            _ if !with_code && is(word, "withcode") => {
                with_code = true;
                after
            }
            [given, after @ ..] if pattern.is_none() && is(word, "libraryname") => {
                pattern = Some(*given);
                after
            }
            [] if pattern.is_none() && is(word, "libraryname") => {
                return Err(Error::line("ERR library name argument was not given"));
            }
            _ => {
                let word = String::from_utf8_lossy(word);
                return Err(Error::text(format!("ERR Unknown argument {word}")));
            }
        };
    }
    let libraries = context.libraries().into_iter().flat_map(|functions| functions.libraries());
    let wanted = libraries.filter(|library| {
        pattern.is_none_or(|p| glob::matches_ignoring_case(p, library.name.as_bytes()))
    });
    Ok(Reply::Array(wanted.map(|library| describe(library, with_code)).collect()))
}

fn describe(library: &Library, with_code: bool) -> Reply {
    let describe = |function: &Function| {
        let flags = function.script.flags().map(Reply::status);
        map([
            ("name", Reply::bulk(&function.name)),
            ("description", function.description.as_ref().map_or(Reply::Null, Reply::bulk)),
            ("flags", Reply::Set(flags.collect())),
        ])
    };
    let mut pairs = vec![
        (Reply::bulk("library_name"), Reply::bulk(&library.name)),
        (Reply::bulk("engine"), Reply::bulk("LUA")),
        (Reply::bulk("functions"), Reply::Array(library.functions.iter().map(describe).collect())),
    ];
    if with_code {
        pairs.push((Reply::bulk("library_code"), Reply::bulk(&library.code)));
    }
    Reply::Map(pairs)
}

#[cfg(test)]
mod tests {
    use crate::settings::Settings;
    use crate::testing::{Stage, check};

    const LIBRARY: &str = "FUNCTION LOAD \"#!lua name=l\n\
        redis.register_function('set', function(keys, args) \
            return redis.call('SET', keys[1], args[1]) end)\n\
        redis.register_function{function_name='get', flags={'no-writes'}, \
            callback=function(keys) return redis.call('GET', keys[1]) end}\n\
        redis.register_function{function_name='grow', flags={'allow-oom'}, \
            callback=function(keys) return redis.call('SET', keys[1], 'v') end}\n\
        redis.register_function{function_name='alone', flags={'no-cluster'}, \
            callback=function(keys) return 1 end}\n\
        redis.register_function('time', function() return redis.call('TIME')[1] end)\n\
        redis.register_function('wrong', function() return redis.call('HGET', 'k', 'f') end)\"";

    #[test]
    fn functions_declare_whether_they_may_use_more_memory() {
        let mut stage = Stage::new(Settings::default());
        stage.check(LIBRARY);
        stage.engine.settings.maxmemory_bytes = 1;
        stage.engine.update_conditions();
        let refused = "!OOM command not allowed when used memory > 'maxmemory'....";
        stage.check(&format!("FCALL set 1 k v => {refused}; FCALL time 0 => \"1700000000\""));
        stage.check("FCALL get 1 k => nil; FCALL_RO get 1 k => nil; FCALL grow 1 k => OK");
        stage.check(&format!("{LIBRARY} => {refused}; FUNCTION DELETE l => OK"));
    }

    #[test]
    fn text_of_libraries_counts_as_used_memory() {
        let mut stage = Stage::new(Settings::default());
        stage.client("a");
        let before = stage.engine.used_memory_bytes();
        stage.check(LIBRARY);
        assert!(stage.engine.used_memory_bytes() > before + 500);
        stage.check("FUNCTION FLUSH");
        assert_eq!(stage.engine.used_memory_bytes(), before);
    }

    #[test]
    fn functions_without_cluster_support_are_refused_in_clusters() {
        let mut settings = Settings::default();
        settings.cluster_enabled = true;
        let mut stage = Stage::new(settings);
        stage.check(LIBRARY);
        stage.check(
            "FCALL alone 0 => !ERR Can not run script on cluster, 'no-cluster' flag is set.; \
             FCALL set 1 k v => OK",
        );
    }

    #[test]
    fn error_is_counted_once() {
        check(&format!(
            "{LIBRARY}; SET k v; FCALL wrong 0 => !WRONGTYPE ...; \
             INFO errorstats => \"# Errorstats\\r\\nerrorstat_WRONGTYPE:count=1\\r\\n\"; \
             INFO commandstats => ...cmdstat_fcall:calls=1,...failed_calls=1..."
        ));
    }

    #[test]
    fn pause_of_writes_delays_functions_that_may_write() {
        check(&format!(
            "{LIBRARY}; CLIENT PAUSE 10 WRITE; FCALL get 1 k => nil; b> FCALL set 1 k v => ; \
             FCALL get 1 k => nil; c> FUNCTION FLUSH => ; FCALL get 1 k => nil"
        ));
    }

    #[test]
    fn functions_of_one_transaction_see_the_same_time() {
        check(&format!(
            "{LIBRARY}; MULTI; FCALL time 0; FCALL set 1 k v; EXEC => [\"1700000000\", OK]"
        ));
    }

    #[test]
    fn info_counts_functions() {
        check(&format!(
            "{LIBRARY}; INFO memory => ...number_of_functions:6\\r\\nnumber_of_libraries:1\\r..."
        ));
    }
}
