//! Faults of `MULTI`, `EXEC` and `WATCH`.

use std::time::Duration;

use lockwheel_engine::sessions::{Session, Watched};
use lockwheel_resp::Reply;

use super::{Answer, FaultyEngine, Request, SeededFault};

/// How long other clients are served.
const PAUSE: Duration = Duration::from_millis(1);

pub(super) const FAULTS: &[SeededFault] = &[
    SeededFault {
        name: "exec-lets-others-in",
        description: "between the commands of a transaction other clients are served",
        found_by: &[
            "The commands of a transaction are atomic",
            "Scripts and transactions do not interleave",
            "A transaction runs at one point in time",
        ],
        also: &["Elements pushed in a transaction are delivered after EXEC"],
        promises: &["G1"],
        run: Some(exec_lets_others_in),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "watch-checked-at-multi",
        description: "MULTI, not EXEC, checks whether a watched key has changed",
        found_by: &[
            "A change between MULTI and EXEC aborts as well",
            "EXEC detects every change since WATCH, even after MULTI",
        ],
        promises: &["G3"],
        run: Some(watch_checked_at_multi),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "watch-misses-the-end",
        description: "WATCH does not notice that the key was deleted or has expired",
        found_by: &["Deletion is a change", "Expiry is a change"],
        promises: &["G3"],
        run: Some(watch_misses_the_end),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "watch-misses-own-changes",
        description: "WATCH does not notice changes of the client itself before MULTI",
        found_by: &["A client's own change before MULTI aborts as well"],
        promises: &["G3"],
        run: Some(watch_misses_own_changes),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "watch-compares-values",
        description: "WATCH does not notice a changed key that has its old value again",
        found_by: &[
            "Setting the same value again is a change",
            "Deletion and re-creation with the same value is a change",
        ],
        promises: &["G3"],
        run: Some(watch_compares_values),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "broken-exec-is-empty",
        description: "EXEC replies an empty array if a watched key has changed",
        found_by: &["An aborted EXEC differs from an empty EXEC"],
        run: Some(broken_exec_is_empty),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "exec-after-an-error",
        description: "EXEC runs the rest when a command could not be queued",
        found_by: &[
            "An unknown command aborts the transaction",
            "A wrong number of arguments aborts the transaction",
        ],
        run: Some(exec_after_an_error),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "exec-keeps-watching",
        description: "EXEC does not end the watches",
        found_by: &["EXEC ends all watches, with any result"],
        run: Some(exec_keeps_watching),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "nx-ignored-in-transactions",
        description: "SET in a transaction does not heed NX",
        found_by: &["SET NX in a transaction refuses an existing key"],
        run: Some(nx_ignored_in_transactions),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "exec-stops-at-an-error",
        description: "EXEC does not run the commands after one that fails",
        found_by: &["A runtime error does not stop or undo the other commands"],
        also: &["Elements pushed in a transaction are delivered after EXEC"],
        run: Some(exec_stops_at_an_error),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "discard-executes",
        description: "DISCARD runs the queued commands",
        found_by: &["DISCARD drops the queued commands"],
        run: Some(discard_executes),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "discard-keeps-watching",
        description: "DISCARD does not end the watches",
        found_by: &["DISCARD ends all watches"],
        run: Some(discard_keeps_watching),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "unwatch-does-nothing",
        description: "UNWATCH does not end the watches",
        found_by: &["UNWATCH ends all watches, even of changed keys"],
        run: Some(unwatch_does_nothing),
        ..SeededFault::NONE
    },
];

fn session<'a>(server: &'a FaultyEngine, request: &Request) -> Option<&'a Session> {
    server.engine.session(request.client)
}

/// The watched keys of the client, with their databases.
fn watched(server: &FaultyEngine, request: &Request) -> Vec<Watched> {
    session(server, request).map(|state| state.watched.clone()).unwrap_or_default()
}

/// The queued commands of the client, if none was refused.
fn queue(server: &FaultyEngine, request: &Request) -> Option<Vec<Vec<Box<[u8]>>>> {
    let queued = session(server, request)?.transaction.as_ref()?;
    let argvs = || queued.queue.iter().map(|queued| queued.argv.clone()).collect();
    (!queued.broken).then(argvs)
}

fn is_watch_broken(server: &FaultyEngine, request: &Request) -> bool {
    server.engine.is_watch_broken(request.client, server.now())
}

/// Watches keys as from now.
fn watch(server: &mut FaultyEngine, request: &Request, keys: Vec<Watched>) {
    let select = |server: &mut FaultyEngine, database: usize| {
        server.run_as(request, &[b"SELECT", database.to_string().as_bytes()]);
    };
    let database = session(server, request).map_or(0, |state| state.database);
    for watched in keys {
        select(server, watched.database);
        server.run_as(request, &[b"WATCH", &watched.key[..]]);
    }
    select(server, database);
}

/// Runs the queued commands in a new transaction without watched keys.
fn exec_without_watch(
    server: &mut FaultyEngine,
    request: &Request,
    queue: Vec<Vec<Box<[u8]>>>,
) -> Answer {
    server.run_as(request, &[b"DISCARD"]);
    server.run_as(request, &[b"MULTI"]);
    for argv in queue {
        server.run_as(request, &argv);
    }
    server.run(request)
}

fn exec_lets_others_in(server: &mut FaultyEngine, request: &Request) -> Answer {
    let ready = request.is("exec") && !is_watch_broken(server, request);
    let Some(queue) = ready.then(|| queue(server, request)).flatten() else {
        return server.run(request);
    };
    server.run_as(request, &[b"DISCARD"]);
    let mut replies = Vec::new();
    for argv in queue {
        replies.push(server.run_as(request, &argv).reply());
        server.serve_for(PAUSE);
    }
    server.answer(request, &Reply::Array(replies))
}

fn watch_checked_at_multi(server: &mut FaultyEngine, request: &Request) -> Answer {
    if request.is("multi") && !is_watch_broken(server, request) {
        server.run_as(request, &[b"UNWATCH"]);
    }
    server.run(request)
}

fn watch_misses_the_end(server: &mut FaultyEngine, request: &Request) -> Answer {
    if request.is("exec") && is_watch_broken(server, request) {
        let mut keys = watched(server, request).into_iter().map(|watched| watched.key);
        if keys.all(|key| server.number(request, &[b"EXISTS", &key]) == 0)
            && let Some(queue) = queue(server, request)
        {
            return exec_without_watch(server, request, queue);
        }
    }
    server.run(request)
}

fn watch_misses_own_changes(server: &mut FaultyEngine, request: &Request) -> Answer {
    let broken = is_watch_broken(server, request);
    let answer = server.run(request);
    if !broken && is_watch_broken(server, request) {
        let keys = watched(server, request);
        server.run_as(request, &[b"UNWATCH"]);
        watch(server, request, keys);
    }
    answer
}

/// The notes hold checksums of the watched values.
fn watch_compares_values(server: &mut FaultyEngine, request: &Request) -> Answer {
    let value = |server: &mut FaultyEngine, key: &[u8]| match server
        .run_separately(request, &[b"GET", key])
    {
        Reply::Bulk(value) => {
            value.iter().fold(7, |sum, &byte| sum * 31 % 1_000_003 + i64::from(byte))
        }
        _ => 0,
    };
    if request.is("watch") {
        for key in &request.argv[1..] {
            let now = value(server, key);
            server.notes.insert(key.clone(), now);
        }
    } else if request.is("exec")
        && let Some(queue) = queue(server, request)
    {
        let mut keys = watched(server, request).into_iter().map(|watched| watched.key);
        if keys.all(|key| server.notes.get(&key[..]).copied() == Some(value(server, &key))) {
            return exec_without_watch(server, request, queue);
        }
    }
    server.run(request)
}

fn broken_exec_is_empty(server: &mut FaultyEngine, request: &Request) -> Answer {
    let broken = request.is("exec") && is_watch_broken(server, request);
    let answer = server.run(request);
    match answer.reply() {
        Reply::Null | Reply::NullArray if broken => {
            server.answer(request, &Reply::Array(Vec::new()))
        }
        _ => answer,
    }
}

fn exec_after_an_error(server: &mut FaultyEngine, request: &Request) -> Answer {
    let queued = session(server, request).and_then(|state| state.transaction.as_ref());
    let queued = queued.filter(|queued| queued.broken && request.is("exec"));
    let queue = queued.map(|queued| queued.queue.iter().map(|one| one.argv.clone()).collect());
    match queue {
        Some(queue) if !is_watch_broken(server, request) => {
            exec_without_watch(server, request, queue)
        }
        _ => server.run(request),
    }
}

/// Keeps the keys watched after this command.
fn keep_watching(server: &mut FaultyEngine, request: &Request, command: &str) -> Answer {
    let keys = watched(server, request);
    let answer = server.run(request);
    if request.is(command) {
        watch(server, request, keys);
    }
    answer
}

fn exec_keeps_watching(server: &mut FaultyEngine, request: &Request) -> Answer {
    keep_watching(server, request, "exec")
}

fn nx_ignored_in_transactions(server: &mut FaultyEngine, request: &Request) -> Answer {
    let ready = request.is("exec") && !is_watch_broken(server, request);
    let Some(mut queue) = ready.then(|| queue(server, request)).flatten() else {
        return server.run(request);
    };
    for argv in &mut queue {
        if argv[0].eq_ignore_ascii_case(b"set") && argv.len() > 3 {
            let options = argv.split_off(3).into_iter();
            argv.extend(options.filter(|word| !word.eq_ignore_ascii_case(b"nx")));
        }
    }
    exec_without_watch(server, request, queue)
}

fn exec_stops_at_an_error(server: &mut FaultyEngine, request: &Request) -> Answer {
    let ready = request.is("exec") && !is_watch_broken(server, request);
    let Some(queue) = ready.then(|| queue(server, request)).flatten() else {
        return server.run(request);
    };
    server.run_as(request, &[b"DISCARD"]);
    let mut replies: Vec<Reply> = Vec::new();
    for argv in queue {
        if !replies.last().is_some_and(Reply::is_error) {
            replies.push(server.run_as(request, &argv).reply());
        }
    }
    server.answer(request, &Reply::Array(replies))
}

fn discard_executes(server: &mut FaultyEngine, request: &Request) -> Answer {
    let queued = request.is("discard") && queue(server, request).is_some();
    if queued {
        server.run_as(request, &[b"EXEC"]);
        return server.answer(request, &Reply::OK);
    }
    server.run(request)
}

fn discard_keeps_watching(server: &mut FaultyEngine, request: &Request) -> Answer {
    keep_watching(server, request, "discard")
}

fn unwatch_does_nothing(server: &mut FaultyEngine, request: &Request) -> Answer {
    match request.is("unwatch") && request.argv.len() == 1 {
        true => server.answer(request, &Reply::OK),
        false => server.run(request),
    }
}
