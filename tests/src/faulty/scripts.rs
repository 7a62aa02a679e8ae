//! Faults of scripts.

use std::time::Duration;

use lockwheel_engine::commands::scripts::interpreter;
use lockwheel_resp::{Protocol, Reply};
use lockwheel_scripting::{Host, Interrupt, LogLevel, Sha};

use super::{Answer, Fault, Request, World};

/// For how long the others are let in between two calls of a script.
const PAUSE: Duration = Duration::from_millis(1);
/// For how long a message is ahead of what it tells of.
const LEAD: Duration = Duration::from_millis(20);
/// How often a script outside of the engine may be asked whether it should go on.
const QUESTIONS_MAX: u32 = 10_000;

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "eval-lets-others-in",
        what: "between the calls of a script others are served",
        found_by: &[
            "A script's read and its write are one step",
            "Scripts and transactions do not get between each other",
            "Compare-and-delete in a script never deletes a stranger's lock",
        ],
        run: Some(|world, request| call_by_call(world, request, |_| true, Between::Others)),
        ..Fault::NONE
    },
    Fault {
        name: "compare-then-delete",
        what: "a script that compares and deletes lets others in between the two",
        found_by: &[
            "A lock of SET NX PX is never held twice",
            "Compare-and-delete in a script never deletes a stranger's lock",
        ],
        run: Some(|world, request| {
            call_by_call(world, request, is_compare_and_delete, Between::Others)
        }),
        ..Fault::NONE
    },
    Fault {
        name: "publish-before-del",
        what: "the message of an unlock script is sent before the lock is deleted",
        found_by: &[
            "When the message of an unlock arrives the lock is free",
            "An unlock message of a script is not received before the lock is free",
        ],
        run: Some(|world, request| call_by_call(world, request, publishes, Between::Message)),
        ..Fault::NONE
    },
    Fault {
        name: "nil-is-nil",
        what: "a call that finds nothing gives a script nil in the place of false",
        found_by: &["A missing key is false to a script", "A missing array is false to a script"],
        run: Some(|world, request| {
            let lua = "local redis = setmetatable({call = function(...) local got = \
                       redis.call(...) if got == false then return nil end return got end}, \
                       {__index = redis}) ";
            with_prologue(world, request, lua, "")
        }),
        ..Fault::NONE
    },
    Fault {
        name: "numbers-are-rounded",
        what: "a script's number is rounded, not cut, to the integer that is answered",
        found_by: &["A number loses what is behind the point"],
        run: Some(|world, request| {
            let lua = "local function result(...) ";
            let end = "\nend local got = result() if type(got) == 'number' then \
                       got = math.floor(got + 0.5) end return got";
            with_prologue(world, request, lua, end)
        }),
        ..Fault::NONE
    },
    Fault {
        name: "errors-are-swallowed",
        what: "redis.call gives a script an error as a value, as redis.pcall does",
        found_by: &[
            "redis.call raises what the command answers",
            "A wrong type within a script stops it there",
        ],
        run: Some(|world, request| {
            let lua = "local redis = setmetatable({call = redis.pcall}, {__index = redis}) ";
            with_prologue(world, request, lua, "")
        }),
        ..Fault::NONE
    },
    Fault {
        name: "errors-roll-back",
        what: "what a script has written is undone when it fails",
        found_by: &["What a script did before it failed stays done"],
        run: Some(errors_roll_back),
        ..Fault::NONE
    },
    Fault {
        name: "errors-are-nil",
        what: "a script that fails answers nil",
        found_by: &[
            "redis.call raises what the command answers",
            "error() ends a script with its text",
        ],
        run: Some(errors_are_nil),
        ..Fault::NONE
    },
    Fault {
        name: "noscript-in-other-words",
        what: "the error for an unknown digest does not begin with NOSCRIPT",
        found_by: &["An unknown digest is answered by NOSCRIPT, in these words"],
        run: Some(noscript_in_other_words),
        ..Fault::NONE
    },
    Fault {
        name: "scripts-are-forgotten",
        what: "every second time that a script is called by its digest it has been forgotten",
        found_by: &["The script is loaded once and called by its digest"],
        run: Some(scripts_are_forgotten),
        ..Fault::NONE
    },
    Fault {
        name: "eval-is-not-cached",
        what: "a script that came with EVAL is not known by its digest",
        found_by: &["A script that came with EVAL is known by its digest"],
        run: Some(eval_is_not_cached),
        ..Fault::NONE
    },
];

/// The script a request is about to run.
fn body(world: &mut World, request: &Request) -> Option<Vec<u8>> {
    let text = request.argv.get(1)?;
    let loads = request.is("script") && request.word(1) == "load";
    if let Some(text) = request.argv.get(2).filter(|_| loads) {
        world.scripts.insert(Sha::of(text).as_bytes().to_vec(), text.clone());
        return None;
    }
    if request.is("eval") {
        world.scripts.insert(Sha::of(text).as_bytes().to_vec(), text.clone());
        return Some(text.clone());
    }
    let known = world.engine.interpreter.as_ref().is_some_and(|lua| lua.find(text).is_some());
    let digest = text.to_ascii_lowercase();
    world.scripts.get(&digest).filter(|_| known && request.is("evalsha")).cloned()
}

/// Runs scripts with something before and behind their text, and answers as if it were not there.
fn with_prologue(world: &mut World, request: &Request, before: &str, behind: &str) -> Answer {
    let Some(body) = body(world, request).filter(|body| !body.starts_with(b"#!")) else {
        return world.run(request);
    };
    if request.is("eval") {
        // It is known by its own digest, and what is wrong with it is said.
        let loaded = world.aside(request, &[b"SCRIPT", b"LOAD", &body[..]]);
        if loaded.is_error() {
            return world.run(request);
        }
    }
    let mut argv = request.argv.clone();
    argv[0] = b"EVAL".to_vec();
    argv[1] = [before.as_bytes(), &body, behind.as_bytes()].concat();
    let mut answer = world.run_as(request, &argv);
    if let Reply::Error(line) = answer.reply() {
        let line = String::from_utf8_lossy(&line);
        let line = line.replace(Sha::of(&argv[1]).as_str(), Sha::of(&body).as_str());
        answer.bytes = world.answer(request, &Reply::error(line)).bytes;
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

/// What happens between the calls of a script.
#[derive(Clone, Copy, PartialEq)]
enum Between {
    /// Others are served.
    Others,
    /// A deletion is put off until a message has been sent and others have been served.
    Message,
}

/// Runs some scripts outside of the engine, their calls as commands of their own.
fn call_by_call(
    world: &mut World,
    request: &Request,
    concerns: fn(&[u8]) -> bool,
    between: Between,
) -> Answer {
    let plain = |body: &Vec<u8>| !has(body, "setresp") && !body.starts_with(b"#!");
    let body = body(world, request).filter(|body| concerns(body) && plain(body));
    let count = request.word(2).parse().ok();
    let count = count.filter(|&count: &usize| count + 3 <= request.argv.len());
    let (Some(body), Some(count)) = (body, count) else { return world.run(request) };
    let version = world.engine.settings.compat_version;
    let mut lua = world.interpreters.pop().unwrap_or_else(|| interpreter(4, version));
    let reply = match lua.load_evaluated(&body) {
        Ok(sha) => {
            // It is known by its digest from now on, here as well.
            world.aside(request, &[b"SCRIPT", b"LOAD", &body[..]]);
            let words: Vec<&[u8]> = request.argv.iter().map(Vec::as_slice).collect();
            let (keys, args) = words[3..].split_at(count);
            let mut calls = Calls { world, request, between, put_off: None, questions: 0 };
            let reply = lua.run(sha.as_bytes(), keys, args, &mut calls);
            calls.catch_up();
            reply
        }
        Err(refusal) => refusal,
    };
    world.interpreters.push(lua);
    world.answer(request, &reply)
}

/// The world as such a script sees it.
struct Calls<'a> {
    world: &'a mut World,
    request: &'a Request,
    between: Between,
    put_off: Option<Vec<Vec<u8>>>,
    questions: u32,
}

impl Calls<'_> {
    /// A script of this one call: what a script may not do is refused.
    fn call_alone(&mut self, argv: &[&[u8]]) -> Reply {
        let script = [&b"EVAL"[..], b"return redis.pcall(unpack(ARGV))", b"0"];
        self.world.aside(self.request, &[&script, argv].concat())
    }

    fn catch_up(&mut self) {
        if let Some(argv) = self.put_off.take() {
            self.world.live_for(LEAD);
            let argv: Vec<&[u8]> = argv.iter().map(Vec::as_slice).collect();
            self.world.aside(self.request, &argv);
        }
    }
}

impl Host for Calls<'_> {
    fn call(&mut self, argv: &[&[u8]]) -> Reply {
        let call = self.request.with(argv);
        if self.between == Between::Others {
            let reply = self.call_alone(argv);
            self.world.live_for(PAUSE);
            return reply;
        }
        if call.is("del") && argv.len() == 2 {
            self.put_off = Some(call.argv);
            return Reply::Integer(self.world.number(self.request, &[b"EXISTS", argv[1]]));
        }
        if !call.is("publish") {
            self.catch_up();
        }
        self.call_alone(argv)
    }

    fn set_protocol(&mut self, _: Protocol) {}

    fn log(&mut self, _: LogLevel, _: &[u8]) {}

    fn interrupt(&mut self) -> Interrupt {
        self.questions += 1;
        match self.questions < QUESTIONS_MAX {
            true => Interrupt::Continue,
            false => Interrupt::Kill,
        }
    }
}

fn errors_roll_back(world: &mut World, request: &Request) -> Answer {
    if !request.is_any(&["eval", "evalsha"]) {
        return world.run(request);
    }
    let count = request.word(2).parse::<usize>().unwrap_or(0);
    let mut kept = Vec::new();
    for key in request.argv.iter().skip(3).take(count) {
        let left = world.number(request, &[b"PTTL", key]).max(0);
        kept.push((key, world.aside(request, &[b"DUMP", key]), left));
    }
    let answer = world.run(request);
    if answer.reply().is_error() {
        for (key, dump, left) in kept {
            let left = left.to_string().into_bytes();
            match dump {
                Reply::Bulk(dump) => {
                    world.aside(request, &[b"RESTORE", key, &left, &dump, b"REPLACE"])
                }
                _ => world.aside(request, &[b"DEL", key]),
            };
        }
    }
    answer
}

fn errors_are_nil(world: &mut World, request: &Request) -> Answer {
    let answer = world.run(request);
    match answer.reply() {
        Reply::Error(line) if request.is("eval") && has(&line, "script:") => {
            world.answer(request, &Reply::Null)
        }
        _ => answer,
    }
}

fn noscript_in_other_words(world: &mut World, request: &Request) -> Answer {
    let answer = world.run(request);
    match answer.reply() {
        Reply::Error(line) if line.starts_with(b"NOSCRIPT") => {
            world.answer(request, &Reply::error("ERR unknown script"))
        }
        _ => answer,
    }
}

fn scripts_are_forgotten(world: &mut World, request: &Request) -> Answer {
    if request.is("evalsha") && world.once_in(2) {
        world.aside(request, &[b"SCRIPT", b"FLUSH"]);
    }
    world.run(request)
}

fn eval_is_not_cached(world: &mut World, request: &Request) -> Answer {
    let loaded: Vec<_> = match request.is("script") && request.word(1) == "load" {
        true => request.argv.get(2).into_iter().cloned().collect(),
        false => Vec::new(),
    };
    for text in loaded {
        world.scripts.insert(Sha::of(&text).as_bytes().to_vec(), text);
    }
    let digest = request.word(1).into_bytes();
    if request.is("evalsha") && !world.scripts.contains_key(&digest) {
        let told = "NOSCRIPT No matching script. Please use EVAL.";
        return world.answer(request, &Reply::error(told));
    }
    world.run(request)
}
