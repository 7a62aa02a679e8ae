//! Faults of scripts.

use std::time::Duration;

use lockwheel_engine::commands::scripts::interpreter;
use lockwheel_resp::{Protocol, Reply};
use lockwheel_scripting::{Host, Interrupt, LogLevel, Sha};

use super::{Answer, FaultyEngine, Request, SeededFault};

/// How long other clients are served between two calls of a script.
const PAUSE: Duration = Duration::from_millis(1);
/// How long a message is sent before the deletion it reports.
const LEAD: Duration = Duration::from_millis(20);
/// The number of interrupt checks after which a script outside of the engine is killed.
const INTERRUPT_CHECKS_MAX: u32 = 10_000;

pub(super) const FAULTS: &[SeededFault] = &[
    SeededFault {
        name: "eval-lets-others-in",
        description: "between the calls of a script other clients are served",
        found_by: &[
            "A read and a write in a script are atomic",
            "Scripts and transactions do not interleave",
            "Compare-and-delete in a script never deletes another client's lock",
        ],
        also: &["Elements pushed in a script are delivered after the script"],
        promises: &["G1"],
        run: Some(|server, request| call_by_call(server, request, |_| true, Between::Others)),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "compare-then-delete",
        description: "a script that compares and deletes lets other clients run in between",
        found_by: &[
            "A lock of SET NX PX is never held by two clients",
            "Compare-and-delete in a script never deletes another client's lock",
        ],
        promises: &["G1"],
        run: Some(|server, request| {
            call_by_call(server, request, is_compare_and_delete, Between::Others)
        }),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "publish-before-del",
        description: "the message of an unlock script is sent before the lock is deleted",
        found_by: &[
            "The lock is free when the message of an unlock arrives",
            "A script's unlock message arrives after the lock is free",
        ],
        run: Some(|server, request| call_by_call(server, request, publishes, Between::Message)),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "nil-is-nil",
        description: "a call with a null reply gives a script nil instead of false",
        found_by: &["A null reply becomes false in Lua", "A null array becomes false in Lua"],
        run: Some(|server, request| {
            let lua = "local redis = setmetatable({call = function(...) local got = \
                       redis.call(...) if got == false then return nil end return got end}, \
                       {__index = redis}) ";
            with_prologue(server, request, lua, "")
        }),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "numbers-are-rounded",
        description: "a number that a script returns is rounded, not truncated",
        found_by: &["A Lua number is truncated to an integer"],
        run: Some(|server, request| {
            let lua = "local function result(...) ";
            let end = "\nend local got = result() if type(got) == 'number' then \
                       got = math.floor(got + 0.5) end return got";
            with_prologue(server, request, lua, end)
        }),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "errors-are-swallowed",
        description: "redis.call gives a script an error as a value, as redis.pcall does",
        found_by: &["redis.call raises the command's error", "A WRONGTYPE error stops the script"],
        run: Some(|server, request| {
            let lua = "local redis = setmetatable({call = redis.pcall}, {__index = redis}) ";
            with_prologue(server, request, lua, "")
        }),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "errors-roll-back",
        description: "the writes of a script are undone when it fails",
        found_by: &["Effects of a script before its error are kept"],
        run: Some(errors_roll_back),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "errors-are-nil",
        description: "a script that fails replies nil",
        found_by: &[
            "redis.call raises the command's error",
            "error() ends a script with its message",
        ],
        run: Some(errors_are_nil),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "noscript-in-other-words",
        description: "the error for an unknown digest does not begin with NOSCRIPT",
        found_by: &["EVALSHA of an unknown digest returns NOSCRIPT with Redis's text"],
        run: Some(noscript_in_other_words),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "scripts-are-flushed",
        description: "every second EVALSHA finds the script cache empty",
        found_by: &["The script is loaded once and called by its digest"],
        run: Some(scripts_are_flushed),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "eval-is-not-cached",
        description: "a script that came with EVAL is not known by its digest",
        found_by: &["A script sent with EVAL can be called by its digest"],
        run: Some(eval_is_not_cached),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "nil-is-an-empty-string",
        description: "a script that returns nil replies an empty string",
        found_by: &["An empty script returns null"],
        run: Some(nil_is_an_empty_string),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "script-exists-denies",
        description: "SCRIPT EXISTS replies that no script is loaded",
        found_by: &["SCRIPT EXISTS returns for each digest whether it is loaded"],
        run: Some(script_exists_denies),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "status-replies-are-strings",
        description: "a status reply of a script is sent as a string",
        found_by: &["redis.status_reply creates a status"],
        run: Some(status_replies_are_strings),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "digests-in-small-letters",
        description: "EVALSHA finds no script if its digest is in upper case",
        found_by: &["A digest may be written in upper case"],
        run: Some(digests_in_small_letters),
        ..SeededFault::NONE
    },
];

/// The script that a request runs.
fn body(server: &mut FaultyEngine, request: &Request) -> Option<Vec<u8>> {
    let text = request.argv.get(1)?;
    let loads = request.is("script") && request.word(1) == "load";
    if let Some(text) = request.argv.get(2).filter(|_| loads) {
        server.scripts.insert(Sha::of(text).as_bytes().to_vec(), text.clone());
        return None;
    }
    if request.is("eval") {
        server.scripts.insert(Sha::of(text).as_bytes().to_vec(), text.clone());
        return Some(text.clone());
    }
    let digest = text.to_ascii_lowercase();
    let text = server.scripts.get(&digest).filter(|_| request.is("evalsha")).cloned()?;
    let found = server.run_separately(request, &[b"SCRIPT", b"EXISTS", &digest]);
    (found == Reply::Array(vec![Reply::Integer(1)])).then_some(text)
}

/// Runs scripts with text before and after their own, and replies as if it were not there.
fn with_prologue(
    server: &mut FaultyEngine,
    request: &Request,
    before: &str,
    behind: &str,
) -> Answer {
    let Some(body) = body(server, request).filter(|body| !body.starts_with(b"#!")) else {
        return server.run(request);
    };
    if request.is("eval") {
        // The script is cached under its own digest, and its syntax errors are reported.
        let loaded = server.run_separately(request, &[b"SCRIPT", b"LOAD", &body[..]]);
        if loaded.is_error() {
            return server.run(request);
        }
    }
    let mut argv = request.argv.clone();
    argv[0] = b"EVAL".to_vec();
    argv[1] = [before.as_bytes(), &body, behind.as_bytes()].concat();
    let mut answer = server.run_as(request, &argv);
    if let Reply::Error(line) = answer.reply() {
        let line = String::from_utf8_lossy(&line);
        let line = line.replace(Sha::of(&argv[1]).as_str(), Sha::of(&body).as_str());
        answer.bytes = server.answer(request, &Reply::error(line)).bytes;
    }
    answer
}

fn has(body: &[u8], word: &str) -> bool {
    String::from_utf8_lossy(body).to_lowercase().contains(word)
}

fn is_compare_and_delete(body: &[u8]) -> bool {
    has(body, "'get'") && has(body, "'del'") && !has(body, "publish")
        || has(body, "\"get\"") && has(body, "\"del\"") && !has(body, "publish")
}

fn publishes(body: &[u8]) -> bool {
    has(body, "publish") && has(body, "del")
}

/// The fault between the calls of a script.
#[derive(Clone, Copy, PartialEq)]
enum Between {
    /// Other clients are served.
    Others,
    /// A deletion is postponed until a message was sent and other clients were served.
    Message,
}

/// Runs some scripts outside of the engine, with their calls as single commands.
fn call_by_call(
    server: &mut FaultyEngine,
    request: &Request,
    concerns: fn(&[u8]) -> bool,
    between: Between,
) -> Answer {
    let plain = |body: &Vec<u8>| !has(body, "setresp") && !body.starts_with(b"#!");
    let body = body(server, request).filter(|body| concerns(body) && plain(body));
    let count = request.word(2).parse().ok();
    let count = count.filter(|&count: &usize| count + 3 <= request.argv.len());
    let (Some(body), Some(count)) = (body, count) else { return server.run(request) };
    let version = server.engine.settings().compat_version;
    let mut lua = server
        .interpreters
        .pop()
        .unwrap_or_else(|| interpreter(lockwheel_scripting::MathRandom::new(4), version));
    let reply = match lua.load_evaluated(&body) {
        Ok(sha) => {
            // The script is cached under its digest.
            server.run_separately(request, &[b"SCRIPT", b"LOAD", &body[..]]);
            let words: Vec<&[u8]> = request.argv.iter().map(Vec::as_slice).collect();
            let (keys, args) = words[3..].split_at(count);
            let mut calls = Calls { server, request, between, put_off: None, interrupt_checks: 0 };
            let reply = lua.run(sha.as_bytes(), keys, args, &mut calls);
            calls.catch_up();
            reply
        }
        Err(refusal) => refusal,
    };
    server.interpreters.push(lua);
    server.answer(request, &reply)
}

/// The host of such a script.
struct Calls<'a> {
    server: &'a mut FaultyEngine,
    request: &'a Request,
    between: Between,
    put_off: Option<Vec<Vec<u8>>>,
    interrupt_checks: u32,
}

impl Calls<'_> {
    /// Runs a script with this one call, so that commands not allowed in scripts are refused.
    fn call_alone(&mut self, argv: &[&[u8]]) -> Reply {
        let script = [&b"EVAL"[..], b"return redis.pcall(unpack(ARGV))", b"0"];
        self.server.run_separately(self.request, &[&script, argv].concat())
    }

    fn catch_up(&mut self) {
        if let Some(argv) = self.put_off.take() {
            self.server.serve_for(LEAD);
            let argv: Vec<&[u8]> = argv.iter().map(Vec::as_slice).collect();
            self.server.run_separately(self.request, &argv);
        }
    }
}

impl Host for Calls<'_> {
    fn call(&mut self, argv: &[&[u8]]) -> Reply {
        let call = self.request.with(argv);
        if self.between == Between::Others {
            let reply = self.call_alone(argv);
            self.server.serve_for(PAUSE);
            return reply;
        }
        if call.is("del") && argv.len() == 2 {
            self.put_off = Some(call.argv);
            return Reply::Integer(self.server.number(self.request, &[b"EXISTS", argv[1]]));
        }
        if !call.is("publish") {
            self.catch_up();
        }
        self.call_alone(argv)
    }

    fn set_protocol(&mut self, _: Protocol) {}

    fn log(&mut self, _: LogLevel, _: &[u8]) {}

    fn interrupt(&mut self) -> Interrupt {
        self.interrupt_checks += 1;
        match self.interrupt_checks < INTERRUPT_CHECKS_MAX {
            true => Interrupt::Continue,
            false => Interrupt::Kill,
        }
    }
}

fn errors_roll_back(server: &mut FaultyEngine, request: &Request) -> Answer {
    if !request.is_any(&["eval", "evalsha"]) {
        return server.run(request);
    }
    let count = request.word(2).parse::<usize>().unwrap_or(0);
    let mut kept = Vec::new();
    for key in request.argv.iter().skip(3).take(count) {
        let left = server.number(request, &[b"PTTL", key]).max(0);
        kept.push((key, server.run_separately(request, &[b"DUMP", key]), left));
    }
    let answer = server.run(request);
    if answer.reply().is_error() {
        for (key, dump, left) in kept {
            let left = left.to_string().into_bytes();
            match dump {
                Reply::Bulk(dump) => {
                    server.run_separately(request, &[b"RESTORE", key, &left, &dump, b"REPLACE"])
                }
                _ => server.run_separately(request, &[b"DEL", key]),
            };
        }
    }
    answer
}

fn errors_are_nil(server: &mut FaultyEngine, request: &Request) -> Answer {
    let answer = server.run(request);
    match answer.reply() {
        Reply::Error(line) if request.is("eval") && has(&line, "script:") => {
            server.answer(request, &Reply::Null)
        }
        _ => answer,
    }
}

fn noscript_in_other_words(server: &mut FaultyEngine, request: &Request) -> Answer {
    let answer = server.run(request);
    match answer.reply() {
        Reply::Error(line) if line.starts_with(b"NOSCRIPT") => {
            server.answer(request, &Reply::error("ERR unknown script"))
        }
        _ => answer,
    }
}

fn scripts_are_flushed(server: &mut FaultyEngine, request: &Request) -> Answer {
    if request.is("evalsha") && server.once_in(2) {
        server.run_separately(request, &[b"SCRIPT", b"FLUSH"]);
    }
    server.run(request)
}

fn eval_is_not_cached(server: &mut FaultyEngine, request: &Request) -> Answer {
    let loaded: Vec<_> = match request.is("script") && request.word(1) == "load" {
        true => request.argv.get(2).into_iter().cloned().collect(),
        false => Vec::new(),
    };
    for text in loaded {
        server.scripts.insert(Sha::of(&text).as_bytes().to_vec(), text);
    }
    let digest = request.word(1).into_bytes();
    if request.is("evalsha") && !server.scripts.contains_key(&digest) {
        let error = "NOSCRIPT No matching script. Please use EVAL.";
        return server.answer(request, &Reply::error(error));
    }
    server.run(request)
}

fn runs_a_script(request: &Request) -> bool {
    request.is_any(&["eval", "evalsha"])
}

fn nil_is_an_empty_string(server: &mut FaultyEngine, request: &Request) -> Answer {
    let answer = server.run(request);
    match answer.reply() {
        Reply::Null if runs_a_script(request) => server.answer(request, &Reply::bulk("")),
        _ => answer,
    }
}

fn script_exists_denies(server: &mut FaultyEngine, request: &Request) -> Answer {
    let answer = server.run(request);
    match answer.reply() {
        Reply::Array(found) if request.is("script") && request.word(1) == "exists" => {
            server.answer(request, &Reply::Array(vec![Reply::Integer(0); found.len()]))
        }
        _ => answer,
    }
}

fn status_replies_are_strings(server: &mut FaultyEngine, request: &Request) -> Answer {
    let answer = server.run(request);
    match answer.reply() {
        Reply::Simple(text) if runs_a_script(request) => server.answer(request, &Reply::Bulk(text)),
        _ => answer,
    }
}

fn digests_in_small_letters(server: &mut FaultyEngine, request: &Request) -> Answer {
    let is_large = request.key().iter().any(u8::is_ascii_uppercase);
    if request.is("evalsha") && is_large {
        let error = "NOSCRIPT No matching script. Please use EVAL.";
        return server.answer(request, &Reply::error(error));
    }
    server.run(request)
}
